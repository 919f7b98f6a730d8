"""Halves of evolution, to be compared with the whole at equal budget: selection alone, and mutation alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np

from evo_hpo.evolution.strategies.core import Fate, Standing, Strategy, Values


@dataclass(frozen=True)
class SelectionOnly(Strategy):
    """Members take each other's places as `of` says, and nobody's hyperparameters are mutated."""

    of: Strategy

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        return [replace(fate, explore=False, values=None) for fate in self.of.select(standing, rng)]


@dataclass(frozen=True)
class MutationOnly(Strategy):
    """Whoever `of` would replace keeps its weights, and its own hyperparameters are mutated instead."""

    of: Strategy

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        return [
            Fate(m, "kept", fate.parent != m, "mutated, and not replaced" if fate.parent != m else fate.reason)
            for m, fate in enumerate(self.of.select(standing, rng))
        ]

    def explore(
        self, children: Mapping[int, Values], standing: Standing, rng: Callable[[int], np.random.Generator]
    ) -> dict[int, Values]:
        return self.of.explore(children, standing, rng)
