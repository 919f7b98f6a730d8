"""The search space as it may be written: dotted keys, or nested mappings that the command line can reach into."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


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
