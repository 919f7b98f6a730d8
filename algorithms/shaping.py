"""What is taken from the rewards of a turn table before advantages are computed? Raw outcomes stay as they were."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt

from algorithms.core import TurnTable


@dataclass(frozen=True, kw_only=True)
class Overlong:
    """Soft penalty on long episodes (DAPO, Yu et al. 2025, arXiv:2503.14476).

    With n sampled tokens in the episode: 0 up to limit - cache, from there down linearly to -factor at `limit`, and
    -factor beyond. It is taken from the reward of the last turn.
    """

    limit: Annotated[int, Gt(0)]
    cache: Annotated[int, Gt(0)]
    factor: Annotated[float, Ge(0)]

    def __post_init__(self) -> None:
        if self.cache > self.limit:
            raise ValueError(
                f"overlong.cache={self.cache} is more than overlong.limit={self.limit}, so that even an empty episode "
                "would be punished; write a cache of at most the limit"
            )

    def __call__(self, turns: TurnTable) -> TurnTable:
        """`turns` with other rewards; the outcomes, and with them filters and fitness, are untouched."""
        length_E = torch.zeros_like(turns.group_E).index_add(0, turns.episode_K, turns.length_K)
        excess_E = (length_E - (self.limit - self.cache)) / self.cache
        penalty_E = (-self.factor * excess_E.clamp(0, 1)).to(turns.reward_K.dtype)
        penalty_K = torch.where(turns.last_K, penalty_E[turns.episode_K], 0.0)
        return dataclasses.replace(turns, reward_K=turns.reward_K + penalty_K)
