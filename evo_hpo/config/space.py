"""The search space as it may be written: dotted keys or nested mappings, ranges absolute or relative."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, cast, get_args

from annotated_types import Ge, Gt, Le, Lt

from evo_hpo.config.schema import Config


def flat(space: Mapping[Any, Any], above: str = "") -> dict[str, Any]:
    """Dotted key -> dimension.

    `{algorithm: {kl: {coef: {type: float, low: 0, high: 1}}}}` and `{algorithm.kl.coef: {…}}` give the same; a mapping
    that holds anything but mappings is a dimension. An empty mapping, which `~evolution.space.algorithm.kl.coef` leaves
    behind, is nothing.
    """
    found: dict[str, Any] = {}
    for name, node in space.items():
        key = f"{above}{name}"
        if isinstance(node, Mapping) and all(isinstance(inner, Mapping) for inner in node.values()):
            found.update(flat(node, f"{key}."))
        else:
            found[key] = node
    return found


def absolute(config: Config) -> Config:
    """`config` with every range of its search space in the units of its key; what is switched off does not evolve."""
    from evo_hpo.evolution.hyperparameters import evolvable, types_of

    values, types, space = evolvable(config), types_of(config), {}
    for key, dimension in config.evolution.space.items():
        own = values.get(key)
        if dimension.relative and dimension.optional and not own:
            continue
        if dimension.relative and own and dimension.low is not None and dimension.high is not None:
            low, high = dimension.low * own, dimension.high * own
            low, high = _inside(types[key], low, high)
            if dimension.type == "int":
                low, high = float(round(low)), float(round(high))
            dimension = dataclasses.replace(dimension, low=low, high=high, relative=False)
        space[key] = dimension
    return dataclasses.replace(config, evolution=dataclasses.replace(config.evolution, space=space))


def _inside(hint: Any, low: float, high: float) -> tuple[float, float]:
    """The range as far as the type of its key allows it."""
    for bound in get_args(hint)[1:]:
        if isinstance(bound, Ge):
            low = max(low, cast(float, bound.ge))
        elif isinstance(bound, Gt):
            low = max(low, math.nextafter(cast(float, bound.gt), math.inf))
        elif isinstance(bound, Le):
            high = min(high, cast(float, bound.le))
        elif isinstance(bound, Lt):
            high = min(high, math.nextafter(cast(float, bound.lt), -math.inf))
    return low, high
