"""The weighted sum of rewards."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from envs.core import Episode, Feature
from envs.frozen_lake import FrozenLake
from rewards.answer_match import AnswerMatch
from rewards.composite import Composite
from rewards.core import Bounds, Models, Reward, Score, Verdict
from rewards.environment import EnvironmentReward
from rewards.forbidden import Forbidden
from rewards.novelty import Novelty
from rewards.overlong import Overlong
from rewards.reward_model import RewardModelReward
from rewards.state_progress import StateProgress
from rewards.turn_limit import TurnLimit
from tests.rewards.played import said


@dataclass(frozen=True)
class Told(Reward):
    """Gives what it is told, and notes what it is asked; can drop the groups of a task."""

    outcome: float = 0.0
    turn_reward: float | None = None
    extra_scores: int = 0
    extra_turns: int = 0
    component: float = 1.0
    drops: int = -1
    ranks: bool = False
    asked: list[int] = field(default_factory=list)  # groups in each call
    memory: dict[str, Any] = field(default_factory=dict)

    @property
    def gives_turn_rewards(self) -> bool:
        return self.turn_reward is not None

    @property
    def relative(self) -> bool:
        return self.ranks

    @property
    def once(self) -> bool:
        return self.ranks

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"told"})

    def check(self) -> None:
        self.memory["checked"] = True

    def attach(self, models: Models) -> None:
        self.memory["models"] = models

    def state(self) -> dict[str, Any]:
        return dict(self.memory)

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.memory.update(state)

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [self._score(episode) for episode in [*group, *list(group[:1]) * self.extra_scores]]

    def judge(self, groups: Sequence[Sequence[Episode]]) -> list[Verdict]:
        self.asked.append(len(groups))
        return [Verdict(None if g[0].task == self.drops else self(g), {"told/calls": 1.0}) for g in groups]

    def _score(self, episode: Episode) -> Score:
        given = None if self.turn_reward is None else (self.turn_reward,) * (len(episode.turns) + self.extra_turns)
        return Score(self.outcome, given, {"told": self.component})


def both(first: Reward, second: Reward, weights: tuple[float, float] = (1.0, 1.0)) -> Composite:
    return Composite(parts={"first": first, "second": second}, weights={"first": weights[0], "second": weights[1]})


def test_the_published_example_adds_up_as_published() -> None:
    """+1 resolved, -1 leak, +0.3 x tone, -0.02 a turn after five."""
    reward = Composite(
        parts={
            "resolved": EnvironmentReward(),
            "leak": Forbidden(kinds=("email",), patterns=(), paid="outcome"),
            "tone": Told(outcome=0.5),
            "turns": TurnLimit(free_turns=5, paid="outcome"),
        },
        weights={"resolved": 1.0, "leak": 1.0, "tone": 0.3, "turns": 0.02},
    )
    polite = said(*["Done."] * 5, success=True)
    leaky = said(*["Hm."] * 6, "It is ann@example.org.", success=False)
    first, second = reward([polite, leaky])
    assert first.outcome == pytest.approx(1 + 0.3 * 0.5)
    assert second.outcome == pytest.approx(-1 + 0.3 * 0.5 - 2 * 0.02)
    assert {name: second.components[name] for name in ("resolved", "leak", "tone", "turns")} == {
        "resolved": 0.0,
        "leak": -1.0,
        "tone": 0.5,
        "turns": -2.0,
    }
    assert second.components["leak/email"] == 1 and second.components["turns/beyond"] == 2
    assert set(second.components) == reward.component_names


def test_turn_rewards_are_summed_over_the_parts_that_give_them() -> None:
    weights = (2.0, -1.0)
    [score] = both(Told(turn_reward=0.5), Told(turn_reward=0.25), weights)([said("a", "b")])
    assert score.turn_rewards == (0.75, 0.75)
    [score] = both(Told(turn_reward=0.5), Told(), weights)([said("a", "b")])
    assert score.turn_rewards == (1.0, 1.0)
    [score] = both(Told(), Told(), weights)([said("a", "b")])
    assert score.turn_rewards is None


def test_what_any_part_needs_or_gives_the_whole_needs_or_gives() -> None:
    answers = AnswerMatch(match="exact", tolerance=0.0, extract=None)
    whole = both(answers, EnvironmentReward(invalid_penalty=0.1))
    assert whole.needs == {Feature.ANSWER}
    assert whole.turn_reward_needs == {Feature.TURN_REWARDS, Feature.VALIDITY}
    assert whole.gives_turn_rewards and not whole.relative and not whole.once
    ranked = both(answers, Told(ranks=True))
    assert ranked.relative and ranked.once and not ranked.gives_turn_rewards


def test_checks_models_and_memory_reach_every_part_and_come_back_by_name() -> None:
    first, second, silent = Told(), Told(), TurnLimit(free_turns=1, paid="outcome")
    whole = Composite(parts={"a": first, "b": second, "c": silent}, weights={"a": 1.0, "b": 1.0, "c": 1.0})
    whole.check()
    whole.attach("models")  # type: ignore[arg-type]
    second.memory["spent"] = 3
    state = whole.state()
    assert state == {"a": {"checked": True, "models": "models"}, "b": {"checked": True, "models": "models", "spent": 3}}
    again = both(Told(), Told())
    other = Composite(parts={"b": again.parts["first"]}, weights={"b": 1.0})
    other.load_state(state)
    assert other.state() == {"b": state["b"]}


def test_bounds_are_the_weighted_sum_and_a_negative_weight_turns_them_round() -> None:
    lake = FrozenLake()
    limit = TurnLimit(free_turns=5, paid="outcome")
    assert limit.bounds(lake) == Bounds((-7.0, 0.0), (-7.0, 0.0), (0.0, 0.0), (0.0, 0.0))
    bounds = both(EnvironmentReward(), limit, (2.0, -0.5)).bounds(lake)
    of_env = EnvironmentReward().bounds(lake)
    assert bounds is not None and of_env is not None
    assert (bounds.failed_outcome, bounds.succeeded_outcome) == ((0.0, 3.5), (2.0, 5.5))
    assert bounds.failed_turns == pytest.approx(tuple(2 * end for end in of_env.failed_turns))
    assert both(EnvironmentReward(), StateProgress(discount=1.0)).bounds(lake) is None


def test_no_score_is_outside_the_bounds() -> None:
    lake = FrozenLake()
    parts: list[Reward] = [
        Forbidden(kinds=("email",), patterns=(), paid="outcome"),
        Novelty(scope="episode", paid="turns"),
        Overlong(limit=2, buffer=1),
        TurnLimit(free_turns=0, paid="turns"),
    ]
    longest = said(*["ann@example.org"] * lake.max_turns, state_key=range(lake.max_turns))
    for part in parts:
        bounds, [score] = part.bounds(lake), part([longest])
        assert bounds is not None
        assert bounds.failed_outcome[0] <= score.outcome <= bounds.failed_outcome[1]
        assert bounds.failed_turns[0] <= sum(score.turn_rewards or ()) <= bounds.failed_turns[1]


def test_each_part_is_asked_once_and_a_group_that_one_could_not_score_is_dropped() -> None:
    first, second = Told(outcome=1.0), Told(drops=7)
    groups = [[said("a")], [Episode(8, 0, 1, said("b").turns)]]
    dropped, kept = both(first, second).judge(groups)
    assert first.asked == second.asked == [2]
    assert dropped.scores is None and kept.scores is not None and kept.scores[0].outcome == 1.0
    assert dropped.metrics == kept.metrics == {"told/calls": 2.0}
    with pytest.raises(ValueError, match="a part could not score task 7; ask `judge`"):
        both(first, second)(groups[0])


@pytest.mark.parametrize(
    ("part", "sentence"),
    [
        (Told(extra_scores=1), "gave 3 scores for the 2 episodes of task 7; give exactly one per episode"),
        (Told(turn_reward=1.0, extra_turns=-1), "gave task 7 1 turn rewards for 2 turns"),
        (Told(outcome=math.nan), "gave task 7 outcome nan; a reward is finite"),
        (Told(component=math.inf), "gave task 7 component told inf"),
        (Told(turn_reward=math.nan), "gave task 7 reward of turn 0 nan, reward of turn 1 nan"),
    ],
)
def test_a_part_with_a_hole_in_its_scores_is_named(part: Told, sentence: str) -> None:
    with pytest.raises(ValueError) as caught:
        both(Told(), part).judge([[said("a", "b"), said("c", "d")]])
    assert str(caught.value).startswith(f"the part second (Told) {sentence}")


class Raising(Told):
    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        raise KeyError("tone")


def test_a_part_that_raises_is_named() -> None:
    with pytest.raises(ValueError, match=r"^the part second \(Raising\) raised KeyError: 'tone'$"):
        both(Told(), Raising()).judge([[said("a")]])


def test_a_weight_of_zero_hides_no_hole() -> None:
    with pytest.raises(ValueError, match="the part second"):
        both(Told(), Told(outcome=math.nan), (1.0, 0.0))([said("a")])


@pytest.mark.parametrize(
    ("parts", "weights", "sentence"),
    [
        ({}, {}, "a composite of no parts scores nothing"),
        ({"a": Told()}, {}, "the part a has no weight; write a: 1 under weights"),
        ({"a": Told()}, {"a": 1.0, "b": 1.0}, r"weights names b, and no part has that name \(there is a\)"),
        ({"a/b": Told()}, {"a/b": 1.0}, "the part 'a/b' has a slash in its name"),
    ],
)
def test_parts_and_weights_that_do_not_fit_are_refused(
    parts: dict[str, Reward], weights: dict[str, float], sentence: str
) -> None:
    with pytest.raises(ValueError, match=sentence):
        Composite(parts=parts, weights=weights)


def test_a_composite_can_be_a_part() -> None:
    inner = both(Told(outcome=1.0), Told(outcome=2.0), (1.0, 10.0))
    [score] = both(inner, Told(outcome=0.5))([said("a")])
    assert score.outcome == 21.5
    assert score.components["first/second"] == 2.0 and score.components["first/second/told"] == 1.0


def test_parts_that_pay_turns_alone_are_named_and_the_tightest_limit_counts() -> None:
    parts: dict[str, Reward] = {
        "near": StateProgress(discount=1.0),
        "won": EnvironmentReward(),
        "liked": RewardModelReward("x", grain="turn", kl_limit=0.5),
        "loved": RewardModelReward("y", grain="episode", kl_limit=0.2),
    }
    reward = Composite(parts=parts, weights=dict.fromkeys(parts, 1.0))
    assert reward.paid_by_turn == {"near", "liked"}
    assert reward.kl_budget == 0.2
    assert Composite(parts={"won": EnvironmentReward()}, weights={"won": 1.0}).kl_budget is None
