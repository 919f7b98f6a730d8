"""No evolution: members train side by side and nobody is replaced."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from evo_hpo.evolution.strategies.core import Fate, Standing, Strategy


@dataclass(frozen=True)
class NoEvolution(Strategy):
    """One member is an ordinary run; several are independent ones."""

    evolves: ClassVar[bool] = False

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        return [Fate(slot, "kept", False, "no evolution") for slot in range(len(standing.fitness))]
