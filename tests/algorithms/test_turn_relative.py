"""Rewards of turns against those of the same turn in the group: MT-GRPO."""

from __future__ import annotations

from typing import Any

import pytest

from algorithms.advantages import TurnRelative
from tests.algorithms.estimators import CENTRED, GRPO, normalisation
from tests.algorithms.tables import assert_close, token_table, turn_table

PUBLISHED = normalisation(spread="group", epsilon=1e-4)


def mt_grpo(**changes: Any) -> TurnRelative:
    """The mean alone, alpha 1, except for `changes`."""
    return TurnRelative(**{"alpha": 1.0, "normalisation": CENTRED, "unequal": "trajectory", **changes})


def test_two_turns_are_the_published_formula() -> None:
    turns = turn_table([[1.0, 1.0], [0.0, 0.0], [1.0, 0.0], [0.0, 1.0]], groups=[0] * 4, lengths=[[1, 1]] * 4)
    advantage = mt_grpo(normalisation=PUBLISHED)(turns, token_table(turns, observation=0))
    assert_close(advantage[:, 0], [1.731751, -1.731751, 0.0, 0.0])
    assert_close(advantage[:, 1], [0.865875, -0.865875, -0.865875, 0.865875])


def test_a_turn_sums_what_follows_up_to_the_last_which_counts_alpha_times() -> None:
    turns = turn_table([[1.0, 2.0, 4.0], [0.0, 0.0, 0.0]], groups=[0, 0], lengths=[[1, 1, 1]] * 2)
    advantage = mt_grpo(alpha=0.5)(turns, token_table(turns, observation=1))
    expected = [0.5 + 1.0 + 0.5 * 2.0, 1.0 + 0.5 * 2.0, 2.0]
    assert_close(advantage[0], [0, expected[0], 0, expected[1], 0, expected[2]])
    assert_close(advantage[1], -advantage[0])


def test_episodes_of_one_turn_are_compared_by_their_outcome() -> None:
    turns = turn_table([[1.0], [0.0], [0.5], [0.5]], groups=[0] * 4)
    tokens = token_table(turns)
    assert_close(mt_grpo(normalisation=GRPO.normalisation)(turns, tokens), GRPO(turns, tokens))


def test_a_group_of_unequal_turn_counts_gets_its_whole_returns_compared() -> None:
    """PITFALLS 23: by index, the episode of three turns would collect advantages that the others cannot have."""
    rewards = [[0.5, 0.25], [0.0, 0.0], [1.0, 0.0, 0.5], [0.5, 0.0]]
    turns = turn_table(rewards, groups=[0, 0, 1, 1], lengths=[[1] * len(r) for r in rewards])
    advantage = mt_grpo()(turns, token_table(turns, observation=0))
    assert_close(advantage[:2], [[0.375, 0.125, 0], [-0.375, -0.125, 0]])
    assert_close(advantage[2:], [[0.5, 0.5, 0.5], [-0.5, -0.5, 0]])


def test_unequal_turn_counts_are_refused_where_that_is_asked_for() -> None:
    strict = mt_grpo(unequal="refuse")
    assert strict.needs == {"fixed_turns"} and mt_grpo().needs == frozenset()
    turns = turn_table([[0.0, 1.0], [0.0], [1.0]], groups=[0, 1, 1], members=[0, 1, 1])
    assert strict(turns, token_table(turns)).abs().max() > 0
    unequal = turn_table([[0.0, 1.0], [0.0], [1.0, 0.0]], groups=[0, 1, 1], members=[0, 1, 1])
    with pytest.raises(
        ValueError, match="one group of member 1 have 1, 2 turns.*write algorithm.advantage.unequal=traj"
    ):
        strict(unequal, token_table(unequal))


def test_it_needs_rewards_of_turns_and_a_group() -> None:
    assert mt_grpo().needs_turn_rewards and mt_grpo().min_group == 2


def test_turn_rewards_that_do_not_spread_stay_zero_whatever_the_kl_says() -> None:
    turns = turn_table([[0.5, 1.0], [0.5, 0.0]], groups=[0, 0])
    tokens = token_table(turns, observation=0, penalty=[[0.1, 0.0, 0.0, 0.2], [0.0] * 4])
    assert_close(mt_grpo(alpha=0.0)(turns, tokens), [[0, 0, 0.4, 0.4], [0, 0, -0.4, -0.4]])
