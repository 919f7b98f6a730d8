"""Against the real client: its offline files are read back, and a small server here stands in for the cloud."""

import json
import os
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from typing import Any

import pytest

from evo_hpo.tracking.core import GenerationRecord, MemberGeneration, Trackers
from evo_hpo.tracking.jsonl import JsonlTracker, read_jsonl
from evo_hpo.tracking.wandb import WandbTracker, choose_mode, spread, stored_id
from tests.tracking.fake_run import run_info
from tests.tracking.wandb_server import serving

KEY = "0123456789abcdef" * 2 + "wandbkey"
ARGUMENT = "given-on-the-command-line"

# W&B keeps its settings for the life of a process, so that each run gets one of its own.
SCRIPT = """
    import sys, time
    from pathlib import Path
    from evo_hpo.tracking.core import GenerationRecord, MemberGeneration, Trackers
    from evo_hpo.tracking.jsonl import JsonlTracker
    from evo_hpo.tracking.wandb import WandbTracker
    from tests.tracking.fake_run import play, run_info
    run = run_info(Path(sys.argv[1]), population=2, generations=2, updates=3, resumed_at=int(sys.argv[2]))
    wandb = WandbTracker({mode!r}, tags=["test"], init_timeout={init_timeout}, finish_timeout={finish_timeout})
    trackers = Trackers([JsonlTracker(), wandb])
    clock = time.monotonic()
    trackers.start(run)
    result = play(trackers, run, first=run.resumed_at)
    print("trained", time.monotonic() - clock, flush=True)
    {before_the_end}
    trackers.finish(result)
"""


def run_script(
    folder: Path, resumed_at: int = 0, mode: str = "auto", init_timeout: float = 20, finish_timeout: float = 20,
    before_the_end: str = "", **environment: str,
) -> subprocess.Popen[str]:  # fmt: skip
    script = folder.parent / f"{folder.name}.py"
    script.write_text(textwrap.dedent(SCRIPT).format(**locals()))
    clean = {name: value for name, value in os.environ.items() if not name.startswith("WANDB")}
    clean |= {"NETRC": str(folder / "no-netrc"), "OMP_NUM_THREADS": "1", "HOME": str(folder.parent)}
    clean["PYTHONPATH"] = str(Path(__file__).parents[2])
    command = [sys.executable, str(script), str(folder), str(resumed_at), f"judge.api_key={ARGUMENT}"]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True, env=clean | environment)


def records(folder: Path, name: str) -> list[dict[str, Any]]:
    """The records of the newest offline file of one W&B run, as W&B's own reader gives them."""
    path = sorted(folder.glob(f"wandb/offline-run-*{name}/*.wandb"))[-1]
    command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(path)]
    output = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return [json.loads(line) for line in output.splitlines()]


def history(lines: list[dict[str, Any]], key: str) -> list[dict[str, Any]]:
    return [line["history"]["item"] for line in lines if line["type"] == "history" and key in line["history"]["item"]]


def test_a_run_without_a_key_is_written_offline_and_can_be_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    out, err = run_script(folder).communicate(timeout=60)
    assert err == ""
    group = f"lake-{stored_id(folder)}"
    metrics = read_jsonl(folder / "metrics.jsonl")

    member = records(folder, "member-1")
    head = next(line["run"] for line in member if line["type"] == "run")
    assert (head["run_id"], head["run_group"], head["job_type"]) == (f"{stored_id(folder)}-member-1", group, "member")
    assert head["display_name"] == "lake member-1" and head["tags"] == ["test"]
    assert head["config"]["update"]["algorithm"] == {"optimizer": {"lr": 1e-3}}
    steps = {line["metric"]["glob_name"]: line["metric"]["step_metric"]
             for line in member if line["type"] == "metric" and "glob_name" in line["metric"]}  # fmt: skip
    assert steps["train/*"] == "update" and steps["fitness/*"] == "policy_tokens"
    rewards = [(line["update"], line["reward"]) for line in metrics if line["kind"] == "update" and line["member"] == 1]
    assert [(item["update"], item["train/reward"]) for item in history(member, "train/reward")] == rewards
    assert len(history(member, "hyperparameters/lr")) == 2

    assert not history(member, "turn/entropy/0/mean") and not history(member, "train/gap_mean"), "few charts"

    population = records(folder, "population")
    entropy = [line["turn/entropy/8+"] for line in metrics if line["kind"] == "update" and line["update"] == 0]
    first = history(population, "turn/entropy/8+/mean")[0]
    assert first["turn/entropy/8+/mean"] == pytest.approx(sum(entropy) / 2)
    assert first["train/gap_mean/mean"] == pytest.approx(0.01)
    fitness = [line["fitness"] for line in metrics if line["kind"] == "generation" and line["generation"] == 1]
    last = history(population, "fitness/best")[-1]
    assert last["fitness/best"] == max(fitness) and last["fitness/mean"] == pytest.approx(sum(fitness) / 2)
    assert last["hyperparameters/lr/min"] <= last["hyperparameters/lr/median"] <= last["hyperparameters/lr/max"]
    summary = {k: v for line in population if line["type"] == "summary" for k, v in line["summary"]["update"].items()}
    assert summary["base"]["success"] == pytest.approx(0.42, abs=0.01)
    table = json.loads(next(folder.glob("wandb/offline-run-*population/files/media/table/*.json")).read_text())
    assert len(table["data"]) == 2 * 2 and "text" in table["columns"]
    assert not (tmp_path / ".local").exists(), "nothing may be written outside the run folder"


