"""What a broken environment costs: its episodes, never the run, and never in silence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evo_hpo.config.errors import UserError
from evo_hpo.tracking.jsonl import read_jsonl
from tests.building import config, training_of
from tests.runtime.support import Recorder, started
from tests.runtime.test_population import recorded


def broken(kind: str, **fields: object) -> list[str]:
    """Overrides that make the environment one of `tests.envs.broken`."""
    keys = ", ".join(f"{name}: {value}" for name, value in {"_target_": f"tests.envs.broken.{kind}", **fields}.items())
    return ["plugins=[tests]", "~env", f"+env={{{keys}}}", "granularity=sparse", "evolution.population=2"]


def failed(recorder: Recorder) -> list[float]:
    return [part.metrics["failed"] for record in recorder.updates for part in record.members]


@pytest.mark.parametrize(
    ("kind", "fields"),
    [("RaisesOnReset", {}), ("RaisesOnStep", {"turn": 2}), ("HangsOnStep", {"seconds": 1.5})],
)
def test_an_environment_that_fails_on_some_tasks_costs_those_episodes_only(kind: str, fields: dict[str, float]) -> None:
    limits = ["rollout.step_timeout=0.3", "rollout.tasks=3", "rollout.group_size=2", "rollout.threads=8"]
    training = training_of(config(*broken(kind, every=2, **fields), *limits))
    recorder = recorded(training)
    result = training.run()
    assert result["updates"] == 2 and result["best"]["success"] is not None
    assert result["best"]["episodes"] < 8, "failed episodes are no part of the measurement"
    assert all(0 < share < 1 for share in failed(recorder))
    alarms = [alarm for alarm in recorder.alarms if alarm.kind == "env_failures"]
    assert sorted(alarm.member or 0 for alarm in alarms) == [0, 1]
    assert "the environment failed in" in alarms[0].text


@pytest.mark.parametrize(
    ("kind", "words"),
    [("RaisesOnReset", "ValueError: no such task: "), ("RaisesOnStep", "RuntimeError: broke on turn 1")],
)
def test_a_run_in_which_every_episode_fails_stops_with_the_environments_own_words(kind: str, words: str) -> None:
    training = training_of(config(*broken(kind)))
    with pytest.raises(UserError, match=f"not one of 16 episodes of update 0 could be used: {words}"):
        training.run()


def test_what_failed_can_be_read_in_the_transcripts(tmp_path: Path) -> None:
    env = broken("RaisesOnStep", every=2)[2:4]
    started(tmp_path / "run", *env, "granularity=sparse", "rollout.tasks=4", "tracker.episodes=8")
    for split in ("train", "fitness"):
        episodes = [line for line in read_jsonl(tmp_path / "run" / "episodes.jsonl") if line["split"] == split]
        errors = {line["error"] for line in episodes if line["stop"] == "env_error"}
        assert errors == {"RuntimeError: broke on turn 1"}, f"the alarm sends people here for the {split} episodes"


def test_an_alarm_stops_the_run_where_that_is_asked_for() -> None:
    training = training_of(config(*broken("RaisesOnStep", every=2), "rollout.tasks=4", "on_alarm=stop"))
    with pytest.raises(UserError, match=r"stopped by an alarm \(on_alarm=stop\): Member 0: the environment failed in"):
        training.run()


def test_alarms_are_in_the_result_and_in_the_record(tmp_path: Path) -> None:
    result = started(tmp_path / "run", *broken("RaisesOnStep", every=2)[2:], "rollout.tasks=4")
    kinds = {alarm["kind"] for alarm in result["alarms"]}
    assert "env_failures" in kinds
    assert json.loads((tmp_path / "run" / "result.json").read_text())["alarms"] == result["alarms"]
    lines = read_jsonl(tmp_path / "run" / "metrics.jsonl")
    assert {line["alarm"] for line in lines if line["kind"] == "alarm"} == kinds


REFUSING = ["reward._target_=tests.runtime.worlds.Refusing", "granularity=sparse"]


def test_a_reward_that_scores_nothing_is_blamed_itself_and_what_was_played_is_kept(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="^Refusing scored no group of update 0: mend what .* The 12 episodes are in"):
        started(tmp_path / "run", *REFUSING, "tracker.episodes=1")
    kept = [line for line in read_jsonl(tmp_path / "run" / "episodes.jsonl") if line["split"] == "unscored"]
    assert len(kept) == 12


def test_a_scorer_that_nothing_can_be_measured_by_is_told_so(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="could be played and scored; look at `error` .* at what the reward said"):
        started(tmp_path / "run", *REFUSING, "algorithm=progress_model")


def test_outcomes_that_are_all_the_same_measure_no_scorer_and_the_end_says_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = started(tmp_path / "run", "algorithm=progress_model", "reward.success_reward=0")
    assert result["best"]["success"] is None
    assert capsys.readouterr().out.count("not measurable (no two episodes had different outcomes)") == 2
