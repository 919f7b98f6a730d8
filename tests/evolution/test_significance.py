"""How surely one member is better than another, and where members come from."""

from __future__ import annotations

import math
from statistics import NormalDist

import numpy as np
import pytest

from evo_hpo.evolution.descent import changed_hands, lineages, successor
from evo_hpo.evolution.significance import compare, level, pooled, smoothed
from evo_hpo.evolution.strategies import Past

NAN = math.nan


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def test_the_probability_is_that_of_a_paired_test() -> None:
    difference = rng(1).normal(0.1, 0.5, 64)
    base = rng(2).random(64)
    found = compare((base + difference)[None], base[None], 20_000, rng())[0]
    z = difference.mean() / (difference.std() / 8)
    assert found.gap == pytest.approx(difference.mean())
    assert found.probability == pytest.approx(NormalDist().cdf(z), abs=0.02)
    assert found.tasks == 64


def test_what_all_find_hard_cancels_in_pairs() -> None:
    hard = (np.arange(40) < 20).astype(float)  # both fail half of the tasks; one of them fails five more
    worse = hard.copy()
    worse[:5] = 0.0
    paired = compare(hard[None], worse[None], 4000, rng())[0]
    mixed = compare(hard[None], np.roll(worse, 20)[None], 4000, rng())[0]
    assert paired.gap == mixed.gap == 0.125
    assert paired.probability > 0.96 > mixed.probability + 0.05


def test_equal_results_are_even() -> None:
    assert compare(np.full((1, 9), 0.7), np.full((1, 9), 0.7), 500, rng())[0].probability == 0.5


@pytest.mark.parametrize(("agreeing", "most"), [(1, 0.5), (2, 0.75), (3, 0.875), (4, 0.9375)])
def test_a_few_tasks_that_agree_are_no_proof(agreeing: int, most: float) -> None:
    few = compare(np.ones((1, agreeing)), np.zeros((1, agreeing)), 500, rng())[0]
    among_many = compare((np.arange(64) < agreeing)[None].astype(float), np.zeros((1, 64)), 500, rng())[0]
    assert few.probability == most and among_many.probability <= most


def test_only_tasks_that_both_played_are_compared() -> None:
    a, b = np.array([[1.0, 1.0, NAN, 1.0] * 4]), np.array([[0.0, NAN, 1.0, 0.0] * 4])
    found = compare(a, b, 500, rng())[0]
    assert found.tasks == 8 and found.gap == 1.0 and found.probability == 1 - 2**-8
    nothing = compare(np.array([[1.0, NAN]]), np.array([[NAN, 0.0]]), 500, rng())[0]
    assert (nothing.tasks, nothing.gap, nothing.probability) == (0, 0.0, 0.5)


def test_two_generations_are_averaged_where_both_were_played() -> None:
    found = smoothed(np.array([[1.0, NAN, 1.0, NAN]]), np.array([[0.0, 0.5, NAN, NAN]]), 0.25)
    assert found[0, :3].tolist() == [0.75, 0.5, 1.0] and math.isnan(found[0, 3])


def test_repeated_evaluations_are_averaged_over_what_was_played() -> None:
    found = pooled([np.array([[1.0, 0.0, NAN]]), np.array([[0.0, NAN, NAN]])])
    assert found[0, :2].tolist() == [0.5, 0.0] and math.isnan(found[0, 2])
    assert level(np.array([[1.0, NAN, 0.0, 0.5]])).tolist() == [0.5]


def past(parents: list[int], events: list[str]) -> Past:
    return Past([0.0] * len(parents), [{}] * len(parents), parents, events)


def test_a_slot_has_changed_hands_only_as_far_back_as_asked() -> None:
    history = [past([0, 0], ["kept", "cloned"]), past([0, 1], ["kept", "elite"])]
    assert not changed_hands(history, 1, 0)
    assert not changed_hands(history, 1, 1)
    assert changed_hands(history, 1, 2)
    assert not changed_hands(history, 0, 2)
    assert not changed_hands([], 0, 3)


def test_places_that_shifted_when_a_member_retired_are_followed() -> None:
    history = [past([0, 1, 1], ["kept", "kept", "cloned"]), past([1, 2], ["kept", "kept"])]  # the first retired
    assert changed_hands(history, 1, 2) and not changed_hands(history, 0, 2)
    assert successor(history[-1], 2) == 1
    assert successor(history[-1], 0) is None


def test_lines_of_descent_are_counted_to_their_origin() -> None:
    steps = [([0, 0, 2], ["kept", "cloned", "kept"]), ([0, 1, 1], ["kept", "kept", "cloned"])]
    assert lineages(steps) == 1
    assert lineages(steps[1:]) == 2
    assert lineages([steps[0], ([0, 1, 1], ["kept", "kept", "injected"])]) == 2
