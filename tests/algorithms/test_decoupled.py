"""Components of the score, each normalised in its group before they are added: GDPO."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from algorithms.advantages import Decoupled
from tests.algorithms.estimators import Z_SCORE
from tests.algorithms.tables import assert_close, token_table, turn_table

PARTS = {"fmt": [1.0, 1.0, 0.0, 0.0], "acc": [0.0, 0.0, 0.0, 1.0]}
FOUR = turn_table([[1.0], [1.0], [0.0], [1.0]], groups=[0] * 4, lengths=[[1]] * 4, components=PARTS)


def gdpo(**weights: float) -> Decoupled:
    return Decoupled(weights=weights, normalisation=Z_SCORE)


def test_episodes_of_equal_sum_differ_where_their_parts_do() -> None:
    estimator = gdpo(fmt=1.0, acc=1.0)
    summed, _ = estimator.summed(FOUR)
    assert_close(summed, [0.366025, 0.366025, -1.366023, 0.633973])
    assert_close(Z_SCORE(FOUR.return_E, FOUR.group_E, FOUR.member_E, FOUR.return_E), [0.5, 0.5, -1.5, 0.5])
    advantage = estimator(FOUR, token_table(FOUR, observation=0))
    assert_close(advantage[:, 0], [0.398113, 0.398113, -1.485777, 0.689551])


def test_weights_multiply_the_normalised_parts_whatever_their_scale() -> None:
    parts = {"fmt": [100.0, 100.0, 0.0, 0.0], "acc": [0.0, 0.0, 0.0, 0.01]}
    large = turn_table([[0.0]] * 4, groups=[0] * 4, components=parts)
    one = Z_SCORE(FOUR.components["fmt"], FOUR.group_E, FOUR.member_E, FOUR.components["fmt"])
    two = Z_SCORE(FOUR.components["acc"], FOUR.group_E, FOUR.member_E, FOUR.components["acc"])
    assert_close(gdpo(fmt=1.0, acc=3.0).summed(large)[0], one + 3 * two, 1e-3)


def test_the_sum_is_standardised_over_the_members_episodes_whatever_their_length() -> None:
    parts = {"acc": [1.0, 0.0, 7.0, 0.0]}
    turns = turn_table([[0.0]] * 4, [0, 0, 1, 1], [0, 0, 1, 1], lengths=[[5], [1], [2], [2]], components=parts)
    advantage = gdpo(acc=1.0)(turns, token_table(turns, observation=0))
    assert_close(advantage[:, 0], [0.707107, -0.707107, 0.707107, -0.707107])


def test_a_group_in_which_no_part_spreads_stays_zero_and_out_of_the_statistics() -> None:
    parts: dict[str, Any] = {name: [*values, 0.5, 0.5, 3.0] for name, values in PARTS.items()}
    turns = turn_table([[0.0]] * 7, groups=[0] * 4 + [1, 1, 2], lengths=[[1]] * 7, components=parts)
    advantage = gdpo(fmt=1.0, acc=1.0)(turns, token_table(turns, observation=0))
    assert_close(advantage[:, 0], [0.398113, 0.398113, -1.485777, 0.689551, 0, 0, 0])


def test_an_episode_that_is_not_trained_counts_in_its_group_and_not_in_the_standardisation() -> None:
    tokens = token_table(FOUR, observation=0)
    three = torch.tensor([True, True, True, False]).unsqueeze(1)
    tokens = dataclasses.replace(tokens, mask_RT=three, turn_RT=torch.where(three, tokens.turn_RT, -1))
    advantage = gdpo(fmt=1.0, acc=1.0)(FOUR, tokens)
    assert_close(advantage[:, 0], [0.57735, 0.57735, -1.154701, 0.0])  # of 0.366, 0.366 and -1.366


def test_a_component_that_the_reward_does_not_give_is_refused_with_those_that_it_gives() -> None:
    with pytest.raises(
        ValueError, match="names the component 'speed', which the reward does not give; there are: acc, fmt"
    ):
        gdpo(speed=1.0)(FOUR, token_table(FOUR))


def test_a_kl_in_the_reward_that_would_be_lost_is_refused() -> None:
    with pytest.raises(ValueError, match="would be lost; write algorithm.kl.place=loss"):
        gdpo(acc=1.0)(FOUR, token_table(FOUR, observation=0, penalty=[[0.1]] * 4))
