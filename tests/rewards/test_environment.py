"""The environment's own reward."""

from __future__ import annotations

import pytest

from envs.core import Episode, Feature, Turn
from rewards.environment import EnvironmentReward


def episode(*turns: tuple[float, bool], success: bool) -> Episode:
    """An episode of (reward, valid) turns."""
    played = [Turn("", "", [], [], [], reward=reward, valid=valid) for reward, valid in turns]
    return Episode(task=0, member=0, group=0, turns=played, success=success)


def test_by_default_the_outcome_is_success_and_turn_rewards_are_the_environments() -> None:
    won = episode((0.25, True), (0.0, False), (0.75, True), success=True)
    lost = episode((-0.5, True), success=False)
    first, second = EnvironmentReward()([won, lost])
    assert (first.outcome, first.turn_rewards) == (1.0, (0.25, 0.0, 0.75))
    assert (second.outcome, second.turn_rewards) == (0.0, (-0.5,))
    assert first.components == {"success": 1.0, "turns": 3.0, "progress": 1.0, "invalid": 1.0}


def test_a_turn_penalty_makes_the_shorter_success_score_higher() -> None:
    short, long = episode((1.0, True), success=True), episode((0.5, True), (0.5, True), success=True)
    scores = EnvironmentReward(success_reward=2.0, turn_penalty=0.1)([long, short])
    assert [score.outcome for score in scores] == pytest.approx([1.8, 1.9])


def test_an_invalid_penalty_falls_on_the_turns_that_earned_it() -> None:
    [score] = EnvironmentReward(invalid_penalty=0.2)([episode((0.5, True), (0.0, False), success=False)])
    assert score.turn_rewards == pytest.approx((0.5, -0.2))
    assert score.outcome == 0.0


def test_an_episode_without_a_turn_has_a_score() -> None:
    [score] = EnvironmentReward(turn_penalty=0.1)([episode(success=False)])
    assert (score.outcome, score.turn_rewards) == (0.0, ())


def test_abilities_are_needed_only_where_they_are_read() -> None:
    assert EnvironmentReward().needs == frozenset()
    assert EnvironmentReward().turn_reward_needs == {Feature.TURN_REWARDS}
    assert EnvironmentReward(invalid_penalty=0.1).turn_reward_needs == {Feature.TURN_REWARDS, Feature.VALIDITY}


@pytest.mark.parametrize("name", ["turn_penalty", "invalid_penalty"])
def test_a_negative_penalty_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=f"reward.{name} is -0.1; it is subtracted"):
        EnvironmentReward(**{name: -0.1})
