"""Where hyperparameters start and how they move."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from evo_hpo.config.schema import Dimension
from evo_hpo.evolution.space import draw, perturb, spread, variety
from evo_hpo.evolution.strategies.core import Mutation, Standing

RATE = Dimension("float", low=1e-6, high=1e-2, log=True)
GROUP = Dimension("int", low=2, high=20)
KIND = Dimension("categorical", choices=["a", "b", "c"])


def rng(seed: int = 0) -> np.random.Generator:
    return np.random.default_rng(seed)


def neighbours(dimension: Dimension, value: Any) -> set[Any]:
    generator = rng()
    return {perturb(dimension, value, generator) for _ in range(40)}


def test_a_learning_rate_is_multiplied_or_divided_by_1_25() -> None:
    assert sorted(neighbours(RATE, 1e-5)) == pytest.approx([8e-6, 1.25e-5])


def test_perturbations_do_not_drift() -> None:
    down, up = sorted(math.log(v / 1e-5) for v in neighbours(RATE, 1e-5))
    assert down + up == pytest.approx(0.0, abs=1e-12)  # with 0.8 and 1.2 it would be -0.0408
    generator = rng(1)
    moves = [math.log(perturb(RATE, 1e-5, generator) / 1e-5) for _ in range(4000)]
    assert abs(np.mean(moves)) < 4 * math.log(1.25) / math.sqrt(4000)  # both ways are equally likely


@pytest.mark.parametrize(("value", "expected"), [(4, {3, 5}), (8, {6, 10}), (2, {3}), (20, {16}), (3, {2, 4})])
def test_integers_move_at_least_one_step(value: int, expected: set[int]) -> None:
    found = neighbours(GROUP, value)
    assert found == expected
    assert all(type(v) is int for v in found)


def test_a_category_becomes_another_one() -> None:
    assert neighbours(KIND, "b") == {"a", "c"}
    assert neighbours(Dimension("categorical", choices=["only"]), "only") == {"only"}


def test_a_number_that_may_be_zero_moves_by_a_tenth_of_its_range() -> None:
    coefficient = Dimension("float", low=0.0, high=0.5)
    assert neighbours(coefficient, 0.0) == {0.05}
    assert sorted(neighbours(coefficient, 0.25)) == pytest.approx([0.2, 0.3])
    assert list(neighbours(coefficient, 0.5)) == pytest.approx([0.45])
    assert neighbours(Dimension("int", low=-2, high=2), 0) == {-1, 1}


def test_at_a_bound_the_move_leads_inwards() -> None:
    assert list(neighbours(RATE, 1e-2)) == pytest.approx([8e-3])
    assert list(neighbours(RATE, 1e-6)) == pytest.approx([1.25e-6])


def test_a_step_beyond_a_bound_is_reflected_unless_that_leaves_it_almost_where_it_was() -> None:
    assert sorted(neighbours(RATE, 9.9e-3)) == pytest.approx([7.92e-3, 1e-4 / (9.9e-3 * 1.25)])  # 1e-2 times 1e-2
    assert sorted(neighbours(RATE, 9e-3)) == pytest.approx([7.2e-3])  # reflected it would be 8.9e-3
    flat = Dimension("float", low=0.0, high=1.0)
    assert sorted(neighbours(flat, 0.98)) == pytest.approx([0.88, 0.92])
    assert sorted(neighbours(flat, 0.01)) == pytest.approx([0.09, 0.11])


@st.composite
def ranges(draw_: st.DrawFn) -> tuple[Dimension, Any]:
    kind = draw_(st.sampled_from(["float", "int"]))
    if kind == "int":
        low = draw_(st.integers(-30, 30))
        high = low + draw_(st.integers(1, 60))
        value: Any = draw_(st.integers(low, high))
        return Dimension("int", low=low, high=high, log=low > 0 and draw_(st.booleans())), value
    low_f = draw_(st.floats(-5, 5, allow_subnormal=False).filter(lambda v: v == 0 or abs(v) > 1e-6))
    high_f = low_f + draw_(st.floats(0.01, 10))
    value = min(max(low_f + draw_(st.floats(0, 1)) * (high_f - low_f), low_f), high_f)
    return Dimension("float", low=low_f, high=high_f, log=low_f > 0 and draw_(st.booleans())), value


@settings(deadline=None, max_examples=300)
@given(ranges(), st.integers(0, 2**31))
@example((Dimension("float", low=1.0625, high=1.9375), 1.828125), 2)  # half of a step, but not of one in the logarithm
def test_a_perturbation_stays_inside_and_always_moves(place: tuple[Dimension, Any], seed: int) -> None:
    dimension, value = place
    assert dimension.low is not None and dimension.high is not None
    moved = perturb(dimension, value, rng(seed))
    assert dimension.low <= moved <= dimension.high
    least = 1 if dimension.type == "int" else (dimension.high - dimension.low) / 1e4
    if dimension.low > 0 and dimension.type == "float":  # a step in the logarithm, of which a bound may reflect a half
        least = value * (1 - 1 / math.sqrt(min(1.25, math.sqrt(dimension.high / dimension.low)))) * 0.99
    assert abs(moved - value) >= least


@settings(deadline=None, max_examples=200)
@given(ranges(), st.floats(0, 1, exclude_max=True))
def test_a_draw_lies_inside(place: tuple[Dimension, Any], uniform: float) -> None:
    dimension = place[0]
    assert dimension.low is not None and dimension.high is not None
    value = draw(dimension, uniform)
    assert dimension.low <= value <= dimension.high
    assert type(value) is (int if dimension.type == "int" else float)


def test_draws_follow_the_prior() -> None:
    assert draw(RATE, 0.5) == pytest.approx(1e-4)  # halfway between 1e-6 and 1e-2 in the logarithm
    assert draw(Dimension("float", low=1.0, high=3.0), 0.5) == pytest.approx(2.0)
    assert [draw(KIND, u) for u in (0.0, 0.34, 0.99)] == ["a", "b", "c"]
    grid = [draw(Dimension("int", low=-2, high=2), (i + 0.5) / 1000) for i in range(1000)]
    assert {v: grid.count(v) for v in range(-2, 3)} == dict.fromkeys(range(-2, 3), 200)


def test_a_range_without_ends_is_refused() -> None:
    with pytest.raises(ValueError, match="type float needs low and high"):
        draw(Dimension("float", low=1.0), 0.5)


SPACE = {"rate": RATE, "group": GROUP, "kind": KIND}
OWN = {"rate": 1e-3, "group": 4, "kind": "b", "other": 9}


def test_member_zero_starts_with_the_configs_values_and_the_others_inside_the_space() -> None:
    values = spread(SPACE, OWN, members=8, seed=3)
    assert set(values) == set(SPACE)
    assert all(len(column) == 8 and column[0] == OWN[name] for name, column in values.items())
    assert all(1e-6 <= v <= 1e-2 for v in values["rate"])
    assert all(2 <= v <= 20 and type(v) is int for v in values["group"])
    assert set(values["kind"]) <= {"a", "b", "c"}


def test_the_others_cover_the_space() -> None:
    rates = sorted(spread(SPACE, OWN, members=17, seed=0)["rate"][1:])
    quarters = [sum(1e-6 * 10**q <= v < 1e-6 * 10 ** (q + 1) for v in rates) for q in range(4)]
    assert quarters == [4, 4, 4, 4]


def test_the_same_seed_starts_the_same_population() -> None:
    assert spread(SPACE, OWN, 8, seed=5) == spread(SPACE, OWN, 8, seed=5)
    assert spread(SPACE, OWN, 8, seed=5) != spread(SPACE, OWN, 8, seed=6)


def test_a_population_of_one_starts_with_the_configs_values() -> None:
    assert spread(SPACE, OWN, members=1, seed=0) == {"rate": [1e-3], "group": [4], "kind": ["b"]}
    assert spread({}, OWN, members=4, seed=0) == {}


def test_every_key_mutates_unless_a_number_of_keys_is_given() -> None:
    values = {"rate": 1e-3, "group": 8, "kind": "b"}
    everything = Mutation(resample=0.0, keys=0)(values, SPACE, rng())
    assert all(everything[name] != values[name] for name in values)
    counts = set()
    for seed in range(30):
        one = Mutation(resample=0.0, keys=1)(values, SPACE, rng(seed))
        changed = [name for name in values if one[name] != values[name]]
        assert len(changed) == 1
        counts.add(changed[0])
    assert counts == set(values)


def test_a_mutation_leaves_its_input_and_keys_outside_the_space_alone() -> None:
    values = {"rate": 1e-3, "elsewhere": 7}
    mutated = Mutation(resample=0.0, keys=0)(values, SPACE, rng())
    assert values == {"rate": 1e-3, "elsewhere": 7}
    assert mutated["elsewhere"] == 7 and set(mutated) == set(values)


def test_resampling_draws_from_the_whole_prior() -> None:
    generator = rng()
    found = [Mutation(resample=1.0, keys=0)({"rate": 1e-3}, SPACE, generator)["rate"] for _ in range(400)]
    assert min(found) < 1e-5 and max(found) > 1e-3
    nearby = [Mutation(resample=0.0, keys=0)({"rate": 1e-3}, SPACE, generator)["rate"] for _ in range(50)]
    assert {round(v * 1e6) for v in nearby} == {800, 1250}


def test_a_quarter_of_the_mutations_resample_if_told_so() -> None:
    generator = rng(2)
    found = [Mutation(resample=0.25, keys=0)({"rate": 1e-3}, SPACE, generator)["rate"] for _ in range(2000)]
    perturbed = sum(round(v * 1e6) in (800, 1250) for v in found)
    assert perturbed / 2000 == pytest.approx(0.75, abs=0.05)


def test_mutations_are_reproducible() -> None:
    values = {"rate": 1e-3, "group": 8, "kind": "b"}
    mutation = Mutation(resample=0.5, keys=2)
    assert mutation(values, SPACE, rng(9)) == mutation(values, SPACE, rng(9))


def test_members_are_as_various_as_their_values_lie_apart_in_the_ranges() -> None:
    space = {"rate": RATE, "kind": KIND}
    two = [{"rate": 1e-6, "kind": "a"}, {"rate": 1e-4, "kind": "a"}]
    assert variety([space] * 2, two) == pytest.approx(0.25)  # half of the one range, and alike in the other
    other = {"rate": 1e-2, "kind": "b"}
    assert variety([space] * 3, [*two, other]) == pytest.approx(((0.5 + 0.5 + 1.0) / 3 + 2 / 3) / 2)
    assert variety([space], two[:1]) == 0.0 and variety([{}] * 2, [{}, {}]) == 0.0


def test_a_member_that_has_a_key_is_far_from_one_that_has_it_not() -> None:
    rate, clip = {"rate": RATE}, {"rate": RATE, "clip": Dimension("float", low=0.0, high=1.0)}
    values = [{"algorithm": "grpo", "rate": 1e-4}, {"algorithm": "ppo", "rate": 1e-4, "clip": 0.5}]
    assert variety([rate, clip], values) == pytest.approx(2 / 3)
    numbers = {"size": Dimension("categorical", choices=[2, 4])}
    assert variety([numbers] * 2, [{"size": 2}, {"size": 4}]) == 1.0


def test_a_child_explores_the_space_of_its_own_species() -> None:
    spaces = {"grpo": {"rate": RATE}, "ppo": {"size": GROUP}}
    values: list[dict[str, Any]] = [{"algorithm": "grpo", "rate": 1e-4}, {"algorithm": "ppo", "size": 8}]
    standing = Standing.of([0.5, 0.4], values=values, spaces=spaces)
    found = Mutation(resample=0.0, keys=0).of_all(dict(enumerate(values)), standing, rng)
    assert found[0]["rate"] in neighbours(RATE, 1e-4) and found[1]["size"] in neighbours(GROUP, 8)
