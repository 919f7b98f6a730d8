import json
import math
import random
from collections.abc import Callable
from statistics import fmean, pstdev

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evo_hpo.tracking.alarms import KINDS, REPLACEABLE, Watch, repetition, top_action
from evo_hpo.tracking.core import Alarm, GenerationRecord, MemberGeneration, MemberUpdate, UpdateRecord

HEALTHY = {
    "loss": 0.0,  # a mean-centred advantage at ratio 1 has loss 0 and still a gradient
    "grad_norm": 0.3,
    "reward": 0.5,
    "reward_std": 0.5,
    "zero_spread": 0.25,
    "group_std": 0.4,
    "success": 0.5,
    "entropy": 0.7,
    "ratio_max": 1.2,
    "finite": 1.0,
    "repetition": 0.0,
    "top_action": 0.4,
    "failed": 0.0,
    "valid": 1.0,
    "gap_mean": 0.01,
    "ess": 0.98,
}


def record(update: int, *members: dict[str, float]) -> UpdateRecord:
    parts = [MemberUpdate(member, HEALTHY | changed) for member, changed in enumerate(members)]
    return UpdateRecord("rl", update // 10, update, parts, float(update), 100 * update, 10 * update)


def alarms_of(updates: list[dict[str, float]], watch: Watch | None = None) -> list[list[Alarm]]:
    watch = watch or Watch()
    return [watch.update(record(update, metrics)) for update, metrics in enumerate(updates)]


def test_a_healthy_run_raises_no_alarm() -> None:
    assert alarms_of([{}] * 30) == [[]] * 30


def test_a_run_with_missing_metrics_raises_no_alarm() -> None:
    empty = UpdateRecord("sft", 0, 0, [MemberUpdate(0, {})], 0.0, 0, 0)
    assert Watch().update(empty) == []


@pytest.mark.parametrize(
    "fault", [{"zero_spread": 1.0}, {"grad_norm": 0.0}, {"reward": 0.0, "reward_std": 0.0}, {"compared": 0.0}]
)
def test_five_updates_without_signal_raise_one_alarm(fault: dict[str, float]) -> None:
    raised = alarms_of([fault] * 12)
    assert [len(each) for each in raised] == [0, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0]
    assert raised[4][0].kind == "no_signal" and (raised[4][0].member, raised[4][0].update) == (0, 4)
    assert "easier tasks" in raised[4][0].text


def test_ten_runs_with_reward_and_loss_zero_are_never_clean() -> None:  # PITFALLS 51
    dead = {"loss": 0.0, "grad_norm": 0.0, "reward": 0.0, "reward_std": 0.0, "zero_spread": 1.0, "success": 0.0}
    watch = Watch()
    kinds = {(a.member, a.kind) for update in range(10) for a in watch.update(record(update, *[dead] * 10))}
    assert kinds == {(member, "no_signal") for member in range(10)}


def test_a_solved_task_is_told_apart_from_one_that_cannot_be_learned() -> None:
    [alarm] = alarms_of([{"zero_spread": 1.0, "success": 1.0, "reward": 1.0}] * 5)[4]
    assert alarm.kind == "solved" and "solves every task" in alarm.text and "easier" not in alarm.text
    assert "solved" not in REPLACEABLE, "the best member would be thrown away"


def test_one_update_with_signal_starts_the_count_again() -> None:
    dead = {"zero_spread": 1.0}
    assert [len(each) for each in alarms_of([dead] * 4 + [{}] + [dead] * 5)] == [0] * 9 + [1]


def test_an_alarm_comes_again_only_after_its_condition_cleared() -> None:
    exploded = {"ratio_max": 50.0}
    assert [len(each) for each in alarms_of([exploded, exploded, {}, exploded])] == [1, 0, 0, 1]


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        ({"repetition": 0.9}, "degenerate_text"),
        ({"top_action": 1.0}, "degenerate_text"),
        ({"ratio_max": 21.0}, "ratio_explosion"),
        ({"finite": 0.0}, "not_finite"),
        ({"loss": math.nan}, "not_finite"),
        ({"grad_norm": math.inf}, "not_finite"),
        ({"failed": 0.21}, "env_failures"),
        ({"overflow": 0.21}, "context_overflow"),
    ],
)
def test_a_single_bad_update_raises_its_alarm(fault: dict[str, float], kind: str) -> None:
    assert [alarm.kind for alarm in alarms_of([{}] * 6 + [fault])[6]] == [kind]


