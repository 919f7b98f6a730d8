"""Episode returns against those of their group: GRPO, Dr. GRPO, RLOO."""

from __future__ import annotations

from fractions import Fraction

import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from algorithms.advantages import GroupRelative
from algorithms.advantages.core import group_mean, group_std
from tests.algorithms.parts import DR_GRPO, GRPO, RLOO
from tests.algorithms.tables import assert_close, token_table, turn_table

FOUR = torch.tensor([1.0, 0.0, 0.5, 0.5], dtype=torch.float64)
ONE_GROUP = torch.tensor([7, 7, 7, 7])
VARIANTS = pytest.mark.parametrize("estimator", [GRPO, DR_GRPO, RLOO], ids=["grpo", "dr_grpo", "rloo"])


def test_grpo_divides_by_the_unbiased_standard_deviation() -> None:
    assert_close(GRPO.of_returns(FOUR, ONE_GROUP), [1.224742, -1.224742, 0.0, 0.0])
    population = 1.414210  # what n instead of n - 1 would give
    assert abs(float(GRPO.of_returns(FOUR, ONE_GROUP)[0]) - population) > 0.1


def test_grpo_with_the_epsilon_of_trl() -> None:
    trl = GroupRelative(leave_one_out=False, spread="group", epsilon=1e-4, floor=0.0)
    assert_close(trl.of_returns(FOUR, ONE_GROUP), [1.224445, -1.224445, 0.0, 0.0], tolerance=1e-6)


def test_graded_scores_become_advantages() -> None:
    scores = torch.tensor([0.9, 0.2, 0.6, 0.6], dtype=torch.float64)
    assert_close(GRPO.of_returns(scores, ONE_GROUP), [1.131501, -1.305578, 0.087039, 0.087039])


def test_dr_grpo_only_centres() -> None:
    assert_close(DR_GRPO.of_returns(FOUR, ONE_GROUP), [0.5, -0.5, 0.0, 0.0])


def test_rloo_is_the_return_minus_the_mean_of_the_others() -> None:
    assert_close(RLOO.of_returns(FOUR, ONE_GROUP), [0.666667, -0.666667, 0.0, 0.0])
    returns = torch.tensor([3.0, -1.0, 0.25, 8.0, 2.0], dtype=torch.float64)
    explicit = [float(returns[i] - torch.cat([returns[:i], returns[i + 1 :]]).mean()) for i in range(5)]
    assert_close(RLOO.of_returns(returns, torch.zeros(5, dtype=torch.int64)), explicit, tolerance=1e-12)


@pytest.mark.parametrize("size", [2, 4, 8])
def test_leave_one_out_is_centred_times_g_over_g_minus_one_exactly(size: int) -> None:
    returns = [(7 * i * i % 11) / 8 for i in range(size)]  # eighths: the mean of 2, 4 or 8 of them has no rounding
    mean = sum(map(Fraction, returns), Fraction(0)) / size
    expected = [float((Fraction(r) - mean) * size / (size - 1)) for r in returns]
    tensor, group = torch.tensor(returns, dtype=torch.float64), torch.zeros(size, dtype=torch.int64)
    assert RLOO.of_returns(tensor, group).tolist() == expected
    assert DR_GRPO.of_returns(tensor, group).tolist() == [float(Fraction(r) - mean) for r in returns]


@VARIANTS
def test_a_group_of_one_gets_nothing_never_its_raw_return(estimator: GroupRelative) -> None:
    advantage = estimator.of_returns(torch.tensor([1.0, 5.0, 3.0]), torch.tensor([0, 1, 1]))
    assert advantage[0] == 0
    assert advantage[1] > 0


@VARIANTS
@pytest.mark.parametrize("value", [0.1, 0.7, 1e6 + 0.1, -3.3])
def test_equal_returns_give_exactly_zero_even_without_floor_and_epsilon(estimator: GroupRelative, value: float) -> None:
    bare = GroupRelative(estimator.leave_one_out, estimator.spread, epsilon=0.0, floor=0.0)
    for size in (2, 3, 7):
        advantage = bare.of_returns(torch.full((size,), value), torch.zeros(size, dtype=torch.int64))
        assert advantage.tolist() == [0.0] * size


def test_a_spread_below_the_floor_is_noise_and_gives_zero() -> None:
    returns = torch.tensor([0.35, 0.35, 0.35, 0.3501])  # spread 5e-5; a division by it would give advantages of 1.5
    careful = GroupRelative(leave_one_out=True, spread="group", epsilon=0.0, floor=1e-4)
    assert careful.of_returns(returns, ONE_GROUP).tolist() == [0.0] * 4
    reckless = GroupRelative(leave_one_out=True, spread="group", epsilon=0.0, floor=0.0)
    assert reckless.of_returns(returns, ONE_GROUP).abs().max() > 1


finite = st.floats(-10, 10, width=32)
some_returns = st.lists(finite, min_size=2, max_size=8)


@settings(deadline=None, max_examples=60)
@given(some_returns, finite)
def test_a_constant_added_to_a_group_changes_nothing(returns: list[float], constant: float) -> None:
    value, group = torch.tensor(returns, dtype=torch.float64), torch.zeros(len(returns), dtype=torch.int64)
    assume(value.std() > 1e-3)
    for estimator in (GRPO, DR_GRPO, RLOO):
        assert_close(estimator.of_returns(value + constant, group), estimator.of_returns(value, group), 1e-9)


