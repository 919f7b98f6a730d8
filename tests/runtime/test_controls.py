"""The same budget without evolution, and on its halves: what the controls of a run are and how they are compared."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from evo_hpo.cli.launch import main
from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.config.errors import UserError
from evo_hpo.config.provenance import write
from evo_hpo.config.schema import Control, Dimension
from evo_hpo.evolution.strategies import TPE, MutationOnly, SelectionOnly, Standing, Truncation
from evo_hpo.runtime.controls import ARMS, CONTROLS, asked_for, asked_in, control_values, run_controls
from tests.runtime.support import quick, resumed, started, stored

TRUNCATION = Truncation(quantile=0.5, elites=1, resample=1.0, mutated_keys=0)


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    started(folder, "evolution=truncation", "evolution.population=3")
    return folder


def lines(folder: Path, name: str = "lineage.jsonl") -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / name).read_text().splitlines()]


def spent(folder: Path) -> int:
    return max(line["policy_tokens"] for line in lines(folder, "metrics.jsonl") if line["kind"] == "generation")


def test_all_controls_spend_what_the_run_spent_and_are_compared(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = run_controls(asked_for(run, []))
    said = capsys.readouterr().out
    for arm, words in ARMS.items():
        folder = run / CONTROLS / arm
        assert (folder / "result.json").is_file() and words in said
        generation = json.loads((run / "result.json").read_text())["policy_tokens"] / 3
        assert abs(spent(folder) - spent(run)) < generation
    assert "the run itself" in said and page == run / "controls.html" and page.is_file()
    assert not any(line["parent"] != line["member"] for line in lines(run / CONTROLS / "independent"))
    assert not any(line["parent"] != line["member"] for line in lines(run / CONTROLS / "mutation_only"))
    assert len({line["member"] for line in lines(run / CONTROLS / "single")}) == 1
    assert max(line["generation"] for line in lines(run / CONTROLS / "single")) > 3
    run_controls(asked_for(run, ["arms=single"]))
    assert "control single: is there" in capsys.readouterr().out


def test_selection_alone_mutates_nobody_and_mutation_alone_replaces_nobody() -> None:
    values = [{"a": float(m)} for m in range(4)]
    standing = Standing.of([0.1, 0.2, 0.8, 0.9], values=values)
    both = TRUNCATION.select(standing, np.random.default_rng(0))
    selection = SelectionOnly(TRUNCATION).select(standing, np.random.default_rng(0))
    mutation = MutationOnly(TRUNCATION).select(standing, np.random.default_rng(0))
    assert [fate.parent for fate in selection] == [fate.parent for fate in both] != [0, 1, 2, 3]
    assert not any(fate.explore for fate in selection)
    assert [fate.parent for fate in mutation] == [0, 1, 2, 3]
    assert [fate.explore for fate in mutation] == [fate.explore for fate in both]


def test_one_member_gets_the_generations_of_all(run: Path) -> None:
    values = control_values(run, "single")
    assert values["evolution"]["population"] == 1
    assert values["pipeline"]["stages"]["train"]["generations"] == 9
    assert values["budget"]["policy_tokens"] == spent(run)


def test_one_member_goes_once_through_a_stage_that_does_not_evolve_and_has_the_rest_for_the_others(
    tmp_path: Path,
) -> None:
    overrides = ["pipeline=sft_then_grpo", "pipeline.stages.sft.generations=2", "evolution.start_from=study.db"]
    composed = compose(quick(*overrides))
    write(tmp_path, composed.values, composed.provenance)
    (tmp_path / "metrics.jsonl").write_text(json.dumps({"kind": "generation", "policy_tokens": 700}))
    values = control_values(tmp_path, "single")
    stages = values["pipeline"]["stages"]
    assert stages["sft"]["generations"] == 2
    assert stages["grpo"]["generations"] == 3 * 8 + 2 * 2  # of two members the evaluations after cloning are spared
    assert values["budget"]["policy_tokens"] == 700 and values["evolution"]["start_from"] is None
    apart = control_values(tmp_path, "independent")
    assert [stage["generations"] for stage in apart["pipeline"]["stages"].values()] == [2, 8]
    assert apart["evolution"]["start_from"] == "study.db"
    for control in (values, apart):
        build(control)


def test_a_control_that_is_none_and_a_run_that_is_not_finished_are_refused(run: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no control 'luck'; write arms=independent"):
        asked_for(run, ["arms=luck"])
    with pytest.raises(UserError, match="is not finished"):
        asked_for(tmp_path, [])
    started(tmp_path / "lone", "evolution=none", "evolution.population=1")
    with pytest.raises(UserError, match="nobody was selected in .*lone, so there is no evolution to control for"):
        asked_for(tmp_path / "lone", [])
    started(tmp_path / "apart", "evolution=random", "evolution.population=2", "pipeline.stages.train.generations=1")
    with pytest.raises(UserError, match="nobody was selected in .*apart"):
        asked_for(tmp_path / "apart", [])


def test_a_control_of_the_run_before_it_went_on_is_not_compared_with_it(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    started(folder, "evolution.population=2", "pipeline.stages.train.generations=1")
    run_controls(asked_for(folder, ["arms=single"]))
    resumed(folder, "pipeline.stages.train.generations=2")
    with pytest.raises(UserError, match=r"single had \d+ tokens to spend, .* now has \d+; remove"):
        run_controls(asked_for(folder, ["arms=single"]))


def test_every_control_can_be_asked_for_in_the_config() -> None:
    assert list(ARMS) == list(get_args(Control))


def test_a_run_of_a_sweep_and_of_a_multirun_gets_the_controls_that_it_asks_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["launch.py"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    asked = ["sweep=guess_number_rloo", "sweep.controls=[single,independent]"]
    assert main(["-m", *quick(*asked, "pipeline.stages.train.generations=2")]) == 0
    [folder] = (tmp_path / "runs").glob("*/0_*")
    assert sorted(path.name for path in (folder / CONTROLS).iterdir()) == ["independent", "single"]
    for arm in ("independent", "single"):
        assert (folder / CONTROLS / arm / "result.json").is_file()
        assert stored(folder / CONTROLS / arm)["sweep"] == {"controls": []}
    said = capsys.readouterr().out
    assert said.index("the run itself") > said.index("control single") and (folder / "controls.html").is_file()


def test_a_resumed_run_gets_the_controls_that_it_asked_for(tmp_path: Path) -> None:
    started(tmp_path / "run", "evolution.population=2", "sweep.controls=[all]", "pipeline.stages.train.generations=1")
    (tmp_path / "run" / "result.json").unlink()
    assert main([f"resume={tmp_path / 'run'}", "sweep.controls=[single]"]) == 0
    assert [path.name for path in (tmp_path / "run" / CONTROLS).iterdir()] == ["single"]


def test_all_stands_for_every_control(run: Path) -> None:
    assert asked_in(run) is None
    config = run / "config.yaml"
    text = config.read_text()
    config.write_text(text.replace("controls: []", "controls: [all]"))
    try:
        asked = asked_in(run)
    finally:
        config.write_text(text)
    assert asked is not None and asked.arms == list(ARMS)


def test_controls_start_in_one_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(quick("sweep.controls=[single]")) == 2
    assert "sweep.controls= works in one process" in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_the_halves_of_a_search_that_begins_anew_are_to_begin_anew_and_to_take_what_was_suggested() -> None:
    search = TPE(trial=1, startup=1)
    space = {"a": Dimension("float", low=0.0, high=1.0)}
    standing = Standing.of([0.1, 0.9], values=[{"a": 0.2}, {"a": 0.7}], space=space)
    both = search.select(standing, np.random.default_rng(0))
    selection = SelectionOnly(search).select(standing, np.random.default_rng(0))
    mutation = MutationOnly(search).select(standing, np.random.default_rng(0))
    assert [(fate.event, fate.values) for fate in selection] == [("restarted", None)] * 2
    assert [(fate.event, fate.values) for fate in mutation] == [("kept", fate.values) for fate in both]
    assert SelectionOnly(search).restarts and not MutationOnly(search).restarts
