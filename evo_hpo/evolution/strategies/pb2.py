"""Population based bandits: what is explored is where a model of all that was tried expects the most."""

from __future__ import annotations

import math
from collections.abc import Callable, Container, Mapping
from dataclasses import dataclass
from typing import Annotated, Any

import numpy as np
import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from evo_hpo.config.schema import Dimension
from evo_hpo.config.species import name_of
from evo_hpo.evolution.bandit import Process, beta
from evo_hpo.evolution.space import UP, draw, place
from evo_hpo.evolution.strategies.core import Fate, Standing, Strategy, Values
from evo_hpo.evolution.strategies.truncation import Truncation

CANDIDATES = 512  # drawn for each child


@dataclass(frozen=True)
class PB2(Strategy):
    """Truncation, but children explore where the upper bound of their growth is highest.

    Parker-Holder et al. 2020, arXiv:2002.02518. Constants are those of Ray Tune's `pb2.py`, from which this differs:
    the model knows of noise, the bound counts standard deviations instead of variances, logarithmic ranges are
    logarithmic.

    Learned from are changes of fitness over single generations of training, never those that came from cloning. The
    first generation of a stage therefore teaches nothing: where its members stood before was not measured. Members that
    go on, and children one after another, count as if they had grown as expected, so that suggestions differ.

    Categories are part of the model, as far from each other as the ends of a range: the kernel of PB2-Mix
    (Parker-Holder et al. 2021), whose bandit over categories alone is left out.
    """

    quantile: Annotated[float, Ge(0), Le(0.5)]
    elites: Annotated[int, Gt(0)]
    trust: Annotated[float, Gt(1)]
    memory: Annotated[int, Gt(0)]

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        return Truncation(self.quantile, self.elites, resample=0.0, mutated_keys=0).select(standing, rng)

    def explore(
        self, children: Mapping[int, Values], standing: Standing, rng: Callable[[int], np.random.Generator]
    ) -> dict[int, Values]:
        found: dict[int, Values] = {}
        for species in sorted({name_of(values) for values in children.values()}):
            alike = {member: values for member, values in children.items() if name_of(values) == species}
            found |= self._explore(species, alike, set(children), standing, rng)
        return found

    def _explore(
        self,
        species: str,
        children: Mapping[int, Values],
        changing: Container[int],
        standing: Standing,
        rng: Callable[[int], np.random.Generator],
    ) -> dict[int, Values]:
        """Of one species, from what its members went through; `changing` are the children of all."""
        space = standing.space_of(next(iter(children.values())))
        process = self._learned(species, space, standing)
        attraction, time = beta(len(process.points)), len(standing.past) + 1
        going_on = [
            _point(time, standing.fitness[m], values, space)
            for m, values in enumerate(standing.values)
            if m not in changing and math.isfinite(standing.fitness[m]) and name_of(values) == species
        ]
        if going_on:
            process = process.expecting(_tensor(going_on))
        found = {}
        for member in sorted(children):
            offered = self._candidates(children[member], space, rng(member))
            fitness = _fitness_of(children[member], standing)
            points = _tensor([_point(time, fitness, values, space) for values in offered])
            best = int(process.upper_bound(points, attraction).argmax())
            process = process.expecting(points[best : best + 1])
            found[member] = offered[best]
        return found

    def _learned(self, species: str, space: Mapping[str, Dimension], standing: Standing) -> Process:
        """From the latest `memory` changes; they are standardised, and those far out are brought in, as in PB2."""
        points, changes = experience(standing, species)
        latest = np.array(changes[-self.memory :])
        spread = latest.std() if len(latest) else 0.0
        standard = (latest - latest.mean()) / spread if spread > 0 else np.zeros_like(latest)
        alike = next(values for values in standing.values if name_of(values) == species)
        columns = len(_point(0, 0.0, alike, space))
        observed = _tensor(points[-self.memory :]).reshape(-1, columns)
        return Process.fitted(observed, torch.as_tensor(standard.clip(-2, 2), dtype=torch.float64))

    def _candidates(self, values: Values, space: Mapping[str, Dimension], rng: np.random.Generator) -> list[Values]:
        """Random values around those of the parent."""
        ranges = {name: _trusted(space[name], values[name], self.trust) for name in sorted(space) if name in values}
        candidates = [dict(values) for _ in range(CANDIDATES)]
        for candidate in candidates:
            for name, (low, high) in ranges.items():
                candidate[name] = draw(space[name], low + float(rng.random()) * (high - low))
        return candidates


def experience(standing: Standing, species: str = "") -> tuple[list[list[float]], list[float]]:
    """Every generation that a member of the species trained from a known fitness to another: where, what changed."""
    fitness = [*(one.fitness for one in standing.past), standing.fitness]
    values = [*(one.values for one in standing.past), standing.values]
    points, changes = [], []
    for time in range(1, len(fitness)):
        for member, parent in enumerate(standing.past[time - 1].parents):
            before, after, own = fitness[time - 1][parent], fitness[time][member], values[time][member]
            if math.isfinite(before) and math.isfinite(after) and name_of(own) == species:
                points.append(_point(time, before, own, standing.space_of(own)))
                changes.append(after - before)
    return points, changes


def _fitness_of(values: Values, standing: Standing) -> float:
    """Of the best member with these values: it is whom a child has them from."""
    usable = [f for f, own in zip(standing.fitness, standing.values, strict=True) if own == values and math.isfinite(f)]
    return max(usable, default=0.0)


def _point(time: int, before: float, values: Values, space: Mapping[str, Dimension]) -> list[float]:
    """Time in generations, fitness before and hyperparameters, these between 0 and 1."""
    point = [float(time), before]
    for name in sorted(space):
        if name in values:
            point += _coordinates(space[name], values[name])
    return point


def _coordinates(dimension: Dimension, value: Any) -> list[float]:
    if dimension.type == "categorical":
        return [math.sqrt(0.5) * (choice == value) for choice in dimension.choices or []]  # at distance 1
    return [place(dimension, value)]


def _trusted(dimension: Dimension, value: Any, factor: float) -> tuple[float, float]:
    """Part of the range, as quantiles, within a factor of the value.

    It is at least one step each way for integers, and as many tenths of the range as the factor has steps of 1.25 for a
    number that may be 0 or below.
    """
    if dimension.type == "categorical":
        return 0.0, 1.0
    assert dimension.low is not None and dimension.high is not None
    reach = math.log(factor) / math.log(UP) * (dimension.high - dimension.low) / 10
    low, high = (value / factor, value * factor) if dimension.low > 0 else (value - reach, value + reach)
    if dimension.type == "int":
        low, high = min(low, value - 1), max(high, value + 1)
    low, high = max(low, dimension.low), min(high, dimension.high)
    return place(dimension, min(low, dimension.high)), place(dimension, max(high, dimension.low))


def _tensor(points: list[list[float]]) -> Tensor:
    return torch.tensor(points, dtype=torch.float64)
