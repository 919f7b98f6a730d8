"""The run's own record: three JSONL files that survive a kill and can be cut back to the last checkpoint."""

from __future__ import annotations

import json
import math
import os
from collections import Counter, defaultdict
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from evo_hpo.tracking.core import Alarm, GenerationRecord, RunInfo, Tracker, UpdateRecord
from evo_hpo.tracking.transcripts import UNSCORED, choose

METRICS, LINEAGE, EPISODES = FILES = ("metrics.jsonl", "lineage.jsonl", "episodes.jsonl")


@dataclass
class JsonlTracker(Tracker):
    """Writes `metrics.jsonl`, `lineage.jsonl` and `episodes.jsonl` into the run folder.

    - metrics: `kind` is update (a line per member; metrics beside the counters), generation (a line per member) or
      alarm.
    - lineage: a line per member and generation: who filled the slot, and which hyperparameters it trained with before
      and after.
    - episodes: transcripts, at most `kept` per generation, split and member; all of those that the reward failed on.

    Every line is handed to the operating system at once and reaches the disk at the end of each generation.
    Call `rewind` before `start` where a run continues from a checkpoint.
    """

    kept: int = 4
    _files: dict[str, TextIOWrapper] = field(default_factory=dict, init=False, repr=False)
    _folder: Path | None = field(default=None, init=False, repr=False)
    _taken: Counter[tuple[int, str, int]] = field(default_factory=Counter, init=False, repr=False)

    def start(self, run: RunInfo) -> None:
        run.folder.mkdir(parents=True, exist_ok=True)
        self._folder = run.folder
        for name in FILES:
            _drop_half_line(run.folder / name)
            self._files[name] = open(run.folder / name, "a", buffering=1, encoding="utf-8")

    def update(self, record: UpdateRecord) -> None:
        for part in record.members:
            head = {"kind": "update", "stage": record.stage, "generation": record.generation, "update": record.update}
            costs = {
                "seconds": round(record.seconds, 3),
                "policy_tokens": record.policy_tokens,
                "environment_turns": record.environment_turns,
            }
            self._write(METRICS, head | {"member": part.member} | costs | _without(part.metrics, head, costs))

    def generation(self, record: GenerationRecord) -> None:
        for member in record.members:
            head = {"stage": record.stage, "generation": record.generation, "update": record.update}
            worth = {"fitness": member.fitness, "low": member.low, "high": member.high}
            costs = {
                "seconds": round(record.seconds, 3),
                "policy_tokens": record.policy_tokens,
                "environment_turns": record.environment_turns,
            }
            self._write(
                METRICS,
                {"kind": "generation"}
                | head
                | {"member": member.member}
                | member.metrics
                | worth
                | {"parent": member.parent, "event": member.event, "hyperparameters": member.hyperparameters}
                | costs,
            )
            self._write(
                LINEAGE,
                {
                    "generation": record.generation,
                    "stage": record.stage,
                    "member": member.member,
                    "event": member.event,
                    "parent": member.parent,
                    "text": member.text,
                    "fitness": member.fitness,
                    "better": member.better,
                    "selected": member.selected,
                    "before": member.hyperparameters,
                    "after": member.next_hyperparameters,
                    "checksum": member.checksum,
                },
            )
        self._sync()

    def episodes(self, generation: int, split: str, episodes: list[dict[str, Any]]) -> None:
        """Keep some of them; `episodes` are dictionaries as `transcripts.transcript` makes them."""
        by_member: dict[int, list[dict[str, Any]]] = defaultdict(list)
        for episode in episodes:
            by_member[int(episode["member"])].append(episode)
        for member, own in sorted(by_member.items()):
            place = (generation, split, member)
            room = len(own) if split == UNSCORED else self.kept - self._taken[place]
            chosen = choose(own, room)
            self._taken[place] += len(chosen)
            for episode in chosen:
                self._write(EPISODES, {"generation": generation, "split": split} | episode)

    def alarm(self, alarm: Alarm) -> None:
        self._write(
            METRICS,
            {
                "kind": "alarm",
                "generation": alarm.generation,
                "update": alarm.update,
                "member": alarm.member,
                "alarm": alarm.kind,
                "text": alarm.text,
            },
        )

    def finish(self, result: dict[str, Any]) -> None:
        self._close()

    def abort(self, reason: str) -> None:
        self._close()

    def offsets(self) -> dict[str, int]:
        """Size of each file in bytes, with everything written so far on disk. A checkpoint stores it for `rewind`."""
        if self._folder is None:
            return dict.fromkeys(FILES, 0)
        self._sync()
        return {name: _size(self._folder / name) for name in FILES}

    def _write(self, name: str, line: Mapping[str, Any]) -> None:
        self._files[name].write(json.dumps(plain(line), allow_nan=False) + "\n")

    def _sync(self) -> None:
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())

    def _close(self) -> None:
        try:
            self._sync()
        finally:
            for file in self._files.values():
                with suppress(OSError):  # what could be written is written; a full disk was reported by the sync
                    file.close()
            self._files = {}


def rewind(folder: Path, offsets: Mapping[str, int]) -> None:
    """Cut the files in `folder` back to `offsets`, so that nothing later than the checkpoint is left.

    A file that `offsets` does not name is emptied: without a checkpoint nothing has happened yet.
    """
    for name in FILES:
        path = folder / name
        if path.exists() and path.stat().st_size > offsets.get(name, 0):
            os.truncate(path, offsets.get(name, 0))


def read_jsonl(path: Path) -> list[dict[str, Any]]:
    """The lines of a JSONL file; a last line that was cut by a kill is left out, a missing file is empty.

    Raises:
        ValueError: if a line other than the last is no JSON object; says which.
    """
    if not path.exists():
        return []
    lines = path.read_bytes().split(b"\n")
    records = []
    for number, line in enumerate(lines, start=1):
        if not line.strip():
            continue
        try:
            record = json.loads(line.decode("utf-8"))
            if not isinstance(record, dict):
                raise ValueError("not an object")
            records.append(record)
        except ValueError as error:
            if number == len(lines):  # no newline after it: a write that was cut
                break
            raise ValueError(f"line {number} of {path.name} is no JSON object; the file was altered") from error
    return records


def plain(value: Any) -> Any:
    """`value` as JSON types: numbers that are not finite become null, arrays lists, and anything else text."""
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # a tensor or an array, also of no dimension
        return plain(value.tolist())
    return str(value)


def _without(metrics: Mapping[str, Any], *taken: Mapping[str, Any]) -> dict[str, Any]:
    """A metric cannot replace a counter of the same name."""
    return {name: value for name, value in metrics.items() if name != "member" and not any(name in t for t in taken)}


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _drop_half_line(path: Path) -> None:
    """Cut what a kill left of a line, or the next line would be glued to it."""
    if not path.exists():
        return
    content = path.read_bytes()
    whole = content.rfind(b"\n") + 1
    if whole < len(content):
        os.truncate(path, whole)
