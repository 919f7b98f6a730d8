"""MF-PBT: sub-populations, their periods and what migrates between them."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from evo_hpo.evolution.strategies import Fate, MultiFrequency, Standing, Values

NAN = math.nan
MF_PBT = MultiFrequency(periods=[1, 4], share=0.25, resample=0.25, mutated_keys=0)
FAST_FIRST = [0.1, 0.2, 0.8, 0.9]  # a winner, an open one and two losers, worst first
SLOW = [0.3, 0.4, 0.5, 0.6]


def select(fitness: list[float], generation: int = 0, seed: int = 0, strategy: MultiFrequency = MF_PBT) -> list[Fate]:
    values: list[Values] = [{"rate": float(m)} for m in range(len(fitness))]
    standing = Standing.of(fitness, generation=generation, values=values)
    return strategy.select(standing, np.random.default_rng(seed))


def parents(fates: list[Fate]) -> list[int]:
    return [fate.parent for fate in fates]


def test_losers_clone_a_winner_of_their_own_sub_population_and_explore() -> None:
    fates = select(FAST_FIRST + SLOW)
    assert parents(fates) == [3, 3, 2, 3, 4, 5, 6, 7]
    assert [fate.explore for fate in fates] == [True, True] + [False] * 6
    assert fates[3].event == fates[7].event == "elite"


def test_a_sub_population_evolves_at_the_end_of_its_period_only() -> None:
    evolved = [select(FAST_FIRST + SLOW, generation)[4].parent != 4 for generation in range(12)]
    assert evolved == [False, False, False, True] * 3
    assert all(select(FAST_FIRST + SLOW, generation)[0].parent == 3 for generation in range(12))
    assert select(FAST_FIRST + SLOW)[4].reason == "its sub-population evolves every 4 generations"


def test_from_a_faster_sub_population_come_the_weights_and_the_hyperparameters_are_those_of_the_own_best() -> None:
    open_one = select(FAST_FIRST + SLOW, generation=3)[6]
    assert (open_one.parent, open_one.event, open_one.explore) == (3, "cloned", False)
    assert open_one.values == {"rate": 7.0}


def test_from_a_slower_sub_population_comes_the_whole_member() -> None:
    open_one = select(SLOW + FAST_FIRST)[2]
    assert (open_one.parent, open_one.event, open_one.explore, open_one.values) == (7, "cloned", False, None)


def test_an_open_member_that_is_as_good_stays_and_leaves_the_stranger_to_the_next() -> None:
    # Two winners, two open ones and two losers each; the first open one is as good as the best stranger.
    own, others = [0.9, 0.9, 0.5, 0.3, 0.1, 0.1], [0.5, 0.4, 0.2, 0.0, 0.0, 0.0]
    assert parents(select(own + others))[2:4] == [2, 6]
    better = [0.8, 0.7, 0.2, 0.0, 0.0, 0.0]
    assert parents(select(own + better))[2:4] == [6, 7]


def test_both_winners_give_to_the_losers() -> None:
    donors: Counter[int] = Counter()
    for seed in range(100):
        donors.update(parents(select([0.9, 0.8, 0.5, 0.5, 0.1, 0.1] + [0.0] * 6, seed=seed))[4:6])
    assert set(donors) == {0, 1} and min(donors.values()) > 70  # 100 each are expected


def test_a_member_that_is_not_a_number_does_not_wait_for_its_period() -> None:
    fates = select([0.1, 0.2, 0.3, NAN, 0.5, 0.6])
    assert (fates[3].parent, fates[3].event, fates[3].explore) == (5, "rescued", True)


def test_a_sub_population_without_a_usable_member_is_rescued_by_the_best_of_all() -> None:
    fates = select([0.1, 0.9, 0.3, NAN, NAN, NAN])
    assert parents(fates)[3:] == [1, 1, 1]
    assert all(fate.event == "rescued" for fate in fates[3:])


@pytest.mark.parametrize(
    ("size", "expected"),
    [
        (1, [0]),
        (2, [1, 1]),
        (3, [2, 1, 2]),  # the open one has nobody to give way to
        (4, [3, 3, 2, 3]),
        (5, [4, 4, 4, 3, 4]),
        (6, [2, 5, 2, 3, 4, 5]),  # two sub-populations, the slow one waits
    ],
)
def test_small_populations_have_fewer_sub_populations(size: int, expected: list[int]) -> None:
    assert parents(select([m / 10 for m in range(size)])) == expected


def test_members_that_do_not_divide_evenly_are_spread() -> None:
    fates = select([0.1] * 3 + [0.2] + [0.3] * 3, generation=3)
    assert [fate.event for fate in fates[:4]].count("elite") == [fate.event for fate in fates[4:]].count("elite") == 1


def test_periods_that_do_not_grow_are_refused() -> None:
    with pytest.raises(ValueError, match=r"periods=\[4, 1, 1\] must grow .* write \[1, 4\]"):
        MultiFrequency(periods=[4, 1, 1], share=0.25, resample=0.25, mutated_keys=0)
