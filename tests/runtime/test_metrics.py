"""What the episodes of an update were like: every number is checked against one computed by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest

from envs.core import Episode
from evo_hpo.learner.scoring import Scored
from evo_hpo.runtime.metrics import contradictions, episode_metrics, turn_outcome_correlation
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


def paid(*episodes: tuple[float, tuple[float, ...], bool], mixed: bool = True) -> Scored:
    """One group of member 0: outcome, turn rewards and success of each episode, paid out as they are."""
    played = [
        episode(0, 0, [([1], [2])] * len(turns), success=success, task=i)
        for i, (_, turns, success) in enumerate(episodes)
    ]
    scores = [Score(outcome, turns) for outcome, turns, _ in episodes]
    rewards = [[*turns[:-1], turns[-1] + outcome] for outcome, turns, _ in episodes]
    return Scored(played, scores, rewards, mixed=mixed)


def test_comparisons_that_turn_rewards_turn_round_are_counted() -> None:
    scored = paid((1.0, (0.0,), True), (0.0, (0.5, 0.6), False), (0.0, (0.2,), False))
    [metrics] = episode_metrics(scored.episodes, scored, 1, in_groups=True)
    assert metrics["overruled"] == 0.5  # of two comparisons; the failures are worth the same
    assert metrics["turn_reward_sum"] == pytest.approx(1.3 / 3) and metrics["outcome"] == pytest.approx(1 / 3)
    [dense] = episode_metrics(scored.episodes, replace(scored, mixed=False), 1, in_groups=True)
    assert "overruled" not in dense  # the outcome is not paid, so it cannot be overruled


def test_the_episodes_that_were_paid_best_for_the_worst_outcome_come_first() -> None:
    scored = paid((1.0, (9.0,), True), (0.0, (0.5, 0.6), False), (0.0, (2.0,), False), (0.0, (0.0,), False))
    assert contradictions(scored, 0, 2) == [2, 1]
    assert contradictions(scored, 1) == []


@pytest.mark.parametrize(
    ("pairs", "expected"),
    [
        ([(0.1, 0), (0.2, 1), (5.0, 2)], 1.0),
        ([(3, 0), (2, 1), (1, 2)], -1.0),
        ([(1, 1), (1, 2), (2, 2), (3, 1)], -1 / (2 * 4.5**0.5)),  # ranks .5 .5 2 3 against .5 2.5 2.5 .5
        (
            [(106, 7), (100, 27), (86, 2), (101, 50), (99, 28), (103, 29), (97, 20), (113, 12), (112, 6), (110, 17)],
            -0.1757576,
        ),
    ],
)
def test_rank_correlation(pairs: list[tuple[float, float]], expected: float) -> None:
    assert turn_outcome_correlation(pairs) == pytest.approx(expected, abs=1e-6)


def test_what_does_not_vary_has_no_correlation() -> None:
    assert turn_outcome_correlation([(1, 0), (1, 1), (1, 0)]) is None
    assert turn_outcome_correlation([(1, 0), (2, 1)]) is None
