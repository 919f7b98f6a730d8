"""Whatever a strategy remembers of earlier generations survives a stop: it decides as one that was never stopped."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from tests.runtime.support import Left, resumed, started

# What makes a strategy decide something in the third generation of so short a run.
STRATEGIES = {
    "gated": ["evolution.strategy.probability=0.5", "evolution.strategy.step_back=0.5"],
    "pb2": ["evolution.strategy.quantile=0.5"],
    "asha": ["evolution.strategy.first_rung=3"],
    "tpe": ["evolution.strategy.trial=1", "evolution.strategy.startup=1"],
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_a_run_that_goes_on_in_the_middle_decides_as_before(name: str, tmp_path: Path) -> None:
    size = ["evolution.population=4", "pipeline.stages.train.generations=4"]
    started(tmp_path / "run", f"evolution={name}", *size, *STRATEGIES[name])
    lineage = [json.loads(line) for line in (tmp_path / "run" / "lineage.jsonl").read_text().splitlines()]
    assert any(line["event"] not in ("kept", "elite") for line in lineage if line["generation"] == 2)
    copy = Path(shutil.copytree(tmp_path / "run", tmp_path / "copy"))
    resumed(copy, "generation=2", "tracker.console=lines")
    Left.by(copy).assert_same(Left.by(tmp_path / "run"))
