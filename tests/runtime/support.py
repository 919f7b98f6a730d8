"""Runs in their folders, in this process or in one of their own, and what is left of them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import Tensor

from evo_hpo.config import paths
from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.config.provenance import write
from evo_hpo.runtime.checkpoints import Checkpoints
from evo_hpo.runtime.run import resume, run
from evo_hpo.tracking.core import Alarm, GenerationRecord, Tracker, UpdateRecord
from tests.building import small
from tests.runtime import worlds

LAUNCH = paths.PACKAGE.parent / "launch.py"
QUICK = [
    "plugins=[tests]",
    "~env",
    "+env={_target_: tests.runtime.worlds.Stopping}",
    "evolution.population=3",
    "rollout.tasks=1",
    "evaluation.tasks=4",
    "evaluation.final_tasks=6",
]
THREE = "pipeline.stages.train.generations=3"
# Steps of the environment that this makes: 6 + 4 episodes of the base, then in each generation 3 members x 4 episodes
# of training and as many of evaluation, then 6 episodes of the best; of 3 turns each.
BASE, GENERATION = 30, 72
CLOCKS = ("seconds", "peak_rss_mb")  # what may differ between two runs that are the same


def quick(*overrides: str) -> list[str]:
    """`overrides` on top of those that make a run quick, and of three generations."""
    stages = [] if any(line.startswith("pipeline=") for line in overrides) else [THREE]
    return small(*QUICK, *stages, *overrides)


def started(folder: Path, *overrides: str) -> dict[str, Any]:
    """A quick run in `folder`, in this process. Returns its result."""
    composed = compose(quick(*overrides))
    folder.mkdir(parents=True)
    write(folder, composed.values, composed.provenance)
    config = build(composed.values, composed.provenance, composed.choices)
    worlds.Stopping.steps = 0
    return run(config, composed.values, folder)


def resumed(folder: Path, *overrides: str) -> dict[str, Any]:
    """Go on with the run in `folder`, in this process. Returns its result."""
    worlds.Stopping.steps = 0
    return resume(folder, list(overrides))


def process(arguments: Sequence[str], cwd: Path, command: Sequence[str] = (), **env: str) -> subprocess.Popen[str]:
    """`python launch.py` with these arguments in a process of its own, which Ctrl-C reaches."""
    return subprocess.Popen(
        [*(command or (sys.executable,)), str(LAUNCH), *arguments],
        cwd=cwd,
        env={**os.environ, "PYTHONPATH": str(LAUNCH.parent), **env},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )


def only_folder(run_dir: Path) -> Path:
    [folder] = run_dir.iterdir()
    return folder


@dataclass(frozen=True)
class Left:
    """What a run has left in its folder, without clocks."""

    tensors: dict[str, Tensor]
    progress: dict[str, Any]
    lineage: str
    metrics: list[dict[str, Any]]
    episodes: str
    schedule: str
    result: dict[str, Any]

    @classmethod
    def by(cls, folder: Path) -> Left:
        newest = Checkpoints(folder, keep=3).load()
        metrics = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
        return cls(
            newest.tensors,
            _timeless(newest.state["progress"]),
            (folder / "lineage.jsonl").read_text(),
            [_timeless(line) for line in metrics],
            (folder / "episodes.jsonl").read_text(),
            (folder / "schedule.yaml").read_text(),
            _timeless(json.loads((folder / "result.json").read_text())),
        )

    def assert_same(self, other: Left) -> None:
        """Bit for bit."""
        assert self.tensors.keys() == other.tensors.keys()
        for name, tensor in self.tensors.items():
            assert torch.equal(tensor, other.tensors[name]), name
        assert self.progress == other.progress
        assert self.lineage == other.lineage
        assert self.metrics == other.metrics
        assert self.episodes == other.episodes
        assert self.schedule == other.schedule
        assert self.result == other.result


def _timeless(values: dict[str, Any]) -> dict[str, Any]:
    timeless = {key: value for key, value in values.items() if key not in CLOCKS}
    return {key: _timeless(value) if isinstance(value, dict) else value for key, value in timeless.items()}


def stored(folder: Path, name: str = "config.yaml") -> dict[str, Any]:
    content = yaml.safe_load((folder / name).read_text())
    assert isinstance(content, dict)
    return content


@dataclass
class Recorder(Tracker):
    """A tracker that keeps what it is told."""

    updates: list[UpdateRecord] = field(default_factory=list)
    generations: list[GenerationRecord] = field(default_factory=list)
    alarms: list[Alarm] = field(default_factory=list)

    def update(self, record: UpdateRecord) -> None:
        self.updates.append(record)

    def generation(self, record: GenerationRecord) -> None:
        self.generations.append(record)

    def alarm(self, alarm: Alarm) -> None:
        self.alarms.append(alarm)
