"""Who descends from whom: how fast one line takes over, who gives, and how many lines are left."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from evo_hpo.tracking.report.data import Record


@dataclass(frozen=True)
class Descent:
    """What a lineage says about the population as a whole.

    Attributes:
        lines: after each generation, the number of founders that still have descendants.
        takeover: generations until all members descend from one founder; None where they never did.
        copies: how often a member took the place of another.
        donor: the member that gave most often, and the share of all copies that it gave; None without copies.
        untouched: share of generations in which nobody lost its place.
    """

    lines: list[int]
    takeover: int | None
    copies: int
    donor: tuple[int, float] | None
    untouched: float


def descent(lineage: Sequence[Record]) -> Descent:
    """Of the lines of lineage.jsonl; founders are the members of the first generation, and whoever began anew."""
    generations = sorted({int(line["generation"]) for line in lineage})
    founder: dict[int, tuple[int, int]] = {}
    lines: list[int] = []
    donors: Counter[int] = Counter()
    quiet = 0
    for generation in generations:
        present = [line for line in lineage if line["generation"] == generation]
        for line in present:
            founder.setdefault(line["member"], (-1, line["member"]))
        copied = [line for line in present if line["parent"] != line["member"]]
        donors.update(line["parent"] for line in copied)
        quiet += not copied
        founder = {
            line["member"]: (generation, line["member"])
            if line.get("event") == "restarted"
            else founder.get(line["parent"], (-1, line["parent"]))
            for line in present
            if line.get("event") != "retired"
        }
        lines.append(len(set(founder.values())))
    copies = sum(donors.values())
    most = donors.most_common(1)
    alone = [place for place, count in enumerate(lines, 1) if count == 1]
    began = len({line["member"] for line in lineage if line["generation"] == generations[0]}) if generations else 0
    return Descent(
        lines=lines,
        takeover=alone[0] if alone and began > 1 else None,
        copies=copies,
        donor=(most[0][0], most[0][1] / copies) if most else None,
        untouched=quiet / len(generations) if generations else 1.0,
    )
