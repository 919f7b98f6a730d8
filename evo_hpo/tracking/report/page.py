"""Puts the report together: one HTML file that needs nothing but itself."""

from __future__ import annotations

import base64
import hashlib
import os
from collections import defaultdict
from collections.abc import Iterable
from html import escape
from pathlib import Path
from typing import Any

from evo_hpo.config.provenance import leaves, source_of
from evo_hpo.tracking.progress import clock, count, enumerated, number, short_names
from evo_hpo.tracking.report import lineage
from evo_hpo.tracking.report.charts import WIDE, Level, Series, interval_bars, line_chart
from evo_hpo.tracking.report.data import Record, RunData, load, rate, section
from evo_hpo.tracking.report.data import number as finite
from evo_hpo.tracking.report.descent import Descent, descent
from evo_hpo.tracking.report.episodes import browser, text
from evo_hpo.tracking.report.reward import reward
from evo_hpo.tracking.report.turns import by_turn
from evo_hpo.tracking.statistics import gain
from evo_hpo.tracking.turnwise import parsed

HERE = Path(__file__).parent
FIRST_METRICS = ("reward", "success", "loss", "kl", "entropy", "grad_norm")  # shown unfolded, in this order
SPAN_DECADES = ("kl", "grad_norm", "ratio_max", "value_loss")  # the rest reads better on a linear axis
COUNTERS = {"kind", "stage", "generation", "update", "member", "seconds", "policy_tokens", "environment_turns"}


def write_report(folder: Path) -> Path:
    """Write `report.html` into a run folder, from what lies there, and return its path.

    Whatever is missing or cut is named on the page. The file replaces an older report at once or not at all.

    Raises:
        FileNotFoundError: if `folder` holds nothing of a run.
    """
    path = folder / "report.html"
    temporary = folder / ".report.html.new"
    temporary.write_text(render(load(folder)), encoding="utf-8", errors="replace")
    os.replace(temporary, path)
    return path


def render(data: RunData) -> str:
    """The page as text."""
    sections = [
        ("result", "Result", _result(data)),
        ("fitness", "Fitness", _fitness(data)),
        ("hyperparameters", "Hyperparameters", _hyperparameters(data)),
        ("lineage", "Lineage", _lineage(data)),
        ("training", "Training", _training(data)),
        ("reward", "Reward", _or_none(reward(data), "No reward was paid.")),
        ("alarms", "Alarms", _alarms(data)),
        ("transcripts", "Transcripts", browser(data.episodes)),
        ("config", "Configuration", _config(data)),
    ]
    links = "".join(f'<a href="#{name}">{title}</a>' for name, title, _ in sections)
    body = "".join(f'<section id="{name}"><h2>{title}</h2>{content}</section>' for name, title, content in sections)
    script, style = ((HERE / name).read_text(encoding="utf-8") for name in ("script.js", "style.css"))
    # only our own script may run, even if something from outside got past the escaping
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    policy = f"default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-{digest}'; img-src data:"
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        '<meta name="color-scheme" content="light dark">'
        f"<title>{escape(data.name)}</title><style>{style}</style></head><body>"
        f"<header><h1>{escape(data.name)}</h1><nav>{links}</nav>{_legend(data.members)}</header>"
        f"<main>{_notes(data.notes)}{body}</main><script>{script}</script></body></html>"
    )


def _legend(members: list[int]) -> str:
    if len(members) < 2:
        return ""
    chips = "".join(lineage.chip(member).replace("span", "button") for member in members)
    return f'<div class="legend"><span>member</span>{chips}<span class="hint">click to bring one forward</span></div>'


def _notes(notes: list[str]) -> str:
    return "".join(f'<p class="warning">{text(note)}</p>' for note in notes)


def _result(data: RunData) -> str:
    base, best = rate(data.result, "base"), rate(data.result, "best")
    rows = [(name, *value, name) for name, value in (("base", base), ("best", best)) if value]
    parts = []
    if base and best:
        difference, low, high = gain(best, base)
        verdict = "clearly better" if low > 0 else "clearly worse" if high < 0 else "no clear difference"
        winner, unseen = data.winner(), data.result.get("held_out", "tasks")
        measured = data.result.get("measured", "success")
        parts.append(
            f'<div class="headline"><span class="big">{base[0]:.0%} → {best[0]:.0%}</span>'
            f"<span>{text(measured)} on {text(unseen)} never trained or selected on: {100 * difference:+.0f} points "
            f"(95 % interval {100 * low:+.0f} to {100 * high:+.0f}), {verdict}"
            f"{f'; the best is member {winner}' if winner is not None else ''}</span></div>"
        )
    if rows:
        parts.append(interval_bars(rows))
    parts.append(_replay(section(data.result, "replay")))
    facts = (
        ("seconds", clock, "wall clock", "wall clock"),
        ("population", number, "member", "members"),
        ("generations", number, "generation", "generations"),
        ("policy_tokens", count, "sampled token", "sampled tokens"),
        ("environment_turns", count, "environment turn", "environment turns"),
        ("peak_rss_mb", count, "peak memory, MB", "peak memory, MB"),
    )
    known = [
        (show(value), one if value == 1 else many)
        for key, show, one, many in facts
        if (value := finite(data.result.get(key))) is not None
    ]
    alarms = len(data.alarms)
    return "".join(parts) + _tiles([*known, (str(alarms), "alarm" if alarms == 1 else "alarms")])


