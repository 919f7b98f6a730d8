"""Intervals, verdicts and Markdown of `benchmarks/algorithms.py`; nothing here knows what came out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.algorithms_plan import Ordering, Plan, Run
from evo_hpo.tracking.statistics import wilson

# Quantile 0.975 of Student's t by degrees of freedom: the half-width of a 95 % interval in standard errors.
STUDENT_975 = {1: 12.706, 2: 4.303, 3: 3.182, 4: 2.776, 5: 2.571, 6: 2.447, 7: 2.365, 8: 2.306, 9: 2.262}

HELD_OUT = {
    "tasks": "No final task is ever trained on.",
    "seeds": "Final tasks are seeds that are never trained on; other seeds may make the same task, as there are few.",
}

Result = dict[str, Any] | str  # what a run left, or why it failed
Results = Mapping[Run, Result]


def interval(values: Sequence[float]) -> tuple[float, float, float]:
    """(mean, low, high) with a 95 % t interval; the bounds of one value are not known and therefore infinite."""
    mean = statistics.fmean(values)
    if len(values) < 2:
        return mean, -math.inf, math.inf
    half = STUDENT_975[len(values) - 1] * statistics.stdev(values) / math.sqrt(len(values))
    return mean, mean - half, mean + half


def verdict(difference: Sequence[float]) -> str:
    """What the differences, better minus worse and seed by seed, say about a published ordering."""
    _, low, high = interval(difference)
    if low > 0:
        return "reproduced"
    return "not reproduced" if high < 0 else "undecided"


def tables(plan: Plan, results: Results) -> str:
    """The whole report as Markdown."""
    parts = [_preamble(plan)]
    for env in plan.environments:
        rows = [(name, results[plan.preset(name, env)]) for name in plan.main]
        parts.append(_ranking(f"{env}: {plan.seeds} seeds", rows, results[plan.base(env)]))
    if plan.short:
        env = plan.environments[0]
        rows = [(name, results[plan.in_short(name)]) for name in plan.short]
        title = f"{env}: the other presets, {plan.short_seeds} seed{'s' * (plan.short_seeds > 1)} only"
        parts.append(_ranking(title, rows, results[plan.base(env)]))
    pairs = [(ordering, env, results[better], results[worse]) for ordering, env, better, worse in plan.pairs()]
    parts.append(_orderings(plan.orderings, pairs))
    return "\n\n".join(parts) + "\n"


def _preamble(plan: Plan) -> str:
    return (
        "# Algorithms, compared at equal environment turns\n\n"
        "Every run is one population without selection or mutation. Its members are the seeds: they differ in adapters "
        "and sampling noise and share the training tasks. Training stops after the update with which the average "
        f"member has played {plan.turns:,} turns; the turns of the evaluation are not part of that budget. Success is "
        f"measured once, at the end, on {plan.final_tasks} final tasks, the same for all members and all runs. "
        "Intervals are 95 % t intervals over the seeds (the base's: Wilson, over its episodes); they do not cover the "
        "choice of the tasks. CPU seconds are those of training the whole population on one thread."
    )


def _ranking(title: str, rows: Sequence[tuple[str, Result]], base: Result) -> str:
    """Best first, the base among them, failures last."""

    def place(row: tuple[str, Result]) -> float:
        return -statistics.fmean(row[1]["success"]) if isinstance(row[1], dict) else math.inf

    held_out = "" if isinstance(base, str) else f"{HELD_OUT[base['held_out']]}\n\n"
    lines = [
        "| preset | success | 95 % interval | seeds | turns a member | tokens a member | CPU seconds | notes |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, result in sorted([*rows, ("**base**", base)], key=place):
        if isinstance(result, str):
            lines.append(f"| {name} | failed | | | | | | {cell(result)} |")
        else:
            lines.append(_row(name, result))
    return f"## {title}\n\n{held_out}" + "\n".join(lines)


def _row(name: str, result: dict[str, Any]) -> str:
    success = result["success"]
    if result["turns"] == 0:
        episodes = result["episodes"][0]
        mean, low, high = wilson(round(success[0] * episodes), episodes)
        return f"| {name} | {mean:.3f} | {low:.3f} – {high:.3f} | | 0 | 0 | 0 | {episodes} episodes |"
    mean, low, high = interval(success)
    bounds = f"{max(0.0, low):.3f} – {min(1.0, high):.3f}"
    seeds = " ".join(f"{rate:.2f}" for rate in success)
    cost = f"{result['turns']:,.0f} | {result['tokens']:,.0f} | {result['seconds']:.0f}"
    return f"| {name} | {mean:.3f} | {bounds} | {seeds} | {cost} | {notes(result)} |"


def notes(result: dict[str, Any]) -> str:
    """What happened to a run that a reader should know."""
    notes = [f"update of member {member} not finite" for member in result["not_finite"]]
    notes += [f"{count} × {kind.replace('_', ' ')}" for kind, count in sorted(result["alarms"].items())]
    return ", ".join(notes)


def _orderings(orderings: Sequence[Ordering], pairs: Sequence[tuple[Ordering, str, Result, Result]]) -> str:
    letters = {ordering: f"{chr(ord('a') + place)}" for place, ordering in enumerate(orderings)}
    claims = [f"- ({letter}) {ordering.title}. {ordering.published}." for ordering, letter in letters.items()]
    head = [
        "## Published orderings",
        "",
        "Two runs that differ in one thing, their members paired by seed. Reproduced: the 95 % t interval of the "
        "difference lies above 0; not reproduced: below; undecided: it holds 0.",
        "",
    ]
    rows = [
        "",
        "| claim | environment | said to be better | other | difference | by seed | 95 % interval | verdict |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for ordering, env, better, worse in pairs:
        start = f"| ({letters[ordering]}) | {env} |"
        if isinstance(better, str) or isinstance(worse, str):
            reason = better if isinstance(better, str) else str(worse)
            rows.append(f"{start} | | | | | no verdict, a run failed: {cell(reason)} |")
            continue
        difference = [a - b for a, b in zip(better["success"], worse["success"], strict=True)]
        mean, low, high = interval(difference)
        rates = " | ".join(f"{statistics.fmean(result['success']):.3f}" for result in (better, worse))
        seeds = " ".join(f"{one:+.2f}" for one in difference)
        bounds = f"{low:+.3f} – {high:+.3f}"
        rows.append(f"{start} {rates} | {mean:+.3f} | {seeds} | {bounds} | {verdict(difference)} |")
    return "\n".join(head + claims + rows)


def cell(text: str) -> str:
    """`text` as it can stand in a table."""
    return text.replace("|", "/")
