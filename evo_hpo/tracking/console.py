"""Progress on the terminal: a live table where there is one, plain lines elsewhere."""

from __future__ import annotations

import atexit
import math
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal, TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from evo_hpo.evolution.descent import lost_its_place
from evo_hpo.tracking.core import Alarm, GenerationRecord, RunInfo, Tracker, UpdateRecord
from evo_hpo.tracking.jsonl import METRICS, read_jsonl
from evo_hpo.tracking.judged import judged
from evo_hpo.tracking.progress import Progress, clock, count, enumerated, number, short_names

SECONDS_BETWEEN_LINES = 2.0
WIDTH_WITHOUT_HYPERPARAMETERS = 65  # characters of the member table that are always shown
WIDTH_OF_HYPERPARAMETER = 10  # so many more for each, or its name if that is longer


@dataclass
class ConsoleTracker(Tracker):
    """Shows a person how the run goes.

    Args:
        mode: `live` redraws a table in place; `lines` prints a line per event; `auto` takes `live` on a terminal that
            can redraw and show Unicode, else `lines`; `off` prints nothing.
    """

    mode: Literal["auto", "live", "lines", "off"] = "auto"
    _view: LiveView | LineView | None = field(default=None, init=False, repr=False)
    _metrics: Path | None = field(default=None, init=False, repr=False)

    def start(self, run: RunInfo) -> None:
        self._metrics = run.folder / METRICS
        mode = ("live" if can_redraw(sys.stdout) else "lines") if self.mode == "auto" else self.mode
        if mode != "off":
            self._view = LiveView(run) if mode == "live" else LineView(run)

    def note(self, text: str) -> None:
        if self._view:
            self._view.say(f"{text[:1].upper()}{text[1:]}")

    def update(self, record: UpdateRecord) -> None:
        if self._view:
            self._view.update(record)

    def generation(self, record: GenerationRecord) -> None:
        if self._view:
            self._view.generation(record)

    def alarm(self, alarm: Alarm) -> None:
        if self._view:
            self._view.alarm(alarm)

    def finish(self, result: dict[str, object]) -> None:
        if self._view:
            self._view.close()
            # Of the whole run, also of what another process trained before a resume.
            if self._metrics and self._metrics.is_file() and (told := judged(read_jsonl(self._metrics))):
                self._view.say(told)

    def abort(self, reason: str) -> None:
        if self._view:
            self._view.close()
            self._view.say(f"Stopped: {reason}")


class LineView:
    """One line per event; updates at most every two seconds."""

    def __init__(self, run: RunInfo) -> None:
        self._progress = Progress(run)
        self._said = time.monotonic()
        stages = ", ".join(f"{name} ({generations} x {updates} updates)" for name, generations, updates in run.stages)
        resumed = f", continued after generation {run.resumed_at}" if run.resumed_at else ""
        members = "1 member" if run.population == 1 else f"{run.population} members"
        self.say(f"Run {run.name}: {members}, {stages}{resumed}; folder {run.folder}")

    def update(self, record: UpdateRecord) -> None:
        self._progress.on_update(record)
        if time.monotonic() - self._said < SECONDS_BETWEEN_LINES:
            return
        progress = self._progress
        means = {name: progress.mean(name) for name in ("success", "reward", "loss")}
        parts = [f"{name} {number(mean)}" for name, mean in means.items() if mean is not None]
        left = f", about {clock(progress.remaining)} left" if progress.remaining is not None else ""
        self.say(
            f"{clock(record.seconds)}  generation {record.generation + 1} of {progress.generations}, update "
            f"{progress.update} of {progress.updates}: {', '.join(parts) or 'done'}; "
            f"{count(record.policy_tokens)} tokens{left}"
        )

    def generation(self, record: GenerationRecord) -> None:
        self._progress.on_generation(record)
        start = f"{clock(record.seconds)}  generation {record.generation + 1} of {self._progress.generations} done"
        best = self._progress.best()
        if not best:
            self.say(f"{start}: no member has a fitness")
        else:
            fitness = [m.fitness for m in record.members if math.isfinite(m.fitness)]
            others = f", mean {sum(fitness) / len(fitness):.2f}" if len(fitness) > 1 else ""
            who = enumerated([worth.member for worth in best])
            self.say(
                f"{start}: best {'is' if len(best) == 1 else 'are'} {who} with fitness {best[0].fitness:.2f} "
                f"({best[0].low:.2f} to {best[0].high:.2f}){others}"
            )
        for member in record.members:
            if lost_its_place(member.member, member.parent, member.event):
                self.say(f"      {member.text or f'member {member.member}: {member.event} from {member.parent}'}")

    def alarm(self, alarm: Alarm) -> None:
        self._progress.on_alarm(alarm)
        self.say(f"ALARM {alarm.kind}, generation {alarm.generation + 1}, update {alarm.update + 1}: {alarm.text}")

    def say(self, line: str) -> None:
        say(line)
        self._said = time.monotonic()

    def close(self) -> None:
        """Lines need no tidying up."""


