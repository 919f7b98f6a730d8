"""How much was earned from here on?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le, Lt
from torch import Tensor

from algorithms.advantages.core import Advantage, group_mean, of_first_turns, whiten
from algorithms.advantages.gae import token_gae, turn_gae
from algorithms.core import Credit, TokenTable, TurnTable, evolvable


@dataclass(frozen=True, kw_only=True)
class Returns(Advantage):
    """Discounted returns (Williams 1992), optionally against a baseline that is not a critic.

    `credit` says from where on rewards count: `token` and `turn` from the token or turn itself, discounted per token or
    per turn; `trajectory` gives every token the return of the whole episode, discounted per turn. A return crosses
    observations, which are no steps (verl's REINFORCE++ loses it there).

    - baseline=none: raw returns
    - baseline=batch: the member's mean over all its trained tokens is subtracted and the result divided by their
      spread, as verl's REINFORCE++ (Hu et al. 2025, arXiv:2501.03262) does, so long episodes weigh more in both
    - baseline=moving: the moving mean of the member's earlier returns, of which an update leaves the share `decay`, is
      subtracted; where there is none yet (no `baseline_E`, or NaN), the mean of the member's own episodes
    """

    credits: ClassVar[tuple[Credit, ...]] = ("trajectory", "turn", "token")

    credit: Credit
    gamma: Annotated[float, Ge(0), Le(1)] = evolvable()
    baseline: Literal["none", "batch", "moving"]
    decay: Annotated[float, Ge(0), Lt(1)]

    @property
    def baseline_decay(self) -> float | None:
        return self.decay if self.baseline == "moving" else None

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        to_go_K = reward_to_go(tokens.penalised(turns), self.gamma)
        whole_E = of_first_turns(turns, to_go_K)
        if self.credit == "token":
            reward_RT = tokens.turn_reward_on_last_token(turns)
            nothing_RT = torch.zeros_like(reward_RT)
            return_RT = token_gae(reward_RT, nothing_RT, tokens.mask_RT, tokens.by_row(self.gamma), 1.0)
        else:
            return_RT = tokens.spread(to_go_K if self.credit == "turn" else whole_E[turns.episode_K])
        if self.baseline == "batch":
            return whiten(return_RT, tokens.mask_RT, tokens.member_R)
        if self.baseline == "moving":
            baseline_E = group_mean(whole_E, turns.member_E)[1]
            if turns.baseline_E is not None:
                baseline_E = torch.where(turns.baseline_E.isnan(), baseline_E, turns.baseline_E.to(baseline_E.dtype))
            return return_RT - tokens.spread(baseline_E[turns.episode_K])
        return return_RT


def reward_to_go(turns: TurnTable, gamma: float | Tensor) -> Tensor:
    """[K] G_k = r_k + gamma G_{k+1} within each episode; `gamma` is a scalar or [N]."""
    return turn_gae(turns, torch.zeros_like(turns.reward_K), gamma, 1.0)
