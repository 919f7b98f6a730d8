"""Where is what a reward says about single turns paid: at the turn, or at the end?"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from envs.core import Environment, Episode
from rewards.core import Bounds, Range, Reward, Score

NOTHING: Range = (0.0, 0.0)


@dataclass(frozen=True, kw_only=True)
class PerTurn(Reward):
    """A reward with a value for every turn; an episode is worth their sum, or their mean where `mean` says so.

    - paid=turns: each turn gets its share where it was earned (its value, or value / number of turns), the outcome is 0
    - paid=outcome: the outcome is all of it, and there are no turn rewards

    Either way an episode gets the same in total. What is paid to turns counts under granularity=dense and mixed, what
    is paid as the outcome under sparse and mixed.
    """

    paid: Literal["outcome", "turns"]

    mean: ClassVar[bool] = False
    value_range: ClassVar[Range]  # of a turn; holds 0

    @property
    def gives_turn_rewards(self) -> bool:
        return self.paid == "turns"

    @property
    def paid_by_turn(self) -> frozenset[str]:
        return frozenset({""}) if self.paid == "turns" else frozenset()

    def bounds(self, env: Environment) -> Bounds | None:
        low, high = self.value_range
        turns = 1 if self.mean else env.max_turns
        return self.bounds_of((low * turns, high * turns))

    @abstractmethod
    def values(self, episode: Episode) -> tuple[list[float], dict[str, float]]:
        """[turns] values of the turns, and the components of the score."""

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [self.pay(*self.values(episode)) for episode in group]

    def pay(self, values: Sequence[float], components: Mapping[str, float]) -> Score:
        """The score of an episode whose turns have these values."""
        parts = len(values) if self.mean and values else 1
        if self.paid == "turns":
            return Score(0.0, tuple(value / parts for value in values), dict(components))
        return Score(sum(values, 0.0) / parts, None, dict(components))

    def bounds_of(self, failed: Range, succeeded: Range | None = None) -> Bounds:
        """Bounds from what an episode that fails, and one that succeeds, can get in all."""
        succeeded = failed if succeeded is None else succeeded
        if self.paid == "turns":
            return Bounds(NOTHING, NOTHING, failed, succeeded)
        return Bounds(failed, succeeded, NOTHING, NOTHING)
