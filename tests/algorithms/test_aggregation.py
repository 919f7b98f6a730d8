"""Token losses to one number per member."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from algorithms.aggregation import Mode, token_weights
from tests.algorithms.tables import assert_close

LOSS = torch.tensor([[-1.2, -0.904837, -1.051271, -0.67032], [1.284025, 0.8, 7.0, 7.0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
MODES: list[Mode] = ["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant"]
EVERY_MODE = pytest.mark.parametrize("mode", MODES)


def weights(mode: Mode, mask: Tensor = MASK, members: list[int] | None = None, constant: float = 8.0) -> Tensor:
    member_R = torch.tensor(members or [0] * mask.shape[0])
    return token_weights(mode, mask, member_R, int(member_R.max()) + 1, constant).double()


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token_mean", -0.290401),
        ("sequence_mean_token_mean", 0.042703),
        ("sequence_mean_token_sum", -0.871202),
        ("constant", -0.1089),
    ],
)
def test_the_same_token_losses_in_every_mode(mode: Mode, expected: float) -> None:
    assert_close((LOSS * weights(mode)).sum(), expected)


@EVERY_MODE
def test_the_loss_is_the_sum_over_any_micro_batches(mode: Mode) -> None:
    weight = weights(mode)
    parts = sum(float((LOSS[r : r + 1] * weight[r : r + 1]).sum()) for r in range(2))
    assert parts == pytest.approx(float((LOSS * weight).sum()), abs=1e-12)


def test_a_mean_of_micro_batch_means_would_be_another_loss() -> None:
    means = [float((LOSS[r] * MASK[r]).sum() / MASK[r].sum()) for r in range(2)]
    assert sum(means) / 2 == pytest.approx(0.042703, abs=1e-5)
    assert float((LOSS * weights("token_mean")).sum()) == pytest.approx(-0.290401, abs=1e-5)


@EVERY_MODE
def test_row_order_and_padding_change_nothing(mode: Mode) -> None:
    order = torch.tensor([1, 0])
    assert torch.equal(weights(mode, MASK[order]), weights(mode)[order])
    padded = torch.nn.functional.pad(MASK, (2, 3))
    assert torch.equal(weights(mode, padded)[:, 2:6], weights(mode))


@EVERY_MODE
def test_rows_without_a_trained_token_count_nowhere(mode: Mode) -> None:
    mask = torch.cat([MASK, torch.zeros(3, 4, dtype=torch.bool)])
    assert torch.equal(weights(mode, mask)[:2], weights(mode))
    assert weights(mode, mask)[2:].abs().max() == 0


@EVERY_MODE
def test_every_member_has_its_own_denominators(mode: Mode) -> None:
    other = torch.tensor([[1, 1, 1, 0], [1, 0, 0, 0], [1, 1, 1, 1]]).bool()
    together = weights(mode, torch.cat([other[:1], MASK, other[1:]]), members=[1, 0, 0, 1, 1])
    assert torch.equal(together[1:3], weights(mode))
    assert torch.equal(together[[0, 3, 4]], weights(mode, other))


@EVERY_MODE
def test_a_batch_without_a_trained_token_has_loss_zero(mode: Mode) -> None:
    assert weights(mode, torch.zeros_like(MASK)).abs().max() == 0


def test_means_weigh_to_one_for_every_member() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool()
    for mode in ("token_mean", "sequence_mean_token_mean"):
        weight = weights(mode, mask, members=[0, 0, 1])
        assert_close(torch.stack([weight[:2].sum(), weight[2:].sum()]), [1.0, 1.0], 1e-6)


def test_the_constant_is_read_by_its_mode_alone() -> None:
    for mode in MODES:
        same = torch.equal(weights(mode, constant=8.0), weights(mode, constant=16.0))
        assert same == (mode != "constant")
