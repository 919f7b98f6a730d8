"""The grains of the policy ratio."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from torch import Tensor

from algorithms.ratios import GRAINS, Grain, log_ratio_at
from tests.algorithms.batches import BATCHES, Batch, batch, seeds
from tests.algorithms.tables import assert_close

LOG_RATIO = torch.tensor([[0.3, -0.1, 0.05, -0.4], [0.25, -0.5, 0.0, 0.0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
TURN = torch.tensor([[0, 0, 1, 1], [2, 2, -1, -1]])
EVERY_GRAIN = pytest.mark.parametrize("grain", GRAINS)

RATIOS: dict[Grain, list[list[float]]] = {
    "token": [[1.349859, 0.904837, 1.051271, 0.67032], [1.284025, 0.606531, 1, 1]],
    "turn_geometric": [[1.105171, 1.105171, 0.839457, 0.839457], [0.882497, 0.882497, 1, 1]],
    "turn_product": [[1.221403, 1.221403, 0.704688, 0.704688], [0.778801, 0.778801, 1, 1]],
    "sequence_geometric": [[0.963194] * 4, [0.882497, 0.882497, 1, 1]],
    "sequence_product": [[0.860708] * 4, [0.778801, 0.778801, 1, 1]],
    "sequence_token": [[0.963194] * 4, [0.882497, 0.882497, 1, 1]],
}


def pooled(grain: Grain, log_ratio: Tensor = LOG_RATIO, mask: Tensor = MASK, turn: Tensor = TURN) -> Tensor:
    return log_ratio_at(grain, log_ratio, mask, turn)


@EVERY_GRAIN
def test_the_ratio_of_every_grain(grain: Grain) -> None:
    assert_close(pooled(grain).exp(), RATIOS[grain])


def test_no_two_grains_are_the_same_but_the_two_forms_of_gspo() -> None:
    distinct = {tuple(round(v, 6) for v in pooled(grain).flatten().tolist()) for grain in RATIOS}
    assert set(RATIOS) == set(GRAINS) and len(distinct) == len(GRAINS) - 1
    assert torch.equal(pooled("sequence_token"), pooled("sequence_geometric"))


@EVERY_GRAIN
def test_observations_inside_a_row_change_nothing(grain: Grain) -> None:
    wide = torch.full((2, 7), 3.0, dtype=torch.float64)
    mask, turn = torch.zeros(2, 7, dtype=torch.bool), torch.full((2, 7), -1)
    columns = torch.tensor([1, 2, 4, 6])
    wide[:, columns], mask[:, columns], turn[:, columns] = torch.where(MASK, LOG_RATIO, 3.0), MASK, TURN
    assert_close(pooled(grain, wide, mask, turn)[:, columns], pooled(grain), 1e-12)
    assert pooled(grain, wide, mask, turn)[~mask].abs().max() == 0


@EVERY_GRAIN
@pytest.mark.parametrize("absurd", [math.nan, math.inf, -math.inf])
def test_untrained_positions_may_hold_anything(grain: Grain, absurd: float) -> None:
    log_ratio = torch.where(MASK, LOG_RATIO, absurd).requires_grad_()
    result = pooled(grain, log_ratio)
    assert_close(result, pooled(grain), 1e-12)
    result.exp().sum().backward()
    assert log_ratio.grad is not None and log_ratio.grad.isfinite().all()
    assert log_ratio.grad[~MASK].abs().max() == 0


@EVERY_GRAIN
def test_a_ratio_stays_finite_however_far_the_policies_are_apart(grain: Grain) -> None:
    far = pooled(grain, LOG_RATIO.sign().float() * 500)
    assert far.abs().max() <= 20
    assert far.exp().isfinite().all()


def every(drawn: Batch, grain: Grain, turn: Tensor | None = None) -> Tensor:
    return log_ratio_at(grain, drawn.log_ratio_RT, drawn.mask_RT, drawn.turn_RT if turn is None else turn)


@given(seeds)
@BATCHES
def test_one_token_turns_make_token_and_turn_the_same(seed: int) -> None:
    drawn = batch(seed)
    alone = torch.where(drawn.mask_RT, torch.arange(drawn.mask_RT.numel()).view_as(drawn.turn_RT), -1)
    for grain in ("turn_geometric", "turn_product"):
        assert_close(every(drawn, grain, alone), every(drawn, "token"), 1e-12)


@given(seeds)
@BATCHES
def test_episodes_of_one_turn_make_turn_and_sequence_the_same(seed: int) -> None:
    drawn = batch(seed)
    one = torch.where(drawn.mask_RT, torch.arange(drawn.mask_RT.shape[0]).unsqueeze(1), -1)
    assert_close(every(drawn, "turn_geometric", one), every(drawn, "sequence_geometric"), 1e-12)
    assert_close(every(drawn, "turn_product", one), every(drawn, "sequence_product"), 1e-12)


@pytest.mark.parametrize(
    ("grain", "weight"),  # how often a token counts: in a product once for every token that shares it, in a mean once
    [
        ("token", [[1, 1, 1, 1], [1, 1, 0, 0]]),
        ("turn_geometric", [[1, 1, 1, 1], [1, 1, 0, 0]]),
        ("turn_product", [[2, 2, 2, 2], [2, 2, 0, 0]]),
        ("sequence_geometric", [[1, 1, 1, 1], [1, 1, 0, 0]]),
        ("sequence_product", [[4, 4, 4, 4], [2, 2, 0, 0]]),
        ("sequence_token", [[1, 1, 1, 1], [1, 1, 0, 0]]),
    ],
)
def test_the_gradient_reaches_every_token_of_the_pool(grain: Grain, weight: list[list[float]]) -> None:
    log_ratio = LOG_RATIO.clone().requires_grad_()
    pooled(grain, log_ratio).sum().backward()
    assert log_ratio.grad is not None
    assert_close(log_ratio.grad, weight)


def test_with_token_grain_in_a_sequence_each_token_moves_its_own_copy_only() -> None:
    log_ratio = LOG_RATIO.clone().requires_grad_()
    pooled("sequence_token", log_ratio)[0, 1].backward()
    assert log_ratio.grad is not None
    assert_close(log_ratio.grad, [[0.0, 1.0, 0.0, 0.0], [0.0] * 4])


@pytest.mark.parametrize("grain", ["sequence_geometric", "sequence_token"])
def test_a_ratio_beyond_the_limit_has_no_gradient(grain: Grain) -> None:
    log_ratio = torch.full((1, 3), 50.0, requires_grad=True)
    log_ratio_at(grain, log_ratio, torch.ones(1, 3).bool(), torch.zeros(1, 3).long()).exp().sum().backward()
    assert log_ratio.grad is not None and log_ratio.grad.abs().max() == 0


@EVERY_GRAIN
def test_a_row_without_a_trained_token_has_ratio_one(grain: Grain) -> None:
    nothing = torch.zeros_like(MASK)
    assert pooled(grain, mask=nothing, turn=torch.full_like(TURN, -1)).abs().max() == 0
