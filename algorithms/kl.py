"""How far is the policy from the reference, and where does that count?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge
from torch import Tensor

from algorithms.core import evolvable

Estimator = Literal["k1", "k2", "k3"]


@dataclass(frozen=True, kw_only=True)
class KL:
    """Penalty on the divergence from the reference (estimators: Schulman 2020, http://joschu.net/blog/kl-approx.html).

    In the loss, k2 has the gradient of KL(pi||ref) and k3 that of KL(ref||pi); k1 has none in expectation and is
    refused there. In the reward, only k1 is unbiased.
    """

    coef: Annotated[float, Ge(0)] = evolvable()
    estimator: Estimator
    place: Literal["loss", "reward"]

    def __post_init__(self) -> None:
        if self.place == "loss" and self.estimator == "k1":
            raise ValueError(
                "kl.estimator=k1 in the loss has gradient 0 in expectation; use kl.estimator=k2 (the gradient of "
                "KL(policy||reference)), or kl.place=reward"
            )
        if self.place == "reward" and self.estimator != "k1":
            raise ValueError(
                f"kl.estimator={self.estimator} in the reward is biased; use kl.estimator=k1, or kl.place=loss"
            )


def kl_estimate(estimator: Estimator, logprob_RT: Tensor, reference_RT: Tensor) -> Tensor:
    """[R, T] estimate in nats of KL(policy||reference) from tokens sampled by the policy; finite for any input."""
    log_ratio = (reference_RT - logprob_RT).clamp(-20, 20)
    if estimator == "k1":
        return -log_ratio
    if estimator == "k2":
        return log_ratio.square() / 2
    return log_ratio.exp() - log_ratio - 1
