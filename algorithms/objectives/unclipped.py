"""The plain policy gradient."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from algorithms.objectives.core import Objective, Surrogate


@dataclass(frozen=True)
class Unclipped(Objective):
    """-A log pi (Williams 1992); the ratio is not used, so it is unbiased for the first step after sampling only."""

    off_policy: ClassVar[bool] = False

    def __call__(self, log_ratio_RT: Tensor, advantage_RT: Tensor, logprob_RT: Tensor, old_RT: Tensor) -> Surrogate:
        nowhere = torch.zeros_like(log_ratio_RT, dtype=torch.bool)
        return Surrogate(-advantage_RT * logprob_RT, nowhere, nowhere)
