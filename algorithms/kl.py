"""How far is the policy from the reference, and where does that count?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt
from torch import Tensor

from algorithms.advantages.core import group_mean
from algorithms.core import evolvable
from algorithms.ratios import LIMIT, Grain, log_ratio_at

Estimator = Literal["k1", "k2", "k3", "k1_straight", "k3_straight"]
_POOL: dict[str, Grain] = {"token": "token", "turn": "turn_geometric", "sequence": "sequence_geometric"}


@dataclass(frozen=True, kw_only=True)
class KL:
    """Penalty on the divergence from the reference (estimators: Schulman 2020, http://joschu.net/blog/kl-approx.html).

    In the loss, k2 has the gradient of KL(pi||ref) and k3 that of KL(ref||pi); k1 has none in expectation and is
    refused there. `k1_straight` and `k3_straight` show the unbiased value of k1 or k3 and have the gradient of k2. In
    the reward and in the advantage only k1 is unbiased. `place: advantage` takes from each token's advantage how far
    its divergence is above the member's mean (ART), so that the penalty shifts no advantage on average.

    `grain: turn` or `sequence` replaces the log-ratio of each token by its mean over the turn or row, as a geometric
    ratio does; only `token` estimates the divergence per token without bias. `target` (nats a token) makes the
    coefficient adaptive: see `adapted_coefficient`.
    """

    coef: Annotated[float, Ge(0)] = evolvable()
    estimator: Estimator
    place: Literal["loss", "reward", "advantage"]
    grain: Literal["token", "turn", "sequence"]
    target: Annotated[float, Gt(0)] | None
    horizon: Annotated[float, Gt(0)]

    def __post_init__(self) -> None:
        if self.target is not None and not isinstance(self.coef, Tensor) and self.coef == 0:
            raise ValueError(
                "kl.target multiplies kl.coef, and kl.coef=0 stays 0; write a small algorithm.kl.coef to start from, "
                "or algorithm.kl.target=null"
            )
        if self.place == "loss" and self.estimator == "k1":
            raise ValueError(
                "kl.estimator=k1 in the loss has gradient 0 in expectation; use kl.estimator=k1_straight (its value "
                "with the gradient of KL(policy||reference)) or k2, or kl.place=reward"
            )
        if self.place != "loss" and self.estimator.endswith("_straight"):
            raise ValueError(
                f"kl.estimator={self.estimator} is about gradients, and the {self.place} has none; use kl.estimator=k1"
            )
        if self.place != "loss" and self.estimator != "k1":
            raise ValueError(
                f"kl.estimator={self.estimator} in the {self.place} is biased; use kl.estimator=k1, or kl.place=loss"
            )

    def __call__(self, logprob_RT: Tensor, reference_RT: Tensor, mask_RT: Tensor, turn_RT: Tensor) -> Tensor:
        """[R, T] estimated divergence in nats of each trained token's token, turn or row; 0 where not trained.

        Args:
            logprob_RT: [R, T] log-probabilities of the sampled tokens under the policy, in nats.
            reference_RT: [R, T] the same under the reference.
            mask_RT: [R, T] bool, trained tokens.
            turn_RT: [R, T] int64, equal for the tokens of one turn, -1 where not trained.
        """
        pooled_RT = log_ratio_at(_POOL[self.grain], reference_RT - logprob_RT, mask_RT, turn_RT)
        return _estimate(self.estimator, pooled_RT)


def kl_estimate(estimator: Estimator, logprob_RT: Tensor, reference_RT: Tensor) -> Tensor:
    """[R, T] estimate in nats of KL(policy||reference) from tokens sampled by the policy; finite for any input."""
    return _estimate(estimator, (reference_RT - logprob_RT).clamp(-LIMIT, LIMIT))


def _estimate(estimator: Estimator, log_ratio: Tensor) -> Tensor:
    """`log_ratio` is log reference - log policy; the other sign would estimate another divergence."""
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return log_ratio.square() / 2
    if estimator == "k3":
        return log_ratio.exp() - log_ratio - 1
    smooth = _estimate("k2", log_ratio)
    value = _estimate("k1" if estimator == "k1_straight" else "k3", log_ratio)
    return smooth + (value - smooth).detach()


def zero_mean_shaping(kl_RT: Tensor, coef: float | Tensor, mask_RT: Tensor, member_R: Tensor) -> Tensor:
    """[R, T] what `place: advantage` adds: coef * (mean divergence of the member's trained tokens - the token's).

    Args:
        kl_RT: [R, T] divergence of each token in nats, detached.
        coef: a number or [R, 1].
        mask_RT: [R, T] bool, trained tokens of the whole update; 0 elsewhere.
        member_R: [R] int64.
    """
    _, mean = group_mean(kl_RT[mask_RT], member_R.unsqueeze(1).expand_as(mask_RT)[mask_RT])
    gap_RT = torch.zeros_like(kl_RT)
    gap_RT[mask_RT] = mean - kl_RT[mask_RT]
    return coef * gap_RT


def adapted_coefficient(coef_N: Tensor, kl_N: Tensor, target: float, samples_N: Tensor, horizon: float) -> Tensor:
    """[N] the coefficient of the next update (Ziegler et al. 2019, arXiv:1909.08593, section 2.2).

    coef * (1 + clip(kl / target - 1, -0.2, 0.2) * samples / horizon). An update counts for at most one horizon, so
    that the coefficient stays positive; a divergence that is not finite changes nothing.

    Args:
        coef_N: [N] coefficient of the update that was made.
        kl_N: [N] mean divergence of its tokens, nats.
        target: nats a token.
        samples_N: [N] episodes of the update.
        horizon: episodes.
    """
    error_N = (kl_N / target - 1).clamp(-0.2, 0.2)
    factor_N = 1 + error_N * (samples_N / horizon).clamp(max=1)
    return torch.where(kl_N.isfinite(), coef_N * factor_N, coef_N)
