"""Returns by token, turn and trajectory, against each of their baselines, and whitening."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.advantages import Returns
from algorithms.advantages.core import whiten
from algorithms.advantages.returns import reward_to_go
from tests.algorithms.tables import assert_close, token_table, turn_table

ONE_MEMBER = torch.tensor([0, 0])
NAN = float("nan")


def returns(**changes: Any) -> Returns:
    """By turn, undiscounted, raw, except for `changes`."""
    return Returns(**{"credit": "turn", "gamma": 1.0, "baseline": "none", "decay": 0.0, **changes})


@pytest.mark.parametrize("credit", ["token", "turn"])
def test_one_token_turns_give_the_token_returns_of_reinforce_plus_plus(credit: str) -> None:
    turns = turn_table([[0.0, 0.0, 1.0], [0.0, 0.5]], groups=[0, 1], lengths=[[1, 1, 1], [1, 1]])
    tokens = token_table(turns, observation=0)
    assert_close(returns(credit=credit, gamma=0.9)(turns, tokens), [[0.81, 0.9, 1.0], [0.45, 0.5, 0.0]])
    expected = [[0.318779, 0.686601, 1.095293], [-1.152509, -0.948164, 0.0]]
    assert_close(returns(credit=credit, gamma=0.9, baseline="batch")(turns, tokens), expected)


def test_tokens_of_one_turn_give_the_same_token_returns() -> None:
    turns = turn_table([[1.0], [0.0, 0.5]], groups=[0, 1], lengths=[[3], [1, 1]])
    advantage = returns(credit="token", gamma=0.9)(turns, token_table(turns, observation=0))
    assert_close(advantage, [[0.81, 0.9, 1.0], [0.45, 0.5, 0.0]])


@pytest.mark.parametrize("credit", ["token", "turn", "trajectory"])
def test_an_outcome_reaches_the_turns_before_it_across_observations(credit: str) -> None:
    turns = turn_table([[0.0, 0.0, 1.0]], groups=[0])
    tokens = token_table(turns, observation=3)
    assert torch.equal(returns(credit=credit)(turns, tokens), tokens.mask_RT.double())


def test_observations_are_no_steps_that_discount() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0], lengths=[[1, 2]])
    advantage = returns(credit="token", gamma=0.5)(turns, token_table(turns, observation=3))
    assert_close(advantage, [[0, 0, 0, 0.25, 0, 0, 0, 0.5, 1.0]])


@pytest.mark.parametrize("length", [1, 4, 9])
def test_a_turn_reward_counts_once_however_many_tokens_the_turn_has(length: int) -> None:
    turns = turn_table([[1.0]], groups=[0], lengths=[[length]])
    advantage = returns(credit="token")(turns, token_table(turns, observation=0))
    assert_close(advantage, [[1.0] * length])  # on every token it would be 4, 3, 2, 1


def test_a_trajectory_gives_every_token_the_whole_return() -> None:
    turns = turn_table([[1.0, 0.0, 2.0], [0.5]], groups=[0, 1])
    advantage = returns(credit="trajectory", gamma=0.5)(turns, token_table(turns, observation=0))
    assert_close(advantage, [[1.5] * 6, [0.5] * 2 + [0.0] * 4])


def test_the_moving_mean_of_earlier_returns_is_subtracted() -> None:
    turns = turn_table([[0.0, 1.0], [0.25]], groups=[0, 1], members=[0, 1], baselines=[0.5, 1.0])
    advantage = returns(baseline="moving")(turns, token_table(turns, observation=1))
    assert_close(advantage, [[0, 0.5, 0.5, 0, 0.5, 0.5], [0, -0.75, -0.75, 0, 0, 0]])


def test_before_the_first_update_the_baseline_is_the_mean_return_of_the_members_own_episodes() -> None:
    rewards, members = [[0.0, 1.0], [0.0], [8.0]], [0, 0, 1]
    for baselines in (None, [NAN, NAN, 2.0]):
        turns = turn_table(rewards, groups=[0, 0, 1], members=members, baselines=baselines)
        advantage = returns(baseline="moving")(turns, token_table(turns, observation=0))
        assert_close(advantage[:, 0], [0.5, -0.5, 0.0 if baselines is None else 6.0])


def test_only_a_moving_baseline_is_kept_between_updates() -> None:
    assert returns(baseline="moving", decay=0.9).baseline_decay == 0.9
    assert returns(baseline="batch", decay=0.9).baseline_decay is None


def test_the_discount_is_per_turn_whatever_the_lengths() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0], lengths=[[3, 5]])
    advantage = returns(gamma=0.5)(turns, token_table(turns, observation=0))
    assert_close(advantage, [[0.5, 0.5, 0.5, 1, 1, 1, 1, 1]])


def test_returns_stay_in_their_episode_in_any_order_of_lines() -> None:
    turns = turn_table([[0.0, 1.0], [10.0, 0.0, 4.0]], groups=[0, 1])
    order = torch.tensor([4, 1, 2, 0, 3])
    columns = {name: getattr(turns, name)[order] for name in ("episode_K", "index_K", "reward_K")}
    mixed = dataclasses.replace(turns, **columns)
    assert_close(reward_to_go(turns, 0.5), [0.5, 1.0, 11.0, 2.0, 4.0])
    assert torch.equal(reward_to_go(mixed, 0.5), reward_to_go(turns, 0.5)[order])


def test_every_member_may_have_its_own_discount() -> None:
    turns = turn_table([[0.0, 1.0], [0.0, 1.0]], groups=[0, 1], members=[0, 1])
    assert_close(reward_to_go(turns, torch.tensor([0.5, 0.25])), [0.5, 1.0, 0.25, 1.0])


def test_turns_without_reward_are_turns() -> None:
    turns = turn_table([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], groups=[0, 0, 0])
    assert_close(reward_to_go(turns, 1.0), [1, 1, 1, 0, 0, 0])


def test_no_turns_at_all_have_no_returns() -> None:
    turns = turn_table([[]], groups=[0])
    assert reward_to_go(turns, 1.0).shape == (0,)


def test_kl_in_the_reward_counts_from_its_turn_backwards() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0])
    tokens = token_table(turns, observation=1, penalty=[[9.0, 0.1, 0.1, 9.0, 0.3, 0.0]])
    advantage = returns()(turns, tokens)
    assert_close(advantage, [[0, 0.5, 0.5, 0, 0.7, 0.7]])


def test_whitening_gives_mean_zero_and_unbiased_variance_one_over_trained_tokens() -> None:
    value = torch.tensor([[0.841, 0.78, 99.0, 0.4]], dtype=torch.float64)
    mask = torch.tensor([[True, True, False, True]])
    assert_close(whiten(value, mask, torch.tensor([0])), [[0.700266, 0.44499, 0.0, -1.145256]])


def test_whitening_fewer_than_two_entries_gives_zero() -> None:
    value = torch.tensor([[5.0, 1.0], [3.0, 2.0], [8.0, 8.0]])
    mask = torch.tensor([[True, False], [True, True], [False, False]])
    result = whiten(value, mask, torch.tensor([0, 1, 2]))
    assert result[0].tolist() == [0.0, 0.0]
    assert_close(result[1], [0.707107, -0.707107])
    assert result[2].tolist() == [0.0, 0.0]


def test_whitening_knows_turns_and_episodes_as_well() -> None:
    value, mask = torch.tensor([1.0, 3.0, 50.0, 7.0]), torch.tensor([True, True, False, True])
    assert_close(whiten(value, mask, torch.tensor([0, 0, 0, 1])), [-0.707107, 0.707107, 0.0, 0.0])


def test_whitening_takes_each_members_own_statistics_over_all_its_rows() -> None:
    value = torch.tensor([[1.0, 2.0], [3.0, 100.0], [300.0, 200.0]], dtype=torch.float64)
    mask = torch.tensor([[True, True], [True, False], [True, True]])
    result = whiten(value, mask, torch.tensor([0, 0, 1]))
    assert_close(result, [[-1.0, 0.0], [1.0, 0.0], [0.707107, -0.707107]])


def test_whitening_ignores_whatever_stands_at_untrained_positions() -> None:
    value = torch.tensor([[1.0, float("nan")], [float("-inf"), 3.0]])
    mask = torch.tensor([[True, False], [False, True]])
    assert_close(whiten(value, mask, ONE_MEMBER), [[-0.707107, 0.0], [0.0, 0.707107]])


@settings(deadline=None, max_examples=40)
@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=6), st.floats(0, 1))
def test_reward_to_go_is_the_sum_that_defines_it(rewards: list[float], gamma: float) -> None:
    turns = turn_table([rewards], groups=[0])
    expected = [sum(gamma ** (u - k) * rewards[u] for u in range(k, len(rewards))) for k in range(len(rewards))]
    assert_close(reward_to_go(turns, gamma), expected, 1e-9)
