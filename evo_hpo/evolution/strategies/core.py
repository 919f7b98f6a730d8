"""What an evolution strategy is: it reads how members did and says who takes whose place. It sees no weights."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import numpy as np

from evo_hpo.config.schema import Dimension
from evo_hpo.config.species import name_of
from evo_hpo.evolution.space import draw, perturb

Values = dict[str, Any]  # dotted key -> value of one member
Event = Literal[
    "kept",  # goes on as it is
    "elite",  # among the best, and goes on as it is
    "cloned",  # takes weights, optimiser state and hyperparameters of another
    "rescued",  # likewise, because its own fitness cannot be used
    "stepped_back",  # likewise, because a mutation did it no good
    "injected",  # likewise, with fresh hyperparameters, because the population has become alike
    "restarted",  # begins anew, from where the run began
    "retired",  # leaves the population
]


@dataclass(frozen=True)
class Fate:
    """What becomes of one member."""

    parent: int  # whose weights and hyperparameters fill the slot; itself if nothing changes
    event: Event
    explore: bool  # whether the hyperparameters are then mutated
    reason: str  # half a sentence, for the lineage
    better: float | None = None  # probability that the parent is better than what filled the slot, where it was asked
    values: Values | None = None  # hyperparameters to take instead of the parent's


@dataclass(frozen=True)
class Past:
    """An earlier generation of the stage. Members are counted in their order at that time."""

    fitness: list[float]
    values: list[Values]  # that it was trained with
    parents: list[int]  # of each member of the next generation, its parent in this one
    events: list[str]  # how each member of the next generation came to be
    results: list[list[float]] = field(default_factory=list)  # as in `Standing`; kept of the latest one only


@dataclass(frozen=True)
class Standing:
    """How the members stand at the end of a generation.

    Attributes:
        stage: name of the stage.
        slots: [N] number of each member, which it keeps when others retire.
        generation: number of this generation in its stage, from 0.
        generations: of the stage.
        fitness: [N] rate on the common tasks; NaN where it cannot be used.
        results: [N][tasks] mean result of each member on each common task, in [0, 1], NaN where it could not be played.
        values: [N] hyperparameters that it was trained with.
        space: what may change, and where it may lie, in a population without species.
        spaces: the same for each species, by name; empty where there are none.
        past: earlier generations of the stage, oldest first.
        evaluate: plays the common tasks once more with the members given, under new noise that is common to them, and
            returns their results; it costs what an evaluation costs.
    """

    stage: str
    slots: list[int]
    generation: int
    generations: int
    fitness: list[float]
    results: list[list[float]]
    values: list[Values]
    space: Mapping[str, Dimension]
    past: list[Past]
    evaluate: Callable[[Sequence[int]], list[list[float]]]
    spaces: Mapping[str, Mapping[str, Dimension]] = field(default_factory=dict)

    def space_of(self, values: Mapping[str, Any]) -> Mapping[str, Dimension]:
        """What may change of a member with these hyperparameters."""
        return self.spaces[name_of(values)] if self.spaces else self.space

    @classmethod
    def of(cls, fitness: Sequence[float], **changes: Any) -> Standing:
        """The first of two generations, with nothing known but the fitness."""
        known: dict[str, Any] = {
            "stage": "train",
            "slots": list(range(len(fitness))),
            "generation": 0,
            "generations": 2,
            "fitness": list(fitness),
            "results": [[rate] for rate in fitness],
            "values": [{} for _ in fitness],
            "space": {},
            "past": [],
            "evaluate": lambda members: [[fitness[member]] for member in members],
        }
        return cls(**known | changes)


class Strategy(ABC):
    """Base of every strategy. Subclasses are frozen dataclasses; their fields are their YAML keys.

    A strategy keeps nothing between generations: what it must know lies in the standing, so that a resumed run decides
    as one that was never stopped.
    """

    evolves: ClassVar[bool] = True
    own_interval: ClassVar[bool] = False  # counts generations itself, so it must be asked after each of them
    own_start: ClassVar[bool] = False  # and from the first

    @property
    def restarts(self) -> bool:
        """Whether members begin anew, so that the best one of the last generation may not be the best."""
        return False

    def begin(self, values: Sequence[Values], slots: Sequence[int], stage: str) -> list[Values]:
        """Hyperparameters with which the members of a stage begin.

        Args:
            values: what they would begin with: the config's own, or what was drawn from the space.
            slots: number of each member.
        """
        return [dict(each) for each in values]

    @abstractmethod
    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        """One fate per member.

        Fitness that is not finite ranks last, never wins, and is replaced if anybody's is finite; ties leave members in
        place; doing nothing is legal.
        """

    def explore(
        self, children: Mapping[int, Values], standing: Standing, rng: Callable[[int], np.random.Generator]
    ) -> dict[int, Values]:
        """New hyperparameters of the members that are to explore.

        Args:
            children: member -> the values it takes over.
            rng: member -> its own random numbers, so that nobody's depend on who else explores.
        """
        return {member: dict(values) for member, values in children.items()}


@dataclass(frozen=True)
class Mutation:
    """How a clone's hyperparameters move."""

    resample: float  # chance that a mutated key is drawn anew from the space instead of perturbed
    keys: int  # keys that are mutated at a time; 0: all

    def __call__(self, values: Mapping[str, Any], space: Mapping[str, Dimension], rng: np.random.Generator) -> Values:
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

    def of_all(
        self, children: Mapping[int, Values], standing: Standing, rng: Callable[[int], np.random.Generator]
    ) -> dict[int, Values]:
        """As `Strategy.explore`, each child for itself."""
        return {member: self(values, standing.space_of(values), rng(member)) for member, values in children.items()}


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
