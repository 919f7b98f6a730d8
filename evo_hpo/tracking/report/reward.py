"""Whether the reward stands for what it should: what was paid against success, and turn rewards against the outcome."""

from __future__ import annotations

from collections import defaultdict
from statistics import fmean

from evo_hpo.tracking.judged import judged
from evo_hpo.tracking.progress import number
from evo_hpo.tracking.report.charts import Level, Series, line_chart
from evo_hpo.tracking.report.data import Record, RunData, section
from evo_hpo.tracking.report.data import number as finite

CALIBRATION = {
    "expected_error": "its probabilities are off by this much on average (ECE)",
    "brier": "mean squared error of its probabilities (Brier)",
    "log_loss": "log loss, nats",
    "confidence": "probability it gives to what it thinks the better one, on average",
}


def reward(data: RunData) -> str:
    """Charts and figures; empty where no reward was paid and no scorer was trained."""
    paid = _mean(data.updates, "update", "outcome")
    correlation = _mean(data.generations, "generation", "turn_outcome_correlation")
    kl, limit = _mean(data.updates, "update", "kl"), _mean(data.updates, "update", "kl_limit")
    asked = [Series(name, _mean(data.updates, "update", f"judge/{key}")) for key, name in JUDGE.items()]
    charts = [
        line_chart("Outcome that was paid", _known(Series("mean outcome", paid)), "update"),
        line_chart(
            "Success in the same episodes",
            _known(Series("success", _mean(data.updates, "update", "success"))),
            "update",
            (0.0, 1.0),
        ),
        line_chart(
            "Rank correlation of turn rewards and outcome",
            _known(Series("Spearman", correlation)),
            "generation",
            (-1.0, 1.0),
            dots=True,
        ),
        line_chart("Distance from the reference, nats a token", _known(Series("KL", kl)), "update", level=_level(limit))
        if limit
        else "",
        line_chart("Answers of the judge, per member and update", _known(*asked), "update"),
    ]
    drawn = "".join(charts) if paid else ""
    note = (
        "Means of the population. An outcome that rises while success falls, or turn rewards that go against the "
        "outcome, say that the reward is being gamed."
    )
    shown = f'<p class="note">{note}</p><div class="grid">{drawn}</div>' if drawn else ""
    shown += f'<p class="note">{told}.</p>' if (told := judged(data.updates)) else ""
    return shown + _parts(data) + _calibration(section(section(data.result, "details"), "calibration"))


PART = "reward/"
JUDGE = {"groups": "groups", "calls": "calls", "cached": "from the cache", "failed": "failed"}


def _parts(data: RunData) -> str:
    """A chart for each part of a reward that has several; parts of a part are among the metrics of the training."""
    names = {name for line in data.updates for name in line if name.startswith(PART) and name.count("/") == 1}
    if len(names) < 2:
        return ""
    means = {name.removeprefix(PART): _mean(data.updates, "update", name) for name in sorted(names)}
    charts = [line_chart(part, _known(Series("mean", mean)), "update", log=False) for part, mean in means.items()]
    note = "What each part gave, before any weight; means of the population."
    return f'<h3>Parts of the reward</h3><p class="note">{note}</p><div class="grid">{"".join(charts)}</div>'


def _calibration(known: Record) -> str:
    rows = [
        f"<tr><th>{words}</th><td>{number(value)}</td></tr>"
        for name, words in CALIBRATION.items()
        if (value := finite(known.get(name))) is not None
    ]
    if not rows:
        return ""
    return f'<h3>Calibration on the final pairs</h3><table class="numbers"><tbody>{"".join(rows)}</tbody></table>'


def _mean(lines: list[Record], counter: str, name: str) -> list[tuple[float, float]]:
    """(counter + 1, mean over members) wherever the metric is known."""
    values: dict[int, list[float]] = defaultdict(list)
    for line in lines:
        if (value := finite(line.get(name))) is not None:
            values[line[counter]].append(value)
    return [(place + 1.0, fmean(seen)) for place, seen in sorted(values.items())]


def _known(*series: Series) -> list[Series]:
    return [one for one in series if one.points]


def _level(limit: list[tuple[float, float]]) -> Level | None:
    return Level("limit", limit[-1][1], limit[-1][1], limit[-1][1]) if limit else None
