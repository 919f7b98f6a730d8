"""Values against those of their group or batch: the one normalisation of all group-relative estimators."""

from __future__ import annotations

import dataclasses
from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from algorithms.advantages import Normalisation
from algorithms.advantages.core import group_mean, group_std, place
from tests.algorithms.estimators import BATCH, CENTRED, CENTRED_BY_BATCH, LEAVE_ONE_OUT, Z_SCORE, normalisation
from tests.algorithms.tables import assert_close, turn_table

FOUR = torch.tensor([1.0, 0.0, 0.5, 0.5], dtype=torch.float64)
ONE_GROUP = torch.tensor([7, 7, 7, 7])
EVERY = {
    "z_score": Z_SCORE,
    "centred": CENTRED,
    "leave_one_out": LEAVE_ONE_OUT,
    "population": normalisation(spread="group", unbiased=False),
    "leave_one_out_by_spread": normalisation(centre="leave_one_out", spread="group"),
    "group_by_batch": CENTRED_BY_BATCH,
    "batch": BATCH,
}
OF_GROUPS = [name for name, one in EVERY.items() if one.needs_groups]
IN_REWARD_UNITS = ["centred", "leave_one_out"]


def of(one: Normalisation, value: Tensor, group: Tensor | None = None, member: Tensor | None = None) -> Tensor:
    """Of values that no penalty changed; unless given, one group and one member."""
    nobody = torch.zeros(value.shape, dtype=torch.int64)
    return one(value, nobody if group is None else group, nobody if member is None else member, value)


def test_the_spread_is_the_unbiased_or_the_population_standard_deviation_as_said() -> None:
    assert_close(of(Z_SCORE, FOUR), [1.224742, -1.224742, 0.0, 0.0])
    assert_close(of(normalisation(spread="group", unbiased=False, epsilon=1e-6), FOUR), [1.41421, -1.41421, 0.0, 0.0])


def test_the_two_standard_deviations_of_one_group() -> None:
    assert_close(group_std(FOUR, ONE_GROUP), [0.408248] * 4)
    assert_close(group_std(FOUR, ONE_GROUP, unbiased=False), [0.353553] * 4)


def test_turns_are_compared_with_those_of_the_same_index_that_were_reached() -> None:
    turns = turn_table([[0.2, 1.0], [0.6, 0.0], [0.4]], groups=[0, 0, 0])
    advantage = Z_SCORE(turns.reward_K, place(turns), turns.member_K, turns.reward_K)
    assert_close(advantage[turns.index_K == 0], [-1.0, 1.0, 0.0])
    assert_close(advantage[turns.index_K == 1], [0.707107, -0.707107])


def test_epsilon_is_added_to_the_spread() -> None:
    trl = normalisation(spread="group", epsilon=1e-4)
    assert_close(of(trl, FOUR), [1.224445, -1.224445, 0.0, 0.0], tolerance=1e-6)


def test_scores_of_a_judge_become_advantages() -> None:
    scores = torch.tensor([0.9, 0.2, 0.6, 0.6], dtype=torch.float64)
    assert_close(of(Z_SCORE, scores), [1.131501, -1.305578, 0.087039, 0.087039])
    assert of(Z_SCORE, torch.full((4,), 0.6)).tolist() == [0.0] * 4


def test_without_spread_the_mean_alone_is_subtracted() -> None:
    assert_close(of(CENTRED, FOUR), [0.5, -0.5, 0.0, 0.0])


def test_leave_one_out_is_the_value_minus_the_mean_of_the_others() -> None:
    assert_close(of(LEAVE_ONE_OUT, FOUR), [0.666667, -0.666667, 0.0, 0.0])
    value = torch.tensor([3.0, -1.0, 0.25, 8.0, 2.0], dtype=torch.float64)
    explicit = [float(value[i] - torch.cat([value[:i], value[i + 1 :]]).mean()) for i in range(5)]
    assert_close(of(LEAVE_ONE_OUT, value), explicit, tolerance=1e-12)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_leave_one_out_is_centred_times_g_over_g_minus_one_exactly(size: int) -> None:
    values = [(7 * i * i % 11) / 8 for i in range(size)]  # eighths: the mean of 2, 4 or 8 of them has no rounding
    mean = sum(map(Fraction, values), Fraction(0)) / size
    expected = [float((Fraction(v) - mean) * size / (size - 1)) for v in values]
    tensor = torch.tensor(values, dtype=torch.float64)
    assert of(LEAVE_ONE_OUT, tensor).tolist() == expected
    assert of(CENTRED, tensor).tolist() == [float(Fraction(v) - mean) for v in values]


def test_the_spread_of_the_batch_is_that_of_all_values_of_the_member() -> None:
    value = torch.tensor([1.0, 0.0, 10.0, 8.0, 5.0, 3.0], dtype=torch.float64)
    group, member = torch.tensor([0, 0, 1, 1, 2, 2]), torch.tensor([0, 0, 0, 0, 1, 1])
    std = float(value[:4].std())
    expected = [0.5 / std, -0.5 / std, 1 / std, -1 / std, 0.707107, -0.707107]
    assert_close(of(CENTRED_BY_BATCH, value, group, member), expected)


def test_the_centre_of_the_batch_is_the_mean_of_all_values_of_the_member() -> None:
    value = torch.tensor([1.0, 0.0, 10.0, 5.0, 3.0], dtype=torch.float64)
    centred_by_batch = normalisation(centre="batch")
    result = of(centred_by_batch, value, torch.tensor([0, 0, 1, 2, 2]), torch.tensor([0, 0, 0, 1, 1]))
    assert_close(result, [1 - 11 / 3, -11 / 3, 10 - 11 / 3, 1.0, -1.0])