@pytest.mark.parametrize(
    "fine",
    [{"repetition": 0.4}, {"ratio_max": 20.0}, {"failed": 0.2}, {"entropy": 0.02}, {"ess": 0.3}, {"gap_mean": 0.1}],
)
def test_values_at_the_limit_raise_none(fine: dict[str, float]) -> None:
    assert alarms_of([fine] * 6) == [[]] * 6


def test_collapsed_entropy_is_an_alarm_only_while_the_task_is_unsolved() -> None:
    assert [a.kind for a in alarms_of([{"entropy": 0.01}] * 3)[2]] == ["entropy_collapse"]
    assert alarms_of([{"entropy": 0.01, "success": 0.95, "top_action": 1.0}] * 3) == [[]] * 3


def test_a_gradient_a_hundred_times_the_usual_is_an_alarm() -> None:
    raised = alarms_of([{"grad_norm": 0.3}] * 5 + [{"grad_norm": 29.0}, {"grad_norm": 31.0}])
    assert [[alarm.kind for alarm in each] for each in raised[5:]] == [[], ["gradient_explosion"]]


def test_a_trainer_that_disagrees_with_the_sampler_is_an_alarm_that_says_where_to_look() -> None:
    assert [a.kind for a in alarms_of([{"ess": 0.29}] * 2)[1]] == ["few_effective_samples"]
    [alarm] = alarms_of([{"gap_mean": 0.11}] * 3)[2]
    assert alarm.kind == "sampler_gap" and "0.11 nats" in alarm.text and "temperature" in alarm.text


def test_entropy_that_falls_fast_before_the_task_is_learned_is_an_alarm() -> None:
    falling = [{"entropy": 0.4}] * 6 + [{"entropy": 0.09}] * 3
    raised = alarms_of(falling)
    assert [[a.kind for a in each] for each in raised] == [[]] * 8 + [["entropy_fall"]]
    assert "from 0.4 to 0.09 nats" in raised[8][0].text
    assert alarms_of([each | {"success": 0.95} for each in falling]) == [[]] * 9
    assert alarms_of([{"entropy": 2.0}] * 6 + [{"entropy": 0.2}] * 5) == [[]] * 11  # learning how to answer


def echo(update: int, reward: float = 0.5) -> dict[str, float]:
    """Attempts that become copies of each other from update 20 on; a little up and down, as in a real run."""
    noise = 0.05 if update % 2 else -0.05
    spread, alike = (0.4, 0.25) if update < 20 else (0.1, 0.75)
    return {"reward": reward + noise, "group_std": spread + noise, "zero_spread": alike + noise}


def test_attempts_that_become_alike_while_reward_is_flat_are_the_echo_trap() -> None:
    raised = [alarm for each in alarms_of([echo(update) for update in range(40)]) for alarm in each]
    assert [alarm.kind for alarm in raised] == ["echo_trap"]
    assert 30 <= raised[0].update < 40 and "rollout.temperature" in raised[0].text


@pytest.mark.parametrize(
    "change",
    [
        lambda update: {"reward": echo(update)["reward"] + 0.01 * update},  # it learns, and so has less to differ in
        lambda update: {"zero_spread": 0.25},  # rewards lie closer, but attempts still differ
        lambda update: {"group_std": 0.4},
        lambda update: {"success": 0.95},
    ],
    ids=["reward rises", "attempts differ", "spread stays", "solved"],
)
def test_what_only_looks_like_the_echo_trap_is_none(change: Callable[[int], dict[str, float]]) -> None:
    assert alarms_of([echo(update) | change(update) for update in range(60)]) == [[]] * 60


