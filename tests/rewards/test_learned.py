"""Rewards that ask a model: what they make of what it says. For the models: tests/policy/test_scorers.py."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from envs.core import Episode, StopReason, Turn
from rewards.core import Reward
from rewards.information_gain import InformationGain
from rewards.progress import ProgressReward
from rewards.reward_model import RewardModelReward


def episode(turns: int, success: bool = False, valid: Sequence[bool] = ()) -> Episode:
    played = [Turn("", "", [1], [2], [0.0], valid=valid[k] if valid else True) for k in range(turns)]
    return Episode(0, 0, 0, played, StopReason.TERMINATED, success, answer="7")


class Told:
    """Models that were asked before: they say what the test says, episode by episode."""

    about: Mapping[str, Any] = {"mean": 0.5, "std": 2.0}

    def __init__(self, *numbers: Sequence[float]) -> None:
        self.numbers, self.asked = [list(each) for each in numbers], list[int]()

    def scorer(self, path: str, kind: str) -> Told:
        return self

    def __call__(self, episodes: Sequence[Episode]) -> list[list[float]]:
        self.asked.append(len(episodes))
        return self.numbers[: len(episodes)]

    answer_logprobs = __call__


def attached(reward: Reward, *numbers: Sequence[float]) -> Told:
    told = Told(*numbers)
    reward.attach(told)
    return told


def test_spa_fuses_contributions_with_what_could_be_done() -> None:
    reward = ProgressReward("somewhere", valid_bonus=0.5, success_reward=1.0)
    attached(reward, [0.1, 0.5, 0.3])
    [score] = reward([episode(3, success=True, valid=[True, False, True])])
    assert score.turn_rewards == pytest.approx((0.6, 0.5, 0.8))  # EX:spa_rl
    assert score.outcome == 1.0
    assert score.components == pytest.approx({"progress": 0.9, "success": 1.0, "progress_error": 0.1})


def test_the_score_of_an_episode_is_that_of_its_last_turn_in_standard_deviations() -> None:
    reward = RewardModelReward("somewhere", grain="episode", kl_limit=None)
    attached(reward, [9.0, 2.5], [-1.5])
    first, second = reward([episode(2), episode(1, success=True)])
    assert (first.outcome, second.outcome) == (1.0, -1.0)
    assert first.turn_rewards is None and not reward.gives_turn_rewards
    assert second.components == {"model": -1.0, "success": 1.0}


def test_what_turns_change_about_the_score_sums_to_it() -> None:
    reward = RewardModelReward("somewhere", grain="turn", kl_limit=None)
    attached(reward, [1.5, 0.5, 4.5])
    [score] = reward([episode(3)])
    assert score.turn_rewards == (0.5, -0.5, 2.0) and sum(score.turn_rewards) == 2.0 == (4.5 - 0.5) / 2.0
    assert score.outcome == 0.0 and reward.gives_turn_rewards


@pytest.mark.parametrize(
    ("scale", "gains"),
    [("nats", (1.0, 2.0, 0.0)), ("probability", (math.exp(-3) - math.exp(-4), math.exp(-1) - math.exp(-3), 0.0))],
)
def test_a_turn_gains_what_it_adds_to_the_belief_in_the_answer(scale: Any, gains: tuple[float, ...]) -> None:
    reward = InformationGain(scale=scale, success_reward=2.0)
    attached(reward, [-4.0, -3.0, -1.0])
    [score] = reward([episode(3, success=True)])
    assert score.turn_rewards == pytest.approx(gains)
    assert score.outcome == 2.0 and score.components["gain"] == pytest.approx(sum(gains))


@pytest.mark.parametrize(
    "reward",
    [
        ProgressReward("somewhere", valid_bonus=0.5, success_reward=1.0),
        RewardModelReward("somewhere", grain="turn", kl_limit=None),
        InformationGain(scale="nats", success_reward=1.0),
    ],
)
def test_all_groups_are_asked_about_at_once(reward: Reward) -> None:
    told = attached(reward, [1.0], [2.0], [3.0], [4.0])
    verdicts = reward.judge([[episode(1), episode(1)], [episode(1)], [episode(1)]])
    assert told.asked == [4]
    assert [len(verdict.scores or []) for verdict in verdicts] == [2, 1, 1]
    for verdict in verdicts:
        assert all(set(score.components) == reward.component_names for score in verdict.scores or [])


def test_a_path_without_a_scorer_is_refused_before_anything_is_loaded(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="is no trained scorer; write the folder `best` .*algorithm=progress_model"):
        ProgressReward(str(tmp_path), valid_bonus=0.5, success_reward=1.0).check()
    (tmp_path / "scorer.json").write_text("{}")
    ProgressReward(str(tmp_path), valid_bonus=0.5, success_reward=1.0).check()
