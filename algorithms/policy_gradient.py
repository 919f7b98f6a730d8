"""Policy-gradient algorithms: every named one is a choice on the axes below, written in a YAML."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Gt
from torch import Tensor

from algorithms.advantages.core import Advantage
from algorithms.aggregation import Mode
from algorithms.core import Algorithm, TokenTable, TurnTable, evolvable, gathered
from algorithms.corrections import Correction, SequenceMask
from algorithms.critic import Critic
from algorithms.entropy import Entropy, top_entropy
from algorithms.filters import Filter
from algorithms.kl import KL, kl_estimate, zero_mean_shaping
from algorithms.objectives.core import Objective
from algorithms.ratios import Grain, log_ratio_at
from algorithms.requirements import REQUIREMENTS
from algorithms.shaping import Overlong


@dataclass(frozen=True, kw_only=True)
class PolicyGradient(Algorithm):
    """advantage x ratio x objective x aggregation x KL x entropy x filters x correction x critic."""

    advantage: Advantage
    ratio: Grain
    objective: Objective
    aggregation: Mode
    aggregation_constant: Annotated[float, Gt(0)]
    kl: KL
    entropy: Entropy
    filters: list[Filter]
    overlong: Overlong | None = None
    correction: Correction | None = None
    sequence_mask: SequenceMask | None = None
    epochs: Annotated[int, Gt(0)] = evolvable()
    minibatches: Annotated[int, Gt(0)]
    old_logprobs: Literal["recompute", "sampler"]
    critic: Critic | None = None

    def __post_init__(self) -> None:
        for requirement in REQUIREMENTS.values():
            if complaint := requirement(self):
                raise ValueError(complaint)

    @property
    def min_group(self) -> int:
        return self.advantage.min_group

    @property
    def needs(self) -> frozenset[str]:
        return self.advantage.needs.union(*(filter_.needs for filter_ in self.filters))

    @property
    def needs_turn_rewards(self) -> bool:
        return self.advantage.needs_turn_rewards

    @property
    def needs_entropy(self) -> bool:
        """Whether entropies must be known before the first step."""
        return self.advantage.needs_entropy or self.entropy.top_quantile < 1

    def credited(
        self, turns: TurnTable, tokens: TokenTable, old_RT: Tensor, reference_RT: Tensor | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """[R, T] advantages, and with a critic its targets [R, T] and where it is asked [R, T] bool.

        Args:
            turns, tokens: with values and entropies where they are needed; fields of `self` are floats or [N].
            old_RT, reference_RT: [R, T] log-probabilities in nats at the start of the update.
        """
        if self.overlong is not None:
            turns = self.overlong(turns)
        kl_RT = None
        if reference_RT is not None and self.kl.place != "loss":
            kl_RT = self.kl(old_RT, reference_RT, tokens.mask_RT, tokens.turn_RT)
        if kl_RT is not None and self.kl.place == "reward":
            penalty_RT = torch.where(tokens.mask_RT, tokens.by_row(self.kl.coef) * kl_RT, 0.0)
            tokens = dataclasses.replace(tokens, penalty_RT=penalty_RT)
        advantage_RT = self.advantage(turns, tokens)
        if kl_RT is not None and self.kl.place == "advantage":
            coef = tokens.by_row(self.kl.coef)
            advantage_RT = advantage_RT + zero_mean_shaping(kl_RT, coef, tokens.mask_RT, tokens.member_R)
        return advantage_RT, self.advantage.targets(turns, tokens)

    def surrogate_weights(self, tokens: TokenTable, old_RT: Tensor, members: int) -> Tensor | None:
        """[R, T] weight of each token's surrogate that is known before the first step; None where all are 1."""
        weight_RT = None
        if self.correction is not None:
            correction = gathered(self.correction, tokens.member_R, column=True)
            weight_RT = correction(old_RT - tokens.logprob_RT, tokens.mask_RT, tokens.turn_RT)
        if self.entropy.top_quantile < 1:
            assert tokens.entropy_RT is not None
            share = self.entropy.top_quantile
            chosen_RT = top_entropy(tokens.entropy_RT, tokens.mask_RT, tokens.member_R, members, share)
            weight_RT = chosen_RT.to(old_RT.dtype) if weight_RT is None else torch.where(chosen_RT, weight_RT, 0.0)
        return weight_RT


@dataclass(frozen=True)
class PolicyLoss:
    """Per-token loss [R, T] and the detached [R, T] quantities that diagnostics are made of."""

    loss_RT: Tensor
    ratio_RT: Tensor
    kl_RT: Tensor
    clipped_low_RT: Tensor
    clipped_high_RT: Tensor
    weight_RT: Tensor | None = None  # of the surrogate; None where all are 1


def policy_loss(
    algorithm: PolicyGradient,
    logprob_RT: Tensor,
    old_RT: Tensor,
    reference_RT: Tensor | None,
    entropy_RT: Tensor,
    advantage_RT: Tensor,
    mask_RT: Tensor,
    turn_RT: Tensor,
    weight_RT: Tensor | None = None,
) -> PolicyLoss:
    """Loss of each trained token before aggregation: weighted surrogate + KL in the loss - entropy bonus.

    Args:
        algorithm: with evolvable fields as scalars or [R, 1].
        logprob_RT, old_RT, reference_RT: [R, T] log-probabilities of the sampled tokens in nats under the present
            policy (with gradient), the policy at the start of the update, and the reference (None where KL has no say).
        entropy_RT: [R, T] entropy in nats, with gradient.
        weight_RT: [R, T] as `PolicyGradient.surrogate_weights` gives them.
    """
    logprob_RT = torch.where(mask_RT, logprob_RT, 0.0)
    old_RT = torch.where(mask_RT, old_RT, 0.0)
    log_ratio_RT = log_ratio_at(algorithm.ratio, logprob_RT - old_RT, mask_RT, turn_RT)
    surrogate = algorithm.objective(log_ratio_RT, advantage_RT, logprob_RT, old_RT)
    if algorithm.sequence_mask is not None:
        keep_RT = algorithm.sequence_mask(old_RT - logprob_RT.detach(), advantage_RT, mask_RT)
        weight_RT = keep_RT.to(old_RT.dtype) if weight_RT is None else torch.where(keep_RT, weight_RT, 0.0)
    loss_RT = surrogate.loss_RT if weight_RT is None else weight_RT * surrogate.loss_RT
    loss_RT = loss_RT - algorithm.entropy.coef * torch.where(mask_RT, entropy_RT, 0.0)
    kl_RT = torch.zeros_like(loss_RT)
    if reference_RT is not None:
        reference_RT = torch.where(mask_RT, reference_RT, 0.0)
        if algorithm.kl.place == "loss":
            kl_RT = algorithm.kl(logprob_RT, reference_RT, mask_RT, turn_RT)
            loss_RT = loss_RT + algorithm.kl.coef * kl_RT
        else:
            kl_RT = kl_estimate("k3", logprob_RT, reference_RT)
    return PolicyLoss(
        torch.where(mask_RT, loss_RT, 0.0),
        ratio_RT=log_ratio_RT.detach().exp(),
        kl_RT=torch.where(mask_RT, kl_RT.detach(), 0.0),
        clipped_low_RT=surrogate.clipped_low_RT & mask_RT,
        clipped_high_RT=surrogate.clipped_high_RT & mask_RT,
        weight_RT=weight_RT,
    )
