"""`python launch.py`: refusals leave nothing behind, runs leave one folder each, wherever they are started."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
import yaml

from evo_hpo.cli import guard
from evo_hpo.cli.launch import main
from evo_hpo.config import paths
from evo_hpo.config.compose import compose
from tests.config.support import write_yaml

LAUNCH = paths.PACKAGE.parent / "launch.py"
SMALL = ["experiment=smoke", "evaluation.tasks=4", "evaluation.final_tasks=4", "tracker=off"]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["launch.py"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")  # `main` sets it for Hydra; this puts it back
    return tmp_path


def launched(
    cwd: Path, *arguments: str, command: Sequence[str] = (), env: Mapping[str, str] = {}
) -> subprocess.CompletedProcess[str]:
    line = [*(command or [sys.executable]), str(LAUNCH), *arguments]
    return subprocess.run(line, cwd=cwd, env={**os.environ, **env}, capture_output=True, text=True, timeout=300)


def test_a_refused_run_prints_sentences_exits_with_2_and_leaves_nothing(tmp_path: Path) -> None:
    done = launched(tmp_path, "algorithm=gpro", "rollout.group_sise=3")
    assert done.returncode == 2
    assert done.stderr.startswith("error: there is no algorithm 'gpro'; did you mean grpo? there are: ")
    assert done.stderr.count("\n") == 1
    assert done.stdout == "" and list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("how", [{"HYDRA_FULL_ERROR": "1"}, {}])
def test_a_traceback_is_shown_to_those_who_ask(tmp_path: Path, how: dict[str, str]) -> None:
    done = launched(tmp_path, "rollout.tasks=0", *([] if how else ["debug=on"]), env=how)
    assert done.returncode == 2
    assert "Traceback" in done.stderr and "error: rollout.tasks must be greater than 0" in done.stderr


def test_a_config_is_refused_before_anything_heavy_is_imported(tmp_path: Path) -> None:
    code = (
        "import sys; from evo_hpo.cli.launch import main; code = main(['rollout.tasks=0']);"
        "assert not {'transformers', 'peft', 'accelerate', 'wandb'} & set(sys.modules); sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=LAUNCH.parent, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr


def test_every_job_of_a_multirun_is_checked_before_the_first_starts(
    here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["-m", "rollout.tasks=1,0", *SMALL]) == 2
    assert capsys.readouterr().err == "error: rollout.tasks must be greater than 0, not 0 (override rollout.tasks=0)\n"
    assert list(here.iterdir()) == []


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["resume=nowhere"], "error: resume=nowhere: there is no run there (no config.yaml)"),
        (["run_dir=a_file/runs"], "error: no run folder can be made: "),
        (["--config-dir=nowhere"], "error: --config-dir nowhere is no folder"),
        (["hydra/launcher=joblob"], "error: there is no hydra/launcher 'joblob'; did you mean joblib?"),
    ],
)
def test_what_cannot_be_used_is_named(
    arguments: list[str], sentence: str, here: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (here / "a_file").touch()
    assert main(arguments) == 2
    assert capsys.readouterr().err.startswith(sentence)


def test_a_resumed_run_takes_no_flags(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "config.yaml").touch()
    assert main(["resume=.", "-m"]) == 2
    assert "takes no -m" in capsys.readouterr().err


def test_a_multirun_under_several_processes_is_refused(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    assert main(["-m", "seed=1,2"]) == 2
    assert "start each run alone" in capsys.readouterr().err


def test_only_the_first_of_several_processes_speaks(
    here: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RANK", "1")
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setattr(guard, "PATIENCE", 0.0)
    assert main(["rollout.tasks=0"]) == 2
    assert capsys.readouterr().err == "" and list(here.iterdir()) == []


def test_runs_started_at_the_same_moment_have_folders_of_their_own() -> None:
    assert compose([]).folder != compose([]).folder


def test_a_run_is_not_started_over_another_one(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (here / "old").mkdir()
    (here / "old" / "config.yaml").write_text("seed: 1\n")
    assert main([*SMALL, "hydra.run.dir=old"]) == 2
    assert "holds a run already; write resume=" in capsys.readouterr().err
    assert (here / "old" / "config.yaml").read_text() == "seed: 1\n"


def test_a_run_leaves_its_config_and_sources_in_one_folder_below_the_working_directory(tmp_path: Path) -> None:
    done = launched(tmp_path, *SMALL, "seed=3", "name=small")
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "runs").iterdir()
    assert folder.name.endswith("_small")
    config = yaml.safe_load((folder / "config.yaml").read_text())
    source = yaml.safe_load((folder / "provenance.yaml").read_text())
    assert config["seed"] == 3 and source["seed"] == "override seed=3"
    assert source["evolution.population"] == "conf/evolution/gated.yaml"
    assert source["rollout.tasks"] == "conf/experiment/smoke.yaml"
    assert json.loads((folder / "result.json").read_text())["population"] == 8


def test_a_multirun_gives_each_job_a_folder_with_its_own_config(here: Path) -> None:
    assert main(["-m", "algorithm=grpo,ppo", *SMALL]) == 0
    [sweep] = (here / "runs").iterdir()
    assert sorted(folder.name for folder in sweep.iterdir()) == ["0_frozen_lake-grpo", "1_frozen_lake-ppo"]
    for folder, option in zip(sorted(sweep.iterdir()), ("grpo", "ppo"), strict=True):
        assert (folder / "result.json").exists()
        source = yaml.safe_load((folder / "provenance.yaml").read_text())
        assert source["algorithm.aggregation"] == f"conf/algorithm/{option}.yaml"


@pytest.mark.slow
def test_a_multirun_in_parallel_gives_each_job_a_folder(tmp_path: Path) -> None:
    done = launched(tmp_path, "-m", "hydra/launcher=joblib", "seed=1,2", *SMALL)
    assert done.returncode == 0, done.stderr
    [sweep] = (tmp_path / "runs").iterdir()
    seeds = {yaml.safe_load((folder / "config.yaml").read_text())["seed"] for folder in sweep.iterdir()}
    assert seeds == {1, 2}


@pytest.mark.slow
def test_two_processes_of_one_run_share_one_folder(tmp_path: Path) -> None:
    accelerate = (sys.executable, "-m", "accelerate.commands.launch", "--cpu", "--num_processes=2", "--num_machines=1")
    done = launched(tmp_path, *SMALL, command=(*accelerate, "--mixed_precision=no", "--dynamo_backend=no"))
    assert done.returncode == 0, done.stderr
    [folder] = (tmp_path / "runs").iterdir()
    assert (folder / "result.json").exists()


def test_options_may_stand_anywhere(tmp_path: Path) -> None:
    write_yaml(tmp_path / "mine" / "env", "mine", "defaults: [frozen_lake, _self_]\nsize: 3\n")
    done = launched(tmp_path, "seed=1", "--cfg", "job", "env=mine", "--config-dir", str(tmp_path / "mine"), "threads=1")
    assert done.returncode == 0, done.stderr
    shown = yaml.safe_load(done.stdout)
    assert (shown["env"]["size"], shown["seed"], shown["threads"]) == (3, 1, 1)


def test_a_run_that_is_started_with_lists_has_their_species(here: Path) -> None:
    assert main(["evolution.species.algorithm=[grpo,ppo]", *SMALL]) == 0
    [folder] = (here / "runs").iterdir()
    config = yaml.safe_load((folder / "config.yaml").read_text())
    assert list(config["evolution"]["species"]["parts"]) == ["grpo", "ppo"]
    source = yaml.safe_load((folder / "provenance.yaml").read_text())
    assert source["evolution.species.parts.ppo.algorithm.critic._target_"].startswith("conf/algorithm/")
