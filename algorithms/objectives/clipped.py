"""PPO's clipped surrogate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from algorithms.core import evolvable
from algorithms.objectives.core import Objective, Surrogate, like


@dataclass(frozen=True, kw_only=True)
class Clipped(Objective):
    """-min(r A, clip(r, 1 - low, 1 + high) A) (Schulman et al. 2017, arXiv:1707.06347).

    `clip_high` above `clip_low` is clip-higher (DAPO, arXiv:2503.14476). The gradient is 0 exactly where the clipped
    branch is the smaller one. `dual_clip` c bounds the loss of an unwanted token by c |A| where A < 0, and there alone
    (Ye et al. 2020, arXiv:1912.09729): the gradient is 0 where A < 0 and r > c, which counts as clipped above.
    """

    clip_low: Annotated[float, Ge(0), Lt(1)] = evolvable()
    clip_high: Annotated[float, Ge(0)] = evolvable()
    dual_clip: Annotated[float, Gt(1)] | None

    def __call__(self, log_ratio_RT: Tensor, advantage_RT: Tensor, logprob_RT: Tensor, old_RT: Tensor) -> Surrogate:
        ratio_RT = log_ratio_RT.exp()
        if self.dual_clip is None:
            return clipped_surrogate(ratio_RT, advantage_RT, self.clip_low, self.clip_high)
        capped_RT = torch.where(advantage_RT < 0, ratio_RT.clamp(max=self.dual_clip), ratio_RT)
        single = clipped_surrogate(capped_RT, advantage_RT, self.clip_low, self.clip_high)
        dual_RT = (ratio_RT > self.dual_clip) & (advantage_RT < 0)
        return Surrogate(single.loss_RT, single.clipped_low_RT, single.clipped_high_RT | dual_RT)


def clipped_surrogate(
    ratio_RT: Tensor, advantage_RT: Tensor, clip_low: float | Tensor, clip_high: float | Tensor
) -> Surrogate:
    """-min(r A, clip(r, 1 - low, 1 + high) A) of each token; clips are scalars or [R, 1]."""
    low, high = 1 - clip_low, 1 + clip_high
    # clamp, not maximum and minimum: those halve the gradient of a ratio that lies exactly on a bound
    bounded_RT = torch.clamp(ratio_RT, like(low, ratio_RT), like(high, ratio_RT))
    return Surrogate(
        -torch.minimum(ratio_RT * advantage_RT, bounded_RT * advantage_RT),
        clipped_low_RT=(ratio_RT < low) & (advantage_RT < 0),
        clipped_high_RT=(ratio_RT > high) & (advantage_RT > 0),
    )
