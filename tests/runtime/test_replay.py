"""A schedule that a run found is followed again: from scratch, and beside agents that keep its last values."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml

from evo_hpo.cli.launch import main
from evo_hpo.config.errors import UserError
from evo_hpo.evolution.strategies import Replay, Standing
from evo_hpo.runtime.replaying import asked_for, compared
from evo_hpo.tracking.report.data import load
from evo_hpo.tracking.report.page import render
from tests.runtime.support import started, stored


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("original") / "run"
    started(folder, "evolution.population=4", "sweep.controls=[all]")  # of which a replay asks for none
    return folder


def schedule(run: Path) -> list[dict[str, Any]]:
    steps = yaml.safe_load((run / "schedule.yaml").read_text())
    assert isinstance(steps, list)
    return [step["hyperparameters"] for step in steps]


def test_members_follow_the_schedule_or_keep_its_end(
    original: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([f"replay={original}", "replicas=2", f"run_dir={tmp_path}", "rollout.temperature=0.9"]) == 0
    [replay] = tmp_path.iterdir()
    found = schedule(original)
    lineage = [json.loads(line) for line in (replay / "lineage.jsonl").read_text().splitlines()]
    assert len(lineage) == 3 * 4
    for line in lineage:
        expected = found[-1] if line["member"] % 2 else found[line["generation"]]
        assert line["before"] == pytest.approx(expected)
        assert line["event"] == "kept" and ("keeps the last values" in line["text"]) == bool(
            line["member"] % 2 and line["generation"] < 2
        )
    result = json.loads((replay / "result.json").read_text())
    assert [len(rates) for rates in result["replay"]["arms"].values()] == [2, 2]
    assert result["replay"]["original"] == json.loads((original / "result.json").read_text())["best"]
    assert [member["member"] for member in result["members"]] == [0, 1, 2, 3]
    said = capsys.readouterr().out
    assert "along its schedule" in said and "with its last values" in said
    assert "changed against the original: rollout.temperature 1.0 to 0.9" in said
    page = (replay / "report.html").read_text() if (replay / "report.html").exists() else render(load(replay))
    assert "along the schedule" in page and "the agent that found it" in page
    assert stored(replay)["seed"] == stored(original)["seed"] + 1


def test_a_replay_is_as_long_as_what_it_replays_and_has_no_budget_of_a_population(
    original: Path, tmp_path: Path
) -> None:
    cut = Path(shutil.copytree(original, tmp_path / "cut"))
    steps = yaml.safe_load((cut / "schedule.yaml").read_text())
    (cut / "schedule.yaml").write_text(yaml.safe_dump(steps[1:]))  # as of a member that began anew
    text = (cut / "config.yaml").read_text()
    (cut / "config.yaml").write_text(text.replace("policy_tokens: null", "policy_tokens: 9000"))
    asked = asked_for(cut, [])
    replay = asked.config
    assert replay.pipeline.stages["train"].generations == len(steps) - 1 == 2
    assert set(vars(replay.budget).values()) == {None}
    assert compared({"members": []}, cut, asked.resolved)["changed"] == [], "neither is a change that anybody made"


def test_the_arms_are_told_apart_by_slot() -> None:
    result = {"members": [{"member": m, "success": m / 10} for m in range(4)] + [{"member": 5, "success": None}]}
    assert compared(result, Path("nowhere"), {})["arms"] == {"schedule": [0.0, 0.2], "final": [0.1, 0.3]}


def test_a_schedule_that_is_shorter_than_the_run_ends_with_its_last_values() -> None:
    strategy = Replay(of="", schedule={"train": [{"a": 1.0}, {"a": 2.0}]})
    assert strategy.begin([{"a": 9.0}] * 2, [0, 1], "train") == [{"a": 1.0}, {"a": 2.0}]
    import numpy as np

    standing = Standing.of([0.1, 0.2], generation=5, values=[{"a": 2.0}, {"a": 2.0}])
    assert [fate.values for fate in strategy.select(standing, np.random.default_rng(0))] == [{"a": 2.0}] * 2


def test_a_replay_begins_with_the_schedule_and_not_with_what_the_run_began_with(original: Path, tmp_path: Path) -> None:
    import shutil

    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    known = (copy / "config.yaml").read_text().replace("start_from: null", f"start_from: {original}")
    (copy / "config.yaml").write_text(known)
    assert asked_for(copy, []).config.evolution.start_from is None


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (lambda run: (run / "schedule.yaml").unlink(), "has no schedule.yaml: a run writes it when it is finished"),
        (lambda run: (run / "schedule.yaml").write_text("- {"), "cannot be read"),
        (lambda run: (run / "schedule.yaml").write_text("- {stage: train, hyperparameters: {}}"), "nothing evolved in"),
    ],
)
def test_what_cannot_be_replayed_is_said(original: Path, tmp_path: Path, change: Any, sentence: str) -> None:
    import shutil

    copy = Path(shutil.copytree(original, tmp_path / "copy"))
    change(copy)
    with pytest.raises(UserError, match=sentence):
        asked_for(copy, [])


def test_a_wrong_number_of_agents_is_refused(original: Path) -> None:
    with pytest.raises(UserError, match="replicas=0 is no number of agents"):
        asked_for(original, ["replicas=0"])
