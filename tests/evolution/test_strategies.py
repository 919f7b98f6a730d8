"""Who takes whose place: what holds for every strategy, truncation, tournament, none."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo_hpo.config.schema import Dimension
from evo_hpo.evolution.strategies import Fate, NoEvolution, Standing, Strategy, Tournament, Truncation

NAN = math.nan
TRUNCATION = Truncation(quantile=0.25, elites=1, resample=0.25, mutated_keys=0)
TOURNAMENT = Tournament(size=2, elites=1, resample=0.25, mutated_keys=0)
EVOLVING = pytest.mark.parametrize("strategy", [TRUNCATION, TOURNAMENT], ids=["truncation", "tournament"])
RAY_FITNESS = [0.62, 0.1, 0.55, 0.31, 0.7, 0.05, 0.44, 0.28]


def fates(strategy: Strategy, fitness: Sequence[float], seed: int = 0) -> list[Fate]:
    return strategy.select(Standing.of(fitness), np.random.default_rng(seed))


def replaced(found: list[Fate]) -> list[int]:
    return [slot for slot, fate in enumerate(found) if fate.parent != slot]


# Every strategy that evolves.

fitness_values = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, NAN, math.inf, -math.inf]), min_size=1, max_size=9)


@EVOLVING
@settings(deadline=None, max_examples=200)
@given(fitness=fitness_values, seed=st.integers(0, 10**6))
def test_only_a_strictly_better_finite_member_replaces_another(
    strategy: Strategy, fitness: list[float], seed: int
) -> None:
    found = fates(strategy, fitness, seed)
    assert len(found) == len(fitness)
    anybody_finite = any(map(math.isfinite, fitness))
    for slot, fate in enumerate(found):
        assert 0 <= fate.parent < len(fitness)
        assert fate.explore == (fate.parent != slot) == (fate.event in ("cloned", "rescued"))
        if fate.parent != slot:
            assert math.isfinite(fitness[fate.parent])
            assert not math.isfinite(fitness[slot]) or fitness[fate.parent] > fitness[slot]
        elif not math.isfinite(fitness[slot]):
            assert not anybody_finite
        assert (fate.event == "rescued") == (not math.isfinite(fitness[slot]) and anybody_finite)


@EVOLVING
@settings(deadline=None, max_examples=100)
@given(fitness=fitness_values, seed=st.integers(0, 10**6))
def test_a_best_member_is_the_untouched_elite(strategy: Strategy, fitness: list[float], seed: int) -> None:
    finite = [f for f in fitness if math.isfinite(f)]
    elites = [slot for slot, fate in enumerate(fates(strategy, fitness, seed)) if fate.event == "elite"]
    if finite:
        assert len(elites) == 1 and fitness[elites[0]] == max(finite)
        assert fates(strategy, fitness, seed)[elites[0]].explore is False
    else:
        assert elites == []


@EVOLVING
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_equal_fitness_leaves_everybody_in_place(strategy: Strategy, size: int) -> None:
    for seed in range(20):
        assert replaced(fates(strategy, [0.0] * size, seed)) == []


@EVOLVING
def test_ties_are_not_broken_by_list_order(strategy: Strategy) -> None:
    elite: Counter[int] = Counter()
    for seed in range(400):
        found = fates(strategy, [0.5, 0.5, 0.5, 0.5], seed)
        elite.update(slot for slot, fate in enumerate(found) if fate.event == "elite")
    assert set(elite) == {0, 1, 2, 3}
    assert min(elite.values()) > 60  # 100 each are expected


@EVOLVING
def test_a_member_that_is_not_a_number_is_rescued_and_never_wins(strategy: Strategy) -> None:
    for seed in range(100):
        found = fates(strategy, [NAN, 0.2, 0.9, NAN, 0.5], seed)
        assert found[0].event == found[3].event == "rescued"
        assert "not a finite number" in found[0].reason
        assert all(fate.parent not in (0, 3) for fate in found)


@EVOLVING
def test_a_member_whose_fitness_is_infinite_is_broken_too(strategy: Strategy) -> None:
    found = fates(strategy, [math.inf, 0.2, 0.9])
    assert found[0].event == "rescued" and found[2].event == "elite"


@EVOLVING
@pytest.mark.parametrize("size", [1, 2, 5])
def test_where_nobody_has_a_fitness_nobody_is_replaced(strategy: Strategy, size: int) -> None:
    found = fates(strategy, [NAN] * size)
    assert replaced(found) == []
    assert all(fate.event == "kept" and not fate.explore for fate in found)


@EVOLVING
def test_the_only_usable_member_rescues_all_others_and_stays(strategy: Strategy) -> None:
    found = fates(strategy, [NAN, NAN, 0.0, NAN])
    assert [fate.parent for fate in found] == [2, 2, 2, 2]
    assert found[2].event == "elite"


@EVOLVING
def test_a_population_of_one_keeps_its_member(strategy: Strategy) -> None:
    assert fates(strategy, [0.3])[0].event == "elite"


@EVOLVING
def test_the_same_random_state_gives_the_same_fates(strategy: Strategy) -> None:
    assert fates(strategy, RAY_FITNESS, 4) == fates(strategy, RAY_FITNESS, 4)
    assert len({tuple(fate.parent for fate in fates(strategy, RAY_FITNESS, seed)) for seed in range(20)}) > 1


@EVOLVING
def test_a_clone_explores_inside_the_space(strategy: Strategy) -> None:
    space = {"rate": Dimension("float", low=1e-4, high=1e-2, log=True)}
    generator = np.random.default_rng(0)
    for _ in range(50):
        children = {3: {"rate": 1e-2, "other": 1}}
        found = strategy.explore(children, Standing.of([0.0], space=space), lambda member: generator)[3]
        assert found["other"] == 1
        assert 1e-4 <= found["rate"] <= 1e-2 and found["rate"] != 1e-2


# Truncation.


def test_truncation_replaces_the_worst_quarter_by_the_best_quarter() -> None:
    parents: Counter[int] = Counter()
    for seed in range(200):
        found = fates(TRUNCATION, RAY_FITNESS, seed)
        assert replaced(found) == [1, 5]
        assert found[4].event == "elite"
        parents.update([found[1].parent, found[5].parent])
    assert set(parents) == {0, 4}
    assert min(parents.values()) > 140  # 200 each are expected


@pytest.mark.parametrize(
    ("size", "quantile", "count"),
    [
        (2, 0.25, 1),
        (3, 0.25, 1),
        (3, 0.5, 1),
        (4, 0.25, 1),
        (5, 0.25, 2),
        (8, 0.5, 4),
        (9, 0.5, 4),
        (8, 0.0, 0),
        (1, 0.5, 0),
        (100, 0.07, 7),
    ],
)
def test_truncation_replaces_the_ceiling_of_its_share_and_at_most_half(size: int, quantile: float, count: int) -> None:
    strategy = Truncation(quantile=quantile, elites=1, resample=0.0, mutated_keys=0)
    found = fates(strategy, [float(i) for i in range(size)])
    assert replaced(found) == list(range(count))
    assert all(fate.parent >= size - max(count, 1) for fate in found[:count])


def test_truncation_never_touches_its_elites_even_if_they_are_among_the_worst() -> None:
    strategy = Truncation(quantile=0.5, elites=3, resample=0.0, mutated_keys=0)
    found = fates(strategy, [0.1, 0.2, 0.3, 0.4])
    assert [fate.event for fate in found] == ["cloned", "elite", "elite", "elite"]


def test_truncation_rescues_more_members_than_its_share() -> None:
    found = fates(TRUNCATION, [NAN, NAN, NAN, 0.5, 0.6, 0.7, 0.8, 0.9])
    assert replaced(found) == [0, 1, 2]
    assert all(fate.parent in (6, 7) for fate in found[:3])


# Tournament.


def test_how_often_each_rank_wins_its_slot_in_a_tournament_of_two_among_four() -> None:
    # A draw of two is won by the ranks with 7/16, 5/16, 3/16, 1/16; a slot changes hands only if the winner is better,
    # so it keeps its own member with the chances of its own rank and of all ranks below.
    fitness = [0.1, 0.4, 0.2, 0.3]  # slots by rank, best first: 1, 3, 2, 0
    expected = {
        1: {1: 1.0},
        3: {1: 0.4375, 3: 0.5625},
        2: {1: 0.4375, 3: 0.3125, 2: 0.25},
        0: {1: 0.4375, 3: 0.3125, 2: 0.1875, 0: 0.0625},
    }
    rounds = 6000
    generator = np.random.default_rng(0)
    parents: dict[int, Counter[int]] = {slot: Counter() for slot in range(4)}
    for _ in range(rounds):
        for slot, fate in enumerate(TOURNAMENT.select(Standing.of(fitness), generator)):
            parents[slot][fate.parent] += 1
    for slot, chances in expected.items():
        assert set(parents[slot]) == set(chances)
        for parent, chance in chances.items():
            noise = 4 * math.sqrt(chance * (1 - chance) / rounds)
            assert parents[slot][parent] / rounds == pytest.approx(chance, abs=noise + 1e-12)


def test_a_tournament_of_one_draws_a_random_opponent() -> None:
    strategy = Tournament(size=1, elites=1, resample=0.0, mutated_keys=0)
    generator = np.random.default_rng(0)
    lost = sum(strategy.select(Standing.of([0.0, 1.0]), generator)[0].parent for _ in range(2000))
    assert lost / 2000 == pytest.approx(0.5, abs=0.05)


def test_a_large_tournament_is_won_by_the_best() -> None:
    strategy = Tournament(size=200, elites=1, resample=0.0, mutated_keys=0)
    assert [fate.parent for fate in fates(strategy, [0.1, 0.2, 0.9, 0.3])] == [2, 2, 2, 2]


def test_a_tournament_keeps_as_many_elites_as_told() -> None:
    strategy = Tournament(size=200, elites=2, resample=0.0, mutated_keys=0)
    found = fates(strategy, [0.1, 0.8, 0.9, 0.3])
    assert [fate.event for fate in found] == ["cloned", "elite", "elite", "cloned"]


# None.


def test_without_evolution_everybody_stays_whatever_the_fitness() -> None:
    found = fates(NoEvolution(), [0.1, NAN, 0.9])
    assert [fate.parent for fate in found] == [0, 1, 2]
    assert not any(fate.explore for fate in found)
    assert NoEvolution().explore({0: {"rate": 1.0}}, Standing.of([0.0]), np.random.default_rng) == {0: {"rate": 1.0}}
