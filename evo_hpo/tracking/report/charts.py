"""Line charts as inline SVG. Colours and fonts come from style.css, so that light and dark both work."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape

from evo_hpo.tracking.progress import number

SMALL, WIDE = (390, 220), (1130, 380)  # width and height in pixels; text keeps its size in both
LEFT, RIGHT, TOP, BOTTOM = 48, 8, 10, 34
COLOURS = 10  # classes m0 … m9 of style.css
POINTS = 300  # a longer curve is averaged down to so many points
DECADES = 10.0  # a positive range wider than this factor gets a logarithmic axis


@dataclass(frozen=True)
class Series:
    """One line. `points` are (x, y); `spans` are (low, high) of each point, or empty."""

    label: str
    points: Sequence[tuple[float, float]]
    spans: Sequence[tuple[float, float]] = field(default=())
    member: int | None = None  # whose colour it has; None draws it in ink, and thicker


@dataclass(frozen=True)
class Level:
    """A horizontal line with its interval."""

    label: str
    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Axis:
    """Maps values to pixels and says where the ticks are."""

    low: float
    high: float
    start: float  # pixel of `low`
    end: float  # pixel of `high`
    log: bool = False
    whole: bool = False  # ticks at whole numbers only

    def __call__(self, value: float) -> float:
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, value))
        share = (value - low) / (high - low) if high > low else 0.5
        return self.start + share * (self.end - self.start)

    def ticks(self) -> list[float]:
        return _log_ticks(self.low, self.high) if self.log else _linear_ticks(self.low, self.high, self.whole)


def line_chart(
    title: str,
    series: Sequence[Series],
    x_label: str,
    limits: tuple[float, float] | None = None,
    level: Level | None = None,
    dots: bool = False,
    labels: Sequence[str] = (),
    log: bool = True,
    size: tuple[int, int] = SMALL,
) -> str:
    """A figure with one line per series; empty where there is nothing to draw.

    Args:
        limits: fixed range of the y axis; None takes the range of the data.
        level: a reference to compare with.
        dots: mark the points, as where there are few.
        labels: names of the values 0, 1, … of a categorical y axis.
        log: take a logarithmic axis where the range of the data spans decades.
    """
    shrunk = [Series(s.label, _shrink(s.points), s.spans, s.member) for s in series if s.points]
    if not shrunk:
        return ""
    xs = [x for s in shrunk for x, _ in s.points]
    ys = [y for s in shrunk for _, y in s.points] + [bound for s in shrunk for span in s.spans for bound in span]
    log = log and limits is None and min(ys) > 0 and max(ys) / min(ys) > DECADES
    low, high = limits or _margin(min(ys), max(ys), log)
    width, height = size
    across = Axis(min(xs), max(xs), LEFT + 12, width - RIGHT - 12, whole=True)
    up = Axis(low, high, height - BOTTOM, TOP, log)
    parts = [_grid(across, up, x_label, labels, size)]
    if level:
        parts.append(_level(level, up, width))
    for order, one in enumerate(shrunk):
        shift = (order - (len(shrunk) - 1) / 2) * 3 if any(s.spans for s in shrunk) else 0.0
        parts.append(_line(one, across, up, shift, dots))
    unit = " <small>log scale</small>" if log else ""
    drawing = f'<svg viewBox="0 0 {width} {height}" role="img" aria-label="{escape(title)}">{"".join(parts)}</svg>'
    return f"<figure><figcaption>{escape(title)}{unit}</figcaption>{drawing}</figure>"


def interval_bars(rows: Sequence[tuple[str, float, float, float, str]]) -> str:
    """Rates from 0 to 1 one below the other: (label, rate, low, high, class)."""
    width, row, left = 560, 40, 70
    axis = Axis(0, 1, left, width - 40)
    parts = []
    for place, (label, rate, low, high, kind) in enumerate(rows):
        y = row * place + 20
        parts.append(
            f'<text x="{left - 12}" y="{y + 4}" text-anchor="end">{escape(label)}</text>'
            f'<line class="track" x1="{axis(0):.1f}" x2="{axis(1):.1f}" y1="{y}" y2="{y}"/>'
            f'<line class="span {kind}" x1="{axis(low):.1f}" x2="{axis(high):.1f}" y1="{y}" y2="{y}"/>'
            f'<circle class="{kind}" cx="{axis(rate):.1f}" cy="{y}" r="6"/>'
        )
    bottom = row * len(rows) + 14
    for tick in (0, 0.25, 0.5, 0.75, 1):
        parts.append(f'<text class="tick" x="{axis(tick):.1f}" y="{bottom}" text-anchor="middle">{tick:.0%}</text>')
    return (
        f'<svg class="bars" viewBox="0 0 {width} {bottom + 8}" role="img" aria-label="Success with 95 % intervals">'
        f"{''.join(parts)}</svg>"
    )


def colour(member: int) -> str:
    """The CSS class that gives a member its colour."""
    return f"m{member % COLOURS}"


def _grid(across: Axis, up: Axis, x_label: str, labels: Sequence[str], size: tuple[int, int]) -> str:
    width, height = size
    parts = []
    for tick in range(len(labels)) if labels else up.ticks():
        y, text = up(tick), labels[int(tick)] if labels else number(float(f"{tick:.10g}"))
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>')
        parts.append(f'<text class="tick" x="{LEFT - 7}" y="{y + 3.5:.1f}" text-anchor="end">{escape(text[:9])}</text>')
    for tick in across.ticks():
        x = across(tick)
        parts.append(f'<text class="tick" x="{x:.1f}" y="{height - BOTTOM + 16}" text-anchor="middle">{tick:g}</text>')
    middle = (LEFT + width - RIGHT) / 2
    parts.append(f'<text class="tick" x="{middle}" y="{height - 3}" text-anchor="middle">{escape(x_label)}</text>')
    return "".join(parts)


def _level(level: Level, up: Axis, width: int) -> str:
    low, high = (min(max(up(bound), up.end), up.start) for bound in (level.low, level.high))
    y = up(level.value)
    box = f'width="{width - RIGHT - LEFT}" height="{max(low - high, 1):.1f}"'
    return (
        f'<rect class="level" x="{LEFT}" y="{high:.1f}" {box}/>'
        f'<line class="level" x1="{LEFT}" x2="{width - RIGHT}" y1="{y:.1f}" y2="{y:.1f}"/>'
        f'<text class="tick" x="{width - RIGHT - 4}" y="{y - 5:.1f}" text-anchor="end">{escape(level.label)}</text>'
    )


def _line(series: Series, across: Axis, up: Axis, shift: float, dots: bool) -> str:
    place = [(across(x) + shift, up(y)) for x, y in series.points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in place)
    parts = [f'<polyline points="{path}"/>']
    for (x, _), (low, high) in zip(place, series.spans, strict=False):
        parts.append(f'<line class="whisker" x1="{x:.1f}" x2="{x:.1f}" y1="{up(low):.1f}" y2="{up(high):.1f}"/>')
    if dots or len(place) == 1:
        for (x, y), (at, value) in zip(place, series.points, strict=True):
            tip = f"{series.label}, {at:g}: {number(value)}"
            parts.append(f'<circle cx="{x:.1f}" cy="{y:.1f}" r="2.6"><title>{escape(tip)}</title></circle>')
    if series.member is None:
        return f'<g class="series main"><title>{escape(series.label)}</title>{"".join(parts)}</g>'
    kind = f'class="series {colour(series.member)}" data-m="{series.member}"'
    return f"<g {kind}><title>{escape(series.label)}</title>{''.join(parts)}</g>"


def _shrink(points: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    """At most `POINTS` points, each the mean of as many neighbours."""
    size = math.ceil(len(points) / POINTS)
    if size <= 1:
        return list(points)
    chunks = [points[start : start + size] for start in range(0, len(points), size)]
    return [(sum(x for x, _ in c) / len(c), sum(y for _, y in c) / len(c)) for c in chunks]


def _margin(low: float, high: float, log: bool) -> tuple[float, float]:
    if log:
        return low / 1.15, high * 1.15
    room = (high - low) * 0.06 or abs(high) * 0.1 or 1.0
    return (0.0 if low == 0 else low - room), high + room


def _linear_ticks(low: float, high: float, whole: bool) -> list[float]:
    if high <= low:
        return [low]
    rough = (high - low) / 5
    size = 10.0 ** math.floor(math.log10(rough))
    step = next(size * factor for factor in (1, 2, 5, 10) if size * factor >= rough)
    if whole:
        step = max(1.0, round(step))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [place * step for place in range(first, last + 1)]


def _log_ticks(low: float, high: float) -> list[float]:
    first, last = math.floor(math.log10(low)), math.ceil(math.log10(high))
    every = max(1, math.ceil((last - first) / 5))
    factors = (1, 2, 5) if last - first <= 2 else (1,)
    return [f * 10.0**e for e in range(first, last + 1, every) for f in factors if low <= f * 10.0**e <= high]
