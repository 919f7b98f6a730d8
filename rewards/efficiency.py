"""How many of the turns were not wasted."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from envs.core import Episode
from rewards.per_turn import PerTurn


@dataclass(frozen=True, kw_only=True)
class Efficiency(PerTurn):
    """value of a turn = 0 if it was wasted, else 1; an episode is worth the mean: 1 - share of wasted turns.

    A turn is wasted if the environment could make nothing of its action, or if the same action was already taken in
    the same state (where the environment has no state key: after the same observation). In an environment of chance,
    trying again can be right; leave this part out there.
    Components: `invalid` and `repeated`, numbers of turns wasted for either reason.
    """

    mean = True
    value_range = (0.0, 1.0)

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"invalid", "repeated"})

    def values(self, episode: Episode) -> tuple[list[float], dict[str, float]]:
        done: set[tuple[Hashable, str]] = set()
        values, invalid, repeated = [], 0, 0
        for turn in episode.turns:
            step = (turn.observation if turn.state_key is None else turn.state_key, turn.action.strip())
            invalid += not turn.valid
            repeated += turn.valid and step in done
            values.append(float(turn.valid and step not in done))
            done.add(step)
        return values, {"invalid": float(invalid), "repeated": float(repeated)}
