"""From episodes to scores: nothing that is wrong with a reward gets past, and what it counted is kept."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pytest
import torch

from envs.core import Episode
from evo_hpo.learner.scoring import score
from rewards.core import Reward, Score, Verdict
from rewards.granularity import Granularity
from tests.building import episode

SPARSE, DENSE = Granularity("sparse"), Granularity("dense")


@dataclass(frozen=True)
class Said(Reward):
    """Says of each group what the test says."""

    say: Callable[[Sequence[Episode]], Verdict]

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return self.say(group).scores or []

    def judge(self, groups: Sequence[Sequence[Episode]]) -> list[Verdict]:
        return [self.say(group) for group in groups]


def episodes() -> list[Episode]:
    return [episode(m, g, [([1], [2]), ([3], [4])], task=10 + g) for m in (0, 1) for g in (0, 1) for _ in range(2)]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (Score(math.nan), "Said gave task 10 outcome nan; a reward is finite"),
        (Score(1.0, components={"tone": math.inf}), "component tone inf"),
        (Score(1.0, (0.0, math.nan)), "reward of turn 1 nan"),
        (Score(1.0, (0.0,)), "1 turn rewards for 2 turns; give exactly one per turn"),
    ],
)
def test_a_score_with_a_hole_is_refused_by_the_part_that_has_it(given: Score, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        score(episodes(), Said(lambda group: Verdict([given] * len(group))), SPARSE)


def test_a_score_in_tensors_becomes_plain_numbers() -> None:
    one, two = torch.tensor(1.0), torch.tensor([1.0, 2.0])
    given = Score(one, tuple(two), {"tone": one})  # type: ignore[arg-type, dict-item]  # as a reward of somebody may give it
    [plain, *_] = score(episodes(), Said(lambda group: Verdict([given] * len(group))), SPARSE).scores
    assert plain == Score(1.0, (1.0, 2.0), {"tone": 1.0})
    assert {type(plain.outcome), *map(type, plain.turn_rewards or ()), type(plain.components["tone"])} == {float}


def test_a_wrong_number_of_scores_is_refused() -> None:
    with pytest.raises(ValueError, match="gave 1 scores for a group of 2 episodes"):
        score(episodes(), Said(lambda group: Verdict([Score(0.0)])), SPARSE)


def test_a_group_that_could_not_be_scored_is_left_out_and_its_counts_are_kept() -> None:
    def say(group: Sequence[Episode]) -> Verdict:
        usable = (group[0].member, group[0].group) != (0, 1)
        return Verdict([Score(1.0)] * len(group) if usable else None, {"judge/groups": 1.0, "judge/failed": 1 - usable})

    scored = score(episodes(), Said(say), SPARSE)
    assert sorted({(one.member, one.group) for one in scored.episodes}) == [(0, 0), (1, 0), (1, 1)]
    assert scored.metrics == {0: {"judge/groups": 2.0, "judge/failed": 1}, 1: {"judge/groups": 2.0, "judge/failed": 0}}
    assert (scored + scored).metrics[0] == {"judge/groups": 4.0, "judge/failed": 2}


def test_turn_rewards_fade_with_the_updates() -> None:
    reward = Said(lambda group: Verdict([Score(3.0, (1.0, 2.0))] * len(group)))
    fading = Granularity("mixed", turn_weight=2.0, turn_decay=0.5)
    assert score(episodes()[:1], reward, fading, 0).turn_rewards == [[2.0, 7.0]]
    assert score(episodes()[:1], reward, fading, 3).turn_rewards == [[0.25, 3.5]]


class Two:
    """Two processes, seen from the one that is not asked."""

    count, main = 2, False

    def same(self, value: object) -> object:
        assert value is None, "this process asked as well"
        return [Verdict([Score(5.0)] * 2) for _ in range(4)]


@dataclass(frozen=True)
class Costly(Said):
    @property
    def once(self) -> bool:
        return True


def test_a_reward_that_costs_money_is_asked_by_one_process() -> None:
    def never(group: Sequence[Episode]) -> Verdict:
        raise AssertionError("asked")

    scored = score(episodes(), Costly(never), SPARSE, 0, Two())  # type: ignore[arg-type]
    assert [one.outcome for one in scored.scores] == [5.0] * 8
