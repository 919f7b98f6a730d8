"""Population based training with truncation selection."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated

import numpy as np
from annotated_types import Ge, Gt, Le

from evo_hpo.evolution.strategies.core import Fate, Mutation, Ranking, Standing, Strategy, Values, rescued


@dataclass(frozen=True)
class Truncation(Strategy):
    """Each of the worst `quantile` clones one of the best `quantile` (Jaderberg et al. 2017, arXiv:1711.09846).

    The donor is drawn at random. The numbers are Ray Tune's (ceil(P q), at most P/2), the perturbation is
    log-symmetric. The best `elites` members are never touched, and a member is replaced only by a strictly better one.
    """

    quantile: Annotated[float, Ge(0), Le(0.5)]
    elites: Annotated[int, Gt(0)]
    resample: Annotated[float, Ge(0), Le(1)]
    mutated_keys: Annotated[int, Ge(0)]

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        fitness = standing.fitness
        ranking = Ranking.of(fitness, rng)
        size = len(fitness)
        cut = min(math.ceil(round(size * self.quantile, 9)), size // 2)  # 100 * 0.07 is a little more than 7
        elites = ranking.order[: self.elites]
        top, bottom = ranking.order[: max(cut, 1)], ranking.order[size - cut :]
        fates = []
        for slot in range(size):
            if ranking.broken(slot):
                fates.append(rescued(slot, ranking, rng, top))
            elif slot in elites:
                fates.append(Fate(slot, "elite", False, "among the best, untouched"))
            elif slot in bottom:
                donor = top[int(rng.integers(len(top)))]
                if ranking.better(donor, slot):
                    fates.append(Fate(donor, "cloned", True, f"among the worst {cut} of {size}"))
                else:
                    fates.append(Fate(slot, "kept", False, "no better than its donor would be"))
            else:
                fates.append(Fate(slot, "kept", False, "neither among the best nor the worst"))
        return fates

    def explore(
        self, children: Mapping[int, Values], standing: Standing, rng: Callable[[int], np.random.Generator]
    ) -> dict[int, Values]:
        return Mutation(self.resample, self.mutated_keys).of_all(children, standing, rng)
