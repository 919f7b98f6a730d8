"""A run as an Optuna study: each member of each generation once, and as a start for the next run."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import optuna
import pytest
from optuna.storages.journal import JournalFileBackend

from evo_hpo.cli.main import main
from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Dimension
from evo_hpo.tracking.optuna import JOURNAL, PARENT, best_values
from tests.runtime.support import resumed, started

RATE = "algorithm.optimizer.learning_rate"


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    started(folder, "tracker.optuna=true", "tracker.report=true")
    return folder


def lineage(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "lineage.jsonl").read_text().splitlines()]


def trials(storage: Any) -> list[optuna.trial.FrozenTrial]:
    [summary] = optuna.get_all_study_summaries(storage)
    return optuna.load_study(study_name=summary.study_name, storage=storage).trials


def in_journal(folder: Path) -> list[optuna.trial.FrozenTrial]:
    backend = JournalFileBackend(str(folder / JOURNAL))
    return trials(optuna.storages.JournalStorage(backend))


def assert_same(found: list[optuna.trial.FrozenTrial], folder: Path) -> None:
    lines = lineage(folder)
    assert [(t.user_attrs["generation"], t.user_attrs["member"], t.value) for t in found] == [
        (line["generation"], line["member"], line["fitness"]) for line in lines
    ]
    for trial, line in zip(found, lines, strict=True):
        assert trial.params == pytest.approx(line["before"])
        assert trial.user_attrs["text"] == line["text"]


def test_each_member_of_each_generation_is_a_trial(run: Path) -> None:
    assert_same(in_journal(run), run)


def test_a_resumed_run_has_each_trial_once(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "copy"))
    resumed(copy, "generation=1")
    assert_same(in_journal(copy), copy)


def test_a_trial_names_the_one_it_descends_from(run: Path) -> None:
    filled = {(line["generation"], line["member"]): line["parent"] for line in lineage(run)}
    for trial in in_journal(run):
        generation, member = trial.user_attrs["generation"], trial.user_attrs["member"]
        expected = f"{generation - 1}/{filled[generation - 1, member]}" if generation else None
        assert trial.user_attrs[PARENT] == expected


def test_the_study_is_written_for_the_dashboard(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    target = tmp_path / "study.db"
    assert main(["study", str(run), "--to", str(target)]) == 0
    assert_same(trials(f"sqlite:///{target}"), run)
    assert any((tmp_path / "study_artifacts").iterdir())
    assert "optuna-dashboard sqlite:///" in capsys.readouterr().out
    assert main(["study", str(run), "--to", str(target)]) == 2
    assert "exists already" in capsys.readouterr().err


def test_the_best_of_a_run_or_a_study_begin_the_next_one(run: Path, tmp_path: Path) -> None:
    main(["study", str(run), "--to", str(tmp_path / "study.db")])
    best = max(lineage(run), key=lambda line: line["fitness"])["before"]
    for source in (run, tmp_path / "study.db"):
        started(tmp_path / source.name.replace(".", "_"), f"evolution.start_from={source}")
    for name in ("run", "study_db"):
        first = [line["before"] for line in lineage(tmp_path / name) if line["generation"] == 0]
        assert first[1] == pytest.approx(best)
        assert first[0] != first[1]  # member 0 keeps the config's own


SPACE = {RATE: Dimension("float", low=1e-4, high=1e-2, log=True)}


def test_what_lies_outside_the_space_is_left_out_and_each_is_taken_once(tmp_path: Path) -> None:
    pairs = [(0.2, 5e-4), (0.9, 0.5), (0.7, 2e-3), (0.8, 2e-3), (None, 1e-3)]
    lines = [{"fitness": fitness, "before": {RATE: rate}} for fitness, rate in pairs]
    (tmp_path / "lineage.jsonl").write_text("\n".join(map(json.dumps, lines)))
    assert best_values(str(tmp_path), SPACE) == [{RATE: 2e-3}, {RATE: 5e-4}]
    with pytest.raises(UserError, match="has no trial with all of algorithm.kl.coef inside their ranges"):
        best_values(str(tmp_path), {"algorithm.kl.coef": Dimension("float", low=0.0, high=1.0)})


@pytest.mark.parametrize("name", ["nothing", "broken.db"])
def test_a_source_that_is_none_is_refused(name: str, tmp_path: Path) -> None:
    (tmp_path / "broken.db").write_text("no database")
    with pytest.raises(UserError, match="evolution.start_from=.* cannot be read .*write a run folder"):
        best_values(str(tmp_path / name), SPACE)
