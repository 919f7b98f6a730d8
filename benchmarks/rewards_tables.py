"""Markdown of `benchmarks/rewards.py`; nothing here knows what came out."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.algorithms_tables import HELD_OUT, Result, Results, cell, interval, notes
from benchmarks.rewards_plan import POINTS, Choice, Plan
from evo_hpo.tracking.statistics import wilson

About = Mapping[tuple[str, str], dict[str, Any] | str]  # (environment, scorer) -> scorer.json, or why there is none
Row = tuple[Choice, str, Result]  # a choice, an algorithm, and what their run left


def side(change: Sequence[float]) -> int:
    """1 where the 95 % interval of paired values lies above 0, -1 below, 0 where it holds 0."""
    _, low, high = interval(change)
    return (low > 0) - (high < 0)


def reading(proxy: Sequence[float], success: Sequence[float]) -> str:
    """What the changes of what was paid and of success, seed by seed, say about over-optimisation."""
    said = {1: "rises", 0: "undecided", -1: "falls"}
    both = f"paid {said[side(proxy)]}, success {said[side(success)]}"
    return f"{both}: **over-optimised**" if side(proxy) > 0 > side(success) else both


def tables(plan: Plan, results: Results, about: About, scorers: Path) -> str:
    """The whole report as Markdown."""
    parts = [_preamble(plan), _scorers(about)]
    for env in plan.environments:
        rows: list[Row] = [
            (choice, algorithm, results[plan.run(choice, algorithm, env, scorers)])
            for algorithm in plan.algorithms
            for choice in plan.choices
            if env in choice.environments
        ]
        parts += [_success(env, rows, results[plan.base(env)]), _curves(env, rows)]
        parts.append(_over_optimisation(env, rows))
    return "\n\n".join(parts) + "\n"


def _preamble(plan: Plan) -> str:
    choices = "\n".join(f"- **{choice.name}**: {choice.about}" for choice in plan.choices)
    return (
        "# Rewards, compared at equal environment turns\n\n"
        "Every run is one population without selection or mutation. Its members are the seeds: they differ in adapters "
        "and sampling noise and share the training tasks. Training stops after the update with which the average "
        f"member has played {plan.turns:,} turns; the turns of the evaluation, and those that scorers were trained "
        f"with, are not part of that budget. Success at the end is on {plan.final_tasks} final tasks, the same for all "
        "runs. Intervals are 95 % t intervals over the seeds; they do not cover the choice of the tasks, nor that of "
        "the scorer, of which there is one per environment. Of 20 comparisons at 95 % one is expected to be wrong. "
        "Every reward runs with the hyperparameters of its preset; none was tuned. RULER and other judges are left "
        "out: they need a language model that answers.\n\n"
        f"{choices}"
    )


def _scorers(about: About) -> str:
    lines = [
        "## The scorers",
        "",
        "Trained once per environment on episodes of the base. The share of held-out comparisons in the right order, "
        "with a Wilson interval over pairs (reward model) or episodes (progress model).",
        "",
        "| environment | scorer | in the right order | 95 % interval | of | trained from |",
        "|---|---|---|---|---|---|",
    ]
    for (env, kind), known in about.items():
        if isinstance(known, str):
            lines.append(f"| {env} | {kind} | {cell(known)} | | | |")
            continue
        held_out = known["pairs in the right order"]
        unit, source = "episodes", f"{known['turns']:,} turns of the base"
        if known["pairs"] is not None:
            unit, source = "pairs", f"{known['pairs']} pairs, those held out included"
        bounds = f"{held_out['low']:.3f} – {held_out['high']:.3f}"
        lines.append(
            f"| {env} | {kind} | {held_out['success']:.3f} | {bounds} | {held_out['episodes']} {unit} | {source} |"
        )
    return "\n".join(lines)


def _success(env: str, rows: Sequence[Row], base: Result) -> str:
    """Per algorithm, every reward, and how it compares with the outcome alone, seed by seed."""
    head = [f"## {env}: success at the end", ""]
    if not isinstance(base, str):
        episodes = base["episodes"][0]
        rate, low, high = wilson(round(base["success"][0] * episodes), episodes)
        head.append(f"{HELD_OUT[base['held_out']]} Base: {rate:.3f} [{low:.3f}, {high:.3f}], {episodes} episodes.")
    head += [
        "",
        "| algorithm | reward | success | 95 % interval | seeds | minus outcome alone | 95 % interval | verdict "
        "| turns a member | CPU seconds | notes |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    outcome = {algorithm: result for choice, algorithm, result in rows if choice.name == "outcome"}
    for choice, algorithm, result in rows:
        if isinstance(result, str):
            head.append(f"| {algorithm} | {choice.name} | failed | | | | | | | | {cell(result)} |")
            continue
        mean, low, high = interval(result["success"])
        seeds = " ".join(f"{rate:.2f}" for rate in result["success"])
        start = f"| {algorithm} | {choice.name} | {mean:.3f} | {max(0.0, low):.3f} – {min(1.0, high):.3f} | {seeds}"
        compared = _compared(result, outcome.get(algorithm, ""), choice)
        cost = f"{result['turns']:,.0f} | {result['seconds']:.0f}"
        head.append(f"{start} | {compared} | {cost} | {notes(result)} |")
    return "\n".join(head)


def _compared(result: dict[str, Any], outcome: Result, choice: Choice) -> str:
    if choice.name == "outcome" or isinstance(outcome, str):
        return " | |"
    difference = [a - b for a, b in zip(result["success"], outcome["success"], strict=True)]
    mean, low, high = interval(difference)
    word = {1: "better", 0: "undecided", -1: "worse"}[side(difference)]
    return f"{mean:+.3f} | {low:+.3f} – {high:+.3f} | {word}"


def _curves(env: str, rows: Sequence[Row]) -> str:
    lines = [
        f"## {env}: learning curves",
        "",
        "Success on the common fitness tasks at equal distances, mean ± half of the 95 % interval.",
        "",
        "| algorithm | reward | " + " | ".join(f"{100 * p // POINTS} % of the turns" for p in range(POINTS + 1)) + " |",
        "|---" * (POINTS + 3) + "|",
    ]
    for choice, algorithm, result in rows:
        if isinstance(result, str):
            continue
        values = [_plus_minus(point["success"]) for point in result["points"]]
        lines.append(f"| {algorithm} | {choice.name} | {' | '.join(values)} |")
    return "\n".join(lines)


def _plus_minus(values: Sequence[float]) -> str:
    mean, low, _ = interval(values)
    return f"{mean:.3f}" if math.isinf(low) else f"{mean:.3f} ± {mean - low:.3f}"


def _over_optimisation(env: str, rows: Sequence[Row]) -> str:
    lines = [
        f"## {env}: what was paid against what was meant",
        "",
        "Rewards that a model gives: what they pay for the episodes of the fitness tasks, and success in the same "
        "episodes, at the end minus at the start, seed by seed. KL in nats a token to the reference, over the last "
        "updates; empty where the algorithm does not measure it.",
        "",
        "| algorithm | reward | paid, start to end | change of it | change of success | reading | KL |",
        "|---|---|---|---|---|---|---|",
    ]
    for choice, algorithm, result in rows:
        if not choice.proxy or isinstance(result, str):
            continue
        first, last = result["points"][0], result["points"][-1]
        ends = " to ".join(f"{statistics.fmean(point['reward']):.2f}" for point in (first, last))
        changes = {
            name: [b - a for a, b in zip(first[name], last[name], strict=True)] for name in ("reward", "success")
        }
        shown = " | ".join(_bounds(change) for change in changes.values())
        said = reading(changes["reward"], changes["success"])
        kl = "" if result["kl"] is None else f"{statistics.fmean(result['kl']):.3f}"
        lines.append(f"| {algorithm} | {choice.name} | {ends} | {shown} | {said} | {kl} |")
    return "\n".join(lines)


def _bounds(change: Sequence[float]) -> str:
    mean, low, high = interval(change)
    return f"{mean:+.3f} [{low:+.3f}, {high:+.3f}]"
