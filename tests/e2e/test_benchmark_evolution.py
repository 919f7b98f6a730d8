"""benchmarks/evolution.py: its arms differ in how they search alone, its readings follow from numbers."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks.evolution import CONTROLS, curves, work, work_controls
from benchmarks.evolution_plan import Plan, Run, full, quick
from benchmarks.evolution_tables import smoothed, tables
from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.evolution.strategies import TPE, Past, Standing, SuccessiveHalving
from evo_hpo.tracking.compare.arms import RunSummary
from evo_hpo.tracking.report.data import RunData

GUESS = "guess_number"
ARMS = ("gated", "random", "truncation", "asha", "tpe")


@pytest.mark.parametrize("plan", [full((GUESS,)), quick((GUESS,))], ids=["full", "quick"])
def test_arms_differ_in_how_they_search_and_in_nothing_else(plan: Plan) -> None:
    configs = {}
    for arm in ARMS:
        composed = compose(plan.run(GUESS, arm, 0).settings)
        configs[arm] = build(composed.values, composed.provenance, composed.choices)
    gated = configs["gated"]
    for arm, config in configs.items():
        assert (config.env, config.reward, config.rollout, config.seed) == (
            gated.env,
            gated.reward,
            gated.rollout,
            gated.seed,
        )
        assert config.pipeline.stages["train"].algorithm == gated.pipeline.stages["train"].algorithm
        assert (config.budget, config.evaluation) == (gated.budget, gated.evaluation), arm
        assert config.evolution.space == gated.evolution.space and config.evolution.spread, arm
    assert [configs[arm].evolution.population for arm in ARMS] == [8, 8, 8, plan.starters, 1]
    tpe, generations = configs["tpe"].evolution.strategy, configs["tpe"].pipeline.stages["train"].generations
    assert isinstance(tpe, TPE) and tpe.trial * plan.trials == generations
    assert tpe.startup < plan.population  # else it would be random search to its end


@pytest.mark.parametrize("plan", [full((GUESS,)), quick((GUESS,))], ids=["full", "quick"])
def test_successive_halving_lasts_as_long_as_the_populations_for_the_same_member_generations(plan: Plan) -> None:
    strategy, rng = SuccessiveHalving(eta=2, first_rung=1), np.random.default_rng(0)

    def cost(members: int) -> int:
        spent, fitness = 0, [place / members for place in range(members)]
        first = Past(fitness, [{}] * members, list(range(members)), ["kept"] * members, [])
        for generation in range(plan.generations):
            spent += len(fitness)
            standing = Standing.of(fitness, generation=generation, past=[first] if generation else [])
            fates = strategy.select(standing, rng)
            fitness = [fitness[m] for m, fate in enumerate(fates) if fate.event != "retired"]
        return spent

    assert cost(plan.starters) <= plan.population * plan.generations < cost(plan.starters + 1)


def test_a_plan_holds_what_the_full_form_promises() -> None:
    plan = full(("frozen_lake", GUESS))
    assert len(plan.runs()) == len(set(plan.runs())) == 2 * (5 + 5 + 3 + 3 + 3)
    assert plan.trials == plan.population and plan.target("frozen_lake") == pytest.approx(0.65)
    same, longer = plan.run(GUESS, "gated", 0), replace(plan, generations=9).run(GUESS, "gated", 0)
    assert same.folder_name == plan.run(GUESS, "gated", 0).folder_name != longer.folder_name


def run_of(
    *generations: list[float], seconds: float = 10.0, tokens: float = 1000.0, success: float = 0.5, **lines: Any
) -> RunSummary:
    """A finished run whose members had these fitnesses; each generation costs as much as the others."""

    def costs(generation: int) -> dict[str, Any]:
        spent = (generation + 1) * tokens
        return {"seconds": (generation + 1) * seconds, "policy_tokens": spent, "environment_turns": spent}

    found: list[dict[str, Any]] = [
        {"generation": g, "member": m, "fitness": fitness, "parent": m, "event": "kept"}
        | costs(g)
        | lines.get(f"g{g}m{m}", {})
        for g, members in enumerate(generations)
        for m, fitness in enumerate(members)
    ]
    amount = len(generations)
    base = {"success": 0.5, "low": 0.4, "high": 0.6, "episodes": 64}
    result: dict[str, Any] = {"best": {"success": success, "low": 0.0, "high": 1.0}, "base": base, "held_out": "seeds"}
    result |= {"seconds": seconds * amount, "policy_tokens": tokens * amount, "generations": amount}
    curve = [{"fitness": max(members), **costs(g)} for g, members in enumerate(generations)]
    return RunSummary(Path("run"), RunData("run", result=result, generations=found), curve)


def test_smoothed_fitness_follows_the_weights_and_not_the_slot() -> None:
    run = run_of([0.2, 0.6], [0.8, 0.6], [0.4, 0.4], g0m0={"event": "cloned", "parent": 1})
    assert [point["fitness"] for point in smoothed(run).curve] == pytest.approx([0.7, 0.6])  # (0.6 + 0.8) / 2, not 0.5
    assert [point["seconds"] for point in smoothed(run).curve] == [20.0, 30.0]
    fresh = run_of([0.2], [0.8], [0.6], g0m0={"event": "restarted"})
    assert [point["fitness"] for point in smoothed(fresh).curve] == pytest.approx(
        [0.7]
    )  # another trial's is not its own


def small(gated: int = 1, random: int = 1, tpe: int = 1) -> Plan:
    return Plan((GUESS,), 8, 4, {"gated": gated, "random": random, "tpe": tpe}, trials=8)


def results_of(plan: Plan, **arms: list[RunSummary | str]) -> dict[Run, RunSummary | str]:
    """What is not given never gets anywhere."""
    return {
        run: found
        for arm, count in plan.seeds.items()
        for run, found in zip(plan.of(GUESS, arm), arms.get(arm, [run_of([0.1])] * count), strict=True)
    }


@pytest.mark.parametrize(
    ("pace", "reached", "verdict"),
    [
        (1.0, [0.9], "**met**. Gated takes 0.10 of it, by seed 0.10"),
        (1.1, [0.9], "**not met**. Gated takes 0.11 of it"),
        (1.0, [0.1], "**met**. Gated takes 0.08 of it, by seed 0.08 (at most"),
    ],
    ids=["a tenth", "more", "TPE never reaches it"],
)
def test_a_tenth_is_measured_until_tpe_reaches_the_target_or_ends(
    pace: float, reached: list[float], verdict: str
) -> None:
    tpe = run_of(*[[0.1]] * 9, reached, *[[0.1]] * 2)
    results = results_of(small(), gated=[run_of([0.9], seconds=pace * 10)], tpe=[tpe])
    assert verdict in tables(small(), results)


def test_a_search_that_never_reaches_the_target_does_not_meet_the_aims() -> None:
    never, soon = run_of([0.1], [0.1]), run_of([0.1], [0.9])
    plan = small(gated=2, random=2, tpe=2)
    text = tables(plan, results_of(plan, gated=[never, never], random=[never, soon], tpe=[soon, soon]))
    assert text.count("**not met**") == 4 and "| gated | 0 of 2 | – | – – | – | – – |" in text


def test_fewer_tokens_than_independent_members_needs_most_seeds() -> None:
    plan, soon, late = small(gated=2, random=2), run_of([0.9], [0.9]), run_of([0.1], [0.9])
    met = tables(plan, results_of(plan, gated=[soon, soon], random=[late, late]))
    assert "fewer tokens than independent members in most seeds: **met**, 2 of 2" in met
    half = tables(plan, results_of(plan, gated=[soon, late], random=[late, late]))
    assert "in most seeds: **not met**, 1 of 2" in half


def test_what_was_extrapolated_is_marked_and_what_failed_is_shown() -> None:
    plan = replace(small(), trials=2)
    tpe = run_of(*[[0.1]] * 8)
    text = tables(plan, results_of(plan, gated=[run_of([0.9])], random=["no | memory"], tpe=[tpe]))
    assert "| sequential TPE | 8,000 | 80; the whole search 320* |" in text  # 8 trials at the pace of 2
    assert "of the wall clock of the whole TPE search 0.03*" in text
    assert "| independent members | failed: no / memory |" in text


@pytest.mark.slow
def test_a_rerun_leaves_finished_runs_alone_and_goes_on_with_the_others(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = Plan((GUESS,), population=2, generations=1, seeds=dict.fromkeys(ARMS, 1), trials=2, tasks=4, final_tasks=8)
    first = work(plan, tmp_path, jobs=2)
    assert "5 runs, 0 of them there already" in capsys.readouterr().out
    runs = [run for run in first.values() if isinstance(run, RunSummary)]
    assert len(runs) == 5 and all(run.success is not None for run in runs)
    page = curves(plan, GUESS, first, tmp_path)
    assert page is not None and "sequential TPE" in page.read_text()
    kept = {run.folder: (run.folder / "result.json").stat().st_mtime_ns for run in runs[1:]}
    (runs[0].folder / "result.json").unlink()
    second = work(plan, tmp_path, jobs=1)
    assert "5 runs, 4 of them there already" in capsys.readouterr().out
    assert {folder: (folder / "result.json").stat().st_mtime_ns for folder in kept} == kept
    assert [point["fitness"] for point in runs[0].curve] == [
        point["fitness"] for run in second.values() if isinstance(run, RunSummary) for point in run.curve
    ][: len(runs[0].curve)]
    assert (runs[0].folder / "result.json").is_file()
    assert "**" in tables(plan, second)
    told = work_controls(plan, second, jobs=1)
    gated = next(run for run in second.values() if isinstance(run, RunSummary) and "-gated-" in run.folder.name)
    assert all((gated.folder / "controls" / name / "result.json").is_file() for name in CONTROLS)
    assert "## Controls of guess_number-gated-0" in told and "one member with the whole budget" in told
