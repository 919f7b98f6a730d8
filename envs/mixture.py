"""A mixture of environments: the seed decides which one an episode plays."""

from __future__ import annotations

import random
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, Self

from envs.core import Environment, Feature, Step


@dataclass
class Mixture(Environment):
    """Plays one of `environments`, drawn by the seed in proportion to `weights`.

    It can do what all of them can. Instructions, turn limit and keys are those of the environment in play, so read
    them after `reset`; keys carry its name.

    Args:
        environments: name -> environment.
        weights: name -> share of the episodes, in any unit; one for every environment.
    Raises:
        ValueError: where there is no environment, or the weights do not fit.
    """

    environments: dict[str, Environment] = field(default_factory=dict)
    weights: dict[str, float] = field(default_factory=dict)

    _name: str = field(default="", init=False, repr=False, compare=False)  # of the environment in play

    def __post_init__(self) -> None:
        if not self.environments:
            raise ValueError("mixture: there is nothing to play; write at least one entry under environments")
        if self.weights.keys() != self.environments.keys():
            raise ValueError(
                f"mixture: weights names {sorted(self.weights)} and environments names {sorted(self.environments)}; "
                "write one weight for every environment"
            )
        if min(self.weights.values()) < 0 or sum(self.weights.values()) <= 0:
            raise ValueError(f"mixture: weights is {self.weights}; write numbers of at least 0, not all of them 0")

    @property
    def features(self) -> frozenset[Feature]:  # type: ignore[override]
        return frozenset.intersection(*(frozenset(member.features) for member in self.environments.values()))

    @property
    def max_turns(self) -> int:  # type: ignore[override]
        """Of the environment in play; before the first reset, the largest there is."""
        if self._name:
            return self._playing.max_turns
        return max(member.max_turns for member in self.environments.values())

    @property
    def instructions(self) -> str:
        return self._playing.instructions if self._name else ""

    @property
    def turn_totals(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        all_of = [member.turn_totals for member in self.environments.values()]
        known = [totals for totals in all_of if totals is not None]
        if len(known) < len(all_of):
            return None
        failed, succeeded = ([totals[i] for totals in known] for i in (0, 1))
        return tuple((min(low for low, _ in part), max(high for _, high in part)) for part in (failed, succeeded))  # type: ignore[return-value]

    def fresh(self) -> Self:
        return type(self)({name: member.fresh() for name, member in self.environments.items()}, dict(self.weights))

    def reset(self, seed: int) -> str:
        names = list(self.environments)
        # A stream of its own: from the member's own stream, the choice would tell something about the task
        # (test_the_choice_of_the_member_says_nothing_about_its_task).
        stream = random.Random(f"{seed} {' '.join(names)}")
        self._name = stream.choices(names, [self.weights[name] for name in names])[0]
        return self._playing.reset(seed)

    def step(self, action: str) -> Step:
        return self._playing.step(action)

    def task_key(self) -> str | None:
        key = self._playing.task_key()
        return None if key is None else f"{self._name}:{key}"

    def state_key(self) -> Hashable | None:
        return (self._name, self._playing.state_key()) if Feature.STATE_KEY in self.features else None

    def snapshot(self) -> Any:
        return (self._name, self._playing.snapshot()) if Feature.SNAPSHOT in self.features else super().snapshot()

    def restore(self, snapshot: Any) -> None:
        if Feature.SNAPSHOT not in self.features:
            super().restore(snapshot)
        self._name, inner = snapshot
        self._playing.restore(inner)

    def expert(self) -> str | None:
        return self._playing.expert() if Feature.EXPERT in self.features else None

    def actions(self) -> list[str] | None:
        return self._playing.actions()

    def privileged(self) -> str | None:
        return self._playing.privileged() if Feature.PRIVILEGED in self.features else None

    def answer(self) -> str | None:
        return self._playing.answer() if Feature.ANSWER in self.features else None

    def potential(self) -> float | None:
        return self._playing.potential() if Feature.POTENTIAL in self.features else None

    def close(self) -> None:
        for member in self.environments.values():
            member.close()

    @property
    def _playing(self) -> Environment:
        if not self._name:
            raise RuntimeError("mixture: no episode is in progress; call reset first")
        return self.environments[self._name]
