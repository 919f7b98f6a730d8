"""What a run is going to do is said before it does it, and holds."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from evo_hpo.runtime.plan import estimated, planned
from tests.building import config, episode
from tests.runtime.support import started


def test_the_plan_counts_the_episodes_that_are_then_played(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    result = started(tmp_path / "run", "tracker.console=lines", "evaluation.repeats=2")
    plan = planned(
        config("evolution.population=3", "rollout.tasks=1", "evaluation.tasks=4", "evaluation.final_tasks=6")
    )
    assert (plan.training, plan.final) == (2 * 1 * 4 * 3, 6)  # two generations of one update here, three in the run
    lines = [json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()]
    last = max(line["environment_turns"] for line in lines)
    assert (
        last == 3 * (3 * 4 + 3 * 4 * 2) * 3
    )  # 3 generations of 12 episodes to learn from and 24 to select by, 3 turns
    said = capsys.readouterr().out
    assert "Plan: 3 members, 3 generations, 3 updates each; 36 episodes to learn from, 72 to select by, 6 for" in said
    assert "At the pace of the base: about" in said and result["generations"] == 3


def test_the_estimate_goes_by_the_tokens_and_seconds_of_what_was_played() -> None:
    settings = config("evolution=none")
    plan = planned(settings)
    played = [episode(0, g, [([1], [2, 3, 4])]) for g in range(10)]
    text = estimated(settings, played, seconds=20.0)
    assert f"about {3 * plan.episodes} sampled tokens" in text
    assert f"{2 * plan.episodes // 60}:{2 * plan.episodes % 60:02}" in text
    assert estimated(settings, [], 1.0) == ""