def test_the_spread_alone_may_be_divided_by() -> None:
    assert_close(of(normalisation(centre="none", spread="group"), torch.tensor([3.0, 1.0])), [2.12132, 0.707107])


def test_comparing_with_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="compares with nothing; write centre=group, or algorithm/advantage=returns"):
        normalisation(centre="none")


@pytest.mark.parametrize("name", OF_GROUPS)
def test_a_group_of_one_gets_nothing_never_its_raw_value(name: str) -> None:
    result = of(EVERY[name], torch.tensor([1.0, 5.0, 3.0]), torch.tensor([0, 1, 1]))
    assert result[0] == 0
    assert result[1] > 0


@pytest.mark.parametrize("name", list(EVERY))
@pytest.mark.parametrize("value", [0.1, 0.7, 1e6 + 0.1, -3.3])
def test_equal_values_give_exactly_zero_even_without_floor_and_epsilon(name: str, value: float) -> None:
    bare = dataclasses.replace(EVERY[name], epsilon=0.0, floor=0.0)
    for size in (1, 2, 3, 7):
        assert of(bare, torch.full((size,), value)).tolist() == [0.0] * size


def test_a_spread_below_the_floor_is_noise_and_gives_zero() -> None:
    value = torch.tensor([0.35, 0.35, 0.35, 0.3501])  # spread 5e-5; a division by it would give 1.5
    careful = normalisation(centre="leave_one_out", spread="group", floor=1e-4)
    assert of(careful, value).tolist() == [0.0] * 4
    assert of(dataclasses.replace(careful, floor=0.0), value).abs().max() > 1


def test_a_batch_below_the_floor_gives_zero_even_if_one_of_its_groups_is_above() -> None:
    value, group = torch.tensor([0.0, 0.4, 0.2, 0.2, 0.2, 0.2, 0.2, 0.2]), torch.tensor([0, 0, 1, 1, 1, 1, 1, 1])
    floor = (float(value.std()) + float(value[:2].std())) / 2  # 0.11 of the batch, 0.28 of the first group
    assert of(normalisation(spread="batch", floor=floor), value, group).tolist() == [0.0] * 8
    assert of(normalisation(spread="group", floor=floor), value, group).tolist()[:2] != [0.0] * 2


def test_the_floor_is_decided_on_the_raw_values() -> None:
    raw, group = torch.tensor([1.0, 1.0, 1.0, 0.0]), torch.tensor([0, 0, 1, 1])
    penalised = torch.tensor([0.9, 1.0, 0.9, 0.0])
    for one in (Z_SCORE, CENTRED, LEAVE_ONE_OUT):
        result = one(penalised, group, torch.zeros_like(group), raw)
        assert result.tolist()[:2] == [0.0, 0.0]
        assert result[2] > 0


@pytest.mark.parametrize("name", list(EVERY))
def test_a_constant_that_the_numbers_can_hold_changes_nothing_at_all(name: str) -> None:
    eighths = torch.tensor([0.125, 3.0, -0.25, 0.125, 2.0, 7.0], dtype=torch.float64)
    group = torch.tensor([0, 0, 0, 1, 1, 1])
    for constant in (8.0, -1.25, 1024.5):
        assert torch.equal(of(EVERY[name], eighths + constant, group), of(EVERY[name], eighths, group))


finite = st.floats(-10, 10, width=32)
some_values = st.lists(finite, min_size=2, max_size=8)


@settings(deadline=None, max_examples=60)
@given(some_values, finite)
def test_any_constant_changes_nothing_but_the_rounding(values: list[float], constant: float) -> None:
    value = torch.tensor(values, dtype=torch.float64)
    assume(value.std() > 1e-3)
    for one in EVERY.values():
        assert_close(of(one, value + constant), of(one, value), 1e-9)


@settings(deadline=None, max_examples=60)
@given(some_values, st.floats(0.1, 10))
def test_scaling_scales_unless_a_spread_divides_it_away(values: list[float], factor: float) -> None:
    value = torch.tensor(values, dtype=torch.float64)
    assume(value.std() > 1e-2)
    for name, one in EVERY.items():
        bare = dataclasses.replace(one, epsilon=0.0, floor=0.0)
        expected = of(bare, value) * (factor if name in IN_REWARD_UNITS else 1.0)
        assert_close(of(bare, value * factor), expected, 1e-9)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.floats(0, 1), min_size=2, max_size=12))
def test_what_was_centred_in_a_group_has_mean_zero_there(values: list[float]) -> None:
    group = torch.tensor([e % 3 for e in range(len(values))])
    for name in OF_GROUPS:
        result = of(EVERY[name], torch.tensor(values, dtype=torch.float64), group)
        for one in group.unique():
            assert abs(float(result[group == one].sum())) < 1e-6


@settings(deadline=None, max_examples=60)
@given(st.lists(finite, min_size=2, max_size=9))
def test_without_spread_mean_centred_is_leave_one_out_shrunk_by_the_size_of_the_group(values: list[float]) -> None:
    value = torch.tensor(values, dtype=torch.float64)
    size = len(values)
    assert_close(of(CENTRED, value), of(LEAVE_ONE_OUT, value) * (size - 1) / size, 1e-9)


def test_statistics_of_nothing_are_nothing() -> None:
    empty, group = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    size, mean = group_mean(empty, group)
    assert size.shape == mean.shape == group_std(empty, group).shape == (0,)
    assert of(Z_SCORE, empty).shape == (0,)
