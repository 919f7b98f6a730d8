"""PB2: what the model is told, what it makes of it, and where children are sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from evo_hpo.config.schema import Dimension
from evo_hpo.evolution.bandit import Process
from evo_hpo.evolution.strategies import PB2, Past, Standing, Values
from evo_hpo.evolution.strategies.pb2 import experience

NAN = math.nan
RATE = {"rate": Dimension("float", low=1e-4, high=1e-2, log=True)}
SIDE = Dimension("categorical", choices=["a", "b", "c"])
STRATEGY = PB2(quantile=0.25, elites=1, trust=100.0, memory=200)


def at(position: float) -> Values:
    """The rate at a position between 0 and 1 of its range."""
    return {"rate": 1e-4 * 100**position}


def position(values: Values) -> float:
    return math.log(values["rate"] / 1e-4) / math.log(100)


def tensor(numbers: Any) -> torch.Tensor:
    return torch.tensor(numbers, dtype=torch.float64)


def trained(values: Sequence[Sequence[Values]], growth: Sequence[Sequence[float]], **changes: Any) -> Standing:
    """Members that were never replaced: [generations][members] what they trained with, and how they grew by it."""
    fitness = np.cumsum(growth, axis=0).tolist()
    stay = list(range(len(values[0])))
    past = [Past(f, list(v), stay, ["kept"] * len(stay)) for f, v in zip(fitness, values, strict=True)]
    known = {"space": RATE, "values": list(values[-1]), "past": past[:-1], "generation": len(past) - 1}
    return Standing.of(fitness[-1], **known | changes)


def suggestions(
    standing: Standing, children: dict[int, Values], seed: int = 0, strategy: PB2 = STRATEGY
) -> list[Values]:
    found = strategy.explore(children, standing, lambda member: np.random.default_rng([seed, member]))
    return [found[member] for member in sorted(children)]


# What it learns from.


def test_the_jump_of_a_clone_is_nobodys_growth() -> None:
    # Member 1 is replaced by member 0 after the first generation; from 0.6, where its parent stood, it grows by 0.1.
    past = Past([0.6, 0.2], [at(0.0), at(0.5)], [0, 0], ["elite", "cloned"])
    points, changes = experience(Standing.of([0.65, 0.7], values=[at(0.0), at(1.0)], past=[past], space=RATE))
    assert np.array(points) == pytest.approx(np.array([[1.0, 0.6, 0.0], [1.0, 0.6, 1.0]]))  # time, before, rate
    assert changes == pytest.approx([0.05, 0.1])


def test_the_first_generation_teaches_nothing() -> None:
    assert experience(Standing.of([0.1, 0.9], values=[at(0.1), at(0.9)], space=RATE)) == ([], [])


def test_growth_from_or_to_a_fitness_that_is_not_a_number_is_left_out() -> None:
    past = Past([0.6, NAN, 0.3], [at(0.0)] * 3, [0, 1, 2], ["kept"] * 3)
    points, changes = experience(Standing.of([NAN, 0.5, 0.4], values=[at(0.0)] * 3, past=[past], space=RATE))
    assert len(points) == 1 and changes == pytest.approx([0.1])


def test_places_that_shifted_when_members_were_mixed_are_followed() -> None:
    past = Past([0.1, 0.2, 0.3], [at(0.0)] * 3, [2, 0], ["kept", "kept"])
    points, changes = experience(Standing.of([0.35, 0.2], values=[at(0.0)] * 2, past=[past], space=RATE))
    assert [point[1] for point in points] == [0.3, 0.1] and changes == pytest.approx([0.05, 0.1])


def test_logarithmic_and_linear_ranges_and_categories_become_numbers_between_zero_and_one() -> None:
    space = RATE | {
        "flat": Dimension("float", low=-1.0, high=1.0),
        "side": SIDE,
        "size": Dimension("int", low=2, high=10),
    }
    values = {"rate": 1e-3, "flat": 0.5, "side": "b", "size": 4, "other": 7}
    past = Past([0.5], [values], [0], ["kept"])
    points, _ = experience(Standing.of([0.6], values=[values], past=[past], space=space))
    flat_rate_side_size = [0.75, 0.5, 0.0, math.sqrt(0.5), 0.0, 0.25]
    assert points[0] == pytest.approx([1.0, 0.5, *flat_rate_side_size])


# The model.


def test_noise_is_not_explained_by_the_hyperparameters() -> None:
    rng = np.random.default_rng(0)
    points = np.c_[np.zeros(40), np.repeat(np.linspace(0, 1, 8), 5)]
    mean, deviation = Process.fitted(tensor(points), tensor(rng.normal(size=40))).predict(tensor(points))
    assert mean.abs().max() < 0.6 and deviation.min() > 0.05  # interpolating, they would be 2 and 0


def test_a_signal_is_found_under_noise() -> None:
    rng = np.random.default_rng(0)
    points = np.c_[np.zeros(60), rng.random(60)]
    changes = np.sin(6 * points[:, 1])
    mean, _ = Process.fitted(tensor(points), tensor(changes + rng.normal(0, 0.3, 60))).predict(tensor(points))
    assert np.abs(mean.numpy() - changes).mean() < 0.15  # the noise has a mean of 0.24


def test_few_observations_are_not_explained_without_noise() -> None:
    places = [[0.0, place] for place in (0.0, 0.3, 0.6, 1.0)]
    assert float(Process.fitted(tensor(places), tensor([-1.2, -0.4, 0.3, 1.3])).kernel.noise) > 0.03


def test_what_is_expected_leaves_the_means_and_lessens_the_doubt() -> None:
    process = Process.fitted(tensor([[0.0, 0.1], [0.0, 0.9]]), tensor([-1.0, 1.0]))
    asked = tensor([[1.0, 0.3], [1.0, 0.6]])
    before, after = process.predict(asked), process.expecting(asked[:1]).predict(asked)
    assert after[0].tolist() == pytest.approx(before[0].tolist(), abs=1e-9)
    assert bool((after[1] < before[1]).all())


def test_knowing_nothing_all_places_are_alike() -> None:
    mean, deviation = Process.fitted(tensor([]).reshape(0, 2), tensor([])).predict(tensor([[1.0, 0.0], [1.0, 1.0]]))
    assert mean.tolist() == [0.0, 0.0] and deviation.tolist() == [1.0, 1.0]


# What is explored.


def test_a_child_is_sent_where_members_grew_most_and_not_where_they_stand_highest() -> None:
    places = [0.0, 0.2, 0.4, 0.6, 0.8, 1.0]
    growth = [-((place - 0.8) ** 2) for place in places]
    head_start = [0.9, 0.8, 0.7, 0.3, 0.2, 0.1]
    standing = trained([[at(place) for place in places]] * 6, [head_start, *[growth] * 5])
    found = [position(suggestions(standing, {5: at(0.1)}, seed)[0]) for seed in range(5)]
    assert all(abs(place - 0.8) < 0.25 for place in found)


def test_one_accident_does_not_make_a_place_bad() -> None:
    places = [0.0, 0.25, 0.5, 0.75, 1.0]
    growth = [[0.02 - 0.1 * abs(place - 0.75) for place in places] for _ in range(8)]
    growth[6][3] = -0.2
    standing = trained([[at(place) for place in places]] * 8, growth)
    assert all(abs(position(suggestions(standing, {0: at(0.5)}, seed)[0]) - 0.75) < 0.2 for seed in range(5))


def test_what_helps_the_weak_need_not_help_the_strong() -> None:
    weak_low, weak_high, strong_low, strong_high = at(0.0), at(1.0), at(0.01), at(0.99)
    values = [weak_low, weak_high, strong_low, strong_high]
    standing = trained([values] * 9, [[0.1, 0.3, 0.9, 0.7], *[[0.02, -0.02, -0.02, 0.02]] * 8])
    assert position(suggestions(standing, {1: weak_low})[0]) < 0.3
    assert position(suggestions(standing, {2: strong_high})[0]) > 0.7
    assert position(suggestions(standing, {1: strong_low})[0]) > 0.7


def test_an_optimum_that_has_moved_is_followed() -> None:
    rng = np.random.default_rng(0)
    drawn = rng.random((20, 6))
    optimum = np.where(np.arange(20) < 10, 0.1, 0.9)[:, None]
    growth = 0.05 - 0.1 * (drawn - optimum) ** 2 + rng.normal(0, 0.005, drawn.shape)
    standing = trained([[at(place) for place in row] for row in drawn.tolist()], growth.tolist())
    assert position(suggestions(standing, {0: at(0.5)})[0]) > 0.6


def test_children_of_one_generation_are_sent_to_different_places() -> None:
    # Both have the same candidates and the same parent; only what is expected of the first tells them apart.
    standing = Standing.of([0.5, 0.5, 0.9], values=[at(0.5)] * 3, space=RATE)
    found = STRATEGY.explore({0: at(0.5), 1: at(0.5)}, standing, lambda member: np.random.default_rng(0))
    assert sorted(position(values) for values in found.values()) == pytest.approx([0.0, 1.0], abs=0.05)


def test_a_child_keeps_away_from_what_those_who_go_on_will_try() -> None:
    values = [at(0.1), at(1.0)]  # the last one is the child's, and nobody goes on with it
    standing = Standing.of([0.5, 0.49], values=values, space=RATE)
    assert all(position(suggestions(standing, {1: at(0.1)}, seed)[0]) > 0.9 for seed in range(5))


def test_the_better_category_is_found() -> None:
    space = RATE | {"side": SIDE}
    values = [at(0.5) | {"side": side} for side in ("a", "b", "c", "a", "b", "c")]
    growth = [{"a": 0.0, "b": 0.1, "c": 0.0}[one["side"]] for one in values]
    standing = trained([values] * 6, [[0.1] * 6, *[growth] * 5], space=space)
    assert suggestions(standing, {0: at(0.5) | {"side": "a"}})[0]["side"] == "b"


@st.composite
def parents(draw: st.DrawFn) -> tuple[Dimension, float]:
    low = draw(st.floats(1e-3, 10))
    high = low * draw(st.floats(1.5, 100))
    if draw(st.booleans()):
        dimension = Dimension("float", low=low, high=high, log=draw(st.booleans()))
        return dimension, draw(st.floats(low, high))
    whole = Dimension("int", low=math.ceil(low), high=math.ceil(high) + 1, log=draw(st.booleans()))
    return whole, draw(st.integers(math.ceil(low), math.ceil(high) + 1))


@settings(deadline=None, max_examples=60)
@given(parent=parents(), factor=st.floats(1.05, 4.0))
def test_a_child_stays_within_a_factor_of_its_parent(parent: tuple[Dimension, float], factor: float) -> None:
    dimension, value = parent
    strategy = PB2(quantile=0.25, elites=1, trust=factor, memory=200)
    standing = Standing.of([0.1, 0.9], values=[{"x": value}] * 2, space={"x": dimension})
    (found,) = suggestions(standing, {0: {"x": value}}, strategy=strategy)
    assert dimension.low is not None and dimension.high is not None
    slack = 1.0 if dimension.type == "int" else 1e-9 * value  # an integer moves one step at least
    assert max(value / factor - slack, dimension.low) <= found["x"] <= min(value * factor + slack, dimension.high)
    assert type(found["x"]) is (int if dimension.type == "int" else float)


def test_a_number_that_may_be_negative_stays_near_its_parent_too() -> None:
    space = {"x": Dimension("float", low=-1.0, high=1.0)}
    strategy = PB2(quantile=0.25, elites=1, trust=1.25, memory=200)  # one step: a tenth of the range
    standing = Standing.of([0.1, 0.9], values=[{"x": 0.0}] * 2, space=space)
    assert all(0.1 < abs(suggestions(standing, {0: {"x": 0.0}}, s, strategy)[0]["x"]) <= 0.2 for s in range(20))


@pytest.mark.parametrize("log", [False, True])
def test_four_can_become_three_and_five_however_small_the_factor(log: bool) -> None:
    space = {"x": Dimension("int", low=2, high=32, log=log)}
    strategy = PB2(quantile=0.25, elites=1, trust=1.01, memory=200)
    standing = Standing.of([0.1, 0.2, 0.9], values=[{"x": 4}] * 3, space=space)
    found = suggestions(standing, {0: {"x": 4}, 1: {"x": 4}}, strategy=strategy)
    assert sorted(values["x"] for values in found) == [3, 5]


def test_only_the_latest_changes_are_learned_from() -> None:
    early, late = [at(1.0), at(0.0)], [at(0.0), at(1.0)]
    standing = trained([early] * 7 + [late] * 3, [[0.0, 0.0], *[[0.0, 0.1]] * 9])
    short = PB2(quantile=0.25, elites=1, trust=100.0, memory=6)
    assert position(suggestions(standing, {0: at(0.5)}, strategy=short)[0]) > 0.7


def test_suggestions_depend_on_the_random_state_alone_and_leave_other_keys_as_they_are() -> None:
    standing = trained([[at(0.1), at(0.9)]] * 4, [[0.0, 0.0], *[[0.1, 0.2]] * 3])
    child = {0: at(0.5) | {"other": 3}}
    assert suggestions(standing, child, 1) == suggestions(standing, child, 1) != suggestions(standing, child, 2)
    assert suggestions(standing, child)[0]["other"] == 3 and child == {0: at(0.5) | {"other": 3}}


def test_nothing_to_explore_and_nobody_to_explore_for_are_both_fine() -> None:
    assert suggestions(Standing.of([0.1, 0.9]), {0: {}}) == [{}]
    assert suggestions(Standing.of([NAN, NAN], values=[at(0.1)] * 2, space=RATE), {}) == []


def test_a_member_that_leaves_a_species_is_not_among_those_who_go_on_in_it() -> None:
    values = [at(place) | {"algorithm": name} for place, name in ((0.0, "grpo"), (1.0, "grpo"), (0.5, "ppo"))]
    now = Standing.of([0.5] * 3, values=values, spaces={"grpo": RATE, "ppo": RATE})
    leaving = suggestions(now, {0: values[2], 1: values[1]})[1]
    assert leaving == suggestions(replace(now, fitness=[NAN, 0.5, 0.5]), {0: values[2], 1: values[1]})[1]
    assert leaving != suggestions(now, {1: values[1]})[0]
