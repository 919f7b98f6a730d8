"""`list algorithm`: every preset by what it is on each axis."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from algorithms.advantages import Critical
from algorithms.core import Algorithm
from algorithms.policy_gradient import PolicyGradient
from algorithms.preference import Preference
from evo_hpo.config.alternatives import components

AXES = ("preset", "estimator", "credit", "ratio", "objective", "aggregation", "KL", "filters and corrections")


def matrix() -> Iterator[str]:
    """The lines of the table."""
    rows = [AXES, *(_row(name, algorithm) for name, algorithm in components("algorithm").items())]
    widths = [max(len(row[column]) for row in rows) for column in range(len(AXES))]
    for row in rows:
        yield "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()


def _row(name: str, algorithm: Algorithm) -> tuple[str, ...]:
    if isinstance(algorithm, PolicyGradient):
        return (
            name,
            _estimator(algorithm.advantage),
            algorithm.advantage.credit,
            algorithm.ratio if algorithm.objective.off_policy else "-",
            type(algorithm.objective).__name__,
            algorithm.aggregation,
            f"{algorithm.kl.estimator} in {algorithm.kl.place}" if algorithm.kl.coef else "-",
            ", ".join(_others(algorithm)) or "-",
        )
    kind = f"pairs, {algorithm.loss}" if isinstance(algorithm, Preference) else "expert"
    return (name, kind, "-", "-", type(algorithm).__name__, getattr(algorithm, "aggregation", "-"), "-", "-")


def _estimator(advantage: Any) -> str:
    """Class of an estimator with the choices that make presets differ."""
    told = [type(advantage).__name__]
    if inner := getattr(advantage, "of", None):
        return f"{told[0]}({_estimator(inner)})"
    if (normal := getattr(advantage, "normalisation", None)) is not None:
        told.append(f"centre {normal.centre}, spread {normal.spread}")
    if (baseline := getattr(advantage, "baseline", None)) is not None:
        told.append(f"baseline {baseline}")
    if getattr(advantage, "similarity", None):
        told.append("similar")
    if getattr(advantage, "whiten", False):
        told.append("whitened")
    return ", ".join(told) + (" + critic" if isinstance(advantage, Critical) else "")


def _others(algorithm: PolicyGradient) -> Iterator[str]:
    yield from (type(filter_).__name__ for filter_ in algorithm.filters)
    for part in (algorithm.overlong, algorithm.sequence_mask, algorithm.correction):
        if part is not None:
            yield type(part).__name__
