"""Supervised fine-tuning on expert episodes (behaviour cloning)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt, Le

from algorithms.aggregation import Mode
from algorithms.core import Algorithm


@dataclass(frozen=True)
class Supervised(Algorithm):
    """Minimise -log pi of the expert's action tokens, stop token included, observations excluded.

    `noise` is the chance that a demonstration plays, and teaches, a random well-formed action instead of the expert's.
    """

    learns_from: ClassVar[str] = "expert"

    aggregation: Mode
    aggregation_constant: Annotated[float, Gt(0)]
    noise: Annotated[float, Ge(0), Le(1)]
    warmup: Annotated[int, Ge(0)]  # updates over which the learning rate rises linearly

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"expert"})
