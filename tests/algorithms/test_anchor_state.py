"""Episodes against their group, turns against turns from the same state: GiGPO."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch

from algorithms.advantages import AnchorState, Normalisation
from algorithms.advantages.anchor_state import similar
from tests.algorithms.estimators import CENTRED, DR_GRPO, normalisation
from tests.algorithms.tables import assert_close, token_table, turn_table

REWARDS = [[0.0, 0.0, 1.0], [0.0, 0.0], [0.0, 1.0]]
THREE = turn_table(REWARDS, groups=[0, 0, 0], lengths=[[1, 1, 1], [1, 1], [1, 1]], states=[[0, 1, 2], [0, 1], [0, 3]])
MEAN_ONLY = [[0.618333, 0.808333, 0.333333], [-1.284167, -1.141667, 0.0], [0.665833, 0.333333, 0.0]]


def gigpo(**changes: Any) -> AnchorState:
    """omega 1, gamma 0.95, the mean alone, exact states, except for `changes`."""
    return AnchorState(**{"omega": 1.0, "gamma": 0.95, "normalisation": CENTRED, "similarity": None, **changes})


@pytest.mark.parametrize(
    ("one", "expected"),
    [
        (CENTRED, MEAN_ONLY),
        (
            normalisation(spread="group", epsilon=1e-6),
            [[1.109762, 1.284455, 0.577349], [-2.30826, -1.861804, 0.0], [1.198498, 0.577349, 0.0]],
        ),
        (
            normalisation(spread="group", epsilon=1e-6, unbiased=False),
            [[1.359175, 1.707103, 0.707105], [-2.827028, -2.414208, 0.0], [1.467853, 0.707105, 0.0]],
        ),
    ],
    ids=["mean", "mean_std_unbiased", "mean_std_population"],
)
def test_three_trajectories_through_shared_states(one: Normalisation, expected: list[list[float]]) -> None:
    assert_close(gigpo(normalisation=one)(THREE, token_table(THREE, observation=0)), expected)


STEPS = {
    "mean": (CENTRED, [[0.285, 0.475, 0.0], [-0.6175, -0.475, 0.0], [0.3325, 0.0, 0.0]]),
    "mean_std_unbiased": (
        normalisation(spread="group", epsilon=1e-6),
        [[0.532413, 0.707106, 0.0], [-1.153561, -0.707106, 0.0], [0.621148, 0.0, 0.0]],
    ),
    "mean_std_population": (
        normalisation(spread="group", epsilon=1e-6, unbiased=False),
        [[0.65207, 0.999998, 0.0], [-1.412818, -0.999998, 0.0], [0.760748, 0.0, 0.0]],
    ),
}


@pytest.mark.parametrize(("one", "expected"), STEPS.values(), ids=STEPS)
def test_the_part_of_the_step_alone(one: Normalisation, expected: list[list[float]]) -> None:
    tokens = token_table(THREE, observation=0)
    whole = gigpo(normalisation=one)(THREE, tokens)
    assert_close(whole - gigpo(normalisation=one, omega=0.0)(THREE, tokens), expected)


def test_without_the_step_part_it_is_the_episode_against_its_group() -> None:
    tokens = token_table(THREE)
    assert_close(gigpo(omega=0.0)(THREE, tokens), DR_GRPO(THREE, tokens))
    half = gigpo(omega=0.5)(THREE, tokens) - DR_GRPO(THREE, tokens)
    assert_close(half * 2, gigpo()(THREE, tokens) - DR_GRPO(THREE, tokens))


def test_a_state_met_once_or_unknown_adds_nothing() -> None:
    tokens = token_table(THREE)
    for states in ([10, 11, 12, 13, 14, 15, 16], [-1] * 7):
        apart = dataclasses.replace(THREE, state_K=torch.tensor(states))
        assert torch.equal(gigpo()(apart, tokens), DR_GRPO(apart, tokens))


def test_a_loop_compares_an_episode_with_itself() -> None:
    turns = turn_table([[0.0, 0.0, 1.0]], groups=[0], lengths=[[1, 1, 1]], states=[[5, 6, 5]])
    advantage = gigpo(gamma=0.5)(turns, token_table(turns, observation=0))
    assert_close(advantage, [[0.25 - 0.625, 0.0, 1.0 - 0.625]])


def test_a_state_whose_raw_returns_do_not_spread_adds_nothing_whatever_the_kl_says() -> None:
    turns = turn_table([[0.0], [0.0]], groups=[0, 0], states=[[0], [0]])
    tokens = token_table(turns, observation=0, penalty=[[0.1, 0.0], [0.0, 0.0]])
    assert gigpo()(turns, tokens).abs().max() == 0


# Alike instead of equal

TEXTS = [["door left", "door right", "goal"], ["door left!", "door right"], ["door left?", "window"]]
TEXTUAL = dataclasses.replace(THREE, text_K=tuple(text for turns in TEXTS for text in turns))


def test_observations_that_are_alike_are_one_state() -> None:
    assert_close(gigpo(similarity=0.9)(TEXTUAL, token_table(TEXTUAL, observation=0)), MEAN_ONLY)


def test_a_cluster_is_what_is_like_its_first_observation() -> None:
    chain = turn_table([[0.0]] * 4, groups=[0] * 4, texts=[["aaaaaa"], ["aaaabb"], ["aabbbb"], ["aaacbc"]])
    first, second, third, fourth = similar(chain, 0.6).tolist()
    assert first == second  # the third and the fourth are like the second alone (2/3), the others at most 1/2
    assert len({first, third, fourth}) == 3


def test_clusters_stay_inside_one_group() -> None:
    two = turn_table([[0.0], [0.0], [1.0]], groups=[0, 1, 1], texts=[["same"], ["same"], ["same"]])
    first, second, third = similar(two, 0.5).tolist()
    assert first != second == third


def test_every_character_of_a_long_text_counts() -> None:
    """difflib by itself leaves out characters that are frequent in texts of 200 and more: nothing is alike then."""
    text = "x" + "abcd" * 100
    two = turn_table([[0.0], [0.0]], groups=[0, 0], texts=[[text], ["y" + text[1:]]])
    assert similar(two, 0.95).tolist() == [0, 0]


def test_at_threshold_one_alike_is_equal() -> None:
    exact = gigpo(similarity=1.0)(
        dataclasses.replace(TEXTUAL, text_K=("a", "b", "c", "a", "b", "a", "d")), token_table(THREE, observation=0)
    )
    assert_close(exact, MEAN_ONLY)


def test_missing_observations_are_refused_with_what_to_write() -> None:
    with pytest.raises(
        ValueError, match="the turn table holds no observations; write algorithm.advantage.similarity=n"
    ):
        gigpo(similarity=0.9)(THREE, token_table(THREE))


def test_only_exact_states_need_keys_of_the_environment() -> None:
    assert gigpo().needs == {"state_key"}
    assert gigpo(similarity=0.9).needs == frozenset()
