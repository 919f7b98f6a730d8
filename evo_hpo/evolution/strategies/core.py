"""What an evolution strategy is: it reads fitness and says who takes whose place. It sees no weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from evo_hpo.config.schema import Dimension
from evo_hpo.evolution.space import draw, perturb


@dataclass(frozen=True)
class Fate:
    """What becomes of one slot."""

    parent: int  # whose weights and hyperparameters fill the slot; itself if nothing changes
    event: str  # kept | elite | cloned | rescued
    explore: bool  # whether the hyperparameters are then mutated
    reason: str  # half a sentence, for the lineage


class Strategy(ABC):
    """Base of every strategy. Subclasses are frozen dataclasses; their fields are their YAML keys."""

    evolves: ClassVar[bool] = True

    @abstractmethod
    def select(self, fitness: Sequence[float], rng: np.random.Generator) -> list[Fate]:
        """One fate per slot.

        Fitness that is not finite ranks last, never wins, and is replaced if anybody's is finite; ties leave members in
        place.
        """

    def explore(
        self, values: Mapping[str, Any], space: Mapping[str, Dimension], rng: np.random.Generator
    ) -> dict[str, Any]:
        """Mutated hyperparameters of a clone."""
        return dict(values)


@dataclass(frozen=True)
class Mutation:
    """How a clone's hyperparameters move."""

    resample: float  # chance that a mutated key is drawn anew from the space instead of perturbed
    keys: int  # keys that are mutated at a time; 0: all

    def __call__(
        self, values: Mapping[str, Any], space: Mapping[str, Dimension], rng: np.random.Generator
    ) -> dict[str, Any]:
        result = dict(values)
        names = sorted(name for name in space if name in values)
        if self.keys and len(names) > self.keys:
            names = sorted(rng.choice(names, size=self.keys, replace=False).tolist())
        for name in names:
            if rng.random() < self.resample:
                result[name] = draw(space[name], float(rng.random()))
            else:
                result[name] = perturb(space[name], values[name], rng)
        return result


@dataclass(frozen=True)
class Ranking:
    """Slots from best to worst; fitness that is not finite last; equal fitness in random order, never in list order."""

    order: list[int]
    fitness: list[float] = field(repr=False)

    @classmethod
    def of(cls, fitness: Sequence[float], rng: np.random.Generator) -> Ranking:
        value = np.array([f if np.isfinite(f) else -np.inf for f in fitness], dtype=np.float64)
        order = np.lexsort((rng.random(len(value)), -value))
        return cls([int(i) for i in order], [float(f) for f in value])

    def broken(self, slot: int) -> bool:
        return self.fitness[slot] == -np.inf

    def better(self, a: int, b: int) -> bool:
        """Whether a is strictly better than b."""
        return self.fitness[a] > self.fitness[b]


def rescued(slot: int, ranking: Ranking, rng: np.random.Generator, donors: Sequence[int]) -> Fate:
    """The fate of a member without a usable fitness."""
    usable = [d for d in donors if not ranking.broken(d)]
    if not usable:
        return Fate(slot, "kept", False, "nobody has a usable fitness to be rescued with")
    donor = usable[int(rng.integers(len(usable)))]
    return Fate(donor, "rescued", True, "its fitness is not a finite number")
