"""What holds for every surrogate at every grain: gradients, equalities, and inputs that are far off."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from hypothesis import assume, given
from torch import Tensor

from algorithms.aggregation import token_weights
from algorithms.objectives import CISPO, DPPO, SAPO, Clipped, ClippingNormalised, Objective, Unclipped
from algorithms.ratios import GRAINS, Grain, log_ratio_at
from tests.algorithms.batches import BATCHES, batch, seeds
from tests.algorithms.tables import assert_close

PPO = Clipped(clip_low=0.2, clip_high=0.28, dual_clip=None)
DUAL = Clipped(clip_low=0.2, clip_high=0.28, dual_clip=1.5)
SORL = ClippingNormalised(clip_low=0.2, clip_high=0.28, bound=None, decay=0.9, exact=False)
CISPO_ = CISPO(ratio_low=0.7, ratio_high=1.3)
SAPO_ = SAPO(tau_positive=1.0, tau_negative=1.05)
TV, KL = (DPPO(threshold=0.05, divergence=d) for d in ("tv", "kl"))


def ppo(ratio: float, advantage: float) -> float:
    return -min(ratio * advantage, min(max(ratio, 0.8), 1.28) * advantage)


def dual(ratio: float, advantage: float) -> float:
    return min(ppo(ratio, advantage), -1.5 * advantage) if advantage < 0 else ppo(ratio, advantage)


def sapo(ratio: float, advantage: float) -> float:
    tau = 1.0 if advantage > 0 else 1.05
    return -4 / tau / (1 + math.exp(-tau * (ratio - 1))) * advantage


def binary_tv(p: float, q: float) -> float:
    return abs(p - q)


def binary_kl(p: float, q: float) -> float:
    return p * math.log(p / q) + (1 - p) * math.log((1 - p) / (1 - q))


def dppo(divergence: Callable[[float, float], float]) -> Callable[[float, float, float, float], float]:
    def loss(now: float, at: float, old: float, a: float) -> float:
        away = (at > old) if a > 0 else (at < old)
        invalid = away and divergence(math.exp(old), math.exp(at)) > 0.05
        return 0.0 if invalid else -a * min(math.exp(at - old), 20.0) * now

    return loss


# Each formula once more, for one token, from the log-probability now, where the step is taken, and of the old policy:
# what is detached is read at `at`.
FORMULAS: dict[str, tuple[Objective, Callable[[float, float, float, float], float]]] = {
    "clipped": (PPO, lambda now, at, old, a: ppo(math.exp(now - old), a)),
    "dual_clip": (DUAL, lambda now, at, old, a: dual(math.exp(now - old), a)),
    "clipping_normalised": (SORL, lambda now, at, old, a: ppo(math.exp(now - old), a)),
    "cispo": (CISPO_, lambda now, at, old, a: -min(max(math.exp(at - old), 0.7), 1.3) * a * now),
    "sapo": (SAPO_, lambda now, at, old, a: sapo(math.exp(now - old), a)),
    "dppo_tv": (TV, dppo(binary_tv)),
    "dppo_kl": (KL, dppo(binary_kl)),
    "unclipped": (Unclipped(), lambda now, at, old, a: -a * now),
}
EVERY_OBJECTIVE = pytest.mark.parametrize("objective", [o for o, _ in FORMULAS.values()], ids=FORMULAS)
EVERY_GRAIN = pytest.mark.parametrize("grain", GRAINS)


def loss_of(
    objective: Objective, grain: Grain, logprob: Tensor, old: Tensor, a: Tensor, m: Tensor, k: Tensor
) -> Tensor:
    """[R, T] as `policy_loss` calls an objective: what is not trained is put to 0 first."""
    logprob, old = torch.where(m, logprob, 0.0), torch.where(m, old, 0.0)
    return torch.where(m, objective(log_ratio_at(grain, logprob - old, m, k), a, logprob, old).loss_RT, 0.0)


@given(seeds)
@BATCHES
@pytest.mark.parametrize(("objective", "formula"), FORMULAS.values(), ids=FORMULAS)
def test_value_and_gradient_are_those_of_the_formula(
    objective: Objective, formula: Callable[[float, float, float, float], float], seed: int
) -> None:
    drawn = batch(seed)
    logprob = (drawn.old_RT + drawn.log_ratio_RT).clamp(max=-1e-3).requires_grad_()
    loss = loss_of(objective, "token", logprob, drawn.old_RT, drawn.advantage_RT, drawn.mask_RT, drawn.turn_RT)
    (gradient,) = torch.autograd.grad(loss.sum(), logprob)
    step = 1e-6
    columns = (logprob.detach(), drawn.old_RT, drawn.advantage_RT, loss.detach(), gradient)
    for at, old, a, value, slope in zip(*(c[drawn.mask_RT].tolist() for c in columns), strict=True):
        assert value == pytest.approx(formula(at, at, old, a), abs=1e-9)
        below, above = formula(at - step, at, old, a), formula(at + step, at, old, a)
        left, right = (value - below) / step, (above - value) / step
        if abs(left - right) < 1e-4:  # else a kink lies within the step
            assert slope == pytest.approx((above - below) / (2 * step), abs=1e-5)


@given(seeds)
@BATCHES
@pytest.mark.parametrize("grain", [g for g in GRAINS if g != "sequence_token"])
@pytest.mark.parametrize("objective", [PPO, DUAL, SAPO_], ids=["clipped", "dual_clip", "sapo"])
def test_pooled_ratios_have_the_gradient_of_finite_differences(objective: Objective, grain: Grain, seed: int) -> None:
    drawn = batch(seed)
    ratio = log_ratio_at(grain, drawn.log_ratio_RT, drawn.mask_RT, drawn.turn_RT).exp()
    assume(all((ratio - kink).abs().min() > 1e-3 for kink in (0.8, 1.28, 1.5)))

    def weighted(logprob: Tensor) -> Tensor:
        loss = loss_of(objective, grain, logprob, drawn.old_RT, drawn.advantage_RT, drawn.mask_RT, drawn.turn_RT)
        return (loss * drawn.old_RT).sum()  # any weights do

    assert torch.autograd.gradcheck(weighted, (drawn.old_RT + drawn.log_ratio_RT).requires_grad_(), eps=1e-6, atol=1e-4)


@given(seeds)
@BATCHES
@pytest.mark.parametrize("objective", [PPO, SAPO_, CISPO_], ids=["clipped", "sapo", "cispo"])
def test_gspo_token_is_gspo_where_a_sequence_has_one_advantage(objective: Objective, seed: int) -> None:
    drawn = batch(seed, spread=0.1)
    results = []
    for grain in ("sequence_geometric", "sequence_token"):
        logprob = (drawn.old_RT + drawn.log_ratio_RT).requires_grad_()
        loss = loss_of(objective, grain, logprob, drawn.old_RT, drawn.advantage_RT, drawn.mask_RT, drawn.turn_RT)
        weight = token_weights("sequence_mean_token_mean", drawn.mask_RT, drawn.member_R, 2, 8.0)
        (gradient,) = torch.autograd.grad((loss * weight).sum(), logprob)
        results.append(torch.stack([loss.detach(), gradient]))
    assert_close(results[1], results[0], 1e-9)


@given(seeds)
@BATCHES
@pytest.mark.parametrize("grain", ["token", "turn_geometric", "sequence_geometric", "sequence_token"])
@pytest.mark.parametrize("clip", [0.0, 0.2])
def test_the_first_step_of_loop_is_that_of_rloo(clip: float, grain: Grain, seed: int) -> None:
    """Leave-one-out advantages through PPO's clip at ratio 1, and through the plain policy gradient."""
    drawn = batch(seed)
    reward = drawn.advantage_RT.sum(1)
    others = (reward.sum() - reward) / max(1, len(reward) - 1)
    advantage = torch.where(drawn.mask_RT, (reward - others).unsqueeze(1), 0.0)
    weight = token_weights("sequence_mean_token_mean", drawn.mask_RT, torch.zeros_like(drawn.member_R), 1, 8.0)
    gradients = []
    for objective in (Clipped(clip_low=clip, clip_high=clip, dual_clip=None), Unclipped()):
        logprob = drawn.old_RT.clone().requires_grad_()
        loss = loss_of(objective, grain, logprob, drawn.old_RT, advantage, drawn.mask_RT, drawn.turn_RT)
        gradients.append(torch.autograd.grad((loss * weight).sum(), logprob)[0])
    assert_close(gradients[0], gradients[1], 1e-12)


