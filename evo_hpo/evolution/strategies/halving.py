"""Successive halving: the population shrinks to those that do best."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt

from evo_hpo.evolution.strategies.core import Fate, Ranking, Standing, Strategy


@dataclass(frozen=True)
class SuccessiveHalving(Strategy):
    """After `first_rung` generations one of `eta` members goes on, and again each time eta times as many have passed.

    Jamieson & Talwalkar 2016, arXiv:1502.07943; the rungs of ASHA (Li et al. 2018, arXiv:1810.05934), but synchronous:
    members train side by side and nobody waits for anybody. Nothing is cloned and nothing explored. Who retires frees
    its share of the time; the others go on.

    A member without a usable fitness retires at once, unless nobody has one. Among equals chance decides.
    """

    own_interval: ClassVar[bool] = True
    own_start: ClassVar[bool] = True

    eta: Annotated[int, Ge(2)]
    first_rung: Annotated[int, Gt(0)]

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        ranking = Ranking.of(standing.fitness, rng)
        usable = [m for m in ranking.order if not ranking.broken(m)]
        began = len(standing.past[0].fitness) if standing.past else len(standing.fitness)
        places = self._places(began, standing.generation + 1)
        stay = usable[:places] or ranking.order
        fates = []
        for m in range(len(standing.fitness)):
            if m in stay:
                fates.append(Fate(m, "kept", False, f"one of {len(stay)} that go on"))
            elif ranking.broken(m):
                fates.append(Fate(m, "retired", False, "its fitness is not a finite number"))
            elif ranking.better(stay[-1], m):
                fates.append(Fate(m, "retired", False, f"not among the best {places} of {began}"))
            else:
                fates.append(Fate(m, "retired", False, f"drawn among equals: {places} of {began} go on"))
        return fates

    def _places(self, members: int, generations: int) -> int:
        """Members that go on after so many generations."""
        rung = self.first_rung
        while rung <= generations and members > 1:
            members, rung = members // self.eta, rung * self.eta
        return max(members, 1)
