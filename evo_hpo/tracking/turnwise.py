"""Metrics of one turn index are called `turn/<metric>/<index>`; late turns share an index."""

from __future__ import annotations

INDICES = ("0", "1", "2", "3", "4", "5", "6", "7", "8+")
LAST = len(INDICES) - 1


def turn_name(metric: str, index: int) -> str:
    """Name of `metric` for the turns number `index`, counted from 0."""
    return f"turn/{metric}/{INDICES[min(index, LAST)]}"


def parsed(name: str) -> tuple[str, int] | None:
    """The metric and the place of its index in `INDICES`; None where `name` is of no turn index."""
    head, _, index = name.rpartition("/")
    if not head.startswith("turn/") or index not in INDICES:
        return None
    return head.removeprefix("turn/"), INDICES.index(index)