def test_chance_seldom_looks_like_the_echo_trap() -> None:
    """Four groups of four attempts at tasks of very different difficulty: 100 members, 100 updates each."""
    caught = 0
    for member in range(100):
        dice = random.Random(member)
        updates = []
        for _ in range(100):
            tasks = [dice.betavariate(0.4, 1.6) for _ in range(4)]
            groups = [[float(dice.random() < task) for _ in range(4)] for task in tasks]
            updates.append(
                {
                    "reward": fmean(fmean(group) for group in groups),
                    "group_std": fmean(pstdev(group) for group in groups),
                    "zero_spread": fmean(float(len(set(group)) == 1) for group in groups),
                }
            )
        caught += any("echo_trap" in {a.kind for a in each} for each in alarms_of([*updates]))
    assert caught <= 5


def test_only_what_a_member_brought_about_itself_can_cost_it_its_place() -> None:
    assert REPLACEABLE < set(KINDS)
    assert {"no_signal", "degenerate_text", "entropy_collapse", "not_finite", "echo_trap"} <= REPLACEABLE
    assert not {"env_failures", "context_overflow", "sampler_gap", "few_effective_samples"} & REPLACEABLE


def test_members_are_watched_apart() -> None:
    raised = Watch().update(record(0, {}, {"ratio_max": 99.0}, {"finite": 0.0}))
    assert [(alarm.member, alarm.kind) for alarm in raised] == [(1, "ratio_explosion"), (2, "not_finite")]


def test_a_replaced_member_starts_with_a_clean_sheet() -> None:
    watch = Watch()
    dead = {"zero_spread": 1.0}
    alarms_of([dead] * 4, watch)
    replaced = MemberGeneration(0, 0.1, 0.0, 0.2, {}, parent=1, event="cloned", next_hyperparameters={}, text="")
    watch.generation(GenerationRecord("rl", 0, 4, [replaced], 1.0, 1, 1))
    assert [len(each) for each in alarms_of([dead] * 5, watch)] == [0, 0, 0, 0, 1]
    watch.generation(GenerationRecord("rl", 1, 9, [replaced], 1.0, 1, 1))
    assert alarms_of([{"grad_norm": 90.0}] * 5, watch) == [[]] * 5  # what was usual for the old weights is forgotten


EVENTS = [
    {}, {"zero_spread": 1.0}, {"ratio_max": 99.0}, {"grad_norm": 900.0}, {"entropy": 0.05}, {"entropy": math.nan}
]  # fmt: skip


@given(st.lists(st.sampled_from(EVENTS), max_size=25), st.booleans())
def test_a_watch_restored_from_its_state_raises_the_same_alarms(updates: list[dict[str, float]], trap: bool) -> None:
    if trap:
        updates = [echo(update) for update in range(40)] + updates
    straight = alarms_of(updates)
    stopped: list[list[Alarm]] = []
    state = json.dumps(Watch().state_dict(), allow_nan=False)
    for update, metrics in enumerate(updates):
        watch = Watch()
        watch.load_state_dict(json.loads(state))
        stopped.append(watch.update(record(update, metrics)))
        state = json.dumps(watch.state_dict(), allow_nan=False)
    assert stopped == straight


@pytest.mark.parametrize(
    "collapsed", ["aaaaaaaa", "        ", "left left left left left", "\n\n\n\n\n\n", "ababababab"]
)
def test_text_in_a_loop_is_repetition(collapsed: str) -> None:  # PITFALLS 52
    assert repetition([collapsed] * 5) > 0.7


@pytest.mark.parametrize(
    "healthy", ["left", "Down", "7", "100", "1000", "I look at the map and go right.", "", "ha ha"]
)
def test_ordinary_actions_are_no_repetition(healthy: str) -> None:
    assert repetition([healthy] * 50) == 0


def test_repetition_is_a_share_of_characters() -> None:
    assert repetition(["aaaaaaaa", "leftdown"]) == pytest.approx(0.5)


def test_top_action_counts_the_most_common_text() -> None:
    assert top_action(["up", "up ", "up", "down"]) == 0.75
    assert top_action([]) == 0.0


def test_episodes_that_run_out_of_context_are_an_alarm_that_says_what_to_raise() -> None:
    [quiet, loud] = alarms_of([{"overflow": 0.1}, {"overflow": 0.6}])
    assert quiet == [] and [alarm.kind for alarm in loud] == ["context_overflow"]
    assert "60%" in loud[0].text and "rollout.max_context" in loud[0].text
