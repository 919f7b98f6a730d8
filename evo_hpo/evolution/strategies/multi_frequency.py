"""Sub-populations that evolve at different frequencies: the patient keep what the hasty would throw away."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le, MinLen

from evo_hpo.evolution.strategies.core import Fate, Mutation, Ranking, Standing, Strategy, Values, rescued

SMALLEST = 3  # members of a sub-population: a winner, one that is open and a loser


@dataclass(frozen=True)
class MultiFrequency(Strategy):
    """MF-PBT (Doulazmi et al. 2025) in the form of AgileRL's `multi_frequency.py`.

    Sub-populations are equal runs of places, one for each period and each of three members or more: where there are too
    few members, the longest periods have none. At the end of its period the losers of a sub-population clone its
    winners and explore; the open ones give way to better members of others. From a sub-population with a shorter period
    comes only the weights, and the hyperparameters are those of its own best: what looks good at once need not be good
    for long.

    Winners are never touched, members are replaced by strictly better ones only, and one without a usable fitness is
    rescued at once.
    """

    own_interval: ClassVar[bool] = True
    own_start: ClassVar[bool] = True

    periods: Annotated[list[Annotated[int, Gt(0)]], MinLen(1)]
    share: Annotated[float, Gt(0), Le(0.5)]
    resample: Annotated[float, Ge(0), Le(1)]
    mutated_keys: Annotated[int, Ge(0)]

    def __post_init__(self) -> None:
        if sorted(set(self.periods)) != self.periods:
            raise ValueError(
                f"periods={self.periods} must grow from one sub-population to the next; "
                f"write {sorted(set(self.periods))}"
            )

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        members = len(standing.fitness)
        ranking = Ranking.of(standing.fitness, rng)
        populations = min(len(self.periods), max(members // SMALLEST, 1))
        home = [int(p) for p, places in enumerate(np.array_split(range(members), populations)) for _ in places]
        fates: dict[int, Fate] = {}
        for population in range(populations):
            order = [m for m in ranking.order if home[m] == population]
            fates |= self._fates(order, home, ranking, standing, rng)
        return [fates[m] for m in range(members)]

    def explore(
        self, children: Mapping[int, Values], standing: Standing, rng: Callable[[int], np.random.Generator]
    ) -> dict[int, Values]:
        return Mutation(self.resample, self.mutated_keys).of_all(children, standing, rng)

    def brackets(self, size: int) -> tuple[int, int, int]:
        """Winners, open ones and losers of a sub-population; halves are rounded to even, as AgileRL does."""
        winners = max(1, round(self.share * size))
        opened = max(0, min(winners, size - winners - 1))  # there is a loser wherever there are two
        return winners, opened, size - winners - opened

    def _fates(
        self,
        order: Sequence[int],
        home: Sequence[int],
        ranking: Ranking,
        standing: Standing,
        rng: np.random.Generator,
    ) -> dict[int, Fate]:
        """Of the members of one sub-population, best first."""
        best, period = order[0], self.periods[home[order[0]]]
        winning, opened, _ = self.brackets(len(order))
        winners = [m for m in order[:winning] if not ranking.broken(m)]
        strangers = [m for m in ranking.order if home[m] != home[best]]
        fates = {}
        for rank, m in enumerate(order):
            if ranking.broken(m):
                fates[m] = rescued(m, ranking, rng, winners or ranking.order[:1])
            elif m == best:
                fates[m] = Fate(m, "elite", False, "the best of its sub-population, untouched")
            elif rank < winning:
                fates[m] = Fate(m, "kept", False, "among the best of its sub-population")
            elif (standing.generation + 1) % period:
                fates[m] = Fate(m, "kept", False, f"its sub-population evolves every {period} generations")
            elif rank < winning + opened:
                if strangers and ranking.better(strangers[0], m):
                    stranger = strangers.pop(0)
                    hasty = self.periods[home[stranger]] < period
                    fates[m] = _migrated(stranger, standing.values[best] if hasty else None)
                else:
                    fates[m] = Fate(m, "kept", False, "open, but nobody better is left elsewhere")
            else:
                donor = winners[int(rng.integers(len(winners)))]
                if ranking.better(donor, m):
                    fates[m] = Fate(donor, "cloned", True, "among the worst of its sub-population")
                else:
                    fates[m] = Fate(m, "kept", False, "no better than its donor would be")
        return fates


def _migrated(stranger: int, values: Values | None) -> Fate:
    if values is None:
        return Fate(stranger, "cloned", False, "comes from another sub-population")
    reason = "weights from a sub-population that evolves more often, hyperparameters of the best of its own"
    return Fate(stranger, "cloned", False, reason, values=dict(values))
