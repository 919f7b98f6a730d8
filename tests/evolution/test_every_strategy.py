"""What holds for every strategy, whatever the fitness, the size and the past of the population."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo_hpo.config.schema import Dimension
from evo_hpo.evolution.space import draw, place
from evo_hpo.evolution.strategies import (
    PB2,
    Fate,
    Gated,
    MultiFrequency,
    NoEvolution,
    Past,
    Standing,
    Strategy,
    SuccessiveHalving,
    Tournament,
    Truncation,
    Values,
)

SPACE = {
    "rate": Dimension("float", low=1e-4, high=1e-2, log=True),
    "size": Dimension("int", low=2, high=9),
    "side": Dimension("categorical", choices=["a", "b"]),
}
STRATEGIES: dict[str, Strategy] = {
    "none": NoEvolution(),
    "truncation": Truncation(quantile=0.25, elites=1, resample=0.25, mutated_keys=0),
    "tournament": Tournament(size=2, elites=1, resample=0.25, mutated_keys=0),
    "gated": Gated(
        probability=0.6,
        floor=0.0,
        smoothing=0.3,
        resamples=100,
        margin=0.08,
        evaluation_budget=0.25,
        elites=2,
        cooldown=1,
        step_back=0.95,
        min_lineages=2,
        horizon=4,
        min_variety=0.03,
        resample=0.25,
        mutated_keys=0,
    ),
    "pb2": PB2(quantile=0.25, elites=1, trust=2.0, memory=200),
    "mf_pbt": MultiFrequency(periods=[1, 2], share=0.25, resample=0.25, mutated_keys=0),
    "asha": SuccessiveHalving(eta=2, first_rung=1),
}
EVERY = pytest.mark.parametrize("name", list(STRATEGIES))
KEEPING_SIZE = pytest.mark.parametrize("name", [name for name in STRATEGIES if name not in ("none", "asha")])

Decision = tuple[list[Fate], list[Values]]
fitness_values = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, math.nan, math.inf]), min_size=1, max_size=9)


def some_values(rng: np.random.Generator) -> Values:
    return {key: draw(dimension, float(rng.random())) for key, dimension in SPACE.items()}


def with_past(fitness: list[float], generations: int, seed: int) -> Standing:
    """A population that got where it is in some way: members cloned at random, some of them broken."""
    rng, size = np.random.default_rng(seed), len(fitness)
    past = []
    for generation in range(generations):
        rates = rng.choice([0.0, 0.2, 0.4, 0.6, math.nan], size).tolist()
        parents = [int(rng.integers(size)) if rng.random() < 0.3 else m for m in range(size)]
        events = ["kept" if parent == m else "cloned" for m, parent in enumerate(parents)]
        results = [[rate] * 4 for rate in rates] if generation == generations - 1 else []
        past.append(Past(rates, [some_values(rng) for _ in range(size)], parents, events, results))
    return Standing.of(
        fitness,
        results=[[rate if math.isfinite(rate) else math.nan] * 4 for rate in fitness],
        evaluate=lambda members: [[fitness[member]] * 4 for member in members],
        values=[some_values(rng) for _ in range(size)],
        space=SPACE,
        past=past,
        generation=generations,
    )


def decide(name: str, standing: Standing, seed: int) -> Decision:
    """What becomes of everybody, and the hyperparameters afterwards, as the runtime has it."""
    strategy = STRATEGIES[name]
    fates = strategy.select(standing, np.random.default_rng(seed))
    values = [dict(standing.values[fate.parent] if fate.values is None else fate.values) for fate in fates]
    exploring = {m: values[m] for m, fate in enumerate(fates) if fate.explore}
    explored = strategy.explore(exploring, standing, lambda member: np.random.default_rng([seed, member]))
    assert set(explored) == set(exploring)
    return fates, [explored.get(m, own) for m, own in enumerate(values)]


def inside(values: Values) -> bool:
    numbers: list[Any] = [place(SPACE[key], values[key]) for key in ("rate", "size")]
    return all(-1e-9 <= number <= 1 + 1e-9 for number in numbers) and values["side"] in ("a", "b")


@EVERY
@settings(deadline=None, max_examples=40)
@given(fitness=fitness_values, generations=st.integers(0, 3), seed=st.integers(0, 10**6))
def test_every_decision_can_be_carried_out(name: str, fitness: list[float], generations: int, seed: int) -> None:
    fates, values = decide(name, with_past(fitness, generations, seed), seed)
    finite = [m for m, rate in enumerate(fitness) if math.isfinite(rate)]
    assert len(fates) == len(fitness)
    assert any(fate.event != "retired" for fate in fates)
    assert all(inside(own) for own in values)
    for m, fate in enumerate(fates):
        assert fate.event in ("kept", "elite", "cloned", "rescued", "stepped_back", "injected", "retired")
        assert fate.parent == m or fate.parent in finite
        assert (fate.event in ("kept", "elite", "retired")) == (fate.parent == m)
        assert fate.reason and not (fate.event == "retired" and fate.explore)


@EVERY
@settings(deadline=None, max_examples=30)
@given(fitness=fitness_values, generations=st.integers(0, 3), seed=st.integers(0, 10**6))
def test_who_stays_keeps_weights_and_hyperparameters(
    name: str, fitness: list[float], generations: int, seed: int
) -> None:
    standing = with_past(fitness, generations, seed)
    before = [dict(own) for own in standing.values]
    fates, values = decide(name, standing, seed)
    assert standing.values == before
    for m, fate in enumerate(fates):
        if fate.event in ("kept", "elite"):
            assert fate.parent == m and values[m] == before[m]


@EVERY
@settings(deadline=None, max_examples=30)
@given(fitness=fitness_values, seed=st.integers(0, 10**6))
def test_one_of_the_best_goes_on_untouched(name: str, fitness: list[float], seed: int) -> None:
    fates, _ = decide(name, with_past(fitness, 0, seed), seed)
    staying = [fitness[m] for m, fate in enumerate(fates) if fate.event in ("kept", "elite")]
    finite = [rate for rate in fitness if math.isfinite(rate)]
    assert not finite or max(finite) in staying


@KEEPING_SIZE
@pytest.mark.parametrize("size", [2, 3, 7])
def test_a_lone_member_with_a_fitness_rescues_all_others(name: str, size: int) -> None:
    for seed in range(5):
        alone = seed % size
        standing = with_past([0.0 if m == alone else math.nan for m in range(size)], seed % 3, seed)
        assert [fate.parent for fate in decide(name, standing, seed)[0]] == [alone] * size


@KEEPING_SIZE
@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_equal_fitness_leaves_everybody_in_place_whatever_the_generation(name: str, size: int) -> None:
    for seed in range(8):
        standing = with_past([0.5] * size, 0, seed)
        later = Standing.of([0.5] * size, values=standing.values, space=SPACE, generation=seed)
        assert [fate.parent for fate in decide(name, later, seed)[0]] == list(range(size))


@EVERY
def test_the_same_random_state_decides_the_same(name: str) -> None:
    standing = with_past([0.1, 0.4, math.nan, 0.4, 0.9, 0.2], 2, 0)
    assert decide(name, standing, 1) == decide(name, standing, 1)
    assert decide(name, with_past(list(standing.fitness), 2, 0), 1) == decide(name, standing, 1)


@KEEPING_SIZE
def test_no_strategy_favours_a_place_in_the_list_among_equals(name: str) -> None:
    donors: Counter[int] = Counter()
    for seed in range(200):
        fates, _ = decide(name, Standing.of([0.5, 0.5, 0.5, math.nan]), seed)
        donors[fates[3].parent] += 1
    assert set(donors) == {0, 1, 2} and min(donors.values()) > 35  # 67 each are expected
