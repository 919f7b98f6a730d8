"""benchmarks/rewards.py: its curves are what it says, its readings follow from numbers, every comparison is legal."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks.algorithms_plan import Run
from benchmarks.rewards import measure
from benchmarks.rewards_plan import POINTS, full, quick
from benchmarks.rewards_tables import reading, side, tables
from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from tests.e2e.test_benchmark_algorithms import result_of

SCRIPT = Path(__file__).parents[2] / "benchmarks" / "rewards.py"
RISES, FALLS, NOTHING = [0.1, 0.12, 0.11], [-0.1, -0.12, -0.11], [0.3, -0.1, 0.0]
GUESS = "guess_number"


def test_every_reward_is_compared_in_every_environment_that_has_what_it_needs() -> None:
    plan = full(None)
    cells = plan.cells()
    assert len(cells) == len(set(cells)) == 4 * (6 + 7)  # FrozenLake has no answer for information_gain
    for place, (env, choice) in enumerate(dict.fromkeys((env, choice) for env, choice, _ in cells)):
        algorithm = plan.algorithms[place % len(plan.algorithms)]
        composed = compose(plan.run(choice, algorithm, env, Path("scorers")).settings)
        config = build(composed.values, composed.provenance, composed.choices)
        assert composed.choices["algorithm"] == algorithm and config.evolution.population == plan.seeds
        assert (choice.scorer is not None) == hasattr(config.reward, "path")


def test_a_curve_is_measured_at_equal_distances_on_the_same_episodes_as_what_was_paid() -> None:
    small = ("algorithm=grpo", "rollout.tasks=1", "rollout.group_size=2", "granularity=sparse", "evaluation.tasks=8")
    result = measure(Run(GUESS, small, seeds=2, turns=60, final_tasks=8))
    most = 2 * 7  # turns of one update: two episodes of up to 7
    assert len(result["points"]) == POINTS + 1
    for number, point in enumerate(result["points"]):
        assert 60 * number / POINTS <= point["turns"] < 60 * number / POINTS + most
        assert point["reward"] == point["success"]  # the outcome is 1 for success, and nothing else is paid
    assert result["points"][0]["success"][0] == result["points"][0]["success"][1]  # nobody has learned yet
    assert len(result["kl"]) == len(result["success"]) == 2


def test_a_run_that_measures_no_divergence_says_so() -> None:
    small = ("algorithm=cispo", "rollout.tasks=1", "rollout.group_size=2", "evaluation.tasks=2")
    assert measure(Run(GUESS, small, seeds=1, turns=4, final_tasks=2))["kl"] is None


@pytest.mark.parametrize(
    ("paid", "success", "over_optimised"),
    [(RISES, FALLS, True), (RISES, NOTHING, False), (NOTHING, FALLS, False), (RISES, RISES, False)],
)
def test_over_optimised_is_what_pays_more_and_succeeds_less(
    paid: list[float], success: list[float], over_optimised: bool
) -> None:
    assert ("over-optimised" in reading(paid, success)) == over_optimised
    assert [side(values) for values in (RISES, FALLS, NOTHING)] == [1, -1, 0]


def measured(*success: float) -> dict[str, Any]:
    points = [{"turns": 0.0, "success": [0.5] * len(success), "reward": [1.0] * len(success)}] * (POINTS + 1)
    return result_of(*success) | {"points": points, "kl": None}


def test_what_failed_is_shown_and_a_reward_is_compared_with_the_outcome_seed_by_seed() -> None:
    plan, scorers = quick(None), Path("scorers")
    outcome, model = (plan.run(choice, "grpo", GUESS, scorers) for choice in plan.choices)
    base = plan.base(GUESS)
    about = {(GUESS, "reward_model"): "no group has two episodes"}
    results: dict[Run, Any] = {outcome: measured(0.25, 0.5), model: measured(0.5, 0.75), base: measured(0.5)}
    text = tables(plan, results, about, scorers)
    assert "| guess_number | reward_model | no group has two episodes | | | |" in text
    assert "| grpo | reward model | 0.625 | 0.000 – 1.000 | 0.50 0.75 | +0.250 | +0.250 – +0.250 | better |" in text
    assert "| grpo | reward model | 1.00 to 1.00 |" in text
    failed = tables(plan, results | {model: "there is no scorer"}, about, scorers)
    assert "| grpo | reward model | failed | | | | | | | | there is no scorer |" in failed


@pytest.mark.slow
def test_the_quick_benchmark_trains_a_scorer_once_and_a_rerun_trains_nothing(tmp_path: Path) -> None:
    command = [sys.executable, str(SCRIPT), "--quick", f"--output={tmp_path / 'out'}"]
    first = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    written = (tmp_path / "out" / "tables.md").read_text()
    assert "3 runs, 0 of them there already" in first and "failed" not in first and written in first
    [scorer] = (tmp_path / "out" / "scorers_quick").rglob("scorer.json")
    made = scorer.stat().st_mtime_ns
    second = subprocess.run(command, check=True, capture_output=True, text=True, cwd=tmp_path).stdout
    assert "3 runs, 3 of them there already" in second and written in second
    assert scorer.stat().st_mtime_ns == made
