"""Returns, and what follows a turn, against those of the group: GRPO, Dr. GRPO, RLOO, REINFORCE++-baseline."""

from __future__ import annotations

import itertools

import pytest
import torch

from algorithms.advantages import GroupRelative
from tests.algorithms.estimators import (
    BATCH,
    CENTRED,
    DR_GRPO,
    GRPO,
    LEAVE_ONE_OUT,
    REINFORCE_PP_BASELINE,
    RLOO,
    RLOO_BY_TURN,
    normalisation,
)
from tests.algorithms.tables import assert_close, token_table, turn_table

BY_TURN = GroupRelative(credit="turn", normalisation=CENTRED, whiten=False)


def test_four_episodes_of_one_task_are_one_group() -> None:
    turns = turn_table([[1.0], [0.0], [1.0], [0.0]], groups=[3, 3, 3, 3])
    advantage = GRPO(turns, token_table(turns, observation=0))
    root = 0.866025  # 0.5 / (0.57735 + 1e-6)
    assert_close(advantage, [[root, root], [-root, -root], [root, root], [-root, -root]], 1e-5)


def test_members_are_compared_with_their_own_episodes_only() -> None:
    together = turn_table([[1.0], [0.0], [9.0], [5.0]], groups=[0, 0, 1, 1], members=[0, 0, 1, 1])
    assert_close(DR_GRPO(together, token_table(together))[:, 1], [0.5, -0.5, 2.0, -2.0])


def test_a_turn_without_reward_is_a_turn_and_an_episode_without_reward_is_no_error() -> None:
    turns = turn_table([[0.0, 1.0], [1.0, 0.0], [0.0, 0.0]], groups=[0, 0, 0])
    third = 1 / 3
    assert_close(DR_GRPO(turns, token_table(turns, observation=0)), [[third] * 4, [third] * 4, [-2 * third] * 4])


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
    assert_close(DR_GRPO(turns, token_table(turns)), [[0, 0.5, 0.5, 0, 0.5, 0.5], [0, -0.5, -0.5, 0, 0, 0]])


def test_kl_in_the_reward_lowers_the_return_of_the_episode_that_strays() -> None:
    turns = turn_table([[1.0], [0.0]], groups=[0, 0])
    tokens = token_table(turns, observation=0, penalty=[[0.1, 0.3], [0.0, 0.0]])
    assert_close(DR_GRPO(turns, tokens), [[0.3, 0.3], [-0.3, -0.3]])  # returns 0.6 and 0


def test_kl_in_the_reward_does_not_make_a_group_of_equal_returns_teach() -> None:
    turns = turn_table([[0.0, 1.0], [0.5, 0.5]], groups=[0, 0])
    tokens = token_table(turns, observation=0, penalty=[[0.001, 0.0, 0.0, 0.0], [0.0] * 4])
    for estimator in (GRPO, DR_GRPO, RLOO, REINFORCE_PP_BASELINE):
        assert estimator(turns, tokens).abs().max() == 0


# By turn


def test_a_turn_is_compared_with_what_followed_the_same_turn_of_those_that_reached_it() -> None:
    turns = turn_table([[0.0, 1.0], [0.0, 0.5], [0.25]], groups=[0, 0, 0])
    tokens = token_table(turns, observation=0)
    mean = 1.75 / 3
    expected = [[1 - mean, 1 - mean, 0.25, 0.25], [0.5 - mean] * 2 + [-0.25] * 2, [0.25 - mean] * 2 + [0, 0]]
    assert_close(BY_TURN(turns, tokens), expected)


def test_a_turn_that_no_other_reached_gets_the_advantage_of_its_episode() -> None:
    turns = turn_table([[0.25, 0.0, 1.0], [0.0, 0.5], [0.5]], groups=[0, 0, 0])
    advantage = BY_TURN(turns, token_table(turns, observation=0))
    assert_close(advantage[0, 4:], [1.25 - 0.75] * 2)  # returns 1.25, 0.5 and 0.5
    assert_close(advantage[0, 2:4], [1.0 - 0.75] * 2)


def test_z_scores_by_turn_are_those_of_agilerl() -> None:
    """To go are 0.2, 0.6 and 0.4 at the first turn, 1.0 and 0.0 at the second."""
    turns = turn_table([[-0.8, 1.0], [0.6, 0.0], [0.4]], groups=[0, 0, 0], lengths=[[1, 1], [1, 1], [1]])
    agilerl = GroupRelative(credit="turn", normalisation=normalisation(spread="group", epsilon=1e-8), whiten=False)
    expected = [[-1.0, 0.707107], [1.0, -0.707107], [0.0, 0.0]]
    assert_close(agilerl(turns, token_table(turns, observation=0)), expected)


