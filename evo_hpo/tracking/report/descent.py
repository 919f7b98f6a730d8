"""Who descends from whom: how fast one line takes over, who gives, and how many lines are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evo_hpo.evolution.descent import FOUNDERS, lost_its_place
from evo_hpo.tracking.report.data import Record


@dataclass(frozen=True)
class Descent:
    """What a lineage says about the population as a whole.

    Attributes:
        lines: after each generation, the number of founders that still have descendants.
        takeover: generations until all members descend from one founder; None where they never did.
        copies: how often a member took the place of another.
        donors: the members that gave most often.
        given: share of all copies that each of them gave.
        untouched: share of selections in which nobody lost its place; None where nobody was ever selected.
    """

    lines: list[int]
    takeover: int | None
    copies: int
    donors: list[int]
    given: float
    untouched: float | None


def descent(lineage: Sequence[Record]) -> Descent:
    """Of the lines of lineage.jsonl; founders are the members of the first generation, and who began from nobody."""
    generations = sorted({int(line["generation"]) for line in lineage})
    founder: dict[int, tuple[int, int]] = {}
    lines: list[int] = []
    donors: Counter[int] = Counter()
    selections, quiet = 0, 0
    for generation in generations:
        present = [line for line in lineage if line["generation"] == generation]
        for line in present:
            founder.setdefault(line["member"], (-1, line["member"]))
        donors.update(line["parent"] for line in present if line["parent"] != line["member"])
        if any(line.get("selected", True) for line in present):
            selections += 1
            quiet += not any(map(moved, present))
        founder = {
            line["member"]: (generation, line["member"])
            if line.get("event") in FOUNDERS
            else founder.get(line["parent"], (-1, line["parent"]))
            for line in present
            if line.get("event") != "retired"
        }
        lines.append(len(set(founder.values())))
    copies = sum(donors.values())
    most = max(donors.values(), default=0)
    alone = [place for place, count in enumerate(lines, 1) if count == 1]
    began = len({line["member"] for line in lineage if line["generation"] == generations[0]}) if generations else 0
    return Descent(
        lines=lines,
        takeover=alone[0] if alone and began > 1 else None,
        copies=copies,
        donors=sorted(member for member, gave in donors.items() if gave == most),
        given=most / copies if copies else 0.0,
        untouched=quiet / selections if selections else None,
    )


def moved(line: Record) -> bool:
    """Whether the member of a line did not go on."""
    return lost_its_place(line["member"], line["parent"], str(line.get("event", "kept")))
