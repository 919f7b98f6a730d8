"""How much better than the critic expected did things go, over turns first and inside each turn second?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from algorithms.advantages.core import Critical, whiten
from algorithms.advantages.gae import of_rows, values
from algorithms.core import Credit, TokenTable, TurnTable, evolvable


@dataclass(frozen=True, kw_only=True)
class BiLevelGAE(Critical):
    """Bi-level GAE of RAGEN (Wang et al. 2025, arXiv:2504.20073).

    First GAE from turn to turn, over the values and rewards at the last tokens of the turns, discounted by
    `turn_gamma`: its target (advantage plus value) at the end of a turn says what the turn led to. Then GAE over the
    tokens inside each turn, discounted by `gamma`, with that target as the reward of the last token; nothing crosses
    the end of a turn here. A KL penalty on a token before the last is felt inside its turn alone. Turns are those of
    the turn ids: one without reward is a turn (RAGEN finds ends by rewards that are not 0, and loses it).
    """

    credits: ClassVar[tuple[Credit, ...]] = ("token",)
    credit: ClassVar[Credit] = "token"

    gamma: Annotated[float, Ge(0), Le(1)] = evolvable()
    turn_gamma: Annotated[float, Ge(0), Le(1)] = evolvable()
    lam: Annotated[float, Ge(0), Le(1)] = evolvable()
    whiten: bool

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        advantage_RT = self._unwhitened(turns, tokens)
        return whiten(advantage_RT, tokens.mask_RT, tokens.member_R) if self.whiten else advantage_RT

    def targets(self, turns: TurnTable, tokens: TokenTable) -> tuple[Tensor, Tensor]:
        return self._unwhitened(turns, tokens) + values(tokens), tokens.mask_RT

    def _unwhitened(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        reward_RT, value_RT, last_RT = tokens.turn_reward_on_last_token(turns), values(tokens), tokens.last_RT
        gamma, turn_gamma, lam = (of_rows(tokens.by_row(v)) for v in (self.gamma, self.turn_gamma, self.lam))
        next_value = next_end_value = inside = across = torch.zeros_like(value_RT[:, 0])
        advantage_RT = torch.zeros_like(value_RT)
        for t in range(value_RT.shape[1] - 1, -1, -1):
            trained, last = tokens.mask_RT[:, t], last_RT[:, t]
            reward, value = reward_RT[:, t], value_RT[:, t]
            across = torch.where(last, reward + turn_gamma * next_end_value - value + turn_gamma * lam * across, across)
            next_end_value = torch.where(last, value, next_end_value)
            # at the end of a turn the target across + value is the reward, and what comes after is none of its business
            within = torch.where(last, across, reward + gamma * next_value - value + gamma * lam * inside)
            inside = torch.where(trained, within, inside)
            next_value = torch.where(trained, value, next_value)
            advantage_RT[:, t] = torch.where(trained, inside, 0.0)
        return advantage_RT
