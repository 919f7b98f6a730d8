"""Real processes: two in one folder, Ctrl-C, SIGTERM, kill -9, and several that work on one run."""

from __future__ import annotations

import random
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from evo_hpo.cli.guard import INTERRUPTED
from evo_hpo.runtime.checkpoints import Checkpoints
from evo_hpo.runtime.folder import FolderError
from tests.runtime.support import BASE, GENERATION, Left, process, quick, resumed, started
from tests.runtime.worlds import SIGNAL, SIGNAL_AT

LONG = "pipeline.stages.train.generations=1000"


def wait_for(condition: Callable[[], bool], of: subprocess.Popen[str], seconds: float = 120) -> None:
    """Wait while the process works."""
    end = time.monotonic() + seconds
    while not condition():
        assert of.poll() is None, of.communicate()
        assert time.monotonic() < end, "it takes too long"
        time.sleep(0.01)


def owned(folder: Path, by: int) -> bool:
    lock = folder / "run.lock"
    return lock.exists() and lock.read_text() == str(by)


def ended(run: subprocess.Popen[str]) -> tuple[int, str, str]:
    out, err = run.communicate(timeout=120)
    return run.returncode, out, err


def generations(folder: Path) -> list[int]:
    return Checkpoints(folder, 3).generations()


def test_a_second_process_in_the_folder_is_refused_and_ctrl_c_leaves_a_run_that_goes_on(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    first = process(quick(LONG, "tracker.console=lines", f"hydra.run.dir={folder}"), tmp_path)
    try:
        wait_for(lambda: bool(generations(folder)), first)
        with pytest.raises(FolderError, match=f"is in use by process {first.pid}; wait for it, or stop it first"):
            resumed(folder)
        assert first.poll() is None
        first.send_signal(signal.SIGINT)
        code, _, err = ended(first)
    finally:
        first.kill()
    assert code == INTERRUPTED
    assert err == f"continue with: python launch.py resume={folder}\nstopped by Ctrl-C\n"
    last = generations(folder)[-1]
    result = resumed(folder, f"pipeline.stages.train.generations={last + 1}")
    assert result["generations"] == last + 1


def test_sigterm_stops_as_ctrl_c_does(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    at = {SIGNAL_AT: str(BASE + GENERATION + 5), SIGNAL: "SIGTERM"}
    code, _, err = ended(process(quick(f"hydra.run.dir={folder}"), tmp_path, **at))
    assert code == INTERRUPTED
    assert err == f"continue with: python launch.py resume={folder}\nstopped by SIGTERM\n"
    assert generations(folder) == [1]


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def torchrun(processes: int) -> list[str]:
    port = f"--master_port={free_port()}"
    return [sys.executable, "-m", "torch.distributed.run", f"--nproc_per_node={processes}", port]


def assert_same_run(two: Left, one: Left) -> None:
    """The same decisions, and weights that differ by rounding at most (which Adam enlarges where a gradient is 0)."""
    assert two.tensors.keys() == one.tensors.keys()
    for name, tensor in one.tensors.items():
        assert (two.tensors[name] - tensor).norm() <= 1e-4 * tensor.norm(), name
    assert without_checksums(two.lineage) == without_checksums(one.lineage)
    assert two.schedule == one.schedule and two.episodes == one.episodes
    assert [line["kind"] for line in two.metrics] == [line["kind"] for line in one.metrics], "each line is written once"
    for key in ("base", "best", "policy_tokens", "environment_turns", "generations", "updates"):
        assert two.result[key] == one.result[key]


def without_checksums(lineage: str) -> str:
    return re.sub(r'"checksum": "\w+"', "", lineage)


def test_two_processes_make_the_run_of_one(tmp_path: Path) -> None:
    settings = quick("pipeline.stages.train.generations=2", f"run_dir={tmp_path / 'runs'}")
    code, _, err = ended(process(settings, tmp_path, torchrun(2)))
    assert code == 0, err
    [folder] = (tmp_path / "runs").iterdir()
    started(tmp_path / "one", "pipeline.stages.train.generations=2")
    assert_same_run(Left.by(folder), Left.by(tmp_path / "one"))


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        ["algorithm=grpo", "rollout.tasks=2"],
        ["algorithm=ppo", "rollout.tasks=2"],
        ["algorithm=reinforce", "rollout.tasks=2"],
        ["algorithm=dapo", "rollout.tasks=2"],
        ["algorithm=dpo", "rollout.tasks=2"],
        ["algorithm=sorl", "algorithm.objective.exact=true", "algorithm.minibatches=2", "rollout.tasks=2"],
        ["algorithm=turn_ppo", "algorithm.epochs=2", "algorithm.minibatches=2", "rollout.tasks=2"],
        ["algorithm=ppo", "rollout.group_size=2"],  # two of the processes have no row to train on
        ["pipeline=sft_then_grpo", "pipeline.stages.sft.updates=2", "pipeline.stages.grpo.generations=2"],
    ],
    ids=" ".join,
)
def test_three_processes_make_the_run_of_one(tmp_path: Path, settings: list[str]) -> None:
    settings = [*settings, "learner.micro_tokens=64"]
    code, _, err = ended(process(quick(*settings, f"run_dir={tmp_path / 'runs'}"), tmp_path, torchrun(3)))
    assert code == 0, err
    [folder] = (tmp_path / "runs").iterdir()
    started(tmp_path / "one", *settings)
    assert_same_run(Left.by(folder), Left.by(tmp_path / "one"))


