"""A package outside the project, as a user would write one: an environment of one turn."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

from envs.core import Environment, Feature, Step
from rewards.environment import EnvironmentReward


@dataclass(frozen=True)
class Range:
    """A part of a part."""

    low: float
    high: float | None = None


@dataclass
class Coin(Environment):
    """Says yes to whoever says yes."""

    features: ClassVar[frozenset[Feature]] = frozenset()
    bias: float = 0.5
    sides: int = 2
    fair: bool = True
    metal: Literal["gold", "tin"] = "tin"
    limits: Range | None = None
    others: dict[str, Environment] = field(default_factory=dict)
    token: str | None = None

    def __post_init__(self) -> None:
        if self.sides < 1:
            raise ValueError(f"sides is {self.sides}; write 1 or more")

    def reset(self, seed: int) -> str:
        return "yes?"

    def step(self, action: str) -> Step:
        return Step("", done=True, success=action == "yes")


@dataclass(frozen=True)
class Outcome(EnvironmentReward):
    """Gives no turn rewards."""

    @property
    def gives_turn_rewards(self) -> bool:
        return False


@dataclass(frozen=True)
class Ranking(EnvironmentReward):
    """Gives scores that compare within a group only."""

    @property
    def relative(self) -> bool:
        return True


def make(**settings: Any) -> Coin:
    """A function, which is no component."""
    return Coin(**settings)
