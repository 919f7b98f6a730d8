"""When a reward says something else than it stands for, an alarm says so, and names what to do."""

from __future__ import annotations

import random

import pytest

from evo_hpo.tracking.alarms import REPLACEABLE
from tests.tracking.test_alarms import alarms_of


def kinds(updates: list[dict[str, float]]) -> list[str]:
    return [alarm.kind for each in alarms_of(updates) for alarm in each]


def drifting(updates: int, rng: random.Random, **slopes: float) -> list[dict[str, float]]:
    return [{name: 0.5 + slope * u + rng.gauss(0, 0.05) for name, slope in slopes.items()} for u in range(updates)]


def test_turn_rewards_that_rise_while_the_outcome_falls_are_an_alarm() -> None:
    rng = random.Random(0)
    raised = alarms_of(drifting(40, rng, turn_reward_sum=0.01, outcome=-0.01, success=-0.01))
    [alarm] = [alarm for each in raised for alarm in each]
    assert alarm.kind == "reward_hacking" and "turn rewards rose from" in alarm.text and "turn_decay" in alarm.text


def test_an_outcome_that_rises_while_success_falls_is_an_alarm() -> None:
    assert kinds(drifting(40, random.Random(0), outcome=0.01, success=-0.01)) == ["reward_hacking"]


@pytest.mark.parametrize(
    "slopes",
    [
        {"turn_reward_sum": 0.01, "outcome": 0.01, "success": 0.01},
        {"turn_reward_sum": -0.01, "outcome": -0.01, "success": -0.01},
        {"turn_reward_sum": 0.0, "outcome": 0.0, "success": 0.0},
        {"turn_reward_sum": 0.01, "outcome": 0.0, "success": 0.0},
    ],
)
def test_what_moves_together_or_not_at_all_is_none(slopes: dict[str, float]) -> None:
    false = sum(bool(kinds(drifting(40, random.Random(seed), **slopes))) for seed in range(50))
    assert false <= 2


def test_a_judge_that_fails_on_more_than_one_group_in_twenty_is_an_alarm() -> None:
    assert kinds([{"judge/groups": 20.0, "judge/failed": 1.0}]) == []
    assert kinds([{"judge/groups": 20.0, "judge/failed": 2.0}]) == ["judge_failures"]


def test_a_spent_budget_is_an_alarm() -> None:
    [[alarm], *later] = alarms_of([{"judge/over_budget": 3.0}] * 3)
    assert alarm.kind == "judge_budget" and "reward.client.budget or reward.client.max_calls" in alarm.text
    assert later == [[], []]


def test_a_policy_beyond_what_its_reward_model_knows_is_an_alarm() -> None:
    assert kinds([{"kl": 0.4, "kl_limit": 0.5}] * 4) == []
    assert kinds([{"kl": 0.6, "kl_limit": 0.5}] * 4) == ["kl_budget"]
    assert kinds([{"kl": 9.0}] * 4) == []


def test_turn_rewards_that_turn_the_outcome_round_are_an_alarm() -> None:
    assert kinds([{"overruled": 0.04}] * 5) == []
    assert kinds([{"overruled": 0.3}] * 5) == ["outcome_overruled"]


def test_nobody_is_replaced_because_a_judge_failed() -> None:
    assert {"judge_failures", "judge_budget"}.isdisjoint(REPLACEABLE)
    assert {"reward_hacking", "kl_budget", "outcome_overruled"} <= REPLACEABLE
