"""What if the trainer does not agree with the sampler about the probability of a token?

The behaviour policy sampled; the old policy is the trainer's at the start of the update. A correction gives each token
a weight on its surrogate loss, made of old / behaviour. Denominators stay those of all trained tokens, so a weight of 0
leaves a token out without lifting the others.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from algorithms.core import evolvable
from algorithms.ratios import Grain, log_ratio_at


class Correction(ABC):
    """Base of every correction. Subclasses are frozen dataclasses; evolvable fields are scalars or [R, 1]."""

    @abstractmethod
    def __call__(self, log_weight_RT: Tensor, mask_RT: Tensor, turn_RT: Tensor) -> Tensor:
        """[R, T] weight of each trained token's surrogate loss, at least 0; 0 where not trained.

        Args:
            log_weight_RT: [R, T] log pi_old - log pi_behaviour of the sampled tokens, in nats, detached.
            mask_RT: [R, T] bool, trained tokens.
            turn_RT: [R, T] int64, equal for the tokens of one turn, -1 where not trained.
        """


@dataclass(frozen=True, kw_only=True)
class TruncatedIS(Correction):
    """min(old / behaviour, cap): truncated importance sampling, TIS (Yao et al. 2025; verl's `rollout_correction`).

    `level: sequence` gives every token of a row the product over the row. That is the unbiased weight of an episode,
    and soon 0 or the cap in a long one.
    """

    cap: Annotated[float, Gt(0)] = evolvable()
    level: Literal["token", "sequence"]

    def __call__(self, log_weight_RT: Tensor, mask_RT: Tensor, turn_RT: Tensor) -> Tensor:
        grain: Grain = "token" if self.level == "token" else "sequence_product"
        weight_RT = log_ratio_at(grain, log_weight_RT, mask_RT, turn_RT).exp()
        return (
            torch.minimum(weight_RT, torch.as_tensor(self.cap, dtype=weight_RT.dtype, device=weight_RT.device))
            * mask_RT
        )


@dataclass(frozen=True, kw_only=True)
class IcePop(Correction):
    """old / behaviour inside [low, high], else 0 (IcePop, Ling Team 2025, arXiv:2510.18855)."""

    low: Annotated[float, Ge(0), Le(1)] = evolvable()
    high: Annotated[float, Ge(1)] = evolvable()

    def __call__(self, log_weight_RT: Tensor, mask_RT: Tensor, turn_RT: Tensor) -> Tensor:
        weight_RT = log_ratio_at("token", log_weight_RT, mask_RT, turn_RT).exp()
        return torch.where((weight_RT >= self.low) & (weight_RT <= self.high), weight_RT, 0.0) * mask_RT


@dataclass(frozen=True, kw_only=True)
class DecoupledPPO(Correction):
    """old / behaviour: PPO whose proximal policy is not the one that sampled (Hilton et al. 2022, arXiv:2110.00641).

    As AReaL does it (arXiv:2505.24298): above `cap` a token is left out (`mask`) or its weight is the cap (`clamp`,
    which is `TruncatedIS`); cap null takes every weight as it is.
    """

    cap: Annotated[float, Gt(0)] | None
    action: Literal["mask", "clamp"]

    def __call__(self, log_weight_RT: Tensor, mask_RT: Tensor, turn_RT: Tensor) -> Tensor:
        weight_RT = log_ratio_at("token", log_weight_RT, mask_RT, turn_RT).exp() * mask_RT
        if self.cap is None:
            return weight_RT
        if self.action == "clamp":
            return weight_RT.clamp(max=self.cap)
        return torch.where(weight_RT <= self.cap, weight_RT, 0.0)


@dataclass(frozen=True, kw_only=True)
class Rejection(Correction):
    """1 where old / behaviour is inside [low, high], else 0; it rejects and does not reweigh (AReaL, SkyRL).

    `level: turn` or `sequence` judges all tokens of a turn or row together by the geometric mean of their ratios.
    """

    level: Literal["token", "turn", "sequence"]
    low: Annotated[float, Ge(0), Le(1)] = evolvable()
    high: Annotated[float, Ge(1)] = evolvable()

    def __call__(self, log_weight_RT: Tensor, mask_RT: Tensor, turn_RT: Tensor) -> Tensor:
        grain: Grain = "token" if self.level == "token" else f"{self.level}_geometric"  # type: ignore[assignment]
        weight_RT = log_ratio_at(grain, log_weight_RT, mask_RT, turn_RT).exp()
        return ((weight_RT >= self.low) & (weight_RT <= self.high) & mask_RT).to(weight_RT.dtype)


@dataclass(frozen=True, kw_only=True)
class SequenceMask:
    """Leave out rows that went badly and that the present policy has moved away from by more than `delta` nats a token.

    DeepSeek-V3.2's off-policy mask (arXiv:2512.02556), also part of SAMPO (ARLArena, arXiv:2602.21534): a row is kept
    if its advantage is at least 0 or the mean of log pi_behaviour - log pi over its tokens is at most `delta`. The
    advantage of a row is the mean over its trained tokens: the advantage itself where they all have the same.
    """

    delta: Annotated[float, Ge(0)] = evolvable()

    def __call__(self, drift_RT: Tensor, advantage_RT: Tensor, mask_RT: Tensor) -> Tensor:
        """[R, T] bool, trained tokens of the rows that are kept.

        Args:
            drift_RT: [R, T] log-probability of the sampled token then (sampler or old policy) minus now, detached.
            advantage_RT: [R, T] advantages.
            mask_RT: [R, T] bool, trained tokens.
        """
        tokens_R1 = mask_RT.sum(1, keepdim=True).clamp(min=1)
        drift_R1 = torch.where(mask_RT, drift_RT, 0.0).sum(1, keepdim=True) / tokens_R1
        advantage_R1 = torch.where(mask_RT, advantage_RT, 0.0).sum(1, keepdim=True)
        return ((advantage_R1 >= 0) | (drift_R1 <= self.delta)) & mask_RT


def effective_sample_size(log_weight_RT: Tensor, mask_RT: Tensor, member_R: Tensor, members: int) -> Tensor:
    """[N] (sum w)^2 / (n sum w^2) over each member's trained tokens: 1 where all weights are equal, 1 / n at worst.

    Kish's effective sample size as a share of the tokens; 1 for a member without a trained token.

    Args:
        log_weight_RT: [R, T] log pi_old - log pi_behaviour, in nats.
        mask_RT: [R, T] bool, trained tokens of the whole update.
        member_R: [R] int64 in 0..members-1.
    """
    member = member_R.unsqueeze(1).expand_as(mask_RT)[mask_RT]
    log_weight = log_weight_RT[mask_RT]
    largest_N = log_weight.new_zeros(members).scatter_reduce(0, member, log_weight, "amax", include_self=False)
    weight = (log_weight - largest_N[member]).exp()  # the share does not depend on the scale of the weights
    zeros_N = log_weight.new_zeros(members)
    count_N = zeros_N.index_add(0, member, torch.ones_like(weight))
    share_N = zeros_N.index_add(0, member, weight).square() / (count_N * zeros_N.index_add(0, member, weight.square()))
    return torch.where(count_N > 0, share_N, 1.0)
