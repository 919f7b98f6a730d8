"""What a reward is: it scores the episodes of one group and says what it needs and gives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

from envs.core import Episode, Feature


@dataclass(frozen=True)
class Score:
    """The score of one episode."""

    outcome: float  # how good the episode was as a whole, in reward units
    turn_rewards: tuple[float, ...] | None = None  # one per turn, without the outcome; None if the reward gives none
    components: dict[str, float] = field(default_factory=dict)  # named parts, logged on their own


class Reward(ABC):
    """Base class of every reward. Subclasses are frozen dataclasses; their fields are their YAML keys."""

    needs: ClassVar[frozenset[Feature]] = frozenset()  # abilities the environment must have
    gives_turn_rewards: ClassVar[bool] = False
    relative: ClassVar[bool] = False  # scores compare only within a group (a ranking judge)

    @property
    def component_names(self) -> frozenset[str]:
        """Names of the components that every score has."""
        return frozenset()

    @property
    def turn_reward_needs(self) -> frozenset[Feature]:
        """Further abilities the environment must have, but only where turn rewards are used (dense, mixed)."""
        return frozenset()

    @abstractmethod
    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        """Score the episodes of one group (same task, same member), in their order. None of them has failed."""
