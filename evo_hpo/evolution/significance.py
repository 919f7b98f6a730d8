"""Is one member really better than another? A paired bootstrap over the tasks that both played."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Results = NDArray[np.float64]  # [..., tasks] mean result on each task, in [0, 1]; NaN where it could not be played


@dataclass(frozen=True)
class Comparison:
    """How much better one is than another, and how surely."""

    probability: float  # that it is better at all
    gap: float  # mean difference per task
    tasks: int  # that both played


def smoothed(now: Results, before: Results, weight: float) -> Results:
    """Mean of two generations, task by task; a task that was played in one of them only counts as it was played.

    Args:
        now, before: [N, tasks]; a row of NaN in `before` leaves the present as it is.
        weight: of `before`, in [0, 1).
    """
    both = (1 - weight) * now + weight * before
    return np.where(np.isnan(now), before, np.where(np.isnan(before), now, both))


def pooled(evaluations: list[Results]) -> Results:
    """Mean over repeated evaluations [N, tasks] of what could be played; NaN where nothing could."""
    stacked = np.stack(evaluations)
    played = ~np.isnan(stacked)
    times = played.sum(0)
    total = np.where(played, stacked, 0.0).sum(0)
    return np.divide(total, times, out=np.full(total.shape, np.nan), where=times > 0)


def level(results: Results) -> NDArray[np.float64]:
    """[N] mean over the tasks that were played; NaN where there were none."""
    if not results.shape[1]:  # nobody's scorer could be measured
        return np.full(len(results), np.nan)
    return pooled(list(results.T))


def compare(better: Results, worse: Results, resamples: int, rng: np.random.Generator) -> list[Comparison]:
    """How surely each row of `better` is better than the same row of `worse`; a draw counts half.

    Tasks are resampled, not results, so that what both find hard cancels. All rows share their resamples.
    The bootstrap is too sure of few differences: n tasks that all point one way do so by chance with probability
    2^-n (the sign test), so it may not be surer than that.

    Args:
        better, worse: [pairs, tasks].
        resamples: draws of the bootstrap.
    """
    difference = better - worse
    played = ~np.isnan(difference)
    difference = np.where(played, difference, 0.0)
    pairs, tasks = difference.shape
    if not pairs:
        return []
    common = played.sum(1)
    gap = difference.sum(1) / np.maximum(common, 1)
    draws = rng.integers(tasks, size=(resamples, tasks)) + tasks * np.arange(resamples)[:, None]
    times = np.bincount(draws.ravel(), minlength=resamples * tasks).reshape(resamples, tasks)
    total = times.astype(np.float64) @ difference.T
    probability = (total > 1e-9).mean(0) + 0.5 * (np.abs(total) <= 1e-9).mean(0)
    chance = 0.5 ** np.maximum((np.abs(difference) > 1e-9).sum(1), 1)
    probability = np.clip(probability, chance, 1 - chance)
    return [Comparison(float(probability[i]), float(gap[i]), int(common[i])) for i in range(pairs)]
