"""Reads what a run left in its folder. Anything may be missing or cut; what is, is said in `notes`."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from evo_hpo.tracking.jsonl import EPISODES, LINEAGE, METRICS, read_jsonl
from evo_hpo.tracking.secrets import scrub

Record = dict[str, Any]
SCHEDULE = "schedule.yaml"


@dataclass
class RunData:
    """The content of a run folder. Generations and updates are counted from 0 here, and from 1 on the page."""

    name: str
    config: Record = field(default_factory=dict)
    provenance: Record = field(default_factory=dict)
    result: Record = field(default_factory=dict)
    updates: list[Record] = field(default_factory=list)  # a line per member and update
    generations: list[Record] = field(default_factory=list)  # a line per member and generation
    alarms: list[Record] = field(default_factory=list)
    lineage: list[Record] = field(default_factory=list)
    schedule: list[Record] = field(default_factory=list)  # a line per generation of the delivered agent
    episodes: list[Record] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    @property
    def members(self) -> list[int]:
        return sorted({int(line["member"]) for line in [*self.updates, *self.generations, *self.lineage]})

    def winner(self) -> int | None:
        """The member that the result names, else the fittest of the last generation, else none."""
        named = section(self.result, "best").get("member")
        if isinstance(named, int):
            return named
        last = max((line["generation"] for line in self.generations), default=None)
        final = [line for line in self.generations if line["generation"] == last]
        rated = [line for line in final if number(line.get("fitness")) is not None]
        return max(rated, key=lambda line: float(line["fitness"]))["member"] if rated else None

    def ancestry(self) -> list[Record]:
        """The lineage lines along which the winner's weights came down since they began, first generation first.

        Those of the agent that the result is about, which need not be of the last generation; without a result, of the
        fittest of the last generation.
        """
        by_place = {(line["generation"], line["member"]): line for line in self.lineage}
        if self.schedule and self.result:
            places = ((step["generation"], step["member"]) for step in self.schedule)
            return [by_place[place] for place in places if place in by_place]
        slot = self.winner()
        path: list[Record] = []
        for generation in sorted({line["generation"] for line in self.lineage}, reverse=True):
            filled = by_place.get((generation, slot))
            source = by_place.get((generation, filled["parent"])) if filled else None
            if source is None or (filled and path and filled.get("event") == "restarted"):
                break
            path.append(source)
            slot = source["member"]
        return path[::-1]


def load(folder: Path) -> RunData:
    """Read a run folder.

    Raises:
        FileNotFoundError: if the folder does not exist or holds nothing of a run.
    """
    names = ("config.yaml", "provenance.yaml", "result.json", METRICS, LINEAGE, EPISODES)
    if not any((folder / name).exists() for name in names):
        raise FileNotFoundError(f"{folder} is no run folder: it has none of {', '.join(names)}")
    notes: list[str] = []
    config = _mapping(folder / "config.yaml", notes)
    data = RunData(
        name=str(config.get("name") or folder.resolve().name),
        config=scrub(config),
        provenance=scrub(_mapping(folder / "provenance.yaml", notes)),
        result=scrub(_mapping(folder / "result.json", notes)),
        notes=notes,
    )
    metrics = _lines(folder / METRICS, notes)
    data.updates = list(_with(metrics, "update", "update", "member"))
    data.generations = list(_with(metrics, "generation", "generation", "member"))
    data.alarms = [line for line in metrics if line.get("kind") == "alarm"]
    data.schedule = list(_with(_steps(folder / SCHEDULE, notes), None, "generation", "member"))
    data.lineage = list(_with(_lines(folder / LINEAGE, notes), None, "generation", "member", "parent"))
    data.episodes = list(_with(_lines(folder / EPISODES, notes), None, "generation", "member"))
    if (folder / METRICS).exists() and not data.result:
        notes.append("There is no result yet: the run was stopped, or it is still going on.")
    return data


def number(value: Any) -> float | None:
    """`value` as a finite number, or None."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        return None
    return float(value)


def section(record: Record, key: str) -> Record:
    """The mapping under `key`, empty if there is none."""
    value = record.get(key)
    return value if isinstance(value, dict) else {}


def rate(record: Record, key: str) -> tuple[float, float, float] | None:
    """(success, low, high) under `key`, or None unless all three are there."""
    success, low, high = (number(section(record, key).get(part)) for part in ("success", "low", "high"))
    return None if success is None or low is None or high is None else (success, low, high)


def _with(lines: Iterable[Record], kind: str | None, *counters: str) -> Iterable[Record]:
    """The lines of one kind whose counters are whole numbers; others cannot be placed on the page."""
    for line in lines:
        whole = all(isinstance(line.get(name), int) and not isinstance(line[name], bool) for name in counters)
        if whole and (kind is None or line.get("kind") == kind):
            yield line


def _mapping(path: Path, notes: list[str]) -> Record:
    if not path.exists():
        notes.append(f"{path.name} is missing.")
        return {}
    try:
        text = path.read_text(encoding="utf-8")
        content = json.loads(text) if path.suffix == ".json" else yaml.safe_load(text)
    except (OSError, ValueError, yaml.YAMLError):
        notes.append(f"{path.name} cannot be read; it is cut or was altered.")
        return {}
    if not isinstance(content, dict):
        notes.append(f"{path.name} holds no settings; it is cut or was altered.")
        return {}
    return content


def _steps(path: Path, notes: list[str]) -> list[Record]:
    """The schedule; a run that is not finished has none yet."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8")) if path.exists() else []
    except (OSError, ValueError, yaml.YAMLError):
        content = None
    if not isinstance(content, list):
        notes.append(f"{path.name} cannot be read; it is cut or was altered.")
        return []
    return [step for step in content if isinstance(step, dict)]


def _lines(path: Path, notes: list[str]) -> list[Record]:
    if not path.exists():
        notes.append(f"{path.name} is missing.")
        return []
    try:
        return read_jsonl(path)
    except ValueError as error:
        notes.append(f"A record is damaged: {error}. Lines like it are left out.")
    return list(_intact(path.read_bytes().split(b"\n")))


def _intact(lines: Iterable[bytes]) -> Iterable[Record]:
    for line in lines:
        try:
            record = json.loads(line.decode("utf-8"))
        except ValueError:
            continue
        if isinstance(record, dict):
            yield record
