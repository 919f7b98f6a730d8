"""The environment's turn rewards alone, without its outcome."""

from __future__ import annotations

from dataclasses import dataclass

from envs.core import Environment, Episode, Feature
from rewards.core import Bounds
from rewards.per_turn import PerTurn


@dataclass(frozen=True, kw_only=True)
class TurnReward(PerTurn):
    """value of a turn = the environment's reward for it, in its own units; an episode is worth the sum.

    Component: `progress`, the sum.
    """

    @property
    def needs(self) -> frozenset[Feature]:
        return frozenset({Feature.TURN_REWARDS})

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"progress"})

    def bounds(self, env: Environment) -> Bounds | None:
        return None if env.turn_totals is None else self.bounds_of(*env.turn_totals)

    def values(self, episode: Episode) -> tuple[list[float], dict[str, float]]:
        rewards = [turn.reward for turn in episode.turns]
        return rewards, {"progress": sum(rewards, 0.0)}
