"""The policy gradient with a bounded importance weight."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Le
from torch import Tensor

from algorithms.core import evolvable
from algorithms.objectives.core import Objective, Surrogate, like


@dataclass(frozen=True, kw_only=True)
class CISPO(Objective):
    """-sg[clip(r, ratio_low, ratio_high)] A log pi (MiniMax-M1, Chen et al. 2025, arXiv:2506.13585).

    The weight is bounded and every token keeps its gradient. Both fields bound the ratio itself: ratio_low 0 leaves
    it free below, which is the paper's form. Elsewhere the same numbers mean other things. TRL: `epsilon_high` is
    ratio_high, ratio_low is 0. verl: ratio_low = 1 - `clip_ratio_low`, ratio_high = 1 + `clip_ratio_high`. SkyRL:
    ratio_low = 1 - `cispo_eps_clip_low`, ratio_high = 1 + `cispo_eps_clip_high`. The value of the loss means nothing.
    """

    ratio_low: Annotated[float, Ge(0), Le(1)] = evolvable()
    ratio_high: Annotated[float, Ge(1)] = evolvable()

    def __call__(self, log_ratio_RT: Tensor, advantage_RT: Tensor, logprob_RT: Tensor, old_RT: Tensor) -> Surrogate:
        ratio_RT = log_ratio_RT.detach().exp()
        low, high = (like(bound, ratio_RT) for bound in (self.ratio_low, self.ratio_high))
        weight_RT = torch.clamp(ratio_RT, low, high)
        return Surrogate(-weight_RT * advantage_RT * logprob_RT, ratio_RT < low, ratio_RT > high)
