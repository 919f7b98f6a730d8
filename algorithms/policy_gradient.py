"""Policy-gradient algorithms: every named one is a choice on the axes below, written in a YAML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from algorithms.advantages.core import Advantage
from algorithms.aggregation import Mode
from algorithms.core import Algorithm, TokenTable, TurnTable, evolvable, gathered
from algorithms.critic import Critic
from algorithms.filters import Filter
from algorithms.kl import KL, kl_estimate
from algorithms.objectives.core import Objective
from algorithms.ratios import Grain, log_ratio_at


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(Algorithm):
    """advantage x ratio x objective x aggregation x KL x entropy x filters x critic."""

    advantage: Advantage
    ratio: Grain
    objective: Objective
    aggregation: Mode
    aggregation_constant: Annotated[float, Gt(0)]
    kl: KL
    entropy_coef: Annotated[float, Ge(0)] = evolvable()
    filters: list[Filter]
    epochs: Annotated[int, Gt(0)]
    minibatches: Annotated[int, Gt(0)]
    old_logprobs: Literal["recompute", "sampler"]
    critic: Critic | None = None

    def __post_init__(self) -> None:
        name = type(self.advantage).__name__
        if self.advantage.needs_values and self.critic is None:
            raise ValueError(
                f"advantage={name} needs a critic; add `critic:` as in conf/algorithm/ppo.yaml, or use algorithm=grpo"
            )
        if self.critic is not None and not self.advantage.needs_values:
            raise ValueError(
                f"advantage={name} reads no values, so the critic would train for nothing; write critic=null"
            )

        if not self.objective.off_policy and self.epochs * self.minibatches > 1:
            raise ValueError(
                f"objective={type(self.objective).__name__} uses no ratio, so a step after the first is off-policy; "
                "write epochs=1 and minibatches=1, or objective=clipped"
            )

    @property
    def min_group(self) -> int:
        return self.advantage.min_group

    @property
    def needs(self) -> frozenset[str]:
        return self.advantage.needs

    def advantages(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        """[R, T] advantages; evolvable fields of the estimator are gathered to its grain first."""
        return self._estimator(turns, tokens)(turns, tokens)

    def value_targets(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        """[R, T] what the critic should have said: unwhitened advantage plus value."""
        estimator = self._estimator(turns, tokens)
        assert tokens.value_RT is not None
        return estimator.unwhitened(turns, tokens) + tokens.value_RT  # type: ignore[attr-defined]

    def _estimator(self, turns: TurnTable, tokens: TokenTable) -> Advantage:
        if self.advantage.grain == "token":
            return gathered(self.advantage, tokens.member_R, column=True)
        return gathered(self.advantage, turns.member_K)


@dataclass(frozen=True)
class PolicyLoss:
    """Per-token loss [R, T] and the detached [R, T] quantities that diagnostics are made of."""

    loss_RT: Tensor
    ratio_RT: Tensor
    kl_RT: Tensor
    clipped_low_RT: Tensor
    clipped_high_RT: Tensor


def policy_loss(
    algorithm: PolicyGradient,
    logprob_RT: Tensor,
    old_RT: Tensor,
    reference_RT: Tensor | None,
    entropy_RT: Tensor,
    advantage_RT: Tensor,
    mask_RT: Tensor,
    turn_RT: Tensor,
) -> PolicyLoss:
    """Loss of each trained token before aggregation: surrogate + KL in the loss - entropy bonus.

    Args:
        algorithm: with evolvable fields as scalars or [R, 1].
        logprob_RT, old_RT, reference_RT: [R, T] log-probabilities of the sampled tokens in nats under the present
            policy (with gradient), the policy at the start of the update, and the reference (None where KL has no say).
        entropy_RT: [R, T] entropy in nats, with gradient.
    """
    logprob_RT = torch.where(mask_RT, logprob_RT, 0.0)
    old_RT = torch.where(mask_RT, old_RT, 0.0)
    log_ratio_RT = log_ratio_at(algorithm.ratio, logprob_RT - old_RT, mask_RT, turn_RT)
    surrogate = algorithm.objective(log_ratio_RT, advantage_RT, logprob_RT)
    loss_RT = surrogate.loss_RT - algorithm.entropy_coef * torch.where(mask_RT, entropy_RT, 0.0)
    kl_RT = torch.zeros_like(loss_RT)
    if reference_RT is not None:
        estimator = algorithm.kl.estimator if algorithm.kl.place == "loss" else "k3"
        kl_RT = kl_estimate(estimator, logprob_RT, torch.where(mask_RT, reference_RT, 0.0))
        if algorithm.kl.place == "loss":
            loss_RT = loss_RT + algorithm.kl.coef * kl_RT
    return PolicyLoss(
        torch.where(mask_RT, loss_RT, 0.0),
        ratio_RT=log_ratio_RT.detach().exp(),
        kl_RT=torch.where(mask_RT, kl_RT.detach(), 0.0),
        clipped_low_RT=surrogate.clipped_low_RT & mask_RT,
        clipped_high_RT=surrogate.clipped_high_RT & mask_RT,
    )
