"""benchmarks/algorithms.py: its runs are what it says, its verdicts follow from numbers, a rerun trains nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

from benchmarks.algorithms import measure, work
from benchmarks.algorithms_plan import ORDERINGS, Run, full, quick
from benchmarks.algorithms_tables import STUDENT_975, interval, tables, verdict
from evo_hpo.config import paths
from evo_hpo.config.compose import compose

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "algorithms.py"
# What the two runs of each ordering may differ in, and nothing else.
ONE_THING = {
    "GRPO without division by the group's spread > with it": {"algorithm.advantage.normalisation.spread"},
    "stale rollouts, ratio per turn (geometric) > per token": {"algorithm.ratio"},
    "stale rollouts, sequence clip (GSPO) > CISPO": {"algorithm.objective", "algorithm.ratio"},
    "GiGPO > GRPO where states repeat": {"algorithm.advantage"},
    "PPO with turn rewards (mixed) > with the outcome alone (sparse)": {
        "granularity.reward",
        "granularity.turn_weight",
        "granularity.turn_decay",
    },
}


def leaves(tree: Any, above: str = "") -> dict[str, Any]:
    if not isinstance(tree, dict):
        return {above: tree}
    return {key: value for name in tree for key, value in leaves(tree[name], f"{above}.{name}").items()}


@pytest.mark.parametrize("ordering", ORDERINGS, ids=lambda ordering: ordering.title)
def test_the_two_runs_of_a_published_ordering_differ_in_one_thing(ordering: Any) -> None:
    better, worse = (
        leaves(compose(Run("frozen_lake", side, 5, 100, 8).settings).values)
        for side in (ordering.better, ordering.worse)
    )
    different = {key[1:] for key in better.keys() | worse.keys() if better.get(key) != worse.get(key)} - {"name"}
    different = {key for key in different if not key.startswith("pipeline.")}  # `${algorithm}` and `${name}` again
    allowed = ONE_THING[ordering.title]
    assert different
    for key in different:
        assert any(key == one or key.startswith(f"{one}.") for one in allowed), key


def test_every_preset_that_learns_from_rollouts_is_compared_and_an_ordering_shares_its_run_with_the_ranking() -> None:
    plan = full(None)
    presets = {path.stem for path in (paths.conf() / "algorithm").glob("*.yaml")}
    assert sorted((*plan.main, *plan.short)) == sorted(presets - {"sft", "reward_model", "progress_model"})
    grpo = plan.preset("grpo", "frozen_lake")
    [with_spread] = [worse for ordering, env, _, worse in plan.pairs() if ordering is ORDERINGS[0] and env == grpo.env]
    assert with_spread != grpo and with_spread.file_name == grpo.file_name
    longer = full(7000).preset("grpo", "frozen_lake")
    assert longer.file_name != grpo.file_name


def test_a_run_stops_after_the_update_that_reaches_its_turns_and_counts_no_turn_of_the_evaluation() -> None:
    small = ("algorithm=grpo", "rollout.tasks=1", "rollout.group_size=2")
    result = measure(Run("frozen_lake", small, seeds=2, turns=30, final_tasks=8))
    assert len(result["success"]) == 2 and result["episodes"] == [8, 8]
    most = 2 * 12  # turns of one update: two episodes of up to 12
    assert 30 <= result["turns"] < 30 + most
    assert result["updates"] > 1 and result["tokens"] >= result["turns"]
    assert measure(Run("frozen_lake", small, seeds=2, turns=0, final_tasks=8))["turns"] == 0


def test_intervals_hold_95_percent_of_students_t() -> None:
    for freedom, quantile in STUDENT_975.items():
        grid = torch.linspace(-quantile, quantile, 200_001, dtype=torch.float64)
        density = torch.distributions.StudentT(float(freedom)).log_prob(grid).exp()
        assert torch.trapezoid(density, grid).item() == pytest.approx(0.95, abs=1e-4), freedom
    assert interval([0.5, 0.7]) == pytest.approx((0.6, 0.6 - 12.706 * 0.1, 0.6 + 12.706 * 0.1))


@pytest.mark.parametrize(
    ("difference", "said"),
    [
        ([0.10, 0.12, 0.08, 0.11, 0.09], "reproduced"),
        ([-0.10, -0.12, -0.08, -0.11, -0.09], "not reproduced"),
        ([0.30, -0.12, 0.08, 0.11, -0.09], "undecided"),
        ([0.0, 0.0, 0.0, 0.0, 0.0], "undecided"),
        ([0.5], "undecided"),
    ],
)
def test_a_verdict_needs_an_interval_on_one_side_of_zero(difference: list[float], said: str) -> None:
    assert verdict(difference) == said


def result_of(*success: float, turns: float = 20.0) -> dict[str, Any]:
    measured = {"success": list(success), "episodes": [8] * len(success), "turns": turns, "held_out": "tasks"}
    return measured | {"tokens": 40.0, "seconds": 1.0, "not_finite": [], "alarms": {}}


def test_rankings_show_losers_and_failures_and_a_failed_run_gives_no_verdict() -> None:
    plan = quick(None)
    runs = {run: result_of(0.25, 0.35) for run in plan.runs()} | {plan.base("frozen_lake"): result_of(0.5, turns=0)}
    failed = "objective=Clipped | is broken"
    results = runs | {plan.preset("ppo", "frozen_lake"): failed, plan.pairs()[0][2]: failed}
    lines = tables(plan, results).splitlines()
    first = lines.index("## frozen_lake: 2 seeds")
    ranking = [line.split(" | ")[0] for line in lines[first : first + 9] if line.startswith("| ")]
    assert ranking == ["| preset", "| **base**", "| grpo", "| ppo"]
    assert "| ppo | failed | | | | | | objective=Clipped / is broken |" in lines
    assert lines[-1].endswith("| no verdict, a run failed: objective=Clipped / is broken |")


@pytest.mark.slow
def test_a_run_that_cannot_be_says_why_and_is_tried_again(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    unknown = Run("frozen_lake", ("algorithm=nothing",), 2, 20, 8)
    illegal = Run("frozen_lake", ("algorithm=ppo", "algorithm.critic=null"), 2, 20, 8)
    results = work([unknown, illegal], tmp_path, jobs=2)
    assert "nothing" in str(results[unknown]) and "needs a critic" in str(results[illegal])
    assert not list(tmp_path.iterdir())
    assert "needs a critic" in capsys.readouterr().out


@pytest.mark.slow
def test_a_rerun_of_the_quick_benchmark_trains_nothing_that_is_there_and_prints_the_same_tables(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--quick", f"--output={tmp_path / 'out'}"]
    first = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    written = (tmp_path / "out" / "tables.md").read_text()
    assert first.startswith("5 runs, 0 of them there already")
    assert "failed" not in written and written in first
    results = sorted((tmp_path / "out").glob("*.json"))
    kept = {path: path.stat().st_mtime_ns for path in results[1:]}
    results[0].unlink()
    second = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert second.startswith("5 runs, 4 of them there already") and "[1/1]" in second
    assert {path: path.stat().st_mtime_ns for path in results[1:]} == kept
    assert without_seconds(second) == without_seconds(first)


def without_seconds(printed: str) -> list[list[str]]:
    """The cells of all tables but those of seconds, which no two runs share."""
    rows = [line.split(" | ") for line in printed.splitlines() if line.startswith("|")]
    return [[cell for place, cell in enumerate(row) if place != 6 or row[0].startswith("| (")] for row in rows]