@settings(deadline=None, max_examples=60)
@given(some_returns, st.floats(0.1, 10))
def test_scaling_rewards_scales_advantages_unless_they_are_divided_by_the_spread(
    returns: list[float], factor: float
) -> None:
    value, group = torch.tensor(returns, dtype=torch.float64), torch.zeros(len(returns), dtype=torch.int64)
    assume(value.std() > 1e-2)
    for estimator in (DR_GRPO, RLOO):
        assert_close(estimator.of_returns(value * factor, group), estimator.of_returns(value, group) * factor, 1e-9)
    by_spread = GroupRelative(leave_one_out=False, spread="group", epsilon=0.0, floor=0.0)
    assert_close(by_spread.of_returns(value * factor, group), by_spread.of_returns(value, group), 1e-9)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=4), min_size=2, max_size=12))
def test_advantages_have_mean_zero_in_each_group(rewards: list[list[float]]) -> None:
    groups = [e % 3 for e in range(len(rewards))]
    turns = turn_table(rewards, groups)
    for estimator in (GRPO, DR_GRPO, RLOO):
        advantage = estimator.of_returns(turns.return_E, turns.group_E)
        for group in set(groups):
            assert abs(float(advantage[turns.group_E == group].sum())) < 1e-6


@VARIANTS
def test_the_order_of_episodes_does_not_matter(estimator: GroupRelative) -> None:
    returns = torch.tensor([1.0, 0.0, 0.5, 2.0, 4.0, 3.0], dtype=torch.float64)
    groups = torch.tensor([0, 0, 0, 9, 9, 9])
    order = torch.tensor([4, 2, 0, 5, 1, 3])
    shuffled = estimator.of_returns(returns[order], groups[order])
    assert_close(shuffled, estimator.of_returns(returns, groups)[order], 1e-12)


def test_four_episodes_of_one_task_are_one_group() -> None:
    turns = turn_table([[1.0], [0.0], [1.0], [0.0]], groups=[3, 3, 3, 3])
    advantage = GRPO(turns, token_table(turns, observation=0))
    root = 0.866025  # 0.5 / (0.57735 + 1e-6)
    assert_close(advantage, [[root, root], [-root, -root], [root, root], [-root, -root]], 1e-5)


def test_members_are_compared_with_their_own_episodes_only() -> None:
    together = turn_table([[1.0], [0.0], [9.0], [5.0]], groups=[0, 0, 1, 1], members=[0, 0, 1, 1])
    alone = turn_table([[1.0], [0.0]], groups=[0, 0])
    both, one = DR_GRPO(together, token_table(together)), DR_GRPO(alone, token_table(alone))
    assert torch.equal(both[:2], one)
    assert_close(both[2:, 1], [2.0, -2.0])


def test_a_turn_without_reward_is_a_turn_and_an_episode_without_reward_is_no_error() -> None:
    turns = turn_table([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], groups=[0, 0, 0])
    advantage = DR_GRPO(turns, token_table(turns, observation=0))
    third = 1 / 3
    assert_close(advantage, [[third] * 4, [third] * 4, [-2 * third] * 4])


def test_the_same_return_in_two_turns_or_six_gives_the_same_advantage() -> None:
    turns = turn_table([[0.0, 1.0], [0.0, 0.0, 0.0, 0.0, 0.0, 1.0], [0.0], [0.0, 0.0]], groups=[0, 0, 0, 0])
    for estimator in (GRPO, DR_GRPO, RLOO):
        tokens = token_table(turns)
        advantage = estimator(turns, tokens)
        short, long = advantage[0][tokens.mask_RT[0]], advantage[1][tokens.mask_RT[1]]
        assert short.unique().tolist() == long.unique().tolist()
        assert short.numel() == 4 and long.numel() == 12


def test_observation_and_padding_tokens_have_no_advantage() -> None:
    turns = turn_table([[1.0, 0.0], [0.0]], groups=[0, 0])
    tokens = token_table(turns)
    advantage = DR_GRPO(turns, tokens)
    assert_close(advantage, [[0, 0.5, 0.5, 0, 0.5, 0.5], [0, -0.5, -0.5, 0, 0, 0]])


def test_kl_in_the_reward_lowers_the_return_of_the_episode_that_strays() -> None:
    turns = turn_table([[1.0], [0.0]], groups=[0, 0])
    tokens = token_table(turns, observation=0, penalty=[[0.1, 0.3], [0.0, 0.0]])
    assert_close(DR_GRPO(turns, tokens), [[0.3, 0.3], [-0.3, -0.3]])  # returns 0.6 and 0


def test_kl_in_the_reward_does_not_make_a_group_of_equal_returns_teach() -> None:
    turns = turn_table([[1.0], [1.0]], groups=[0, 0])
    tokens = token_table(turns, observation=0, penalty=[[0.001, 0.0], [0.0, 0.0]])
    for estimator in (GRPO, DR_GRPO, RLOO):
        assert estimator(turns, tokens).abs().max() == 0


def test_group_statistics_of_nothing_are_nothing() -> None:
    empty, group = torch.zeros(0), torch.zeros(0, dtype=torch.int64)
    size, mean = group_mean(empty, group)
    assert size.shape == mean.shape == group_std(empty, group).shape == (0,)
