"""Who came from whom: slots over generations with clone arrows, and the way the winner came."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from evo_hpo.evolution.descent import FOUNDERS
from evo_hpo.tracking.progress import number, short_names
from evo_hpo.tracking.report.charts import colour
from evo_hpo.tracking.report.data import Record, RunData
from evo_hpo.tracking.report.data import number as finite
from evo_hpo.tracking.report.descent import moved

CELL, GAP, ROW, LEFT, TOP = 84, 46, 34, 70, 30


def tree(data: RunData) -> str:
    """A row per slot, a column per generation; colour is the family, named after the slot of its founder."""
    generations = sorted({line["generation"] for line in data.lineage})
    slots = sorted({line["member"] for line in data.lineage})
    if not generations:
        return ""
    column = {generation: LEFT + place * (CELL + GAP) for place, generation in enumerate(generations)}
    row = {slot: TOP + place * ROW for place, slot in enumerate(slots)}
    family = {slot: slot for slot in slots}
    on_path = {(line["generation"], line["member"]) for line in data.ancestry()}
    arrows, cells = [], []
    for place, generation in enumerate(generations):
        lines = [line for line in data.lineage if line["generation"] == generation]
        last = place == len(generations) - 1
        for line in lines:
            slot, parent = line["member"], line["parent"]
            winner = (generation, slot) in on_path
            cells.append(_cell(line, column[generation], row[slot], family[slot], winner))
            ended = parent == slot and (last or line.get("event") in ("restarted", "retired"))
            if parent not in row or ended:
                continue
            follows = winner if parent == slot else (generation, parent) in on_path
            goes_on = not last and (generations[place + 1], slot) in on_path
            arrows.append(_arrow(column[generation], row[parent], row[slot], parent != slot, follows and goes_on))
        family = {
            line["member"]: line["member"]
            if line.get("event") in FOUNDERS
            else family.get(line["parent"], line["parent"])
            for line in lines
        }
    heads = [
        f'<text class="tick" x="{x + CELL / 2}" y="16" text-anchor="middle">generation {generation + 1}</text>'
        for generation, x in column.items()
    ]
    names = [f'<text x="{LEFT - 12}" y="{y + 17}" text-anchor="end">slot {slot}</text>' for slot, y in row.items()]
    width, height = LEFT + len(generations) * (CELL + GAP), TOP + len(slots) * ROW + 6
    size = f'width="{width}" height="{height}" viewBox="0 0 {width} {height}"'
    drawing = "".join([*heads, *names, *arrows, *cells])
    return f'<div class="scroll"><svg class="tree" {size} role="img" aria-label="Lineage">{drawing}</svg></div>'


def ancestry(data: RunData) -> str:
    """The winner's generations: where it lived, how good it was, what it was trained with."""
    path = data.ancestry()
    if not path:
        return ""
    names = short_names(sorted({key for line in path for key in _hyperparameters(line)}))
    rows = []
    for line in path:
        used = "".join(f"<td>{escape(number(_hyperparameters(line).get(key)))}</td>" for key in names)
        rows.append(
            f"<tr><td>{line['generation'] + 1}</td><td>{chip(line['member'])}</td>"
            f"<td>{escape(number(finite(line.get('fitness'))))}</td>{used}</tr>"
        )
    heads = "".join(f'<th title="{escape(key)}">{escape(name)}</th>' for key, name in names.items())
    return (
        '<div class="scroll"><table class="numbers"><thead><tr><th>generation</th><th>slot</th><th>fitness</th>'
        f"{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def events(lines: Sequence[Record]) -> str:
    """Whoever did not go on, in plain words."""
    told = filter(moved, lines)
    words = ((line["generation"] + 1, escape(str(line.get("text") or line.get("event")))) for line in told)
    items = "".join(f"<li><span>generation {generation}</span> {text}</li>" for generation, text in words)
    return f'<ul class="events">{items}</ul>' if items else ""


def chip(member: int) -> str:
    """A member's number in its colour."""
    return f'<span class="chip {colour(member)}" data-m="{member}">{member}</span>'


def _hyperparameters(line: Record) -> Record:
    before = line.get("before")
    return before if isinstance(before, dict) else {}


def _cell(line: Record, x: float, y: float, family: int, winner: bool) -> str:
    fitness = finite(line.get("fitness"))
    used = "\n".join(f"{key} = {number(value)}" for key, value in _hyperparameters(line).items())
    tip = f"Slot {line['member']}, generation {line['generation'] + 1}, family {family}\n{line.get('text', '')}\n{used}"
    kind = f"cell {colour(family)}{' winner' if winner else ''}"
    return (
        f'<g class="{kind}" data-m="{line["member"]}"><title>{escape(tip)}</title>'
        f'<rect x="{x}" y="{y}" width="{CELL}" height="24" rx="5"/>'
        f'<text x="{x + CELL / 2}" y="{y + 16.5}" text-anchor="middle">{number(fitness)}</text></g>'
    )


def _arrow(x: float, from_y: float, to_y: float, clone: bool, winner: bool) -> str:
    start, end, y1, y2 = x + CELL, x + CELL + GAP, from_y + 12, to_y + 12
    kind = f"{'clone' if clone else 'stay'}{' winner' if winner else ''}"
    if not clone:
        return f'<path class="{kind}" d="M{start},{y1} H{end}"/>'
    bend = GAP * 0.6
    curve = f"M{start},{y1} C{start + bend},{y1} {end - bend},{y2} {end - 7},{y2}"
    head = f"M{end - 8},{y2 - 4} L{end - 1},{y2} L{end - 8},{y2 + 4} Z"
    return f'<path class="{kind}" d="{curve}"/><path class="{kind} head" d="{head}"/>'
