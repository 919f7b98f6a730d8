"""The axes put together: loss per token, what is masked, and which combinations are refused."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from algorithms.advantages import RewardToGo, TokenGAE
from algorithms.critic import Critic
from algorithms.kl import KL
from algorithms.objectives import Clipped, Objective, Unclipped
from algorithms.policy_gradient import PolicyGradient, PolicyLoss, policy_loss
from algorithms.ratios import Grain
from tests.algorithms.parts import ADAMW, GRPO, policy_gradient, ppo, reinforce
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


def loss_of(algorithm: PolicyGradient, logprob: Tensor, entropy: Tensor = ENTROPY, **changes: Any) -> PolicyLoss:
    inputs: dict[str, Any] = {"old_RT": OLD, "reference_RT": REFERENCE, "advantage_RT": ADVANTAGE, **changes}
    return policy_loss(algorithm, logprob, entropy_RT=entropy, mask_RT=MASK, turn_RT=TURN, **inputs)


FULL = policy_gradient(kl=KL(coef=0.1, estimator="k3", place="loss"), entropy_coef=0.01)


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("objective", [Clipped(clip_low=0.05, clip_high=0.1), Unclipped()], ids=["clip", "no_clip"])
@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_the_gradient_agrees_with_finite_differences(grain: Grain, objective: Objective, estimator: Any) -> None:
    algorithm = policy_gradient(
        ratio=grain, objective=objective, kl=KL(coef=0.3, estimator=estimator, place="loss"), entropy_coef=0.2
    )
    logprob, entropy = LOGPROB.clone().requires_grad_(), ENTROPY.clone().requires_grad_()
    assert torch.autograd.gradcheck(lambda p, h: loss_of(algorithm, p, h).loss_RT.sum(), (logprob, entropy))


@pytest.mark.parametrize("grain", GRAINS)
@pytest.mark.parametrize("absurd", [math.nan, math.inf, -math.inf])
def test_untrained_positions_may_hold_anything(grain: Grain, absurd: float) -> None:
    algorithm = policy_gradient(ratio=grain, kl=FULL.kl, entropy_coef=0.01)

    def filled(tensor: Tensor) -> Tensor:
        return torch.where(MASK, tensor, absurd)

    logprob, entropy = filled(LOGPROB).requires_grad_(), filled(ENTROPY).requires_grad_()
    dirty = loss_of(algorithm, logprob, entropy, old_RT=filled(OLD), reference_RT=filled(REFERENCE))
    dirty.loss_RT.sum().backward()
    clean = loss_of(algorithm, LOGPROB)
    assert torch.equal(dirty.loss_RT, clean.loss_RT)
    assert torch.equal(dirty.kl_RT, clean.kl_RT)
    assert torch.equal(dirty.ratio_RT, clean.ratio_RT)
    for gradient in (logprob.grad, entropy.grad):
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
    in_reward = policy_gradient(kl=KL(coef=0.1, estimator="k1", place="reward"))
    result = loss_of(in_reward, LOGPROB)
    assert torch.equal(result.loss_RT, loss_of(policy_gradient(), LOGPROB, reference_RT=None).loss_RT)
    assert result.kl_RT[MASK].min() > 0


@pytest.mark.parametrize("advantage", [GRPO, RewardToGo(gamma=1.0, baseline="none")], ids=["grpo", "reward_to_go"])
def test_kl_in_the_reward_reaches_estimators_without_a_critic(advantage: Any) -> None:
    turns = turn_table([[0.0, 1.0], [0.0, 0.5]], groups=[0, 0])
    algorithm = policy_gradient(advantage=advantage, kl=KL(coef=0.1, estimator="k1", place="reward"))
    free = algorithm.advantages(turns, token_table(turns, observation=0))
    penalty = [[0.0, 0.0, 0.0, 0.4], [0.0] * 4]
    paying = algorithm.advantages(turns, token_table(turns, observation=0, penalty=penalty))
    assert (paying[0] < free[0]).all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"advantage": TokenGAE(gamma=1.0, lam=1.0, whiten=True)}, "advantage=TokenGAE needs a critic; add `critic:`"),
        ({"critic": Critic(value_clip=0.2, optimizer=ADAMW)}, "GroupRelative reads no values.*write critic=null"),
    ],
)
def test_a_critic_and_its_reader_come_together(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        policy_gradient(**changes)


def test_an_algorithm_needs_the_group_that_its_estimator_needs() -> None:
    assert policy_gradient().min_group == 2
    assert reinforce().min_group == 1
    assert ppo().min_group == 1
