"""Intervals for success rates. Every rate a person sees carries one."""

from __future__ import annotations

import math

Rate = tuple[float, float, float]  # (rate, low, high)


def wilson(successes: float, n: int, z: float = 1.96) -> Rate:
    """Success rate with its Wilson score interval (Wilson 1927), which stays inside [0, 1] and is not empty at 0 or n.

    Args:
        successes: how many of the `n` trials succeeded; a fraction where trials are repeats averaged per task.
        n: number of independent trials; with 0 nothing is known and the answer is (nan, 0, 1).
        z: width in standard errors; 1.96 gives 95 %.
    Raises:
        ValueError: if `successes` is outside 0 … n.
    """
    if n == 0 and successes == 0:
        return math.nan, 0.0, 1.0
    if not 0 <= successes <= n:
        raise ValueError(f"wilson() got {successes} successes out of {n} trials; successes must lie between 0 and n")
    rate = successes / n
    centre = rate + z * z / (2 * n)
    half = z * math.sqrt(rate * (1 - rate) / n + z * z / (4 * n * n))
    scale = 1 + z * z / n
    # min and max: at 0 and n the bound equals the rate, and rounding must not put it on the wrong side
    return rate, min(rate, max(0.0, (centre - half) / scale)), max(rate, min(1.0, (centre + half) / scale))


def gain(after: Rate, before: Rate) -> Rate:
    """Difference of two rates with Newcombe's hybrid score interval (Newcombe 1998, method 10).

    It treats the two samples as independent; on common tasks the true interval is narrower, so this one is careful.
    """
    difference = after[0] - before[0]
    low = difference - math.hypot(after[0] - after[1], before[2] - before[0])
    high = difference + math.hypot(after[2] - after[0], before[0] - before[1])
    return difference, low, high
