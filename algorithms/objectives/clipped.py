"""PPO's clipped surrogate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Lt
from torch import Tensor

from algorithms.core import evolvable
from algorithms.objectives.core import Objective, Surrogate


@dataclass(frozen=True, kw_only=True)
class Clipped(Objective):
    """-min(r A, clip(r, 1 - low, 1 + high) A) (Schulman et al. 2017, arXiv:1707.06347).

    `clip_high` above `clip_low` is clip-higher (DAPO, arXiv:2503.14476).
    The gradient is 0 exactly where the clipped branch is the smaller one.
    """

    clip_low: Annotated[float, Ge(0), Lt(1)] = evolvable()
    clip_high: Annotated[float, Ge(0)] = evolvable()

    def __call__(self, log_ratio_RT: Tensor, advantage_RT: Tensor, logprob_RT: Tensor, old_RT: Tensor) -> Surrogate:
        ratio_RT = log_ratio_RT.exp()
        low, high = 1 - self.clip_low, 1 + self.clip_high
        # clamp, not maximum and minimum: those halve the gradient of a ratio that lies exactly on a bound
        bounded_RT = torch.clamp(ratio_RT, _like(low, ratio_RT), _like(high, ratio_RT))
        loss_RT = -torch.minimum(ratio_RT * advantage_RT, bounded_RT * advantage_RT)
        return Surrogate(
            loss_RT,
            clipped_low_RT=(ratio_RT < low) & (advantage_RT < 0),
            clipped_high_RT=(ratio_RT > high) & (advantage_RT > 0),
        )


def _like(bound: float | Tensor, ratio_RT: Tensor) -> Tensor:
    return torch.as_tensor(bound, dtype=ratio_RT.dtype, device=ratio_RT.device)
