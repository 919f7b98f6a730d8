"""Tables and verdicts of `benchmarks/evolution.py`; nothing here knows what came out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from benchmarks.algorithms_tables import HELD_OUT, cell
from benchmarks.evolution_plan import BASE, LEAD, Plan, Run
from evo_hpo.evolution.descent import FOUNDERS
from evo_hpo.tracking.compare.arms import RunSummary
from evo_hpo.tracking.compare.statistics import ENOUGH, improvement
from evo_hpo.tracking.compare.table import points_or_iqm, shown
from evo_hpo.tracking.report.data import number

Results = Mapping[Run, RunSummary | str]  # what a run left, or why it failed

LABELS = {
    "gated": "gated",
    "random": "independent members",
    "truncation": "truncation",
    "asha": "successive halving",
    "tpe": "sequential TPE",
}
TENTH = 0.1  # of the wall clock of sequential TPE


def tables(plan: Plan, results: Results) -> str:
    """The whole report as Markdown."""
    parts = [_preamble(plan)]
    for env in plan.environments:
        parts += [
            f"## {env}: until the target is reached",
            _target(plan, env),
            _until(plan, env, results, lambda run: run),
            f"## {env}: until the smoothed fitness reaches it",
            "Of every member the mean of this generation and of the one before, of the weights that it then had; "
            "nobody has one in the first generation, or in the first of a trial.",
            _until(plan, env, results, smoothed),
            f"## {env}: at the end",
            _held_out(plan, env, results),
            _final(plan, env, results),
        ]
    aims = [line for env in plan.environments for line in _aims(plan, env, results)]
    return "\n\n".join([*parts, "## Aims", "\n".join(aims)]) + "\n"


def smoothed(run: RunSummary) -> RunSummary:
    """The run with another curve: the best mean of two generations that the same weights lived through."""
    lines = {(line["generation"], line["member"]): line for line in run.data.generations}
    came_from = {
        (generation + 1, slot): None if line["event"] in FOUNDERS else line["parent"]
        for (generation, slot), line in lines.items()
    }
    best: dict[int, tuple[float, dict[str, float]]] = {}
    for (generation, slot), line in sorted(lines.items()):
        before = lines.get((generation - 1, came_from.get((generation, slot))))
        if before is None or number(line["fitness"]) is None or number(before["fitness"]) is None:
            continue
        mean = (line["fitness"] + before["fitness"]) / 2
        if generation not in best or mean > best[generation][0]:
            best[generation] = (mean, line)
    costs = ("policy_tokens", "environment_turns", "seconds")
    return replace(
        run, curve=[{name: line[name] for name in costs} | {"fitness": mean} for mean, line in best.values()]
    )


def _preamble(plan: Plan) -> str:
    G, N = plan.generations, plan.population
    seeds = ", ".join(f"{LABELS[arm]} {count}" for arm, count in plan.seeds.items())
    budgets = " and ".join(f"{plan.budget(env):,} in {env}" for env in plan.environments)
    ran = "all are run" if plan.trials == N else f"{plan.trials} are run, and what is extrapolated from them has a *"
    return (
        "# Ways to search, compared at equal policy tokens\n\n"
        f"GRPO from the shipped base over the default search space. The budget is fixed beforehand, in sampled tokens, "
        f"those of evaluations included: {budgets}; that is {N} members for about {G} generations, and a run ends with "
        f"the generation that comes nearest. Tokens rather than updates, because gated selection plays some "
        f"evaluations twice and successive halving evaluates many that soon retire. Gated, truncation and independent "
        f"members are {N} and begin alike; successive halving begins with {plan.starters}. Sequential TPE trains one "
        f"member for {G} generations and begins anew, {N} times ({ran}); the first trial has the config's own values, "
        f"and TPE takes over from random search after {max(1, N // 2)}. Seeds: {seeds}.\n\n"
        f"Fitness is success on {plan.tasks} common tasks that nobody trains on; the result is success on "
        f"{plan.final_tasks} tasks that nobody trained or selected on, of the member that fitness chose. The fitness "
        "of the best is biased upwards, the more so the more members are measured; that is why there is a smoothed "
        "one. Seconds are wall clock, those of measuring the base included, of one process with one thread. Values "
        f"are in the order of the seeds; – is never; of an even number the median is the upper one. Fewer than "
        f"{ENOUGH} runs are shown as they are, more as "
        "interquartile mean with a 95 % bootstrap interval over runs."
    )


def _target(plan: Plan, env: str) -> str:
    return (
        f"The target, chosen beforehand, is {plan.target(env):.3f}: the base's {BASE[env]:.2f} on these tasks (640 "
        f"episodes) and {LEAD[env]:g} more."
    )


def _until(plan: Plan, env: str, results: Results, curve: Callable[[RunSummary], RunSummary]) -> str:
    target = plan.target(env)
    lines = [
        "| arm | reached | median seconds | seconds | median tokens | tokens |",
        "|---|---|---|---|---|---|",
    ]
    for arm in plan.seeds:
        runs, failures = _found(plan, env, arm, results)
        seconds = [_spent(curve(run), "seconds", target) for run in runs]
        tokens = [_spent(curve(run), "policy_tokens", target) for run in runs]
        reached = sum(map(math.isfinite, seconds))
        columns = f"{_median(seconds)} | {_listed(seconds)} | {_median(tokens)} | {_listed(tokens)}"
        notes = "".join(f" {cell(reason)}" for reason in failures)
        lines.append(f"| {LABELS[arm]}{notes} | {reached} of {len(runs)} | {columns} |")
    return "\n".join(lines)


def _final(plan: Plan, env: str, results: Results) -> str:
    gated = [run.success for run in _found(plan, env, "gated", results)[0] if run.success is not None]
    lines = [
        "| arm | tokens | seconds | best fitness | success | by seed | P(gated is better) |",
        "|---|---|---|---|---|---|---|",
    ]
    for arm in plan.seeds:
        runs, failures = _found(plan, env, arm, results)
        if not runs:
            lines.append(f"| {LABELS[arm]} | failed: {cell(failures[0])} | | | | | |")
            continue
        successes = [run.success for run in runs if run.success is not None]
        fitness = [max(point["fitness"] for point in run.curve) for run in runs if run.curve]
        ahead = "" if arm == "gated" else shown(improvement(gated, successes))
        tokens, seconds = ([run.total(name) for run in runs] for name in ("policy_tokens", "seconds"))
        whole = ""
        if arm == "tpe" and plan.trials < plan.population:
            whole = f"; the whole search {_listed([_whole_search(plan, run) for run in runs])}*"
        by_seed = " ".join(f"{success:.3f}" for success in successes)
        columns = [_listed(tokens), f"{_listed(seconds)}{whole}", points_or_iqm(fitness), points_or_iqm(successes)]
        lines.append(f"| {LABELS[arm]} | {' | '.join([*columns, by_seed, ahead])} |")
    return "\n".join(lines)


def _held_out(plan: Plan, env: str, results: Results) -> str:
    for run in (run for arm in plan.seeds for run in _found(plan, env, arm, results)[0]):
        base = run.data.result["base"]
        return (
            f"{HELD_OUT[run.data.result['held_out']]} Base: {base['success']:.3f} [{base['low']:.3f}, "
            f"{base['high']:.3f}], {base['episodes']} episodes. P(gated is better) counts equals half; it has no "
            f"interval where one side has fewer than {ENOUGH} runs. Best fitness: of any generation."
        )
    return "No run was finished."


def _aims(plan: Plan, env: str, results: Results) -> list[str]:
    """The two aims, with the plain and with the smoothed fitness."""
    lines = []
    for kind, curve in (("fitness", lambda run: run), ("smoothed fitness", smoothed)):
        lines += [_tenth(plan, env, results, kind, curve), _fewer(plan, env, results, kind, curve)]
    return lines


def _tenth(plan: Plan, env: str, results: Results, kind: str, curve: Callable[[RunSummary], RunSummary]) -> str:
    """Gated selection in at most a tenth of the wall clock of sequential TPE, in the middle seed of those of both."""
    target, extrapolated = plan.target(env), plan.trials < plan.population
    ratios, bounds, whole = [], 0, []
    for gated, tpe in _pairs(plan, env, results, "tpe"):
        own, other = (_spent(curve(run), "seconds", target) for run in (gated, tpe))
        search = _whole_search(plan, tpe)
        whole.append(own / search)
        if math.isinf(other) and math.isfinite(own):
            bounds, other = bounds + 1, tpe.total("seconds")  # it takes longer than that, if it ever gets there
        ratios.append(own / other if math.isfinite(own) else math.inf)
    if not ratios:
        return f"- {env}, {kind}, a tenth of the wall clock of sequential TPE: no seed with both."
    middle = statistics.median(ratios)
    at_most = f" (at most, where TPE did not reach it in what was run: {bounds} of {len(ratios)})" if bounds else ""
    if middle <= TENTH:
        verdict = "met"
    else:
        verdict = "open" if bounds and extrapolated else "not met"
    star = "*" if extrapolated else ""
    claim = (
        f"- {env}, {kind}, gated reaches the target in at most a tenth of the wall clock in which sequential TPE does"
    )
    if math.isinf(middle):
        return f"{claim}: **not met**, gated does not reach it in {ratios.count(math.inf)} of {len(ratios)} seeds."
    return (
        f"{claim}: **{verdict}**. Gated takes {_ratio(middle)} of it, by seed {' '.join(map(_ratio, ratios))}"
        f"{at_most}; of the wall clock of the whole TPE search {_ratio(statistics.median(whole))}{star}."
    )


def _fewer(plan: Plan, env: str, results: Results, kind: str, curve: Callable[[RunSummary], RunSummary]) -> str:
    """Gated selection in fewer tokens than independent members, in more than half of the seeds."""
    target = plan.target(env)
    spent = [
        (_spent(curve(gated), "policy_tokens", target), _spent(curve(other), "policy_tokens", target))
        for gated, other in _pairs(plan, env, results, "random")
    ]
    fewer = sum(own < other for own, other in spent)
    # a generation does not cost all arms the same, so that a few tokens less may still be as many generations
    clearly = sum(own < other - plan.budget(env) / plan.generations / 2 for own, other in spent)
    neither = sum(math.isinf(own) and math.isinf(other) for own, other in spent)
    verdict = "met" if fewer > len(spent) / 2 else "not met"
    return (
        f"- {env}, {kind}, gated reaches the target in fewer tokens than independent members in most seeds: "
        f"**{verdict}**, {fewer} of {len(spent)}, by more than half a generation in {clearly}; neither reaches it in "
        f"{neither}."
    )


def _pairs(plan: Plan, env: str, results: Results, arm: str) -> Iterable[tuple[RunSummary, RunSummary]]:
    """The runs of gated selection and of `arm` that have the same seed."""
    for gated, other in zip(plan.of(env, "gated"), plan.of(env, arm), strict=False):
        mine, theirs = results[gated], results[other]
        if isinstance(mine, RunSummary) and isinstance(theirs, RunSummary):
            yield mine, theirs


def _found(plan: Plan, env: str, arm: str, results: Results) -> tuple[list[RunSummary], list[str]]:
    """(runs that were finished, reasons of the others)."""
    found = [results[run] for run in plan.of(env, arm)]
    return [one for one in found if isinstance(one, RunSummary)], [one for one in found if isinstance(one, str)]


def _spent(run: RunSummary, budget: str, target: float) -> float:
    spent = run.spent_until(budget, target)
    return math.inf if spent is None else spent


def _whole_search(plan: Plan, tpe: RunSummary) -> float:
    """Seconds of as many trials as the population has members, at the pace of the generations that were run."""
    return tpe.total("seconds") * plan.population * plan.generations / tpe.data.result["generations"]


def _median(values: list[float]) -> str:
    return _listed([statistics.median_high(values)]) if values else ""


def _listed(values: Iterable[float]) -> str:
    return " ".join("–" if math.isinf(value) else f"{value:,.0f}" for value in values)


def _ratio(value: float) -> str:
    return "–" if math.isinf(value) else f"{value:.2f}"