@pytest.mark.slow
def test_a_run_of_two_processes_can_be_stopped_and_resumed_by_two(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    at = {SIGNAL_AT: str((BASE + GENERATION) // 2 + 20), SIGNAL: "SIGKILL"}  # each process steps half of the episodes
    code, _, _ = ended(process(quick(f"hydra.run.dir={folder}"), tmp_path, torchrun(2), **at))
    assert code != 0 and generations(folder) == [1]
    code, _, err = ended(process([f"resume={folder}"], tmp_path, torchrun(2)))
    assert code == 0, err
    started(tmp_path / "one")
    assert_same_run(Left.by(folder), Left.by(tmp_path / "one"))


@pytest.mark.slow
def test_twenty_kills_at_random_moments_change_nothing(tmp_path: Path) -> None:
    settings = [
        "device=cpu",
        "tracker.wandb=disabled",
        "evolution.population=4",
        "evaluation.final_tasks=32",
        "evaluation.tasks=16",
        "rollout.tasks=2",
        "pipeline.stages.train.updates=2",
    ]
    begin = time.monotonic()
    code, _, err = ended(process([*settings, f"hydra.run.dir={tmp_path / 'unbroken'}"], tmp_path))
    assert code == 0, err
    generation = (time.monotonic() - begin) / 8
    folder = tmp_path / "killed"
    stream, kills, resumes = random.Random(0), 0, 0
    while kills < 20:
        there = (folder / "config.yaml").exists()
        run = process([f"resume={folder}"] if there else [*settings, f"hydra.run.dir={folder}"], tmp_path)
        try:
            wait_for(partial(owned, folder, run.pid), run)
            time.sleep(stream.uniform(0, 2.0 * generation))
            run.kill()
            code, _, err = ended(run)
        finally:
            run.kill()
        if code == 0:  # it was faster: go back, so that there is something to kill
            resumes += 1
            Checkpoints(folder, 3).drop_after(max(generations(folder)[0], 1))
            continue
        assert code == -signal.SIGKILL, err
        kills += 1
    code, _, err = ended(process([f"resume={folder}"], tmp_path))
    assert code == 0, err
    assert resumes < 10
    Left.by(folder).assert_same(Left.by(tmp_path / "unbroken"))
