"""Tournament selection with an untouched elite."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le

from evo_hpo.evolution.strategies.core import Fate, Mutation, Ranking, Standing, Strategy, Values, rescued


@dataclass(frozen=True)
class Tournament(Strategy):
    """Every slot but the elite takes the best of `size` members drawn with replacement (AgileRL's rule).

    Differences from AgileRL: the elite's hyperparameters are not mutated, ties leave members in place instead of being
    broken by list order, and a slot whose own member wins keeps it unchanged.
    """

    size: Annotated[int, Gt(0)]
    elites: Annotated[int, Gt(0)]
    resample: Annotated[float, Ge(0), Le(1)]
    mutated_keys: Annotated[int, Ge(0)]

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        fitness = standing.fitness
        ranking = Ranking.of(fitness, rng)
        everybody = list(range(len(fitness)))
        elites = ranking.order[: self.elites]
        fates = []
        for slot in everybody:
            if ranking.broken(slot):
                fates.append(rescued(slot, ranking, rng, elites))
                continue
            if slot in elites:
                fates.append(Fate(slot, "elite", False, "among the best, untouched"))
                continue
            drawn = [int(i) for i in rng.integers(len(everybody), size=self.size)]
            winner = min(drawn, key=ranking.order.index)
            if ranking.better(winner, slot):
                fates.append(Fate(winner, "cloned", True, f"lost a tournament of {self.size}"))
            else:
                fates.append(Fate(slot, "kept", False, f"no better one in a tournament of {self.size}"))
        return fates

    def explore(
        self, children: Mapping[int, Values], standing: Standing, rng: Callable[[int], np.random.Generator]
    ) -> dict[int, Values]:
        return Mutation(self.resample, self.mutated_keys).of_all(children, standing, rng)
