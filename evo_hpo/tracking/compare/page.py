"""The comparison as one HTML file that needs nothing but itself."""

from __future__ import annotations

import os
from collections.abc import Sequence
from html import escape
from pathlib import Path

from evo_hpo.tracking.compare.arms import BUDGETS, Arm, remarks
from evo_hpo.tracking.compare.statistics import iqm
from evo_hpo.tracking.compare.table import NOTE, rows
from evo_hpo.tracking.report.charts import WIDE, Series, colour, line_chart
from evo_hpo.tracking.report.page import HERE

STEPS = 40  # places at which the curve of a setting is read


def write_comparison(arms: Sequence[Arm], budget: str, target: Path) -> Path:
    """Write the page to `target`, which it replaces at once or not at all."""
    temporary = target.with_name(f".{target.name}.new")
    temporary.write_text(render(arms, budget), encoding="utf-8", errors="replace")
    os.replace(temporary, target)
    return target


def render(arms: Sequence[Arm], budget: str) -> str:
    """The page as text."""
    style = (HERE / "style.css").read_text(encoding="utf-8")
    title = "Runs compared"
    told = "".join(f'<p class="warning">{escape(remark)}</p>' for remark in remarks(arms))
    charts = "".join(_curves(arms, name) for name in BUDGETS)
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{title}</title><style>{style}</style></head><body><header><h1>{title}</h1></header><main>"
        f'<section><h2>Settings</h2>{_table(arms, budget)}<p class="note">{escape(NOTE)}</p>{told}</section>'
        f"<section><h2>Fitness of the best member against what was spent</h2>{_legend(arms)}{charts}"
        '<p class="note">Of each setting the interquartile mean of its runs, as far as all of them went.</p></section>'
        f"<section><h2>Runs</h2>{_runs(arms)}</section></main></body></html>"
    )


def _legend(arms: Sequence[Arm]) -> str:
    chips = "".join(f'<span class="chip {colour(i)}">{escape(arm.label)}</span> ' for i, arm in enumerate(arms))
    return f'<div class="legend always">{chips}</div>'


def _table(arms: Sequence[Arm], budget: str) -> str:
    table = rows(arms, budget)
    heads = "".join(f"<th>{escape(name)}</th>" for name in table[0])
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row.values()) + "</tr>" for row in table)
    return (
        f'<div class="scroll"><table class="numbers"><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'
    )


def _curves(arms: Sequence[Arm], budget: str) -> str:
    series = [Series(arm.label, _curve(arm, budget), (), index) for index, arm in enumerate(arms)]
    return line_chart(f"Fitness by {BUDGETS[budget]}", series, BUDGETS[budget], (0.0, 1.0), size=WIDE)


def _curve(arm: Arm, budget: str) -> list[tuple[float, float]]:
    """(spent, IQM of fitness) at even steps, from where all runs have a generation to where the first ends."""
    started = [run for run in arm.runs if run.curve]
    if not started:
        return []
    first = max(run.curve[0][budget] for run in started)
    last = min(run.curve[-1][budget] for run in started)
    steps = [first + (last - first) * i / (STEPS - 1) for i in range(STEPS)] if last > first else [first]
    return [(spent, iqm(arm.fitness_at(budget, spent)).value) for spent in steps]


def _runs(arms: Sequence[Arm]) -> str:
    lines = []
    for arm in arms:
        for run in arm.runs:
            success = f"{run.success:.3f}" if run.success is not None else "none" if run.finished else "not finished"
            cells = (arm.label, run.seed, success, str(run.folder))
            lines.append("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in cells) + "</tr>")
    head = "".join(f"<th>{name}</th>" for name in ("setting", "seed", "success", "folder"))
    return f'<table class="numbers"><thead><tr>{head}</tr></thead><tbody>{"".join(lines)}</tbody></table>'
