"""Where a hyperparameter may lie, and how it moves."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from itertools import combinations
from typing import Any

import numpy as np

from evo_hpo.config.schema import Dimension

UP = 1.25  # down is 1 / UP: perturbations that are symmetric in the logarithm do not drift


def draw(dimension: Dimension, uniform: float) -> Any:
    """The value at quantile `uniform` in [0, 1) of the dimension's prior (uniform, or log-uniform)."""
    if dimension.type == "categorical":
        choices = dimension.choices or []
        return choices[min(int(uniform * len(choices)), len(choices) - 1)]
    low, high = _bounds(dimension)
    if dimension.type == "int" and not dimension.log:
        return min(math.floor(low + uniform * (high - low + 1)), int(high))
    value = math.exp(math.log(low) + uniform * math.log(high / low)) if dimension.log else low + uniform * (high - low)
    return _fitted(dimension, value)


def perturb(dimension: Dimension, value: Any, rng: np.random.Generator) -> Any:
    """A neighbour of `value` inside the bounds.

    Numbers are multiplied or divided by 1.25, or by the root of high / low if that is less; a number that may be 0 or
    below moves by a tenth of its range instead. A step that leads out of the bounds is reflected; where that would undo
    more than half of it, and always for integers, it goes the other way. Integers move at least one step. Categories
    change to another choice.
    """
    if dimension.type == "categorical":
        others = [choice for choice in dimension.choices or [] if choice != value]
        return others[int(rng.integers(len(others)))] if others else value
    low, high = _bounds(dimension)
    sign = 1 if rng.random() < 0.5 else -1
    start = min(max(float(value), low), high)
    moved = _moved(dimension, start, sign)
    return _fitted(dimension, moved if low <= moved <= high else _turned(dimension, start, sign))


def _moved(dimension: Dimension, value: float, sign: int) -> float:
    """One step up or down, which may lead out of the bounds; from any value one of the two does not."""
    low, high = _bounds(dimension)
    if low > 0:
        moved = value * min(UP, math.sqrt(high / low)) ** sign
    else:
        moved = value + sign * (high - low) / 10
    if dimension.type == "float":
        return moved
    return value + sign if round(moved) == value else float(round(moved))


def _turned(dimension: Dimension, value: float, sign: int) -> float:
    """Where a step that leads out of the bounds ends instead."""
    other = _moved(dimension, value, -sign)
    low, high = _bounds(dimension)
    bound, moved = (high if sign > 0 else low), _moved(dimension, value, sign)
    if dimension.type == "int" or value == bound:
        return other
    if low > 0:  # steps are equal in the logarithm
        reflected = bound * bound / moved
        enough = sign * math.log(value / reflected) >= sign * math.log(value / other) / 2
    else:
        reflected = 2 * bound - moved
        enough = sign * (value - reflected) >= sign * (value - other) / 2
    return reflected if enough else other


def _fitted(dimension: Dimension, value: float) -> Any:
    low, high = _bounds(dimension)
    value = min(max(value, low), high)
    return int(min(max(round(value), math.ceil(low)), math.floor(high))) if dimension.type == "int" else float(value)


def _bounds(dimension: Dimension) -> tuple[float, float]:
    if dimension.low is None or dimension.high is None:
        raise ValueError(f"a dimension of type {dimension.type} needs low and high")
    return dimension.low, dimension.high


def spread(space: Mapping[str, Dimension], own: Mapping[str, Any], members: int, seed: int) -> dict[str, list[Any]]:
    """First values of every member: the config's own for member 0, a scrambled Sobol sequence for the others."""
    names = sorted(space)
    values: dict[str, list[Any]] = {name: [own[name]] for name in names}
    if members > 1 and names:
        import torch

        sequence = torch.quasirandom.SobolEngine(len(names), scramble=True, seed=seed)
        points = sequence.draw(members - 1, dtype=torch.float64)
        for d, name in enumerate(names):
            values[name] += [draw(space[name], float(point)) for point in points[:, d]]
    return values


def variety(spaces: Sequence[Mapping[str, Dimension]], values: Sequence[Mapping[str, Any]]) -> float:
    """Mean distance between two members, per key, as a share of its range; 1/3 if they are spread evenly.

    Categories are at distance 1 from each other, and so are a member that has a key and one that has not.

    Args:
        spaces: of each member; they differ between species.
        values: of each member.
    """
    places = [
        {name: _place_of(space[name], one[name]) if name in space else one[name] for name in one}
        for space, one in zip(spaces, values, strict=True)
    ]
    names = sorted({name for one in places for name in one})
    pairs = list(combinations(places, 2))
    if not pairs or not names:
        return 0.0
    return sum(_apart(a, b, name) for name in names for a, b in pairs) / len(pairs) / len(names)


def _place_of(dimension: Dimension, value: Any) -> Any:
    return str(value) if dimension.type == "categorical" else place(dimension, value)


def _apart(a: Mapping[str, Any], b: Mapping[str, Any], name: str) -> float:
    if name not in a or name not in b or isinstance(a[name], str) or isinstance(b[name], str):
        return float(a.get(name) != b.get(name))
    return abs(float(a[name]) - float(b[name]))


def place(dimension: Dimension, value: float) -> float:
    """Where a number lies between the bounds, in [0, 1]."""
    low, high = _bounds(dimension)
    if high == low:
        return 0.0
    if dimension.log:
        low, high, value = math.log(low), math.log(high), math.log(value)
    return (value - low) / (high - low)


def distribution(dimension: Dimension) -> Any:
    """The dimension as Optuna has it."""
    from optuna import distributions

    if dimension.type == "categorical":
        return distributions.CategoricalDistribution(dimension.choices or [])
    low, high = _bounds(dimension)
    if dimension.type == "int":
        return distributions.IntDistribution(int(low), int(high), log=dimension.log)
    return distributions.FloatDistribution(low, high, log=dimension.log)
