"""Successive halving: who retires, and when."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest

from evo_hpo.evolution.strategies import Fate, Past, Standing, SuccessiveHalving

NAN = math.nan
HALVING = SuccessiveHalving(eta=2, first_rung=1)


def past(members: int) -> Past:
    return Past([0.5] * members, [{}] * members, list(range(members)), ["kept"] * members)


def select(fitness: list[float], generation: int = 0, began: int = 0, seed: int = 0) -> list[Fate]:
    before = [past(began or len(fitness))] * generation
    return HALVING.select(Standing.of(fitness, generation=generation, past=before), np.random.default_rng(seed))


def going_on(fates: list[Fate]) -> list[int]:
    return [m for m, fate in enumerate(fates) if fate.event != "retired"]


@pytest.mark.parametrize(
    ("eta", "first_rung", "members", "left"),
    [
        (2, 1, 8, [4, 2, 2, 1, 1, 1]),  # rungs after 1, 2, 4 generations
        (2, 2, 8, [8, 4, 4, 2, 2, 2]),  # after 2, 4, 8
        (4, 1, 8, [2, 2, 2, 1, 1, 1]),  # after 1 and 4
        (3, 1, 27, [9, 9, 3, 3, 3, 3]),  # after 1, 3, 9
        (2, 1, 3, [1, 1, 1, 1, 1, 1]),
        (2, 1, 2, [1, 1, 1, 1, 1, 1]),
        (4, 1, 3, [1, 1, 1, 1, 1, 1]),
        (2, 1, 1, [1, 1, 1, 1, 1, 1]),
    ],
)
def test_members_left_after_each_generation(eta: int, first_rung: int, members: int, left: list[int]) -> None:
    strategy = SuccessiveHalving(eta, first_rung)
    fitness, history = [m / 100 for m in range(members)], list[Past]()
    for generation, expected in enumerate(left):
        standing = Standing.of(fitness, generation=generation, past=list(history))
        stay = going_on(strategy.select(standing, np.random.default_rng(0)))
        history.append(Past(fitness, [{}] * len(fitness), stay, ["kept"] * len(stay)))
        fitness = [fitness[m] for m in stay]
        assert fitness == [m / 100 for m in range(members - expected, members)]


def test_the_worst_retire_and_the_others_stay_as_they_are() -> None:
    fates = select([0.3, 0.9, 0.1, 0.6])
    assert [fate.event for fate in fates] == ["retired", "kept", "retired", "kept"]
    assert [fate.parent for fate in fates] == [0, 1, 2, 3]
    assert not any(fate.explore or fate.values for fate in fates)
    assert fates[0].reason == "not among the best 2 of 4"


def test_between_rungs_nobody_retires() -> None:
    assert going_on(select([0.3, 0.9], generation=2, began=8)) == [0, 1]


def test_chance_and_not_the_order_decides_among_equals() -> None:
    staying: Counter[int] = Counter()
    for seed in range(400):
        staying.update(going_on(select([0.5, 0.5, 0.5, 0.5], seed=seed)))
    assert sum(staying.values()) == 800
    retired = [fate.reason for fate in select([0.5] * 4) if fate.event == "retired"]
    assert retired == ["drawn among equals: 2 of 4 go on"] * 2
    assert min(staying.values()) > 160  # 200 each are expected


def test_a_member_that_is_not_a_number_retires_first_and_at_once() -> None:
    for seed in range(20):
        assert going_on(select([NAN, 0.0, NAN, 0.1], seed=seed)) == [1, 3]
        assert going_on(select([0.0, NAN, math.inf], generation=2, began=8, seed=seed)) == [0]
    assert select([NAN, 0.5])[0].reason == "its fitness is not a finite number"


def test_one_that_retired_early_is_counted_at_the_next_rung() -> None:
    # Four of eight may go on after the second generation, and only three are left.
    strategy = SuccessiveHalving(eta=2, first_rung=2)
    standing = Standing.of([0.1, 0.2, 0.3], generation=1, past=[past(8)])
    assert going_on(strategy.select(standing, np.random.default_rng(0))) == [0, 1, 2]


@pytest.mark.parametrize("size", [1, 2, 5])
def test_where_nobody_has_a_fitness_nobody_retires(size: int) -> None:
    assert going_on(select([NAN] * size)) == list(range(size))


def test_the_only_usable_member_goes_on_whatever_the_rung() -> None:
    assert going_on(select([NAN, -3.0, NAN], generation=5, began=3)) == [1]