@EVERY_GRAIN
@EVERY_OBJECTIVE
def test_a_token_without_advantage_has_neither_loss_nor_gradient(objective: Objective, grain: Grain) -> None:
    logprob = torch.tensor([[-0.1, -3.0, -1.0]], requires_grad=True)
    old, mask = torch.tensor([[-3.0, -0.1, -1.0]]), torch.ones(1, 3).bool()
    loss = loss_of(objective, grain, logprob, old, torch.zeros(1, 3), mask, torch.zeros(1, 3).long())
    loss.sum().backward()
    assert loss.abs().max() == 0
    assert logprob.grad is not None and logprob.grad.abs().max() == 0


@given(seeds)
@BATCHES
@EVERY_GRAIN
@EVERY_OBJECTIVE
def test_untrained_positions_may_hold_anything(objective: Objective, grain: Grain, seed: int) -> None:
    drawn = batch(seed)
    results = []
    for absurd in (0.0, math.nan, math.inf, -math.inf):
        logprob = torch.where(drawn.mask_RT, drawn.old_RT + drawn.log_ratio_RT, absurd).requires_grad_()
        old = torch.where(drawn.mask_RT, drawn.old_RT, -absurd)
        loss = loss_of(objective, grain, logprob, old, drawn.advantage_RT, drawn.mask_RT, drawn.turn_RT)
        (gradient,) = torch.autograd.grad(loss.sum(), logprob)
        results.append(torch.stack([loss.detach(), gradient]))
    assert not results[0][:, ~drawn.mask_RT].any()
    assert all(torch.equal(results[0], other) for other in results[1:])


