"""Sparse, dense and mixed rewards from one score."""

from __future__ import annotations

from typing import Literal

import pytest

from rewards.core import Bounds, Score
from rewards.granularity import Granularity

SCORE = Score(outcome=2.0, turn_rewards=(0.25, 0.0, 0.5))


def test_sparse_gives_the_outcome_to_the_last_turn() -> None:
    assert Granularity("sparse")(SCORE, 3) == [0.0, 0.0, 2.0]
    assert Granularity("sparse", outcome_weight=0.5)(Score(outcome=2.0), 2) == [0.0, 1.0]


def test_dense_gives_turn_rewards_alone() -> None:
    assert Granularity("dense", turn_weight=2.0)(SCORE, 3) == [0.5, 0.0, 1.0]


def test_mixed_is_the_weighted_sum_of_both() -> None:
    assert Granularity("mixed", turn_weight=2.0, outcome_weight=0.5)(SCORE, 3) == [0.5, 0.0, 2.0]


def test_a_turn_with_reward_zero_is_still_a_turn() -> None:
    assert Granularity("dense")(Score(0.0, (0.0, 0.0)), 2) == [0.0, 0.0]


@pytest.mark.parametrize("reward", ["sparse", "dense", "mixed"])
def test_an_episode_without_a_turn_has_no_reward(reward: Literal["sparse", "dense", "mixed"]) -> None:
    assert Granularity(reward)(Score(1.0, ()), 0) == []


@pytest.mark.parametrize("reward", ["dense", "mixed"])
def test_missing_turn_rewards_are_refused_with_what_to_write(reward: Literal["dense", "mixed"]) -> None:
    with pytest.raises(ValueError, match=f"granularity={reward} needs turn rewards.*use granularity=sparse"):
        Granularity(reward)(Score(1.0), 2)


def test_a_wrong_number_of_turn_rewards_is_refused() -> None:
    with pytest.raises(ValueError, match="gave 3 turn rewards to an episode of 2 turns"):
        Granularity("dense")(SCORE, 2)


def test_only_sparse_does_without_turn_rewards() -> None:
    needs = {reward: Granularity(reward).needs_turn_rewards for reward in ("sparse", "dense", "mixed")}
    assert needs == {"sparse": False, "dense": True, "mixed": True}


def test_an_unknown_grain_is_refused() -> None:
    with pytest.raises(ValueError, match="write sparse, dense or mixed"):
        Granularity("token")  # type: ignore[arg-type]


def test_turn_rewards_fade_and_the_outcome_does_not() -> None:
    fading = Granularity("mixed", turn_weight=2.0, turn_decay=0.5)
    assert fading(SCORE, 3, update=0) == [0.5, 0.0, 3.0]
    assert fading(SCORE, 3, update=2) == [0.125, 0.0, 2.25]


def test_the_margin_is_what_the_worst_success_is_paid_more_than_the_best_failure() -> None:
    bounds = Bounds(
        failed_outcome=(-1.0, 0.0), succeeded_outcome=(0.8, 1.0), failed_turns=(-2, 3), succeeded_turns=(1, 4)
    )
    assert Granularity("mixed", outcome_weight=2.0, turn_weight=0.5).margin(bounds) == pytest.approx(1.6 - 1.0)
    assert Granularity("mixed").margin(bounds) == pytest.approx(0.8 - 2.0)
