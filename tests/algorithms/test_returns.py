"""Reward to go by turns, and whitening."""

from __future__ import annotations

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.advantages import RewardToGo
from algorithms.advantages.core import whiten
from algorithms.advantages.returns import reward_to_go
from tests.algorithms.tables import assert_close, token_table, turn_table

ONE_MEMBER = torch.tensor([0, 0])


def test_one_token_turns_give_the_token_returns_of_reinforce_plus_plus() -> None:
    turns = turn_table([[0.0, 0.0, 1.0], [0.0, 0.5]], groups=[0, 1], lengths=[[1, 1, 1], [1, 1]])
    tokens = token_table(turns, observation=0)
    assert_close(RewardToGo(gamma=0.9, baseline="none")(turns, tokens), [[0.81, 0.9, 1.0], [0.45, 0.5, 0.0]])
    expected = [[0.318779, 0.686601, 1.095293], [-1.152509, -0.948164, 0.0]]
    assert_close(RewardToGo(gamma=0.9, baseline="batch")(turns, tokens), expected)


def test_an_outcome_reaches_the_turns_before_it_across_observations() -> None:
    turns = turn_table([[0.0, 0.0, 1.0]], groups=[0])
    tokens = token_table(turns, observation=3)
    advantage = RewardToGo(gamma=1.0, baseline="none")(turns, tokens)
    assert torch.equal(advantage, tokens.mask_RT.double())


def test_the_discount_is_per_turn_whatever_the_lengths() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0], lengths=[[3, 5]])
    advantage = RewardToGo(gamma=0.5, baseline="none")(turns, token_table(turns, observation=0))
    assert_close(advantage, [[0.5, 0.5, 0.5, 1, 1, 1, 1, 1]])


def test_returns_stay_in_their_episode_in_any_order_of_lines() -> None:
    turns = turn_table([[0.0, 1.0], [10.0, 0.0, 4.0]], groups=[0, 1])
    order = torch.tensor([4, 1, 2, 0, 3])
    mixed = type(turns)(
        **{name: column[order] if name.endswith("_K") else column for name, column in vars(turns).items()}
    )
    assert_close(reward_to_go(turns, 0.5), [0.5, 1.0, 11.0, 2.0, 4.0])
    assert torch.equal(reward_to_go(mixed, 0.5), reward_to_go(turns, 0.5)[order])


def test_every_member_may_have_its_own_discount() -> None:
    turns = turn_table([[0.0, 1.0], [0.0, 1.0]], groups=[0, 1], members=[0, 1])
    gamma_K = torch.tensor([0.5, 0.5, 0.25, 0.25])
    assert_close(reward_to_go(turns, gamma_K), [0.5, 1.0, 0.25, 1.0])


def test_turns_without_reward_are_turns() -> None:
    turns = turn_table([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], groups=[0, 0, 0])
    assert_close(reward_to_go(turns, 1.0), [1, 1, 1, 0, 0, 0])


def test_no_turns_at_all_have_no_returns() -> None:
    turns = turn_table([[]], groups=[0])
    assert reward_to_go(turns, 1.0).shape == (0,)


def test_kl_in_the_reward_counts_from_its_turn_backwards() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0])
    tokens = token_table(turns, observation=1, penalty=[[9.0, 0.1, 0.1, 9.0, 0.3, 0.0]])
    advantage = RewardToGo(gamma=1.0, baseline="none")(turns, tokens)
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
