"""What the episodes of an update were like: every number is checked against one computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envs.core import Episode
from evo_hpo.learner.scoring import Scored
from evo_hpo.runtime.metrics import episode_metrics
from rewards.core import Score
from tests.building import episode


def played(group: int, valid: str, success: bool = False) -> Episode:
    """An episode with a turn for each letter, `v` for a valid action."""
    made = episode(0, group, [([1], [2])] * len(valid), success=success)
    return replace(made, turns=[replace(t, valid=v == "v") for t, v in zip(made.turns, valid, strict=True)])


def metrics_of(episodes: list[Episode], rewards: list[list[float]], in_groups: bool = True) -> dict[str, float]:
    scores = [Score(float(each.success)) for each in episodes]
    return episode_metrics(episodes, Scored(episodes, scores, rewards), 1, in_groups)[0]


def test_groups_are_told_apart_by_their_spread_and_by_who_succeeds() -> None:
    episodes = [
        played(0, "v", success=True), played(0, "v"),
        played(1, "v"), played(1, "v"),
        played(2, "v", success=True), played(2, "v", success=True),
    ]  # fmt: skip
    metrics = metrics_of(episodes, [[2.0], [0.0], [0.0], [0.0], [1.0], [1.5]])
    assert metrics["group_std"] == pytest.approx((1.0 + 0.0 + 0.25) / 3)
    assert metrics["all_fail"] == metrics["all_success"] == pytest.approx(1 / 3)
    assert metrics["zero_spread"] == pytest.approx(1 / 3)


def test_a_single_attempt_at_each_task_has_nothing_to_be_compared_with() -> None:
    metrics = metrics_of([played(0, "v"), played(1, "v")], [[1.0], [0.0]], in_groups=False)
    assert not {"group_std", "all_fail", "all_success", "zero_spread"} & metrics.keys()


def test_void_counts_episodes_and_valid_counts_turns() -> None:
    metrics = metrics_of([played(0, "vxx"), played(0, "v"), played(0, "vv")], [[0.0] * 3, [0.0], [0.0] * 2])
    assert metrics["void"] == pytest.approx(1 / 3) and metrics["valid"] == pytest.approx(4 / 6)
    assert metrics["turns"] == 2.0 and metrics["turns_max"] == 3.0


def test_validity_and_reward_are_given_by_turn_index() -> None:
    metrics = metrics_of([played(0, "vx"), played(0, "x"), played(0, "v" * 10)], [[1.0, 3.0], [0.0], [0.5] * 9 + [2.5]])
    own = {name: value for name, value in metrics.items() if name.startswith("turn/")}
    assert own["turn/valid/0"] == pytest.approx(2 / 3) and own["turn/valid/1"] == 0.5
    assert own["turn/reward/0"] == 0.5 and own["turn/reward/1"] == 1.75
    assert own["turn/reward/8+"] == 1.5  # the ninth turn and the tenth
    short = metrics_of([played(0, "v")], [[1.0]])
    assert {name for name in short if name.startswith("turn/")} == {"turn/valid/0", "turn/reward/0"}
