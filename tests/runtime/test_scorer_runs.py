"""Runs that train scorers: what they measure, what they leave, and that they go on after a stop like any other."""

from __future__ import annotations

import json
import random
import shutil
from pathlib import Path

import pytest

from evo_hpo.config.errors import UserError
from evo_hpo.runtime.export import export_member
from evo_hpo.runtime.members import stored_member
from evo_hpo.tracking.report import write_report
from tests.runtime.support import Left, resumed, started

PAIRS, MEMBERS = 120, 2
KINDS = ("reward_model", "progress_model")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of two numbers, the one nearer to 16 is better."""
    dice, path = random.Random(0), tmp_path_factory.mktemp("pairs") / "pairs.jsonl"
    lines = []
    for number in range(PAIRS):
        better, worse = sorted(dice.sample(range(1, 33), 2), key=lambda n: abs(n - 16))
        lines.append(json.dumps({"prompt": f"1..32? {number}", "chosen": str(better), "rejected": str(worse)}))
    path.write_text("\n".join(lines))
    return path


def overrides(kind: str, pairs: Path) -> list[str]:
    more = {
        "reward_model": [f"algorithm.data={pairs}", "pipeline.stages.train.updates=4"],
        "progress_model": ["granularity=sparse", "rollout.tasks=3"],
    }
    rate = "algorithm.optimizer.learning_rate=0.003"
    return [f"algorithm={kind}", f"evolution.population={MEMBERS}", "tracker.episodes=2", rate, *more[kind]]


@pytest.fixture(scope="module")
def runs(pairs: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    folders = {kind: tmp_path_factory.mktemp(kind) / "run" for kind in KINDS}
    for kind, folder in folders.items():
        started(folder, *overrides(kind, pairs))
    return folders


@pytest.mark.parametrize("kind", KINDS)
def test_it_goes_on_after_a_stop_as_if_it_had_never_been_stopped(
    kind: str, runs: dict[str, Path], tmp_path: Path
) -> None:
    copy = Path(shutil.copytree(runs[kind], tmp_path / "copy"))
    resumed(copy, "generation=1")
    Left.by(copy).assert_same(Left.by(runs[kind]))
    assert (copy / "best" / "head.safetensors").read_bytes() == (runs[kind] / "best" / "head.safetensors").read_bytes()


def test_the_result_of_a_reward_model_is_its_accuracy_and_its_calibration(runs: dict[str, Path]) -> None:
    result = json.loads((runs["reward_model"] / "result.json").read_text())
    assert result["measured"] == "pairs in the right order" and result["held_out"] == "pairs"
    assert result["base"]["success"] == 0.5  # a head of zeros finds all equal
    assert result["best"]["episodes"] == result["final_tasks"] > 5
    assert set(result["details"]["calibration"]) == {"expected_error", "brier", "log_loss", "confidence"}
    assert result["policy_tokens"] == result["environment_turns"] == 0
    about = json.loads((runs["reward_model"] / "best" / "scorer.json").read_text())
    assert about["kind"] == "reward_model" and about["std"] > 0
    assert "Calibration on the final pairs" in write_report(runs["reward_model"]).read_text()


def test_fitness_is_measured_on_pairs_that_are_not_trained_on(runs: dict[str, Path]) -> None:
    lines = [json.loads(line) for line in (runs["reward_model"] / "metrics.jsonl").read_text().splitlines()]
    fitness = [line for line in lines if line["kind"] == "generation"]
    updates = [line for line in lines if line["kind"] == "update"]
    assert len(fitness) == 3 * MEMBERS and all(0 <= line["fitness"] <= 1 for line in fitness)
    assert len(updates) == 3 * 4 * MEMBERS and all(line["compared"] == 16 for line in updates)
    assert (runs["reward_model"] / "episodes.jsonl").read_text() == ""  # nothing was played


def test_its_members_evolve_learning_rates_and_no_temperature(runs: dict[str, Path]) -> None:
    schedule = (runs["reward_model"] / "schedule.yaml").read_text()
    assert "algorithm.optimizer.learning_rate" in schedule and "rollout.temperature" not in schedule
    assert "rollout.temperature" in (runs["progress_model"] / "schedule.yaml").read_text()


def test_the_policy_of_such_a_run_is_its_base(runs: dict[str, Path], tmp_path: Path) -> None:
    with pytest.raises(UserError, match="trained a scorer, and its agent is the base"):
        stored_member(runs["progress_model"], "best")
    export_member(runs["progress_model"], "best", tmp_path / "exported")
    assert (tmp_path / "exported" / "scorer.json").is_file()


def test_pairs_with_a_wrong_line_stop_the_run_before_it_begins(pairs: Path, tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.jsonl"
    wrong.write_text(pairs.read_text() + '\n{"chosen": "7"}')
    with pytest.raises(UserError, match=f"line {PAIRS + 1}|:{PAIRS + 1}"):
        started(tmp_path / "run", *overrides("reward_model", wrong))
    assert not (tmp_path / "run" / "metrics.jsonl").exists()