def _replay(replay: Record) -> str:
    """What a schedule is worth on its own: agents trained along it, with its last values, and the one that found it."""
    arms = section(replay, "arms")
    if not arms:
        return ""
    found = finite(section(replay, "original").get("success"))
    columns = {
        "along the schedule": arms.get("schedule"),
        "with its last values": arms.get("final"),
        "the agent that found it": [] if found is None else [found],
    }
    rows = []
    for name, column in columns.items():
        rates = [value for value in column if finite(value) is not None] if isinstance(column, list) else []
        mean = f"{sum(rates) / len(rates):.3f}" if rates else "not known"
        each = " ".join(f"{value:.3f}" for value in rates)
        rows.append(f"<tr><th>{name}</th><td>{mean}</td><td>{each}</td></tr>")
    head = "<thead><tr><th>trained from scratch</th><th>mean success</th><th>each agent</th></tr></thead>"
    return (
        f"<h3>Replay of {text(replay.get('of'))}</h3>"
        f'<table class="numbers">{head}<tbody>{"".join(rows)}</tbody></table>'
        '<p class="note">Members 0, 2, 4, … follow the schedule, members 1, 3, 5, … keep its last values. Fewer than '
        "five agents of each show no more than points.</p>"
    )


def _fitness(data: RunData) -> str:
    series = []
    for member, lines in _by_member(data.generations):
        rated = [(line, value) for line in lines if (value := finite(line.get("fitness"))) is not None]
        points = [(line["generation"] + 1.0, value) for line, value in rated]
        spans = [(_or(line.get("low"), value), _or(line.get("high"), value)) for line, value in rated]
        series.append(Series(f"member {member}", points, spans, member))
    if len(data.members) > 1:
        way = [(line["generation"] + 1.0, finite(line.get("fitness"))) for line in data.ancestry()]
        series.append(Series("the winner's line", [(at, value) for at, value in way if value is not None]))
    # on the tasks of the curves, which are others than those of the result
    base = rate(section(data.result, "base"), "fitness")
    level = Level("base", *base) if base else None
    measured = str(data.result.get("measured", "success")).capitalize()
    chart = line_chart(
        f"{measured} on the common held-out {'tasks' if measured == 'Success' else 'part'}",
        series,
        "generation",
        (0.0, 1.0),
        level,
        dots=True,
        size=WIDE,
    )
    note = (
        "Whiskers are 95 % intervals. A thin line follows a slot, whose weights change where the lineage shows an "
        "arrow; the bold one follows the winner's weights from slot to slot."
    )
    return _or_none(chart and f'{chart}<p class="note">{note}</p>', "No fitness was recorded.")


def _hyperparameters(data: RunData) -> str:
    trained = [(line, line["before"]) for line in data.lineage if isinstance(line.get("before"), dict)]
    keys = sorted({str(key) for _, used in trained for key in used})
    on_path = [(line["generation"], line["before"]) for line in data.ancestry() if isinstance(line.get("before"), dict)]
    charts = []
    for key, name in short_names(keys).items():
        labels = sorted({str(used[key]) for _, used in trained if finite(used.get(key)) is None and key in used})
        series = [
            Series(
                f"member {member}",
                _curve(((line["generation"], line["before"]) for line in lines), key, labels),
                (),
                member,
            )
            for member, lines in _by_member([line for line, _ in trained])
        ]
        series.append(Series("the winner's line", _curve(on_path, key, labels)))
        limits = (-0.5, len(labels) - 0.5) if labels else None
        charts.append(line_chart(name, series, "generation", limits, dots=True, labels=labels))
    note = "The bold line is the schedule that made the winner; the others are the slots."
    drawn = "".join(charts)
    return _or_none(
        drawn and f'<p class="note">{note}</p><div class="grid">{drawn}</div>', "Nothing evolved in this run."
    )


def _curve(lines: Iterable[tuple[int, Record]], key: str, labels: list[str]) -> list[tuple[float, float]]:
    points = []
    for generation, used in lines:
        value = used.get(key)
        place = float(labels.index(str(value))) if labels and str(value) in labels else finite(value)
        if place is not None:
            points.append((generation + 1.0, place))
    return points


def _lineage(data: RunData) -> str:
    drawing = lineage.tree(data)
    if not drawing:
        return '<p class="none">No lineage was recorded.</p>'
    told = descent(data.lineage)
    note = "Cells show fitness; colour is the family; an arrow copies weights, optimiser state and hyperparameters. "
    return (
        f'<p class="note">{note}The outlined way is the one that led to the winner.</p>{_descent(told)}{drawing}'
        f"<h3>How the winner came to be</h3>{lineage.ancestry(data)}"
        f"<details><summary>Whoever lost its place, in words</summary>{lineage.events(data.lineage)}</details>"
    )


