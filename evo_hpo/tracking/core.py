"""What a run tells its trackers. A tracker may be slow or broken; it never stops training (see `Trackers`)."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class RunInfo:
    """What is known before the first update."""

    folder: Path
    name: str
    config: dict[str, Any]  # resolved; secrets already removed
    population: int
    stages: list[tuple[str, int, int]]  # (name, generations, updates per generation)
    space: list[str]  # dotted keys that evolve
    resumed_at: int = 0  # generations that were already complete
    hyperparameters: list[dict[str, Any]] = field(default_factory=list)  # of each member, as training starts


@dataclass(frozen=True)
class MemberUpdate:
    """One member's part of one update."""

    member: int
    metrics: dict[str, float]  # loss, reward, success, kl, entropy, grad_norm, clip_fraction_low/high, ratio_max, …


@dataclass(frozen=True)
class UpdateRecord:
    """One optimiser update of the whole population."""

    stage: str
    generation: int  # counted over all stages, from 0
    update: int  # counted over all stages, from 0
    members: list[MemberUpdate]
    seconds: float  # since the run started, over all its processes and resumes
    policy_tokens: int  # sampled so far, whole population
    environment_turns: int


@dataclass(frozen=True)
class MemberGeneration:
    """A member at the end of a generation: what it was worth, and what became of it."""

    member: int
    fitness: float  # success rate on the common held-out tasks; NaN where it does not count
    low: float  # 95 % Wilson interval of `fitness`
    high: float
    hyperparameters: dict[str, Any]  # that this generation was trained with
    parent: int  # whose weights fill this slot from now on (itself if kept)
    event: str  # an `evolution.strategies.core.Event`
    next_hyperparameters: dict[str, Any]
    text: str  # the decision in plain words
    checksum: str = ""  # sha256 (first 16 hex) of the weights that fill the slot from now on
    metrics: dict[str, float] = field(default_factory=dict)  # of all episodes the generation learned from
    better: float | None = None  # probability that the parent is better than what filled the slot, where it was asked
    selected: bool = True  # whether the strategy was asked about this generation


@dataclass(frozen=True)
class GenerationRecord:
    stage: str
    generation: int
    update: int  # updates done so far
    members: list[MemberGeneration]
    seconds: float
    policy_tokens: int
    environment_turns: int


@dataclass(frozen=True)
class Alarm:
    """Something a person should know now."""

    kind: str  # no_signal | degenerate_text | entropy_collapse | ratio_explosion | not_finite | env_failures | …
    text: str  # a sentence
    generation: int
    update: int
    member: int | None = None


@dataclass
class Tracker:
    """Receives records in order, on the main process only; this one ignores them, others override what they use.

    After a resume, records older than the checkpoint are not sent again.
    """

    def start(self, run: RunInfo) -> None: ...
    def note(self, text: str) -> None: ...
    def update(self, record: UpdateRecord) -> None: ...
    def generation(self, record: GenerationRecord) -> None: ...
    def episodes(self, generation: int, split: str, episodes: list[dict[str, Any]]) -> None: ...
    def alarm(self, alarm: Alarm) -> None: ...
    def finish(self, result: dict[str, Any]) -> None: ...
    def abort(self, reason: str) -> None: ...


@dataclass
class Trackers(Tracker):
    """Sends every record to every tracker; one that raises is reported once, then left out.

    Only `Exception` is caught: Ctrl-C and a shutdown pass through to the run.
    """

    trackers: list[Tracker] = field(default_factory=list)

    def start(self, run: RunInfo) -> None:
        self._send("start", run)

    def note(self, text: str) -> None:
        """A line for a person."""
        self._send("note", text)

    def update(self, record: UpdateRecord) -> None:
        self._send("update", record)

    def generation(self, record: GenerationRecord) -> None:
        self._send("generation", record)

    def episodes(self, generation: int, split: str, episodes: list[dict[str, Any]]) -> None:
        self._send("episodes", generation, split, episodes)

    def alarm(self, alarm: Alarm) -> None:
        self._send("alarm", alarm)

    def finish(self, result: dict[str, Any]) -> None:
        self._send("finish", result)

    def abort(self, reason: str) -> None:
        self._send("abort", reason)

    def _send(self, method: str, *arguments: Any) -> None:
        for tracker in list(self.trackers):
            try:
                getattr(tracker, method)(*arguments)
            except Exception as error:
                self.trackers = [other for other in self.trackers if other is not tracker]
                if method != "abort":
                    with suppress(Exception):  # a last chance to give the terminal or a file back
                        tracker.abort("this tracker failed")
                lines = str(error).strip().splitlines()
                cause = f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__
                print(f"{type(tracker).__name__} failed and is left out from here on ({cause})", file=sys.stderr)