class LiveView:
    """A panel that is redrawn in place, four times a second, by a thread of rich."""

    def __init__(self, run: RunInfo, console: Console | None = None) -> None:
        self._progress = Progress(run)
        self._names = short_names(run.space)
        self._console = console or Console()
        self._live = Live(get_renderable=self.render, console=self._console, refresh_per_second=4, transient=False)
        self._live.start()
        atexit.register(self.close)  # a cursor that stays hidden is worse than a lost table

    def update(self, record: UpdateRecord) -> None:
        self._progress.on_update(record)

    def generation(self, record: GenerationRecord) -> None:
        self._progress.on_generation(record)

    def alarm(self, alarm: Alarm) -> None:
        self._progress.on_alarm(alarm)

    def say(self, line: str) -> None:
        say(line)

    def close(self) -> None:
        self._live.stop()
        atexit.unregister(self.close)

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [self._head(), self._members()]
        for alarm in self._progress.alarms:
            where = f" generation {alarm.generation + 1}, update {alarm.update + 1}: "
            parts.append(Text.assemble((" ! ", "bold red"), (alarm.kind.replace("_", " "), "red"), where, alarm.text))
        return Group(*parts)

    def _head(self) -> RenderableType:
        progress = self._progress
        head = Text.assemble(
            (f" {progress.run.name}", "bold"),
            f"  {progress.stage}",
            f"  generation {min(progress.generation + 1, progress.generations)} of {progress.generations}",
            f"  update {progress.update} of {progress.updates}",
            f"  {clock(progress.seconds)}, {clock(progress.remaining)} left",
            f"  {count(progress.policy_tokens)} tokens",
        )
        bar = ProgressBar(total=max(progress.updates, 1), completed=progress.update, width=self._console.width)
        return Group(head, bar)

    def _members(self) -> Table:
        shown = self._that_fit()
        hidden = len(self._names) - len(shown)
        caption = f"{hidden} more hyperparameters in a wider terminal" if hidden else None
        table = Table(box=SIMPLE_HEAD, padding=(0, 1), pad_edge=True, caption=caption)
        table.add_column("member", justify="right", no_wrap=True)
        table.add_column("fitness", no_wrap=True, min_width=16)
        for column in ("reward", "success", *shown.values()):
            table.add_column(column, justify="right", no_wrap=True, min_width=7)
        table.add_column("last event", no_wrap=True, min_width=13)
        best = [worth.member for worth in self._progress.best()]
        for member, slot in enumerate(self._progress.slots):
            worth = slot.worth
            fitness = f"{worth.fitness:.2f} ({worth.low:.2f}–{worth.high:.2f})" if worth else "-"
            cells = [str(member), fitness, *(number(slot.metrics.get(name)) for name in ("reward", "success"))]
            cells += [number(slot.hyperparameters.get(key)) for key in shown]
            moved = worth is not None and worth.parent != member
            event = "" if worth is None else f"{worth.event} from {worth.parent}" if moved else worth.event
            table.add_row(*cells, event, style="bold green" if member in best else "cyan" if moved else "")
        return table

    def _that_fit(self) -> dict[str, str]:
        """The hyperparameters that the terminal has room for, in the order of the search space."""
        room = self._console.width - WIDTH_WITHOUT_HYPERPARAMETERS
        shown = {}
        for key, name in self._names.items():
            room -= max(WIDTH_OF_HYPERPARAMETER, len(name) + 3)
            if room < 0:
                break
            shown[key] = name
        return shown


def can_redraw(stream: TextIO) -> bool:
    """True where `stream` is a terminal that can move its cursor and show Unicode."""
    unicode = (stream.encoding or "").lower().replace("-", "").startswith("utf")
    return stream.isatty() and unicode and os.environ.get("TERM", "") not in ("", "dumb")


def say(line: str) -> None:
    """Print a line at once; characters that the terminal's encoding lacks become `?`."""
    encoding = sys.stdout.encoding or "ascii"
    print(line.encode(encoding, errors="replace").decode(encoding), flush=True)
