"""Token losses to one number per member."""

from __future__ import annotations

from typing import get_args

import pytest
import torch
from hypothesis import given
from torch import Tensor

from algorithms.aggregation import Mode, token_weights
from tests.algorithms.batches import BATCHES, Batch, batch, seeds
from tests.algorithms.tables import assert_close

LOSS = torch.tensor([[-1.2, -0.904837, -1.051271, -0.67032], [1.284025, 0.8, 7.0, 7.0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
TURN = torch.tensor([[0, 0, 1, 1], [2, 2, -1, -1]])
MODES: tuple[Mode, ...] = get_args(Mode)
EVERY_MODE = pytest.mark.parametrize("mode", MODES)


def weights(
    mode: Mode,
    mask: Tensor = MASK,
    members: list[int] | None = None,
    constant: float = 8.0,
    turn: Tensor | None = None,
    groups: list[int] | None = None,
) -> Tensor:
    """One member, two-token turns and a group for each row, unless given."""
    member_R = torch.tensor(members or [0] * mask.shape[0])
    if turn is None:
        turn = torch.where(mask, 100 * torch.arange(mask.shape[0]).unsqueeze(1) + torch.arange(mask.shape[1]) // 2, -1)
    group_R = torch.tensor(groups or list(range(mask.shape[0])))
    return token_weights(mode, mask, member_R, int(member_R.max()) + 1, constant, turn, group_R).double()


def of(drawn: Batch, mode: Mode, members: int = 2) -> Tensor:
    return token_weights(mode, drawn.mask_RT, drawn.member_R, members, 8.0, drawn.turn_RT, drawn.group_R)


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("token_mean", -0.290401),
        ("sequence_mean_token_mean", 0.042703),
        ("sequence_mean_token_sum", -0.871202),
        ("constant", -0.1089),
        # rows (-(1.2 + .904837) / 2 - (1.051271 + .67032) / 2) / 2 and (1.284025 + .8) / 2
        ("turn_mean", 0.042703),
        ("prompt_mean", 0.042703),
    ],
)
def test_the_same_token_losses_in_every_mode(mode: Mode, expected: float) -> None:
    assert_close((LOSS * weights(mode)).sum(), expected)


def test_turns_of_different_lengths_count_the_same() -> None:
    turn = torch.tensor([[0, 1, 1, 1], [2, 2, -1, -1]])
    expected = (-1.2 / 2 - (0.904837 + 1.051271 + 0.67032) / 6 + (1.284025 + 0.8) / 2) / 2
    assert_close((LOSS * weights("turn_mean", turn=turn)).sum(), expected)


def test_prompts_count_the_same_whatever_the_number_of_their_tokens() -> None:
    mask = torch.tensor([[1, 1, 1], [1, 0, 0], [1, 1, 0]]).bool()
    weight = weights("prompt_mean", mask, groups=[7, 7, 3])
    assert_close(weight, [[1 / 8, 1 / 8, 1 / 8], [1 / 8, 0, 0], [1 / 4, 1 / 4, 0]], 1e-6)


def test_token_losses_of_two_micro_batches_have_one_denominator() -> None:
    sums, counts = torch.tensor([-3.826428, 2.084025], dtype=torch.float64), torch.tensor([4, 2])
    weight = weights("token_mean")
    assert_close((LOSS * MASK).sum(1), sums)
    assert_close((LOSS * weight)[0].sum() + (LOSS * weight)[1].sum(), -0.290401)
    assert_close((sums / counts).mean(), 0.042703)  # a mean of means is another loss


@given(seeds)
@BATCHES
@EVERY_MODE
def test_a_split_into_any_rows_sums_to_the_same_loss(mode: Mode, seed: int) -> None:
    drawn = batch(seed)
    weight, loss = of(drawn, mode).double(), drawn.log_ratio_RT
    order = torch.randperm(len(loss), generator=torch.Generator().manual_seed(seed))
    assert_close(of(drawn.rows(order), mode), weight[order], 1e-6)
    parts = sum((loss[part] * weight[part]).sum() for part in order.tensor_split(3))
    assert_close(torch.as_tensor(parts), (loss * weight).sum(), 1e-9)


@given(seeds)
@BATCHES
@EVERY_MODE
def test_every_member_has_its_own_denominators(mode: Mode, seed: int) -> None:
    drawn = batch(seed, members=3)
    for member in range(3):
        mine = torch.nonzero(drawn.member_R == member).squeeze(1)
        alone = drawn.rows(mine)
        single = token_weights(
            mode, alone.mask_RT, torch.zeros_like(alone.member_R), 1, 8.0, alone.turn_RT, alone.group_R
        )
        assert_close(of(drawn, mode, members=3)[mine], single, 1e-6)


@given(seeds)
@BATCHES
@EVERY_MODE
def test_rows_without_a_trained_token_count_nowhere(mode: Mode, seed: int) -> None:
    drawn = batch(seed)
    filled = torch.nonzero(drawn.mask_RT.any(1)).squeeze(1)
    weight = of(drawn, mode)
    assert_close(weight[filled], of(drawn.rows(filled), mode), 1e-6)
    assert not weight[~drawn.mask_RT].any()


@EVERY_MODE
def test_padding_changes_nothing(mode: Mode) -> None:
    padded, turn = (torch.nn.functional.pad(t, (2, 3), value=v) for t, v in ((MASK, False), (TURN, -1)))
    assert torch.equal(weights(mode, padded, turn=turn)[:, 2:6], weights(mode, turn=TURN))


@EVERY_MODE
def test_a_batch_without_a_trained_token_has_loss_zero(mode: Mode) -> None:
    assert weights(mode, torch.zeros_like(MASK)).abs().max() == 0


def test_means_weigh_to_one_for_every_member() -> None:
    mask = torch.tensor([[1, 1, 0], [1, 0, 0], [1, 1, 1]]).bool()
    for mode in ("token_mean", "sequence_mean_token_mean", "turn_mean", "prompt_mean"):
        weight = weights(mode, mask, members=[0, 0, 1])
        assert_close(torch.stack([weight[:2].sum(), weight[2:].sum()]), [1.0, 1.0], 1e-6)


def test_the_constant_is_read_by_its_mode_alone() -> None:
    for mode in MODES:
        same = torch.equal(weights(mode, constant=8.0), weights(mode, constant=16.0))
        assert same == (mode != "constant")
