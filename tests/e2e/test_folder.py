"""What a run leaves behind: a result with every figure, one folder each, and no secret anywhere."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
import yaml
from safetensors.torch import load_file

from evo_hpo.cli.launch import main
from evo_hpo.runtime.checkpoints import Checkpoints
from tests.runtime.support import quick, started, stored

FIGURES = {"seconds", "peak_rss_mb", "policy_tokens", "environment_turns", "generations", "population", "alarms"}
WANDB_KEY = "0123456789abcdef0123456789abcdef01234567"
HUB_TOKEN = "hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789"
API_KEY = "correct-horse-battery-staple"
TALKATIVE = ["~env", f"+env={{_target_: tests.runtime.worlds.Talkative, api_key: {API_KEY}}}"]


def launchable(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets `main` be called in this process."""
    monkeypatch.chdir(here)
    monkeypatch.setattr(sys, "argv", ["launch.py"])
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("run") / "run"
    started(folder, "tracker.report=true")
    return folder


def test_the_result_has_every_figure(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    assert result.keys() >= FIGURES
    for agent in ("base", "best"):
        assert 0 <= result[agent]["low"] <= result[agent]["success"] <= result[agent]["high"] <= 1
        assert result[agent]["episodes"] == result["final_tasks"] == 6
    assert (result["generations"], result["population"], result["updates"]) == (3, 3, 3)
    assert result["gain"] == pytest.approx(result["best"]["success"] - result["base"]["success"])
    assert 0 < result["seconds"] < 60 and 100 < result["peak_rss_mb"] < 4000
    assert result["environment_turns"] == 3 * 3 * (3 * 4 + 3 * 4) and result["policy_tokens"] > 0


def test_the_schedule_is_that_of_the_best_members_ancestors(run: Path) -> None:
    result = json.loads((run / "result.json").read_text())
    schedule = yaml.safe_load((run / "schedule.yaml").read_text())
    assert [step["generation"] for step in schedule] == [0, 1, 2]
    assert schedule[-1]["member"] == result["best"]["member"]
    assert schedule[-1]["hyperparameters"] == result["best"]["hyperparameters"]
    lineage = [json.loads(line) for line in (run / "lineage.jsonl").read_text().splitlines()]
    for before, after in zip(schedule, schedule[1:], strict=False):
        [event] = [
            line for line in lineage if (line["generation"], line["member"]) == (before["generation"], after["member"])
        ]
        assert event["parent"] == before["member"] and event["after"] == after["hyperparameters"]


def test_the_adapter_in_the_folder_is_the_best_members(run: Path) -> None:
    best = json.loads((run / "result.json").read_text())["best"]["member"]
    weights = load_file(run / "best" / "adapter_model.safetensors")
    total = sum(tensor.double().sum() for tensor in weights.values())
    ours = Checkpoints(run, 3).load().tensors["policy"]
    sums = ours.double().sum(1)
    assert abs(sums[best] - total) < 1e-6
    assert all(abs(sums[other] - total) > 1e-6 for other in range(3) if other != best)


def test_a_folder_says_everything_that_a_person_looks_for(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    names = {path.name for path in run.iterdir()}
    assert names >= {
        "config.yaml",
        "provenance.yaml",
        "metrics.jsonl",
        "lineage.jsonl",
        "episodes.jsonl",
        "result.json",
        "schedule.yaml",
        "report.html",
        "best",
        "checkpoints",
    }
    assert not [name for name in names if name.startswith(".")], "nothing half-written is left"


def test_no_secret_is_printed_when_a_run_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    launchable(tmp_path, monkeypatch)
    keyed = "+env={_target_: tests.runtime.worlds.Talkative, length: 1, always: true, api_key: " + API_KEY + "}"
    assert main(quick("~env", keyed, "tracker.console=lines")) == 2
    printed = capsys.readouterr()
    words = "ConnectionError: the server refused the key <removed>"
    assert printed.err == f"error: not one of 12 episodes of update 0 could be used: {words}\n"
    assert words in printed.out and API_KEY not in printed.out


def test_no_secret_is_written_down_anywhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", WANDB_KEY)
    monkeypatch.setenv("HF_TOKEN", HUB_TOKEN)
    launchable(tmp_path, monkeypatch)
    tags = f"tracker.tags=[mine,{HUB_TOKEN}]"
    settings = ["tracker.report=true", "tracker.console=lines", "tracker.episodes=50", tags]
    assert main(quick(*TALKATIVE, *settings, "hydra.run.dir=run")) == 0
    assert main(["resume=run", "pipeline.stages.train.generations=4", f"env.api_key={API_KEY}"]) == 0
    printed = capsys.readouterr()
    episodes = (tmp_path / "run" / "episodes.jsonl").read_text()
    assert "ConnectionError: the server refused the key <removed>" in episodes
    assert "<removed>" in str(stored(tmp_path / "run"))
    for secret in (WANDB_KEY, HUB_TOKEN, API_KEY):
        assert secret not in printed.out + printed.err
        for path in (path for path in tmp_path.rglob("*") if path.is_file()):
            assert secret.encode() not in path.read_bytes(), path


@pytest.mark.slow
@pytest.mark.parametrize("launcher", ["basic", "joblib"])
def test_every_job_of_a_multirun_has_a_folder_and_a_result_of_its_own(
    launcher: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    launchable(tmp_path, monkeypatch)
    assert main(["-m", f"hydra/launcher={launcher}", "algorithm=grpo,ppo", "seed=1,2", *quick()]) == 0
    [sweep] = (tmp_path / "runs").iterdir()
    folders = [path for path in sweep.iterdir() if path.is_dir()]
    assert len(folders) == 4
    seen = set()
    for folder in folders:
        result = json.loads((folder / "result.json").read_text())
        has_critic = "critic" in Checkpoints(folder, 3).load().tensors
        seen.add((result["seed"], has_critic))
        assert result["generations"] == 3
    assert seen == {(1, False), (1, True), (2, False), (2, True)}
