"""A charge for every turn beyond a number of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge

from envs.core import Environment, Episode
from rewards.core import Bounds
from rewards.per_turn import PerTurn


@dataclass(frozen=True, kw_only=True)
class TurnLimit(PerTurn):
    """value of a turn = -1 if it comes after the first `free_turns`, else 0; an episode is worth the sum, 0 or less.

    Component: `beyond`, the number of those turns.
    """

    free_turns: Annotated[int, Ge(0)]

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"beyond"})

    def bounds(self, env: Environment) -> Bounds | None:
        return self.bounds_of((-float(max(0, env.max_turns - self.free_turns)), 0.0))

    def values(self, episode: Episode) -> tuple[list[float], dict[str, float]]:
        values = [-1.0 if k >= self.free_turns else 0.0 for k in range(len(episode.turns))]
        return values, {"beyond": float(max(0, len(values) - self.free_turns))}
