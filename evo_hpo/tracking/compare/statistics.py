"""What can be said about settings from a few runs of each, after rliable (Agarwal et al. 2021, arXiv:2108.13264).

The unit is a run: a population and all its members are one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
ENOUGH = 5  # runs from which an interval is given; fewer are shown as points
RESAMPLES = 10_000


@dataclass(frozen=True)
class Estimate:
    """A number with its 95 % percentile-bootstrap interval over runs; no interval where there are too few runs."""

    value: float
    low: float | None = None
    high: float | None = None


def iqm(values: Sequence[float]) -> Estimate:
    """Interquartile mean: the mean of the middle half; a run at the edge of it counts by the part that is inside."""
    sample = np.asarray(values, dtype=np.float64)
    if not sample.size:
        return Estimate(float("nan"))
    value = float(_iqm(sample[None])[0])
    if sample.size < ENOUGH:
        return Estimate(value)
    low, high = np.quantile(_iqm(_resampled(sample, seed=0)), [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def improvement(better: Sequence[float], worse: Sequence[float]) -> Estimate:
    """Probability that a run of the one setting beats a run of the other; equals count half (Mann & Whitney 1947)."""
    first, second = (np.asarray(values, dtype=np.float64) for values in (better, worse))
    if not first.size or not second.size:
        return Estimate(float("nan"))
    value = float(_wins(first[None], second[None])[0])
    if min(first.size, second.size) < ENOUGH:
        return Estimate(value)
    resampled = _wins(_resampled(first, seed=1), _resampled(second, seed=2))
    low, high = np.quantile(resampled, [0.025, 0.975])
    return Estimate(value, float(low), float(high))


def _resampled(sample: Numbers, seed: int) -> Numbers:
    """[RESAMPLES, runs] drawn with replacement."""
    chosen: Numbers = sample[np.random.default_rng(seed).integers(sample.size, size=(RESAMPLES, sample.size))]
    return chosen


def _iqm(samples: Numbers) -> Numbers:
    """[B] of [B, n]."""
    n = samples.shape[1]
    place = np.arange(n, dtype=np.float64)
    # each value takes the share [i, i + 1) of n; what of it lies in the middle half is its weight
    weight = np.clip(np.minimum(place + 1, 0.75 * n) - np.maximum(place, 0.25 * n), 0, None)
    result: Numbers = (np.sort(samples, axis=1) * weight).sum(axis=1) / weight.sum()
    return result


def _wins(first: Numbers, second: Numbers) -> Numbers:
    """[B] of [B, n] and [B, m]."""
    difference = first[:, :, None] - second[:, None, :]
    result: Numbers = ((np.sign(difference) + 1) / 2).mean(axis=(1, 2))
    return result