def _descent(told: Descent) -> str:
    """Tiles; each is a number and the rest of its sentence."""
    facts: list[tuple[str, str]] = []
    left = told.lines[-1] if told.lines else 0
    facts.append((str(left), "line of descent left" if left == 1 else "lines of descent left"))
    if told.takeover is not None:
        after = "1 generation" if told.takeover == 1 else f"{told.takeover} generations"
        facts.append((after, "until one line had taken over"))
    elif left > 1:
        facts.append(("No line", "had taken over by the end"))
    facts.append((str(told.copies), "copy" if told.copies == 1 else "copies"))
    if told.donors:
        most = "gave most of them" if len(told.donors) == 1 else "gave most of them, each of these as many"
        facts.append((f"{enumerated(told.donors)} ({told.given:.0%})", most))
    if told.untouched is None:
        facts.append(("No selection", "took place"))
    else:
        facts.append((f"{told.untouched:.0%}", "of selections left everybody in place"))
    return _tiles(facts)


def _tiles(facts: Iterable[tuple[str, str]]) -> str:
    tiles = "".join(f"<div><b>{escape(value)}</b><span>{label}</span></div>" for value, label in facts)
    return f'<div class="tiles">{tiles}</div>'


def _training(data: RunData) -> str:
    known = {name for line in data.updates for name, value in line.items() if finite(value) is not None}
    names = {name for name in known - COUNTERS if parsed(name) is None}
    first = [name for name in FIRST_METRICS if name in names]
    rest = sorted(names.difference(first))
    if not names:
        return '<p class="none">No updates were recorded.</p>'
    folded = (
        f'<details><summary>{len(rest)} more metrics</summary><div class="grid">{_curves(data, rest)}</div></details>'
    )
    note = '<p class="note">The bold line is the mean of the population.</p>' if len(data.members) > 1 else ""
    return f'{note}<div class="grid">{_curves(data, first)}</div>{by_turn(data)}{folded if rest else ""}'


def _curves(data: RunData, names: list[str]) -> str:
    charts = []
    members = _by_member(data.updates)
    for name in names:
        series = []
        at_update: dict[float, list[float]] = defaultdict(list)
        for member, lines in members:
            points = [(line["update"] + 1.0, value) for line in lines if (value := finite(line.get(name))) is not None]
            series.append(Series(f"member {member}", points, (), member))
            for update, value in points:
                at_update[update].append(value)
        if len(members) > 1:
            mean = [(update, sum(values) / len(values)) for update, values in sorted(at_update.items())]
            series.append(Series("mean of the population", mean))
        log = any(name.endswith(ending) for ending in SPAN_DECADES)
        charts.append(line_chart(name.replace("_", " "), series, "update", log=log))
    return "".join(charts)


def _alarms(data: RunData) -> str:
    if not data.alarms:
        return '<p class="none">No alarm was raised.</p>'
    items = "".join(
        f'<li><span class="badge failure">{text(str(line.get("alarm", "")).replace("_", " "))}</span>'
        f"<span>generation {_counted(line.get('generation'))}, update {_counted(line.get('update'))}</span> "
        f"{text(line.get('text'))}</li>"
        for line in data.alarms
    )
    return f'<ul class="events alarms">{items}</ul>'


def _config(data: RunData) -> str:
    if not data.config:
        return '<p class="none">No configuration was recorded.</p>'
    sources = {key: value for key, value in data.provenance.items() if isinstance(value, str)}
    groups: dict[str, list[str]] = defaultdict(list)
    for key, value in leaves(data.config):
        group = key.split(".")[0] if "." in key else ""
        source = source_of(sources, key) or ""
        kind = ' class="changed"' if source.startswith("override") else ""
        groups[group].append(
            f"<tr{kind}><td>{text(key)}</td><td>{text(_plain(value))}</td><td>{text(source)}</td></tr>"
        )
    tables = "".join(
        f"<details{'' if group else ' open'}><summary>{text(group or 'general')} <small>{len(rows)}</small></summary>"
        f'<table class="config"><tbody>{"".join(rows)}</tbody></table></details>'
        for group, rows in sorted(groups.items())
    )
    return f'<p class="note">Values set on the command line are marked.</p>{tables}'


def _by_member(lines: list[Record]) -> list[tuple[int, list[Record]]]:
    grouped: dict[int, list[Record]] = defaultdict(list)
    for line in lines:
        grouped[line["member"]].append(line)
    return sorted(grouped.items())


def _or(value: Any, otherwise: float) -> float:
    known = finite(value)
    return otherwise if known is None else known


def _or_none(content: str, nothing: str) -> str:
    return content or f'<p class="none">{nothing}</p>'


def _counted(value: Any) -> str:
    return str(value + 1) if isinstance(value, int) else "?"


def _plain(value: Any) -> str:
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
