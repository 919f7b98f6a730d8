"""Where a run stands: what the console shows, gathered from the records as they come."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evo_hpo.tracking.core import Alarm, GenerationRecord, MemberGeneration, RunInfo, UpdateRecord

ALARMS_SHOWN = 3
VAGUE = frozenset({"coef", "weight", "scale", "value", "fraction"})  # say nothing without the word before
NAMED_BY_USERS = frozenset({"weights", "parts"})  # what is below them has any name, so they are kept with it


@dataclass
class Slot:
    """The latest that is known of one member."""

    metrics: Mapping[str, float] = field(default_factory=dict)
    hyperparameters: Mapping[str, Any] = field(default_factory=dict)
    worth: MemberGeneration | None = None


class Progress:
    """The state of a run between `start` and the end. Seconds are the run's own, over all its processes."""

    def __init__(self, run: RunInfo) -> None:
        self.run = run
        self.generations = sum(generations for _, generations, _ in run.stages)
        self.updates = sum(generations * updates for _, generations, updates in run.stages)
        self.stage = run.stages[0][0] if run.stages else ""
        self.generation = run.resumed_at  # complete generations
        self.update = _updates_before(run.stages, run.resumed_at)  # updates done
        self.seconds = 0.0
        self.policy_tokens = 0
        self.alarms: list[Alarm] = []
        started = dict(enumerate(run.hyperparameters))
        self.slots = [Slot(hyperparameters=started.get(member, {})) for member in range(run.population)]
        self.present = list(range(run.population))  # members of the last generation
        self._first: tuple[float, int] | None = None  # seconds and update of this process's first record

    def on_update(self, record: UpdateRecord) -> None:
        self.stage, self.update = record.stage, record.update + 1
        self._cost(record)
        for part in record.members:
            self.slots[part.member].metrics = part.metrics

    def on_generation(self, record: GenerationRecord) -> None:
        self.stage, self.generation, self.update = record.stage, record.generation + 1, record.update
        self._cost(record)
        self.present = [member.member for member in record.members]
        for member in record.members:
            slot = self.slots[member.member]
            slot.worth, slot.hyperparameters = member, member.next_hyperparameters

    def on_alarm(self, alarm: Alarm) -> None:
        self.alarms = [*self.alarms, alarm][-ALARMS_SHOWN:]

    @property
    def remaining(self) -> float | None:
        """Seconds left at the pace so far, or None while there is no pace to go by."""
        if self._first is None or self.update <= self._first[1]:
            return None
        pace = (self.seconds - self._first[0]) / (self.update - self._first[1])
        return max(0.0, pace * (self.updates - self.update))

    def best(self) -> list[MemberGeneration]:
        """Those with the highest fitness in the last generation."""
        worths = [worth for member in self.present if (worth := self.slots[member].worth)]
        highest = max((worth.fitness for worth in worths if math.isfinite(worth.fitness)), default=None)
        return [worth for worth in worths if worth.fitness == highest]

    def mean(self, metric: str) -> float | None:
        """Mean of a metric over the members that have it."""
        values = [slot.metrics[metric] for slot in self.slots if metric in slot.metrics]
        finite = [value for value in values if math.isfinite(value)]
        return sum(finite) / len(finite) if finite else None

    def _cost(self, record: UpdateRecord | GenerationRecord) -> None:
        self.seconds, self.policy_tokens = record.seconds, record.policy_tokens
        if self._first is None:
            self._first = (self.seconds, self.update)


def _updates_before(stages: Iterable[tuple[str, int, int]], generation: int) -> int:
    done = 0
    for _, generations, updates in stages:
        here = min(generation, generations)
        done, generation = done + here * updates, generation - here
    return done


def short_names(space: list[str]) -> dict[str, str]:
    """Dotted keys by the fewest last parts that tell them apart: `algorithm.optimizer.lr` is `lr`."""
    names = {}
    for key in space:
        parts = key.split(".")
        least = 2 if parts[-1] in VAGUE or NAMED_BY_USERS.intersection(parts[-2:-1]) else 1
        tails = [".".join(parts[-length:]) for length in range(least, len(parts) + 1)]
        unique = (t for t in tails if sum(other == t or other.endswith("." + t) for other in space) == 1)
        names[key] = next(unique, key)
    return names


def enumerated(members: Sequence[int]) -> str:
    """`member 0`, or `members 0, 1 and 2`."""
    *others, last = map(str, members)
    return f"members {', '.join(others)} and {last}" if others else f"member {last}"


def number(value: Any) -> str:
    """A value in at most about seven characters: three significant digits, or `-` where there is none."""
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return "-"
    if isinstance(value, bool | str) or not isinstance(value, int | float):
        return str(value)
    if isinstance(value, int) and abs(value) < 100_000:
        return str(value)
    if value != 0 and not 1e-3 <= abs(value) < 1e5:
        mantissa, exponent = f"{value:.2e}".split("e")
        return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"
    return f"{value:.3g}" if abs(value) < 1000 else f"{value:.0f}"


def count(value: float) -> str:
    """A large number as people say it: 950, 12.3k, 4.56M."""
    for size, unit in ((1e9, "G"), (1e6, "M"), (1e3, "k")):
        if value >= size:
            return f"{value / size:.3g}{unit}"
    return f"{value:.0f}"


def clock(seconds: float | None) -> str:
    """Seconds as 1:05 or 2:01:05."""
    if seconds is None:
        return "-"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
