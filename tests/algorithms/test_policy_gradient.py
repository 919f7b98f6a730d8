"""The axes put together: loss per token, what is masked, and which combinations are refused."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from algorithms.advantages import Returns
from algorithms.corrections import SequenceMask, TruncatedIS
from algorithms.objectives import Clipped, Objective, Unclipped
from algorithms.policy_gradient import PolicyGradient, PolicyLoss, policy_loss
from algorithms.ratios import Grain
from algorithms.shaping import Overlong
from tests.algorithms.estimators import GRPO
from tests.algorithms.parts import entropy, kl, policy_gradient, ppo, reinforce
from tests.algorithms.tables import assert_close, token_table, turn_table

MASK = torch.tensor([[0, 1, 1, 0, 1, 1, 0], [0, 1, 0, 1, 0, 0, 0]]).bool()
TURN = torch.tensor([[-1, 0, 0, -1, 1, 1, -1], [-1, 2, -1, 3, -1, -1, -1]])
GRAINS: list[Grain] = ["token", "turn_geometric", "turn_product", "sequence_geometric", "sequence_product"]


def numbers(seed: int) -> Tensor:
    return torch.randn(2, 7, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


OLD = -numbers(0).abs()
REFERENCE = OLD + 0.2 * numbers(1)
ENTROPY = numbers(2).abs()
ADVANTAGE = torch.where(MASK, numbers(3), 0.0)
LOGPROB = OLD + 0.1 * numbers(4)


def loss_of(algorithm: PolicyGradient, logprob: Tensor, nats: Tensor = ENTROPY, **changes: Any) -> PolicyLoss:
    inputs: dict[str, Any] = {"old_RT": OLD, "reference_RT": REFERENCE, "advantage_RT": ADVANTAGE, **changes}
    return policy_loss(algorithm, logprob, entropy_RT=nats, mask_RT=MASK, turn_RT=TURN, **inputs)


FULL = policy_gradient(kl=kl(coef=0.1, estimator="k3", place="loss"), entropy=entropy(coef=0.01))


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize(
    "objective", [Clipped(clip_low=0.05, clip_high=0.1, dual_clip=None), Unclipped()], ids=["clip", "no_clip"]
)
@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_the_gradient_agrees_with_finite_differences(grain: Grain, objective: Objective, estimator: Any) -> None:
    algorithm = policy_gradient(
        ratio=grain, objective=objective, kl=kl(coef=0.3, estimator=estimator, place="loss"), entropy=entropy(coef=0.2)
    )
    logprob, nats = LOGPROB.clone().requires_grad_(), ENTROPY.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda p, h: loss_of(algorithm, p, h).loss_RT.sum(), (logprob, nats))


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("absurd", [math.nan, math.inf, -math.inf])
def test_untrained_positions_may_hold_anything(grain: Grain, absurd: float) -> None:
    algorithm = policy_gradient(ratio=grain, kl=FULL.kl, entropy=entropy(coef=0.01))

    def filled(tensor: Tensor) -> Tensor:
        return torch.where(MASK, tensor, absurd)

    logprob, nats = filled(LOGPROB).requires_grad_(), filled(ENTROPY).requires_grad_()
    dirty = loss_of(algorithm, logprob, nats, old_RT=filled(OLD), reference_RT=filled(REFERENCE))
    dirty.loss_RT.sum().backward()
    clean = loss_of(algorithm, LOGPROB)
    assert torch.equal(dirty.loss_RT, clean.loss_RT)
    assert torch.equal(dirty.kl_RT, clean.kl_RT)
    assert torch.equal(dirty.ratio_RT, clean.ratio_RT)
    for gradient in (logprob.grad, nats.grad):
        assert gradient is not None and gradient.isfinite().all()
        assert gradient[~MASK].abs().max() == 0 and gradient[MASK].abs().max() > 0


def test_untrained_positions_carry_no_loss_no_kl_and_no_clipping() -> None:
    result = loss_of(FULL, LOGPROB, advantage_RT=numbers(5) * 100)
    assert result.loss_RT[~MASK].abs().max() == 0
    assert result.kl_RT[~MASK].abs().max() == 0
    assert not (result.clipped_low_RT | result.clipped_high_RT)[~MASK].any()
    assert torch.equal(result.ratio_RT[~MASK], torch.ones_like(result.ratio_RT[~MASK]))


@pytest.mark.parametrize("grain", GRAINS)
def test_on_the_first_step_from_the_reference_the_ratio_is_one_and_the_kl_zero(grain: Grain) -> None:
    algorithm = policy_gradient(ratio=grain, kl=FULL.kl)
    result = loss_of(algorithm, OLD, reference_RT=OLD)
    assert torch.equal(result.ratio_RT, torch.ones_like(OLD))
    assert result.kl_RT.abs().max() == 0
    assert_close(result.loss_RT, -ADVANTAGE, 1e-12)


def test_kl_and_entropy_add_to_the_loss_with_their_signs() -> None:
    plain = loss_of(policy_gradient(), LOGPROB, reference_RT=None).loss_RT
    both = loss_of(FULL, LOGPROB)
    log_ratio = REFERENCE - LOGPROB
    expected = plain + 0.1 * torch.where(MASK, log_ratio.exp() - log_ratio - 1, 0.0) - 0.01 * ENTROPY * MASK
    assert_close(both.loss_RT, expected, 1e-12)
    assert_close(both.kl_RT, torch.where(MASK, log_ratio.exp() - log_ratio - 1, 0.0), 1e-12)


def test_kl_in_the_reward_is_measured_but_not_in_the_loss() -> None:
    in_reward = policy_gradient(kl=kl(coef=0.1, estimator="k1", place="reward"))
    result = loss_of(in_reward, LOGPROB)
    assert torch.equal(result.loss_RT, loss_of(policy_gradient(), LOGPROB, reference_RT=None).loss_RT)
    assert result.kl_RT[MASK].min() > 0


def test_the_penalty_on_long_episodes_reaches_the_advantages() -> None:
    turns = turn_table([[1.0], [1.0]], groups=[0, 0], lengths=[[4], [2]])
    tokens = token_table(turns, observation=0)
    algorithm = policy_gradient(advantage=RETURNS, overlong=Overlong(limit=4, cache=4, factor=0.5))
    advantage, _ = algorithm.credited(turns, tokens, torch.zeros(2, 4), None)
    assert_close(advantage, [[0.5] * 4, [0.75, 0.75, 0.0, 0.0]])


RETURNS = Returns(credit="turn", gamma=1.0, baseline="none", decay=0.0)


@pytest.mark.parametrize("advantage", [GRPO, RETURNS], ids=["grpo", "returns"])
def test_kl_in_the_reward_reaches_estimators_without_a_critic(advantage: Any) -> None:
    turns = turn_table([[0.0, 1.0], [0.0, 0.5]], groups=[0, 0])
    tokens = token_table(turns, observation=0)
    algorithm = policy_gradient(advantage=advantage, kl=kl(coef=0.1, estimator="k1", place="reward"))
    old = torch.zeros(2, 4, dtype=torch.float64)
    reference = torch.tensor([[0.0, 0.0, 0.0, -4.0], [0.0] * 4], dtype=torch.float64)
    free, _ = algorithm.credited(turns, tokens, old, old)
    paying, _ = algorithm.credited(turns, tokens, old, reference)
    assert (paying[0] < free[0]).all()


def test_kl_in_the_advantage_shifts_no_advantage_on_average() -> None:
    turns = turn_table([[1.0], [0.5]], groups=[0, 0], lengths=[[2], [1]])
    tokens = token_table(turns, observation=0)
    algorithm = policy_gradient(advantage=RETURNS, kl=kl(coef=0.5, estimator="k1", place="advantage"))
    old = torch.zeros(2, 2, dtype=torch.float64)
    reference = torch.tensor([[-0.1, -0.3], [-0.2, 9.0]], dtype=torch.float64)
    shaped, _ = algorithm.credited(turns, tokens, old, reference)
    assert_close(shaped, [[1.05, 0.95], [0.5, 0.0]])


def test_a_weight_multiplies_the_surrogate_and_nothing_else() -> None:
    weight = torch.where(MASK, numbers(6).abs(), 0.0)
    plain, none = loss_of(FULL, LOGPROB), loss_of(FULL, LOGPROB, weight_RT=torch.zeros_like(weight))
    weighted = loss_of(FULL, LOGPROB, weight_RT=weight)
    assert_close(weighted.loss_RT, weight * (plain.loss_RT - none.loss_RT) + none.loss_RT, 1e-12)
    assert none.loss_RT[MASK].abs().max() > 0


def test_a_row_that_went_badly_and_was_left_behind_keeps_its_kl_only() -> None:
    mask_rows = policy_gradient(kl=FULL.kl, sequence_mask=SequenceMask(delta=0.2))
    moved, badly = OLD - 0.5, torch.where(MASK, -1.0, 0.0)
    badly[1] *= -1  # the other row went well
    result = loss_of(mask_rows, moved, advantage_RT=badly)
    free = loss_of(policy_gradient(kl=FULL.kl), moved, advantage_RT=badly)
    kl_alone = loss_of(policy_gradient(kl=FULL.kl), moved, advantage_RT=torch.zeros_like(badly))
    assert_close(result.loss_RT[0], kl_alone.loss_RT[0], 1e-12)
    assert_close(result.loss_RT[1], free.loss_RT[1], 1e-12)


def test_only_the_most_uncertain_tokens_are_trained_and_corrections_multiply_them() -> None:
    turns = turn_table([[1.0]], groups=[0], lengths=[[4]])
    tokens = token_table(turns, observation=0)
    entropies = torch.tensor([[0.1, 0.9, 0.5, 0.7]], dtype=torch.float64)
    tokens = replace(tokens, entropy_RT=entropies, logprob_RT=torch.full((1, 4), -1.0, dtype=torch.float64))
    algorithm = policy_gradient(
        entropy=entropy(top_quantile=0.5), correction=TruncatedIS(cap=2.0, level="token"), old_logprobs="recompute"
    )
    old = torch.tensor([[-1.0, -0.5, -1.0, 5.0]], dtype=torch.float64)
    assert_close(algorithm.surrogate_weights(tokens, old, members=1), [[0.0, 1.648721, 0.0, 2.0]])  # type: ignore[arg-type]
    assert policy_gradient().surrogate_weights(tokens, old, members=1) is None


def test_an_algorithm_needs_the_group_that_its_estimator_needs() -> None:
    assert policy_gradient().min_group == 2
    assert reinforce().min_group == 1
    assert ppo().min_group == 1