@EVERY_GRAIN
@EVERY_OBJECTIVE
@pytest.mark.parametrize("far", [20.0, 25.0, 1000.0])
def test_losses_and_gradients_are_finite_however_far_the_policies_are_apart(
    objective: Objective, grain: Grain, far: float
) -> None:
    logprob = torch.tensor([[-0.01, -far, -0.01, -far]], requires_grad=True)
    old = torch.tensor([[-far, -0.01, -far, -0.01]])
    advantage, turn = torch.tensor([[1.0, 1.0, -1.0, -1.0]]), torch.tensor([[0, 1, 2, 3]])
    loss = loss_of(objective, grain, logprob, old, advantage, torch.ones(1, 4).bool(), turn)
    loss.sum().backward()
    assert loss.isfinite().all()
    assert logprob.grad is not None and logprob.grad.isfinite().all()


def column(*values: float) -> Tensor:
    return torch.tensor(values, dtype=torch.float64).unsqueeze(1)


@pytest.mark.parametrize(
    ("together", "first", "second"),
    [
        (
            Clipped(clip_low=column(0.2, 0.1), clip_high=column(0.28, 0.1), dual_clip=3.0),  # type: ignore[arg-type]
            Clipped(clip_low=0.2, clip_high=0.28, dual_clip=3.0),
            Clipped(clip_low=0.1, clip_high=0.1, dual_clip=3.0),
        ),
        (
            CISPO(ratio_low=column(0.0, 0.9), ratio_high=column(1.2, 1.05)),  # type: ignore[arg-type]
            CISPO(ratio_low=0.0, ratio_high=1.2),
            CISPO(ratio_low=0.9, ratio_high=1.05),
        ),
        (
            SAPO(tau_positive=column(1.0, 3.0), tau_negative=column(1.05, 4.0)),  # type: ignore[arg-type]
            SAPO(tau_positive=1.0, tau_negative=1.05),
            SAPO(tau_positive=3.0, tau_negative=4.0),
        ),
        (
            DPPO(threshold=column(0.3, 0.05), divergence="tv"),  # type: ignore[arg-type]
            DPPO(threshold=0.3, divergence="tv"),
            DPPO(threshold=0.05, divergence="tv"),
        ),
    ],
    ids=["clipped", "cispo", "sapo", "dppo"],
)
def test_members_may_have_different_settings(together: Objective, first: Objective, second: Objective) -> None:
    logprob = torch.tensor([[-0.5, -1.0, -2.0, -0.3]], dtype=torch.float64)
    old = torch.tensor([[-0.8, -0.7, -2.2, -0.5]], dtype=torch.float64)
    advantage = torch.tensor([[1.0, -1.0, 0.5, -2.0]], dtype=torch.float64)
    alone = [objective(logprob - old, advantage, logprob, old) for objective in (first, second)]
    both = together((logprob - old).expand(2, 4), advantage.expand(2, 4), logprob.expand(2, 4), old.expand(2, 4))
    assert_close(both.loss_RT, torch.cat([one.loss_RT for one in alone]), 1e-12)
    assert torch.equal(both.clipped_high_RT, torch.cat([one.clipped_high_RT for one in alone]))
    assert torch.equal(both.clipped_low_RT, torch.cat([one.clipped_low_RT for one in alone]))
    assert not torch.equal(alone[0].loss_RT, alone[1].loss_RT)
