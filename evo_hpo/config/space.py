"""The search space as it may be written: dotted keys or nested mappings, ranges absolute or relative."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

from evo_hpo.config.schema import Config


def flat(space: Mapping[Any, Any], above: str = "") -> dict[str, Any]:
    """Dotted key -> dimension.

    `{algorithm: {kl: {coef: {type: float, low: 0, high: 1}}}}` and `{algorithm.kl.coef: {…}}` give the same; a mapping
    that holds anything but mappings is a dimension.
    """
    found: dict[str, Any] = {}
    for name, node in space.items():
        key = f"{above}{name}"
        if isinstance(node, Mapping) and node and all(isinstance(inner, Mapping) for inner in node.values()):
            found.update(flat(node, f"{key}."))
        else:
            found[key] = node
    return found


def absolute(config: Config) -> Config:
    """`config` with every range of its search space in the units of its key; what is switched off does not evolve."""
    from evo_hpo.evolution.hyperparameters import evolvable

    values, space = evolvable(config), {}
    for key, dimension in config.evolution.space.items():
        own = values.get(key)
        if dimension.relative and dimension.optional and not own:
            continue
        if dimension.relative and own and dimension.low is not None and dimension.high is not None:
            low, high = dimension.low * own, dimension.high * own
            if dimension.type == "int":
                low, high = round(low), round(high)
            dimension = dataclasses.replace(dimension, low=low, high=high, relative=False)
        space[key] = dimension
    return dataclasses.replace(config, evolution=dataclasses.replace(config.evolution, space=space))