@pytest.mark.parametrize("normalised", [LEAVE_ONE_OUT, CENTRED], ids=["leave_one_out", "centred"])
def test_one_more_turn_of_equal_worth_earns_no_bonus_in_expectation(normalised: object) -> None:
    """PITFALLS 23: "stop now" is worth 1/4 for sure, "one more turn" wins 1 once in four times; all groups of four."""
    arms: list[tuple[float, list[float]]] = [(0.5, [0.25]), (0.125, [0.0, 1.0]), (0.375, [0.0, 0.0])]
    first = {"stop": 0.0, "more": 0.0}
    second = 0.0
    estimator = GroupRelative(credit="turn", normalisation=normalised, whiten=False)  # type: ignore[arg-type]
    for group in itertools.product(arms, repeat=4):
        chance = group[0][0] * group[1][0] * group[2][0] * group[3][0]
        turns = turn_table([rewards for _, rewards in group], groups=[0] * 4)
        advantage = estimator(turns, token_table(turns, observation=0))[0]  # of one episode, the others being its group
        first["stop" if len(group[0][1]) == 1 else "more"] += chance / 0.5 * float(advantage[0])
        second += chance * float(advantage[2]) if len(group[0][1]) > 1 else 0.0
    assert first["stop"] == pytest.approx(0, abs=1e-9)
    assert first["more"] == pytest.approx(0, abs=1e-9)
    assert second == pytest.approx(0, abs=1e-9)


def test_the_floor_by_turn_is_decided_on_raw_rewards_of_that_turn() -> None:
    turns = turn_table([[1.0, 0.5], [0.0, 0.5]], groups=[0, 0])
    tokens = token_table(turns, observation=0, penalty=[[0.0, 0.0, 0.1, 0.0], [0.0] * 4])
    assert_close(BY_TURN(turns, tokens), [[0.45, 0.45, 0.0, 0.0], [-0.45, -0.45, 0.0, 0.0]])


def test_leave_one_out_by_turn_is_centred_times_the_number_that_reached_it() -> None:
    turns = turn_table([[0.0, 1.0], [0.0, 0.5], [0.25]], groups=[0, 0, 0])
    tokens = token_table(turns, observation=0)
    factor = torch.tensor([[1.5, 1.5, 2.0, 2.0]] * 3, dtype=torch.float64)
    assert_close(RLOO_BY_TURN(turns, tokens), BY_TURN(turns, tokens) * factor)


# Whitened


def test_the_baseline_form_of_reinforce_plus_plus_whitens_what_was_centred_in_groups() -> None:
    rewards = [[1.0], [0.0], [0.5], [0.5], [3.0], [1.0], [2.0], [2.0]]
    turns = turn_table(rewards, groups=[0, 0, 0, 0, 1, 1, 1, 1], lengths=[[1]] * 8)
    tokens = token_table(turns, observation=0)
    assert_close(DR_GRPO(turns, tokens)[:, 0], [0.5, -0.5, 0, 0, 1, -1, 0, 0])
    expected = [0.83666, -0.83666, 0, 0, 1.67332, -1.67332, 0, 0]
    assert_close(REINFORCE_PP_BASELINE(turns, tokens)[:, 0], expected)


def test_groups_that_teach_nothing_stay_zero_and_out_of_the_whitening() -> None:
    taught = turn_table([[1.0], [0.0]], groups=[0, 0], lengths=[[1], [3]])
    alone = REINFORCE_PP_BASELINE(taught, token_table(taught, observation=0))
    turns = turn_table([[1.0], [0.0], [0.7], [0.7], [5.0]], groups=[0, 0, 1, 1, 2], lengths=[[1], [3], [2], [2], [1]])
    advantage = REINFORCE_PP_BASELINE(turns, token_table(turns, observation=0))
    assert advantage[2:].abs().max() == 0
    assert_close(advantage[:2], alone)
    assert alone.abs().max() > 1


def test_turns_that_teach_nothing_stay_zero_and_out_of_the_whitening() -> None:
    turns = turn_table([[1.0, 0.5], [0.0, 0.5]], groups=[0, 0], lengths=[[1, 1], [1, 1]])
    whitened = GroupRelative(credit="turn", normalisation=CENTRED, whiten=True)
    assert_close(whitened(turns, token_table(turns, observation=0)), [[0.707107, 0.0], [-0.707107, 0.0]])


def test_a_comparison_within_the_batch_needs_no_group() -> None:
    assert GRPO.min_group == RLOO.min_group == 2
    assert GroupRelative(credit="trajectory", normalisation=BATCH, whiten=False).min_group == 1


def test_credit_can_be_changed_to_what_the_estimator_knows_and_to_nothing_else() -> None:
    assert GRPO.at("trajectory") is GRPO
    assert GRPO.at("turn") == GroupRelative(credit="turn", normalisation=GRPO.normalisation, whiten=False)
    with pytest.raises(
        ValueError, match="GroupRelative gives credit by trajectory or turn, not by token; use granularity=turn"
    ):
        GRPO.at("token")
