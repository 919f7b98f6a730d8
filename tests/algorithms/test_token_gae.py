"""Generalised advantage estimation over sampled tokens."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.advantages import RewardToGo, TokenGAE
from algorithms.advantages.core import whiten
from algorithms.advantages.token_gae import token_gae
from tests.algorithms.parts import ppo
from tests.algorithms.tables import assert_close, token_table, turn_table

REWARD = torch.tensor([[0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
VALUE = torch.tensor([[0.1, 0.2, 0.9, 0.6]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False, True]])
PLAIN = TokenGAE(gamma=1.0, lam=1.0, whiten=False)


def test_observation_tokens_are_skipped() -> None:
    advantage = token_gae(REWARD, VALUE, MASK, 1.0, 0.95)
    assert_close(advantage, [[0.841, 0.78, 0.0, 0.4]])  # without the skip: 0.8372, 0.776, 0.08, 0.4
    assert_close((advantage + VALUE)[MASK], [0.941, 0.98, 1.0])
    assert_close(whiten(advantage, MASK, torch.tensor([0])), [[0.700266, 0.44499, 0.0, -1.145256]])


@pytest.mark.parametrize("absurd", [1e9, float("nan"), float("inf")])
def test_whatever_the_critic_says_at_observations_changes_nothing(absurd: float) -> None:
    value = torch.where(MASK, VALUE, absurd)
    assert torch.equal(token_gae(REWARD, value, MASK, 1.0, 0.95), token_gae(REWARD, VALUE, MASK, 1.0, 0.95))


def test_turn_rewards_sit_on_the_last_token_of_their_turn() -> None:
    turns = turn_table([[0.3, 1.0]], groups=[0])
    values = [[0.2, 0.3, 0.4, 0.6]]
    assert_close(PLAIN(turns, token_table(turns, observation=0, value=values)), [[1.1, 1.0, 0.6, 0.4]])
    outcome_only = turn_table([[0.0, 1.0]], groups=[0])
    assert_close(PLAIN(outcome_only, token_table(outcome_only, observation=0, value=values)), [[0.8, 0.7, 0.6, 0.4]])


@pytest.mark.parametrize("length", [1, 4, 9])
def test_the_return_does_not_grow_with_the_length_of_a_turn(length: int) -> None:
    turns = turn_table([[1.0]], groups=[0], lengths=[[length]])
    tokens = token_table(turns, observation=2, value=[[0.0] * (length + 2)])
    assert tokens.turn_reward_on_last_token(turns).sum() == 1.0
    assert_close(PLAIN(turns, tokens), [[0.0, 0.0] + [1.0] * length])


def test_a_turn_ends_at_its_last_token_whether_an_observation_follows_or_not() -> None:
    turns = turn_table([[0.5, 0.25], [1.0]], groups=[0, 0])
    apart, adjacent = token_table(turns, observation=2), token_table(turns, observation=0)
    expected = [[0, 0, 0, 0.5, 0, 0, 0, 0.25], [0, 0, 0, 1.0, 0, 0, 0, 0]]
    assert_close(apart.turn_reward_on_last_token(turns), expected)
    assert_close(adjacent.turn_reward_on_last_token(turns), [[0, 0.5, 0, 0.25], [0, 1.0, 0, 0]])


def test_a_turn_without_reward_is_not_lost() -> None:
    turns = turn_table([[0.0, 0.0, 1.0]], groups=[0])
    rewards = token_table(turns, observation=1).turn_reward_on_last_token(turns)
    assert_close(rewards, [[0, 0, 0, 0, 0, 0, 0, 0, 1.0]])
    silent = turn_table([[0.0, 0.0]], groups=[0])
    assert PLAIN(silent, token_table(silent, value=[[0.0] * 6])).abs().max() == 0


def test_a_kl_penalty_per_token_makes_no_turns_and_touches_no_observation() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0])
    penalty = [[float("nan"), 0.1, 0.2, 9.0, 0.3, 0.4]]
    tokens = token_table(turns, observation=1, value=[[0.0] * 6], penalty=penalty)
    assert_close(tokens.turn_reward_on_last_token(turns), [[0, -0.1, -0.2, 0, -0.3, 0.6]])
    assert_close(PLAIN(turns, tokens), [[0, 0.0, 0.1, 0, 0.3, 0.6]])


rewards_of_turns = st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=5)


@settings(deadline=None, max_examples=40)
@given(st.lists(rewards_of_turns, min_size=1, max_size=3))
def test_without_critic_discount_and_lambda_it_is_reward_to_go(rewards: list[list[float]]) -> None:
    turns = turn_table(rewards, groups=[0] * len(rewards))
    shape = token_table(turns).mask_RT.shape
    tokens = token_table(turns, value=torch.zeros(shape).tolist())
    assert_close(PLAIN(turns, tokens), RewardToGo(gamma=1.0, baseline="none")(turns, tokens), 1e-9)


def test_lambda_zero_is_the_one_step_error() -> None:
    advantage = token_gae(REWARD, VALUE, MASK, 0.5, 0.0)
    assert_close(advantage, [[0.5 * 0.2 - 0.1, 0.5 * 0.6 - 0.2, 0.0, 1.0 - 0.6]])


def test_discounts_per_row_are_those_rows_alone() -> None:
    two = (REWARD.repeat(2, 1), VALUE.repeat(2, 1), MASK.repeat(2, 1))
    gamma, lam = torch.tensor([[1.0], [0.9]], dtype=torch.float64), torch.tensor([[0.95], [0.5]], dtype=torch.float64)
    both = token_gae(*two, gamma, lam)
    assert_close(both[:1], token_gae(REWARD, VALUE, MASK, 1.0, 0.95), 1e-12)
    assert_close(both[1:], token_gae(REWARD, VALUE, MASK, 0.9, 0.5), 1e-12)


def test_targets_of_the_critic_are_unwhitened_advantages_plus_values() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0], lengths=[[2, 1]])
    value = [[0.0, 0.1, 0.2, 0.9, 0.6]]
    tokens = token_table(turns, observation=1, value=value)
    algorithm = ppo(advantage=TokenGAE(gamma=1.0, lam=0.95, whiten=True))
    assert_close(algorithm.value_targets(turns, tokens)[tokens.mask_RT], [0.941, 0.98, 1.0])
    assert_close(algorithm.advantages(turns, tokens)[tokens.mask_RT], [0.700266, 0.44499, -1.145256])


def test_missing_values_are_refused_with_what_to_write() -> None:
    turns = turn_table([[1.0]], groups=[0])
    with pytest.raises(ValueError, match="needs values of a critic; write algorithm=ppo"):
        PLAIN(turns, token_table(turns))
