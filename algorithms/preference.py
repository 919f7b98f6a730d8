"""Direct preference optimisation on pairs of episodes of one group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor
from torch.nn.functional import logsigmoid

from algorithms.core import Algorithm, TurnTable, evolvable


@dataclass(frozen=True, kw_only=True)
class Preference(Algorithm):
    """DPO (Rafailov et al. 2023, arXiv:2305.18290) on the best against the worst episode of each group.

    `loss=ipo` is the squared loss on length-normalised log-ratios (Azar et al. 2023, arXiv:2310.12036);
    `label_smoothing` is the chance that a preference is wrong (conservative DPO; read by `sigmoid` only).
    """

    beta: Annotated[float, Gt(0)] = evolvable()
    loss: Literal["sigmoid", "ipo"]
    label_smoothing: Annotated[float, Ge(0), Lt(0.5)]
    epochs: Annotated[int, Gt(0)]

    def __post_init__(self) -> None:
        if self.loss == "ipo" and self.label_smoothing != 0:
            raise ValueError("loss=ipo reads no label_smoothing; write label_smoothing=0, or loss=sigmoid")

    @property
    def min_group(self) -> int:
        return 2

    def score(self, logprob_RT: Tensor, reference_RT: Tensor, mask_RT: Tensor) -> Tensor:
        """[R] log pi / pi_ref of each row's trained tokens in nats: their sum, or with `ipo` their mean."""
        total_R = torch.where(mask_RT, logprob_RT - reference_RT, 0.0).sum(1)
        return total_R / mask_RT.sum(1).clamp(min=1) if self.loss == "ipo" else total_R

    def pair_loss(self, chosen_Q: Tensor, rejected_Q: Tensor, beta_Q: float | Tensor) -> Tensor:
        """[Q] loss of each pair from the scores of both episodes; `beta_Q` is a scalar or [Q]."""
        margin_Q = chosen_Q - rejected_Q
        if self.loss == "ipo":
            return (margin_Q - 1 / (2 * beta_Q)).square()
        h_Q = beta_Q * margin_Q
        smoothing = self.label_smoothing
        return -(1 - smoothing) * logsigmoid(h_Q) - smoothing * logsigmoid(-h_Q)


def pairs(turns: TurnTable) -> tuple[Tensor, Tensor]:
    """[Q] episodes with the highest return of their group, and [Q] those with the lowest; groups of equals give none.

    Among equals the one that was sampled first is taken.
    """
    _, index = torch.unique(turns.group_E, return_inverse=True)
    groups = int(index.max()) + 1 if index.numel() else 0
    return_E = turns.return_E
    number_E = torch.arange(return_E.shape[0], device=return_E.device)

    def extreme(kind: str) -> tuple[Tensor, Tensor]:
        value = return_E.new_zeros(groups).scatter_reduce(0, index, return_E, kind, include_self=False)
        holds = return_E == value[index]
        first = torch.full_like(value, return_E.shape[0], dtype=torch.int64)
        return value, first.scatter_reduce(0, index[holds], number_E[holds], "amin")

    highest, best = extreme("amax")
    lowest, worst = extreme("amin")
    return best[highest > lowest], worst[highest > lowest]
