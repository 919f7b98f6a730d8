"""The policy gradient, masked where the policies diverge."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Gt
from torch import Tensor

from algorithms.core import evolvable
from algorithms.objectives.core import Objective, Surrogate

MAX_WEIGHT = 20.0  # verl's bound of the importance weight


@dataclass(frozen=True, kw_only=True)
class DPPO(Objective):
    """-A sg[min(r, 20)] log pi valid: Divergence PPO (arXiv:2602.04879), in the form of verl's `dppo_tv` and `dppo_kl`.

    A token is not valid where the step would take it further from the old policy and its divergence is above
    `threshold` already: A > 0 and pi > pi_old, or A < 0 and pi < pi_old. The divergence is that of the choice between
    this token and all others: `tv` is |pi - pi_old|, `kl` is KL(old || present) of the two-way choice in nats. Unlike a
    bound on the ratio it leaves rare tokens alone.
    """

    grains: ClassVar[tuple[str, ...]] = ("token",)

    threshold: Annotated[float, Gt(0)] = evolvable()
    divergence: Literal["tv", "kl"]

    def __call__(self, log_ratio_RT: Tensor, advantage_RT: Tensor, logprob_RT: Tensor, old_RT: Tensor) -> Surrogate:
        now_RT, before_RT = logprob_RT.detach(), old_RT.detach()
        change_RT = now_RT.exp() - before_RT.exp()
        divergence_RT = change_RT.abs() if self.divergence == "tv" else _binary_kl(before_RT, now_RT)
        far_RT = divergence_RT > self.threshold
        low_RT = far_RT & (change_RT < 0) & (advantage_RT < 0)
        high_RT = far_RT & (change_RT > 0) & (advantage_RT > 0)
        weight_RT = log_ratio_RT.detach().exp().clamp(max=MAX_WEIGHT)
        loss_RT = -advantage_RT * weight_RT * logprob_RT
        return Surrogate(torch.where(low_RT | high_RT, 0.0, loss_RT), low_RT, high_RT)


def _binary_kl(before_RT: Tensor, now_RT: Tensor) -> Tensor:
    """[R, T] p log(p / q) + (1 - p) log((1 - p) / (1 - q)) of log p `before_RT` and log q `now_RT`."""
    rest_before, rest_now = (-torch.expm1(logprob).clamp(max=-1e-8) for logprob in (before_RT, now_RT))
    return before_RT.exp() * (before_RT - now_RT) + rest_before * (rest_before / rest_now).log()
