"""Randomness that depends only on what it is for: keys and counters instead of generator states.

An episode's sampling noise is a function of (seed, who, what, token index), so it is the same whoever else is in the
batch, in whatever order episodes run, and after a resume.
"""

from __future__ import annotations

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


def key(*parts: Any) -> int:
    """A 64-bit key for a purpose, from any values with a stable text form."""
    return int.from_bytes(hashlib.blake2b(repr(parts).encode(), digest_size=8).digest(), "little")


def uniform(keys: NDArray[np.uint64], counters: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Uniform numbers in (0, 1), one per key and counter (SplitMix64, Steele et al. 2014)."""
    with np.errstate(over="ignore"):
        z = keys + (counters + np.uint64(1)) * _GOLDEN
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return ((z >> np.uint64(11)).astype(np.float64) + 0.5) / float(1 << 53)


def generator(*parts: Any) -> np.random.Generator:
    """A numpy generator for a purpose."""
    return np.random.default_rng(key(*parts))