def test_a_resumed_run_continues_the_same_wandb_runs(tmp_path: Path) -> None:
    run_script(tmp_path).communicate(timeout=60)
    first = stored_id(tmp_path)
    _, err = run_script(tmp_path, resumed_at=1).communicate(timeout=60)
    assert err == "" and stored_id(tmp_path) == first
    head = next(line["run"] for line in records(tmp_path, "member-0") if line["type"] == "run")
    assert head["run_id"] == f"{first}-member-0" and head["resume"] is True
    assert len(list(tmp_path.glob("wandb/offline-run-*member-0"))) == 2


def test_with_a_key_runs_are_uploaded_and_no_secret_is_written(tmp_path: Path) -> None:
    with serving() as server:
        out, err = run_script(tmp_path, WANDB_BASE_URL=server.url, WANDB_API_KEY=KEY).communicate(timeout=60)
        assert err == "" and out.count("\n") == 1, "W&B prints nothing of its own"
        names = [f"{stored_id(tmp_path)}-{name}" for name in ("population", "member-0", "member-1")]
        assert sorted(server.runs) == sorted(names)
        assert {run["groupName"] for run in server.runs.values()} == {f"lake-{stored_id(tmp_path)}"}
        sent = [json.loads(line) for line in server.lines]
        assert sum("train/loss" in line for line in sent) == 2 * 2 * 3
    written = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert [path for path, content in written.items() if KEY.encode() in content or ARGUMENT.encode() in content] == []


def test_a_server_that_never_answers_costs_training_nothing(tmp_path: Path) -> None:
    with serving() as server:
        server.talking.clear()
        process = run_script(tmp_path, init_timeout=1.5, WANDB_BASE_URL=server.url, WANDB_API_KEY=KEY)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert float(out.split()[1]) < 1
    assert err.startswith("W&B cannot be reached, so its runs are written offline (") and err.count("\n") == 1
    assert len(history(records(tmp_path, "member-0"), "train/loss")) == 2 * 3


@pytest.mark.slow
def test_a_server_that_falls_silent_cannot_hold_up_the_end(tmp_path: Path) -> None:
    with serving() as server:
        process = run_script(
            tmp_path, finish_timeout=3, before_the_end="sys.stdin.readline()",
            WANDB_BASE_URL=server.url, WANDB_API_KEY=KEY,
        )  # fmt: skip
        while len(server.runs) < 3:
            time.sleep(0.1)
            assert process.poll() is None, process.communicate()[1]
        time.sleep(1)
        server.talking.clear()
        clock = time.monotonic()
        out, err = process.communicate("go on\n", timeout=60)
        assert process.returncode == 0
        assert time.monotonic() - clock < 3 + 2  # the time limit, and the way out
    assert "W&B did not take everything in 3 s" in err and "Traceback" not in err
    assert sum(line["kind"] == "update" for line in read_jsonl(tmp_path / "metrics.jsonl")) == 2 * 2 * 3


def test_online_without_a_key_goes_offline_and_never_asks(tmp_path: Path) -> None:
    process = run_script(tmp_path, mode="online")
    out, err = process.communicate(timeout=60)
    assert process.returncode == 0
    assert err == "W&B has no API key, so its runs are written offline; set WANDB_API_KEY or run `wandb login`\n"
    assert list(tmp_path.glob("wandb/offline-run-*population"))


def test_a_folder_that_wandb_cannot_use_is_reported_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = run_info(tmp_path, population=1, generations=1)
    (tmp_path / "wandb").write_text("a file where the folder should be")
    trackers = Trackers([JsonlTracker(), WandbTracker("offline", finish_timeout=5)])
    trackers.start(run)
    trackers.finish({})
    err = capsys.readouterr().err
    assert err.startswith("WandbTracker failed and is left out from here on (") and err.count("\n") == 1


def test_disabled_leaves_nothing(tmp_path: Path) -> None:
    tracker = WandbTracker("disabled")
    tracker.start(run_info(tmp_path))
    tracker.finish({})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("mode", "key", "named", "chosen"),
    [
        ("auto", "", None, "offline"),
        ("auto", KEY, None, "online"),
        ("auto", KEY, "offline", "offline"),
        ("auto", KEY, "disabled", "disabled"),
        ("offline", KEY, None, "offline"),
        ("online", KEY, "offline", "online"),
        ("disabled", KEY, None, "disabled"),
    ],
)
def test_the_mode_follows_the_config_then_the_key(
    mode: Any, key: str, named: str | None, chosen: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    monkeypatch.setenv("WANDB_API_KEY", key)
    monkeypatch.delenv("WANDB_MODE", raising=False)
    if named:
        monkeypatch.setenv("WANDB_MODE", named)
    assert choose_mode(mode) == chosen


def test_a_key_that_wandb_login_stored_counts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "netrc").write_text(f"machine api.wandb.ai\n  login user\n  password {KEY}\n")
    (tmp_path / "netrc").chmod(0o600)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    assert choose_mode("auto") == "online"
    monkeypatch.setenv("WANDB_BASE_URL", "https://another.host")
    assert choose_mode("auto") == "offline"


def test_a_population_counts_the_members_of_each_species() -> None:
    values: list[dict[str, Any]] = [
        {"algorithm": "ppo", "lr": 0.1},
        {"algorithm": "grpo"},
        {"algorithm": "ppo", "lr": 0.3},
    ]
    members = [MemberGeneration(m, 0.5, 0.4, 0.6, own, m, "kept", own, "") for m, own in enumerate(values)]
    record = GenerationRecord("train", 0, 1, members, 1.0, 10, 10)
    assert spread(record, {"algorithm": "algorithm", "lr": "rate"}) == {
        "hyperparameters/algorithm/ppo": 2,
        "hyperparameters/algorithm/grpo": 1,
        "hyperparameters/rate/min": 0.1,
        "hyperparameters/rate/max": 0.3,
        "hyperparameters/rate/median": pytest.approx(0.2),
    }
