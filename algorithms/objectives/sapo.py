"""A soft gate in place of a clip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt
from torch import Tensor

from algorithms.core import evolvable
from algorithms.objectives.core import Objective, Surrogate, like


@dataclass(frozen=True, kw_only=True)
class SAPO(Objective):
    """-(4 / tau) sigmoid(tau (r - 1)) A, tau by the sign of A (Soft Adaptive Policy Optimization, arXiv:2511.20347).

    The gradient is that of -r A at r = 1 and fades on both sides; a larger tau fades faster. Nothing is clipped. The
    value is about twice that of a clipped surrogate (the gate is 2 / tau at r = 1), the gradient is not.
    """

    tau_positive: Annotated[float, Gt(0)] = evolvable()
    tau_negative: Annotated[float, Gt(0)] = evolvable()

    def __call__(self, log_ratio_RT: Tensor, advantage_RT: Tensor, logprob_RT: Tensor, old_RT: Tensor) -> Surrogate:
        positive, negative = (like(tau, log_ratio_RT) for tau in (self.tau_positive, self.tau_negative))
        tau_RT = torch.where(advantage_RT > 0, positive, negative)
        gate_RT = 4 / tau_RT * torch.sigmoid(tau_RT * (log_ratio_RT.exp() - 1))
        nowhere = torch.zeros_like(log_ratio_RT, dtype=torch.bool)
        return Surrogate(-gate_RT * advantage_RT, nowhere, nowhere)
