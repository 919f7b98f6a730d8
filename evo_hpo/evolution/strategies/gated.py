"""Gated selection: nobody loses its place to luck."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from annotated_types import Ge, Gt, Le, Lt

from evo_hpo.evolution.descent import SAME, changed_hands, lineages, successor
from evo_hpo.evolution.significance import Comparison, Results, compare, level, pooled, smoothed
from evo_hpo.evolution.space import draw, variety
from evo_hpo.evolution.strategies.core import Fate, Mutation, Ranking, Standing, Strategy, Values, rescued

CHILDREN = ("cloned", "rescued", "injected")  # with hyperparameters that their parent did not have

Pair = tuple[int, int]  # loser, donor
Share = Annotated[float, Ge(0), Le(1)]


@dataclass(frozen=True)
class Gated(Strategy):
    """A member is replaced only by one that is better with high probability, on the same tasks under the same noise.

    Fitness is smoothed over two generations that a member lived through itself. A slot that has just changed hands has
    no such generation before: it is compared on the present one alone, and so is whoever is compared with it. What its
    parent did says nothing about the child's hyperparameters, was chosen for being high, and would cancel between the
    two; what others did before they learned more would count against them only.

    The best `elites` members (at most half of them) keep their places and are the donors. Pairs close to the threshold
    are evaluated again. A child that is clearly worse than its parent was when it was cloned steps back. Where the
    population has become alike, one member begins a new line: the best weights with fresh hyperparameters.
    """

    own_interval: ClassVar[bool] = True

    probability: Annotated[float, Ge(0.5), Lt(1)]
    floor: Share
    smoothing: Annotated[float, Ge(0), Lt(1)]
    resamples: Annotated[int, Gt(0)]
    margin: Share
    evaluation_budget: Annotated[float, Ge(0)]
    elites: Annotated[int, Gt(0)]
    cooldown: Annotated[int, Ge(0)]
    step_back: Annotated[float, Ge(0.5), Le(1)]
    min_lineages: Annotated[int, Ge(0)]
    horizon: Annotated[int, Gt(0)]
    min_variety: Share
    resample: Share
    mutated_keys: Annotated[int, Ge(0)]

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        members = range(len(standing.fitness))
        usable = [m for m in members if np.isfinite(standing.fitness[m])]
        settled = [m for m in usable if not changed_hands(standing.past, m, self.cooldown)]
        now, before = _tables(standing, usable, settled)
        order = _ranked(self._levels(now, before), settled, rng)
        elites = order[: max(1, min(self.elites, len(settled) // 2))]
        pairs = [(loser, donor) for loser in order[len(elites) :] for donor in elites]
        now, found = self._compared(pairs, now, before, standing, rng)
        whole = Ranking.of(standing.fitness, rng)
        fates = []
        for m in members:
            if m not in usable:
                fates.append(rescued(m, whole, rng, elites or whole.order[:1]))
            elif m in elites:
                fates.append(Fate(m, "elite", False, "among the best, untouched"))
            elif back := self._stepped_back(m, now, elites or whole.order[:1], standing, rng):
                fates.append(back)
            elif m in settled:
                fates.append(self._challenged(m, {donor: found[m, donor] for donor in elites}, rng))
            else:
                fates.append(Fate(m, "kept", False, "has just changed hands"))
        alike = self._alike(fates, standing)
        return _injected(fates, alike, level(now), order, elites, standing, rng) if elites and alike else fates

    def explore(
        self, children: Mapping[int, Values], standing: Standing, rng: Callable[[int], np.random.Generator]
    ) -> dict[int, Values]:
        return Mutation(self.resample, self.mutated_keys).of_all(children, standing, rng)

    def _compared(
        self, pairs: Sequence[Pair], now: Results, before: Results, standing: Standing, rng: np.random.Generator
    ) -> tuple[Results, dict[Pair, Comparison]]:
        """Results of this generation and how each donor compares with each loser, the close ones evaluated again."""
        evaluations, left = [now], int(self.evaluation_budget * len(now))
        while True:
            now = pooled(evaluations)
            losers, donors = [loser for loser, _ in pairs], [donor for _, donor in pairs]
            both = ~np.isnan(before[donors] + before[losers])
            better = smoothed(now[donors], np.where(both, before[donors], np.nan), self.smoothing)
            worse = smoothed(now[losers], np.where(both, before[losers], np.nan), self.smoothing)
            found = dict(zip(pairs, compare(better, worse, self.resamples, rng), strict=True))
            again = self._close(found, left)
            if not again:
                return now, found
            left -= len(again)
            more = np.full_like(now, np.nan)
            more[again] = standing.evaluate(again)
            evaluations.append(more)

    def _levels(self, now: Results, before: Results) -> Results:
        """[N] smoothed fitness; of a member without a generation before, as if it had had the mean growth."""
        shown = level(smoothed(now, before, self.smoothing))
        grown = (level(now) - shown)[~np.isnan(level(before))]
        return np.where(np.isnan(level(before)), shown - (grown.mean() if len(grown) else 0.0), shown)

    def _close(self, found: Mapping[Pair, Comparison], left: int) -> list[int]:
        """Members of the pairs closest to the threshold, as many as may still be evaluated."""
        distance = {pair: abs(one.probability - self.probability) for pair, one in found.items() if one.gap > 0}
        again: set[int] = set()
        for pair in sorted(
            (pair for pair, far in distance.items() if far <= self.margin + 1e-9), key=lambda p: distance[p]
        ):
            if len(again | set(pair)) <= left:
                again |= set(pair)
        return sorted(again)

    def _passes(self, one: Comparison) -> bool:
        return one.probability > self.probability and one.gap > self.floor

    def _challenged(self, member: int, against: Mapping[int, Comparison], rng: np.random.Generator) -> Fate:
        donors = [donor for donor, one in against.items() if self._passes(one)]
        if donors:
            donor = donors[int(rng.integers(len(donors)))]
            one = against[donor]
            return Fate(donor, "cloned", True, f"behind by {one.gap:.3f} on {one.tasks} tasks", one.probability)
        best = max(against.values(), key=lambda one: (one.probability, one.gap))
        if best.gap <= 0:
            return Fate(member, "kept", False, "none of the best is ahead of it")
        if best.gap <= self.floor:
            return Fate(member, "kept", False, f"behind by {best.gap:.3f}; up to {self.floor:g} does not count")
        chance = f"one of the best leads by {best.gap:.3f}, with probability {best.probability:.2f}"
        return Fate(member, "kept", False, f"{chance}; it takes more than {self.probability:g}")

    def _stepped_back(
        self, member: int, now: Results, best: Sequence[int], standing: Standing, rng: np.random.Generator
    ) -> Fate | None:
        """The fate of a child that has become clearly worse than its parent was when it was cloned."""
        latest = standing.past[-1] if standing.past else None
        if latest is None or not latest.results or latest.events[member] not in CHILDREN:
            return None
        parent = latest.parents[member]
        then, levels = np.array([latest.results[parent]]), level(now)
        if not level(then)[0] - levels[member] > self.floor:
            return None
        one = compare(then, now[[member]], self.resamples, rng)[0]
        line = successor(latest, parent)
        home = best[0] if line is None or not np.isfinite(standing.fitness[line]) else line
        if not (one.probability > self.step_back and one.gap > self.floor and levels[home] > levels[member]):
            return None
        reason = f"{one.gap:.3f} worse than its parent was, with probability {one.probability:.2f}"
        return Fate(home, "stepped_back", False, reason, values=dict(latest.values[parent]))

    def _alike(self, fates: Sequence[Fate], standing: Standing) -> str:
        """Why the population would be too much alike: few lines of descent, or close hyperparameters; empty if not."""
        spaces = [standing.space_of(values) for values in standing.values]
        if not any(spaces):
            return ""
        earlier = standing.past[max(0, len(standing.past) - self.horizon + 1) :]
        steps = [(one.parents, one.events) for one in earlier]
        plan = ([fate.parent for fate in fates], [fate.event for fate in fates])
        lines, least = lineages([*steps, plan]), min(self.min_lineages, len(fates) // 2)
        if lines < least:
            return f"{lines} of the {least} lines of descent that must be there would remain"
        apart = variety(spaces, standing.values)
        return f"hyperparameters lie {apart:.3f} of their range apart" if apart < self.min_variety else ""


def _tables(standing: Standing, usable: Sequence[int], settled: Sequence[int]) -> tuple[Results, Results]:
    """[N, tasks] results of this generation and, of settled members, of the one before; NaN where none can be used."""
    now = np.full((len(standing.results), max(map(len, standing.results))), np.nan)
    before = now.copy()
    for m in usable:
        now[m] = standing.results[m]
    if standing.past and standing.past[-1].results:
        latest = standing.past[-1]
        for m in settled:
            if latest.events[m] in SAME and np.isfinite(latest.fitness[latest.parents[m]]):
                before[m] = latest.results[latest.parents[m]]
    return now, before


def _ranked(levels: Results, settled: Sequence[int], rng: np.random.Generator) -> list[int]:
    """Settled members, best first."""
    return Ranking.of([levels[m] if m in settled else np.nan for m in range(len(levels))], rng).order[: len(settled)]


def _injected(
    fates: Sequence[Fate],
    alike: str,
    levels: Results,
    order: Sequence[int],
    elites: Sequence[int],
    standing: Standing,
    rng: np.random.Generator,
) -> list[Fate]:
    """The worst member that loses its place anyway, or else the worst that may, begins a new line."""
    donor = next((m for m in elites if standing.space_of(standing.values[m])), None)
    if donor is None:
        return list(fates)  # of the best there is nothing to draw anew, as their species have no space
    unusable = [m for m, fate in enumerate(fates) if fate.event == "rescued"]
    cloned = [m for m in reversed(order) if fates[m].event == "cloned"]
    kept = [m for m in reversed(order) if fates[m].event == "kept" and levels[m] < levels[donor]]
    candidates = [*rng.permutation(unusable).tolist(), *cloned, *kept]
    if not candidates:
        return list(fates)
    member = int(candidates[0])
    reason = alike if member in kept else f"{fates[member].reason}, and {alike}"
    fresh = dict(standing.values[donor])
    space = standing.space_of(fresh)
    fresh |= {name: draw(space[name], float(rng.random())) for name in sorted(space) if name in fresh}
    result = list(fates)
    result[member] = Fate(donor, "injected", False, reason, values=fresh)
    return result
