"""How much was earned from this turn on?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from algorithms.advantages.core import Advantage, whiten
from algorithms.core import TokenTable, TurnTable, evolvable


@dataclass(frozen=True, kw_only=True)
class RewardToGo(Advantage):
    """Discounted return from each turn to the end of its episode (Williams 1992), optionally against a baseline.

    `baseline=batch` subtracts the member's mean over all its trained tokens and divides by their spread, as verl's
    REINFORCE++ does, so long episodes weigh more in both; `none` leaves raw returns.
    """

    grain: ClassVar[Literal["trajectory", "turn", "token"]] = "turn"

    gamma: Annotated[float, Ge(0), Le(1)] = evolvable()
    baseline: Literal["none", "batch"]

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        to_go_RT = tokens.spread(reward_to_go(tokens.penalised(turns), self.gamma))
        return whiten(to_go_RT, tokens.mask_RT, tokens.member_R) if self.baseline == "batch" else to_go_RT


def reward_to_go(turns: TurnTable, gamma: float | Tensor) -> Tensor:
    """[K] G_k = r_k + gamma G_{k+1} within each episode; `gamma` is a scalar or [K]."""
    episodes = turns.outcome_E.shape[0]
    if turns.episode_K.numel() == 0:
        return torch.zeros_like(turns.reward_K)
    width = int(turns.index_K.max()) + 1
    reward_EK = turns.reward_K.new_zeros(episodes, width)
    reward_EK[turns.episode_K, turns.index_K] = turns.reward_K
    gamma_E = torch.ones(episodes, dtype=reward_EK.dtype, device=reward_EK.device)
    if isinstance(gamma, Tensor) and gamma.ndim:
        gamma_E[turns.episode_K] = gamma.to(reward_EK.dtype)
    else:
        gamma_E = gamma_E * gamma
    running = torch.zeros_like(gamma_E)
    to_go_EK = torch.zeros_like(reward_EK)
    for k in range(width - 1, -1, -1):
        running = reward_EK[:, k] + gamma_E * running
        to_go_EK[:, k] = running
    return to_go_EK[turns.episode_K, turns.index_K]
