"""How the winner's turns differ: a row per metric, a column per turn index, shaded within its row."""

from __future__ import annotations

from collections import defaultdict
from html import escape
from statistics import fmean

from evo_hpo.tracking.progress import number
from evo_hpo.tracking.report.data import RunData
from evo_hpo.tracking.report.data import number as finite
from evo_hpo.tracking.turnwise import INDICES, parsed

SHOWN = {
    "reward": "reward",
    "valid": "share of valid actions",
    "entropy": "entropy, nats a token",
    "kl": "KL to the reference",
    "kl_old": "KL to the start of the update",
    "clip_fraction": "share of clipped tokens",
    "ratio_p99": "99th percentile of the ratio",
    "advantage_std": "spread of the advantage",
    "gap_mean": "sampler gap, nats a token",
}


def by_turn(data: RunData) -> str:
    """The table, of the updates of the winner's last generation; empty where nothing is known by turn."""
    way = data.ancestry()
    winner = way[-1]["member"] if way else data.winner()
    own = [line for line in data.updates if line["member"] == winner and isinstance(line.get("generation"), int)]
    last = way[-1]["generation"] if way else max((line["generation"] for line in own), default=None)
    values: dict[tuple[str, int], list[float]] = defaultdict(list)
    for line in own:
        for name, value in line.items():
            place, known = parsed(name), finite(value)
            if place and known is not None and line["generation"] == last:
                values[place].append(known)
    if not values:
        return ""
    means = {place: fmean(seen) for place, seen in values.items()}
    indices = sorted({index for _, index in means})
    heads = "".join(f"<th>{INDICES[index]}</th>" for index in indices)
    rows = [
        f"<tr><th>{escape(label)}</th>{_cells([means.get((metric, index)) for index in indices])}</tr>"
        for metric, label in SHOWN.items()
        if any(known == metric for known, _ in means)
    ]
    note = "Means over the updates of its last generation; a turn's index counts from 0. The darker, the larger."
    return (
        f'<h3>The winner, turn by turn</h3><p class="note">{note}</p><div class="scroll"><table class="numbers heat">'
        f"<thead><tr><th>turn</th>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )


def _cells(row: list[float | None]) -> str:
    known = [value for value in row if value is not None]
    low, high = min(known), max(known)
    cells = []
    for value in row:
        share = 0.0 if value is None or high == low else (value - low) / (high - low)
        cells.append(f'<td style="--share: {share:.2f}">{escape(number(value))}</td>')
    return "".join(cells)
