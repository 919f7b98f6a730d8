"""Generalised advantage estimation over sampled tokens, over turns, and for whole episodes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from algorithms.advantages import GAE, Returns
from algorithms.advantages.core import whiten
from algorithms.advantages.gae import token_gae
from tests.algorithms.tables import assert_close, token_table, turn_table

REWARD = torch.tensor([[0.0, 0.0, 0.0, 1.0]], dtype=torch.float64)
VALUE = torch.tensor([[0.1, 0.2, 0.9, 0.6]], dtype=torch.float64)
MASK = torch.tensor([[True, True, False, True]])
NAN = float("nan")


def gae(**changes: Any) -> GAE:
    """By token, undiscounted, lambda 1, not whitened, except for `changes`."""
    return GAE(**{"credit": "token", "gamma": 1.0, "lam": 1.0, "whiten": False, **changes})


# By token


def test_observation_tokens_are_skipped() -> None:
    advantage = token_gae(REWARD, VALUE, MASK, 1.0, 0.95)
    assert_close(advantage, [[0.841, 0.78, 0.0, 0.4]])  # without the skip: 0.8372, 0.776, 0.08, 0.4
    assert_close((advantage + VALUE)[MASK], [0.941, 0.98, 1.0])
    assert_close(whiten(advantage, MASK, torch.tensor([0])), [[0.700266, 0.44499, 0.0, -1.145256]])


def test_lambda_zero_is_the_one_step_error() -> None:
    advantage = token_gae(REWARD, VALUE, MASK, 0.5, 0.0)
    assert_close(advantage, [[0.5 * 0.2 - 0.1, 0.5 * 0.6 - 0.2, 0.0, 1.0 - 0.6]])


def test_discounts_per_row_are_those_rows_alone() -> None:
    two = (REWARD.repeat(2, 1), VALUE.repeat(2, 1), MASK.repeat(2, 1))
    gamma, lam = torch.tensor([[1.0], [0.9]], dtype=torch.float64), torch.tensor([[0.95], [0.5]], dtype=torch.float64)
    both = token_gae(*two, gamma, lam)
    assert_close(both[:1], token_gae(REWARD, VALUE, MASK, 1.0, 0.95), 1e-12)
    assert_close(both[1:], token_gae(REWARD, VALUE, MASK, 0.9, 0.5), 1e-12)


def test_rewards_of_turns_before_the_last_make_it_mt_ppo() -> None:
    values = [[0.2, 0.3, 0.4, 0.6]]
    turns = turn_table([[0.3, 1.0]], groups=[0])
    assert_close(gae()(turns, token_table(turns, observation=0, value=values)), [[1.1, 1.0, 0.6, 0.4]])
    outcome_only = turn_table([[0.0, 1.0]], groups=[0])
    advantage = gae()(outcome_only, token_table(outcome_only, observation=0, value=values))
    assert_close(advantage, [[0.8, 0.7, 0.6, 0.4]])


@pytest.mark.parametrize("length", [1, 4, 9])
def test_the_return_does_not_grow_with_the_length_of_a_turn(length: int) -> None:
    turns = turn_table([[1.0]], groups=[0], lengths=[[length]])
    tokens = token_table(turns, observation=2, value=[[0.0] * (length + 2)])
    assert tokens.turn_reward_on_last_token(turns).sum() == 1.0
    assert_close(gae()(turns, tokens), [[0.0, 0.0] + [1.0] * length])


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
    assert gae()(silent, token_table(silent, value=[[0.0] * 6])).abs().max() == 0


def test_a_kl_penalty_per_token_makes_no_turns_and_touches_no_observation() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0])
    penalty = [[NAN, 0.1, 0.2, 9.0, 0.3, 0.4]]
    tokens = token_table(turns, observation=1, value=[[0.0] * 6], penalty=penalty)
    assert_close(tokens.turn_reward_on_last_token(turns), [[0, -0.1, -0.2, 0, -0.3, 0.6]])
    assert_close(gae()(turns, tokens), [[0, 0.0, 0.1, 0, 0.3, 0.6]])
    assert_close(gae(credit="turn")(turns, tokens), [[0, 0.0, 0.0, 0, 0.3, 0.3]])


def test_by_token_the_critic_should_have_said_advantage_plus_value_at_every_token() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0], lengths=[[2, 1]])
    tokens = token_table(turns, observation=1, value=[[NAN, 0.1, 0.2, NAN, 0.6]])
    estimator = gae(lam=0.95, whiten=True)
    target, asked = estimator.targets(turns, tokens)
    assert torch.equal(asked, tokens.mask_RT)
    assert_close(target, [[0.0, 0.941, 0.98, 0.0, 1.0]])
    assert_close(estimator(turns, tokens), [[0, 0.700266, 0.44499, 0, -1.145256]])


# By turn

THREE = turn_table([[0.1, 0.0, 1.0]], groups=[0], lengths=[[2, 1, 2]])


def test_by_turn_the_value_is_that_of_the_state_before_the_action() -> None:
    tokens = token_table(THREE, observation=1, value=[[NAN, 0.2, 9.0, NAN, 0.5, NAN, 0.7, -9.0]])
    turn_ppo = gae(credit="turn", gamma=0.99, lam=0.9)
    expected = [[0, 0.805127, 0.805127, 0, 0.4603, 0, 0.3, 0.3]]
    assert_close(turn_ppo(THREE, tokens), expected)


def test_by_turn_the_critic_is_asked_at_first_tokens_only() -> None:
    tokens = token_table(THREE, observation=1, value=[[NAN, 0.2, 9.0, NAN, 0.5, NAN, 0.7, -9.0]])
    target, asked = gae(credit="turn", gamma=0.99, lam=0.9).targets(THREE, tokens)
    assert asked.tolist() == [[False, True, False, False, True, False, True, False]]
    assert_close(target, [[0, 1.005127, 0, 0, 0.9603, 0, 1.0, 0]])


@pytest.mark.parametrize("credit", ["turn", "trajectory"])
@pytest.mark.parametrize("absurd", [7.0, NAN, float("inf")])
def test_values_after_a_turn_has_begun_are_never_read(credit: str, absurd: float) -> None:
    """PITFALLS 33: they have seen part of the action."""
    turns = turn_table([[0.1, 1.0], [0.5, 0.0]], groups=[0, 0], lengths=[[2, 3], [3, 2]])
    shape = token_table(turns).mask_RT.shape
    clean = token_table(turns, value=torch.linspace(0, 1, shape.numel()).view(shape).tolist())
    assert clean.value_RT is not None
    seen = torch.where(clean.first_RT, clean.value_RT, absurd)
    dirty = token_table(turns, value=seen.tolist())
    for whitened in (False, True):
        estimator = gae(credit=credit, gamma=0.9, lam=0.8, whiten=whitened)
        assert torch.equal(estimator(turns, dirty), estimator(turns, clean))
        for seen, expected in zip(estimator.targets(turns, dirty), estimator.targets(turns, clean), strict=True):
            assert torch.equal(seen, expected)


def test_by_turn_whitening_counts_every_turn_once_however_long() -> None:
    turns = turn_table([[3.0], [1.0]], groups=[0, 0], lengths=[[1], [5]])
    tokens = token_table(turns, observation=0, value=[[0.0] * 5] * 2)
    advantage = gae(credit="turn", whiten=True)(turns, tokens)
    assert_close(advantage, [[0.707107, 0, 0, 0, 0], [-0.707107] * 5])


# By trajectory


def test_by_trajectory_it_is_the_discounted_return_minus_the_value_of_the_first_state() -> None:
    tokens = token_table(THREE, observation=1, value=[[NAN, 0.2, 9.0, NAN, 0.5, NAN, 0.7, -9.0]])
    estimator = gae(credit="trajectory", gamma=0.5, lam=0.3)
    gain = 0.1 + 0.25 * 1.0 - 0.2
    assert_close(estimator(THREE, tokens), [[0, gain, gain, 0, gain, 0, gain, gain]])
    target, asked = estimator.targets(THREE, tokens)
    assert asked.nonzero().tolist() == [[0, 1]]
    assert_close(target, [[0, 0.35, 0, 0, 0, 0, 0, 0]])


def test_by_trajectory_whitening_counts_every_episode_once() -> None:
    turns = turn_table([[0.0, 3.0], [1.0]], groups=[0, 0])
    tokens = token_table(turns, observation=0, value=[[0.0] * 4] * 2)
    advantage = gae(credit="trajectory", whiten=True)(turns, tokens)
    assert_close(advantage, [[0.707107] * 4, [-0.707107] * 2 + [0.0] * 2])


# All

rewards_of_turns = st.lists(st.floats(-3, 3, width=32), min_size=1, max_size=5)


@settings(deadline=None, max_examples=40)
@given(st.lists(rewards_of_turns, min_size=1, max_size=3), st.floats(0, 1))
def test_without_values_and_with_lambda_one_it_is_the_return(rewards: list[list[float]], gamma: float) -> None:
    turns = turn_table(rewards, groups=[0] * len(rewards))
    shape = token_table(turns).mask_RT.shape
    tokens = token_table(turns, value=torch.zeros(shape).tolist())
    for credit in GAE.credits:
        plain = Returns(credit=credit, gamma=gamma, baseline="none", decay=0.0)
        assert_close(gae(credit=credit, gamma=gamma)(turns, tokens), plain(turns, tokens), 1e-9)


@pytest.mark.parametrize("credit", GAE.credits)
def test_missing_values_are_refused_with_what_to_write(credit: str) -> None:
    turns = turn_table([[1.0]], groups=[0])
    with pytest.raises(ValueError, match="needs values of a critic; write algorithm=ppo"):
        gae(credit=credit)(turns, token_table(turns))
