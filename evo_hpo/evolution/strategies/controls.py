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

    @property
    def restarts(self) -> bool:
        return self.of.restarts

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        return [replace(fate, explore=False, values=None) for fate in self.of.select(standing, rng)]


@dataclass(frozen=True)
class MutationOnly(Strategy):
    """Whoever `of` would replace keeps its weights, and its own hyperparameters are mutated instead.

    Whoever would begin anew goes on with the hyperparameters that it would have begun with.
    """

    of: Strategy

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        return [self._kept(m, fate) for m, fate in enumerate(self.of.select(standing, rng))]

    def explore(
        self, children: Mapping[int, Values], standing: Standing, rng: Callable[[int], np.random.Generator]
    ) -> dict[int, Values]:
        return self.of.explore(children, standing, rng)

    def _kept(self, member: int, fate: Fate) -> Fate:
        if fate.parent != member:
            return Fate(member, "kept", True, "mutated, and not replaced")
        if fate.event == "restarted":
            return Fate(member, "kept", fate.explore, "mutated, and not begun anew", values=fate.values)
        return Fate(member, "kept", False, fate.reason)
