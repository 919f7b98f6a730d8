"""Weights for a trainer that does not agree with its sampler, and rows that are too far off."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from torch import Tensor

from algorithms.corrections import (
    Correction,
    DecoupledPPO,
    IcePop,
    Rejection,
    SequenceMask,
    TruncatedIS,
    effective_sample_size,
)
from algorithms.objectives import Clipped
from tests.algorithms.batches import BATCHES, Batch, batch, seeds
from tests.algorithms.tables import assert_close

BEHAVIOUR = torch.tensor([[-1.0, -2.0, -0.5, -3.0]], dtype=torch.float64)
PROXIMAL = torch.tensor([[-1.1, -1.6, -0.5, -1.0]], dtype=torch.float64)
PRESENT = torch.tensor([[-0.9, -1.5, -0.9, -1.0]], dtype=torch.float64)
ADVANTAGE = torch.tensor([[1.0, 1.0, -1.0, 1.0]], dtype=torch.float64)
ALL = torch.ones(1, 4, dtype=torch.bool)
TURN = torch.tensor([[0, 0, 1, 1]])

TIS = TruncatedIS(cap=2.0, level="token")
DECOUPLED = DecoupledPPO(cap=None, action="mask")
EVERY_CORRECTION = pytest.mark.parametrize(
    "correction",
    [
        TIS,
        TruncatedIS(cap=5.0, level="sequence"),
        IcePop(low=0.5, high=5.0),
        DECOUPLED,
        DecoupledPPO(cap=5.0, action="mask"),
        DecoupledPPO(cap=5.0, action="clamp"),
        Rejection(level="token", low=0.5, high=2.0),
        Rejection(level="turn", low=0.5, high=2.0),
        Rejection(level="sequence", low=0.5, high=2.0),
    ],
    ids=repr,
)


def weights(correction: Correction) -> Tensor:
    return correction(PROXIMAL - BEHAVIOUR, ALL, TURN)


@pytest.mark.parametrize(
    ("correction", "expected"),
    [
        (DECOUPLED, [0.904837, 1.491825, 1.0, 7.389056]),
        (TIS, [0.904837, 1.491825, 1.0, 2.0]),
        (TruncatedIS(cap=100.0, level="sequence"), [9.974182] * 4),
        (TruncatedIS(cap=5.0, level="sequence"), [5.0] * 4),
        (IcePop(low=0.5, high=5.0), [0.904837, 1.491825, 1.0, 0.0]),
        (IcePop(low=0.95, high=5.0), [0.0, 1.491825, 1.0, 0.0]),
        (DecoupledPPO(cap=5.0, action="mask"), [0.904837, 1.491825, 1.0, 0.0]),
        (DecoupledPPO(cap=5.0, action="clamp"), [0.904837, 1.491825, 1.0, 5.0]),
        (Rejection(level="token", low=0.95, high=2.0), [0.0, 1.0, 1.0, 0.0]),
        # geometric means: exp(0.15) = 1.161834 and exp(1) by turn, 1.777131 by sequence
        (Rejection(level="turn", low=1.16, high=1.17), [1.0, 1.0, 0.0, 0.0]),
        (Rejection(level="sequence", low=0.5, high=1.77), [0.0] * 4),
        (Rejection(level="sequence", low=0.5, high=1.78), [1.0] * 4),
    ],
    ids=repr,
)
def test_the_weight_of_each_token(correction: Correction, expected: list[float]) -> None:
    assert_close(weights(correction), [expected])


@pytest.mark.parametrize(
    ("correction", "loss"),
    [
        (None, -0.626293),
        (DECOUPLED, -2.330896),
        (DecoupledPPO(cap=5.0, action="mask"), -0.483632),
        (DecoupledPPO(cap=5.0, action="clamp"), -1.733632),
    ],
    ids=["unweighted", "weighted", "mask", "clamp"],
)
def test_decoupled_ppo_with_every_action(correction: Correction | None, loss: float) -> None:
    clip = Clipped(clip_low=0.2, clip_high=0.2, dual_clip=None)
    surrogate = clip(PRESENT - PROXIMAL, ADVANTAGE, PRESENT, PROXIMAL).loss_RT
    weight = torch.ones_like(surrogate) if correction is None else weights(correction)
    assert_close((weight * surrogate).sum() / 4, loss)


def of(correction: Correction, drawn: Batch, log_weight: Tensor) -> Tensor:
    return correction(log_weight, drawn.mask_RT, drawn.turn_RT)


@given(seeds)
@BATCHES
@EVERY_CORRECTION
def test_a_sampler_that_agrees_changes_nothing(correction: Correction, seed: int) -> None:
    drawn = batch(seed)
    assert torch.equal(of(correction, drawn, torch.zeros_like(drawn.old_RT)), drawn.mask_RT.double())


@given(seeds)
@BATCHES
@EVERY_CORRECTION
def test_untrained_positions_may_hold_anything_and_weigh_nothing(correction: Correction, seed: int) -> None:
    drawn = batch(seed)
    weight = of(correction, drawn, drawn.log_ratio_RT)
    assert not weight[~drawn.mask_RT].any() and (weight >= 0).all()
    for absurd in (math.nan, math.inf, -math.inf):
        assert torch.equal(of(correction, drawn, torch.where(drawn.mask_RT, drawn.log_ratio_RT, absurd)), weight)


@EVERY_CORRECTION
@pytest.mark.parametrize("log_weight", [20.0, -20.0, 1e4, -1e4, math.inf, -math.inf])
def test_weights_are_finite_however_far_apart(correction: Correction, log_weight: float) -> None:
    assert correction(torch.full((1, 4), log_weight), ALL, TURN).isfinite().all()


@pytest.mark.parametrize(
    ("together", "alone"),
    [
        (TruncatedIS(cap=torch.tensor([[2.0], [0.5]]), level="token"), [TIS, TruncatedIS(cap=0.5, level="token")]),  # type: ignore[arg-type]
        (
            IcePop(low=torch.tensor([[0.5], [0.95]]), high=torch.tensor([[5.0], [8.0]])),  # type: ignore[arg-type]
            [IcePop(low=0.5, high=5.0), IcePop(low=0.95, high=8.0)],
        ),
        (
            Rejection(level="token", low=torch.tensor([[0.5], [0.95]]), high=torch.tensor([[2.0], [8.0]])),  # type: ignore[arg-type]
            [Rejection(level="token", low=0.5, high=2.0), Rejection(level="token", low=0.95, high=8.0)],
        ),
    ],
    ids=["truncated_is", "icepop", "rejection"],
)
def test_members_may_have_different_bounds(together: Correction, alone: list[Correction]) -> None:
    log_weight = (PROXIMAL - BEHAVIOUR).expand(2, 4)
    both = together(log_weight, ALL.expand(2, 4), torch.cat([TURN, TURN + 2]))
    assert_close(both, torch.cat([weights(single) for single in alone]))


def test_rows_that_went_badly_and_are_far_off_are_masked() -> None:
    drift = torch.tensor([[0.4, 0.8], [0.1, 0.1], [0.4, 0.8], [0.4, 0.8]], dtype=torch.float64)
    advantage = torch.tensor([[-1.0, -1.0], [-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]])
    keep = SequenceMask(delta=0.5)(drift, advantage, torch.ones(4, 2, dtype=torch.bool))
    assert keep.tolist() == [[False, False], [True, True], [True, True], [True, True]]


def test_the_sequence_mask_has_the_sign_of_a_policy_that_moved_away() -> None:
    towards = torch.tensor([[-0.4, -0.8]])  # the present policy finds the row more likely than the old one did
    assert SequenceMask(delta=0.5)(towards, -torch.ones(1, 2), torch.ones(1, 2).bool()).all()


def test_the_sequence_mask_averages_over_trained_tokens_only() -> None:
    mask = torch.tensor([[True, False, True], [True, False, False], [False, False, False]])
    drift = torch.tensor([[0.4, math.nan, 0.8], [0.4, 99.0, -99.0], [9.0, 9.0, 9.0]])
    advantage = torch.where(mask, -1.0, math.inf)
    keep = SequenceMask(delta=torch.tensor([[0.7], [0.3], [0.5]]))(drift, advantage, mask)  # type: ignore[arg-type]
    assert keep.tolist() == [[True, False, True], [False] * 3, [False] * 3]


def test_the_effective_sample_size_is_a_share_of_the_tokens() -> None:
    assert_close(effective_sample_size(PROXIMAL - BEHAVIOUR, ALL, torch.tensor([0]), 1), [0.495937])
    assert_close(effective_sample_size(torch.zeros(1, 4), ALL, torch.tensor([0]), 1), [1.0])
    one_token = torch.tensor([[400.0, 0.0, 0.0, 0.0]])
    assert_close(effective_sample_size(one_token, ALL, torch.tensor([0]), 1), [0.25])


@given(seeds)
@BATCHES
def test_the_effective_sample_size_of_each_member_is_its_own(seed: int) -> None:
    drawn = batch(seed, members=3)
    garbage = torch.where(drawn.mask_RT, drawn.log_ratio_RT, math.nan)
    together = effective_sample_size(garbage, drawn.mask_RT, drawn.member_R, 3)
    for member in range(3):
        weight = drawn.log_ratio_RT[drawn.member_R == member][drawn.mask_RT[drawn.member_R == member]].exp()
        expected = weight.sum() ** 2 / (len(weight) * (weight**2).sum()) if len(weight) else torch.tensor(1.0)
        assert_close(together[member], expected, 1e-9)
