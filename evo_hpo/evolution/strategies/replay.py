"""No selection: members follow a schedule of hyperparameters that was found before, or stay with its last values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from evo_hpo.evolution.strategies.core import Fate, Standing, Strategy, Values

ARMS = ("schedule", "final")  # of slots 0, 2, 4, … and of slots 1, 3, 5, …
REASONS = ("it follows the schedule", "it keeps the last values of the schedule")


@dataclass(frozen=True)
class Replay(Strategy):
    """Trains agents from scratch along a schedule, and as many with the values that it ends with.

    Members in even slots take the values of each generation in turn, those in odd slots the last ones from the start.
    If the first do better, the schedule itself is worth something, and not only where it led.

    Args:
        of: folder of the run that found it, for the comparison.
        schedule: stage -> hyperparameters of each of its generations.
    """

    evolves: ClassVar[bool] = False

    of: str
    schedule: dict[str, list[dict[str, Any]]]

    def __post_init__(self) -> None:
        if not any(self.schedule.values()):
            raise ValueError("schedule holds no generation; replay a run that was trained to its end")

    def begin(self, values: Sequence[Values], slots: Sequence[int], stage: str) -> list[Values]:
        return [dict(own) | self._at(stage, slot, 0) for own, slot in zip(values, slots, strict=True)]

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        following = standing.generation + 1
        return [
            Fate(m, "kept", False, REASONS[slot % 2], values=dict(own) | self._at(standing.stage, slot, following))
            for m, (own, slot) in enumerate(zip(standing.values, standing.slots, strict=True))
        ]

    def _at(self, stage: str, slot: int, generation: int) -> Values:
        steps = self.schedule.get(stage, [])
        if not steps:
            return {}
        return dict(steps[-1] if slot % 2 else steps[min(generation, len(steps) - 1)])
