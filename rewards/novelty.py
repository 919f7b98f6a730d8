"""A bonus for reaching states that were seldom reached before."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Literal

from envs.core import Episode, Feature
from rewards.core import Score
from rewards.per_turn import PerTurn


@dataclass(frozen=True, kw_only=True)
class Novelty(PerTurn):
    """value of a turn = 1 / sqrt(visits of the state that it reaches), from 0 to 1; an episode is worth the sum.

    Count-based exploration (Strehl & Littman 2008; Bellemare et al. 2016, arXiv:1606.01868), within a group.

    - scope=episode: visits of this episode so far; the start and the present visit count
    - scope=group: those, and all visits by the other episodes of the group

    The last turn gets 0: the state after it is not on record.
    Components: `bonus`, the sum, and `states`, how many different ones were met.
    """

    scope: Literal["episode", "group"]

    value_range = (0.0, 1.0)

    @property
    def needs(self) -> frozenset[Feature]:
        return frozenset({Feature.STATE_KEY})

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"bonus", "states"})

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        if self.scope == "episode":
            return super().__call__(group)
        met = Counter(turn.state_key for episode in group for turn in episode.turns)
        return [self.pay(*self.values(episode, met - _visits(episode))) for episode in group]

    def values(
        self, episode: Episode, elsewhere: Counter[Hashable] | None = None
    ) -> tuple[list[float], dict[str, float]]:
        """[turns] values and the components; `elsewhere` counts the visits by other episodes."""
        visits: Counter[Hashable] = Counter(elsewhere)
        values = []
        for turn in episode.turns:
            visits[turn.state_key] += 1
            values.append(1 / math.sqrt(visits[turn.state_key]))
        values = [*values[1:], 0.0][: len(values)]  # a turn reaches the state in which the next one begins
        return values, {"bonus": sum(values, 0.0), "states": float(len(_visits(episode)))}


def _visits(episode: Episode) -> Counter[Hashable]:
    return Counter(turn.state_key for turn in episode.turns)
