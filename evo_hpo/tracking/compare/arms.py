"""Which runs are repeats of one setting, what they cost, and what they were worth when all had cost the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evo_hpo.config.errors import UserError
from evo_hpo.config.provenance import leaves
from evo_hpo.tracking.report.data import RunData, load, number, rate

REPEATS = ("seed", "name", "run_dir")  # keys in which repeats of one setting may differ
SILENT = ("tracker.", "checkpoint.", "sweep.", "device", "threads", "learner.", "plugins", "rollout.threads")
BUDGETS = {"policy_tokens": "sampled tokens", "environment_turns": "environment turns", "seconds": "seconds"}
SHOWN = 3  # differing keys that make up a label


@dataclass
class RunSummary:
    """What a run was worth, and what it cost until then."""

    folder: Path
    data: RunData
    curve: list[dict[str, float]] = field(default_factory=list)  # after each generation: costs, and the best fitness

    @property
    def success(self) -> float | None:
        """On the final tasks, of the best member."""
        best = rate(self.data.result, "best")
        return None if best is None else best[0]

    def total(self, budget: str) -> float:
        """All that the run cost, or as much as is known of one that is not finished."""
        known = number(self.data.result.get(budget))
        return known if known is not None else max((point[budget] for point in self.curve), default=0.0)

    def trained(self, budget: str) -> float:
        """What it had cost at the end of its last generation; the result is measured on top of that."""
        return max((point[budget] for point in self.curve), default=self.total(budget))

    def fitness_at(self, budget: str, spent: float) -> float | None:
        """Fitness of the best member in the generation that ended nearest to where `spent` was spent.

        A budget ends a run by the same rule: of two runs with one budget, neither loses its last generation.
        """
        before, fitness = 0.0, None
        for point in self.curve:
            complete = point[budget] <= spent * (1 + 1e-9)
            if complete or (before + point[budget]) / 2 < spent:
                fitness = point["fitness"]
            before = point[budget]
        return fitness

    def spent_until(self, budget: str, target: float) -> float | None:
        """What was spent when the best fitness first reached `target`; None where it never did."""
        return next((point[budget] for point in self.curve if point["fitness"] >= target), None)


@dataclass
class Arm:
    """Runs of one setting that differ in their seed."""

    label: str
    runs: list[RunSummary]

    @property
    def successes(self) -> list[float]:
        return [run.success for run in self.runs if run.success is not None]

    def fitness_at(self, budget: str, spent: float) -> list[float]:
        known = (run.fitness_at(budget, spent) for run in self.runs)
        return [fitness for fitness in known if fitness is not None]


def arms_of(folders: Sequence[Path]) -> list[Arm]:
    """Runs grouped by all that is not a seed, in the order in which they were named.

    Raises:
        UserError: a folder holds nothing of a run, or not all were measured by the same.
    """
    runs: list[RunSummary] = []
    for folder in folders:
        try:
            data = load(folder)
        except FileNotFoundError as error:
            raise UserError(str(error)) from error
        runs.append(RunSummary(folder, data, _curve(data)))
    _refuse_different_measures(runs)
    settings = [_setting(run.data.config) for run in runs]
    differing = sorted(
        key
        for key in set().union(*settings)
        if len({repr(setting.get(key)) for setting in settings}) > 1 and not key.startswith(SILENT)
    )
    grouped: dict[str, Arm] = {}
    for run, setting in zip(runs, settings, strict=True):
        identity = repr([setting.get(key) for key in differing])
        arm = grouped.setdefault(identity, Arm(_label(setting, differing), []))
        arm.runs.append(run)
    arms = list(grouped.values())
    for index, arm in enumerate(arms):  # labels leave keys out, so two may be alike
        if any(other.label == arm.label for other in arms if other is not arm):
            arm.label = f"{arm.label} ({index + 1})"
    return arms


def common_budget(arms: Sequence[Arm], budget: str) -> float:
    """What every run has spent at least until its last generation."""
    return min(run.trained(budget) for arm in arms for run in arm.runs)


def _refuse_different_measures(runs: Sequence[RunSummary]) -> None:
    """Numbers side by side must mean the same; what a run that is not finished measures is not known."""
    measures: dict[tuple[str, str], Path] = {}
    for run in runs:
        if "measured" in run.data.result:
            measures.setdefault((run.data.result["measured"], run.data.result["held_out"]), run.folder)
    if len(measures) > 1:
        told = [f"{folder} measured {what} on {tasks}" for (what, tasks), folder in measures.items()]
        raise UserError(f"{', '.join(told)}: these numbers cannot be compared; compare each kind alone")


def _curve(data: RunData) -> list[dict[str, float]]:
    by_generation: dict[int, dict[str, float]] = {}
    for line in data.generations:
        fitness = number(line.get("fitness"))
        costs = {budget: number(line.get(budget)) for budget in BUDGETS}
        if fitness is None or any(cost is None for cost in costs.values()):
            continue
        point = by_generation.setdefault(
            int(line["generation"]), {"fitness": fitness, **{name: float(cost or 0) for name, cost in costs.items()}}
        )
        point["fitness"] = max(point["fitness"], fitness)
    return [point for _, point in sorted(by_generation.items())]


def _setting(config: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in leaves(config) if key not in REPEATS}


def _label(setting: dict[str, Any], differing: Sequence[str]) -> str:
    """The first keys that differ, parts by their class before single values."""
    parts = [key for key in differing if key.endswith("_target_")]
    chosen = [*parts, *(key for key in differing if key not in parts and key in setting)][:SHOWN]
    told = []
    for key in chosen:
        if key in setting:
            name, value = key.removesuffix("._target_"), setting[key]
            told.append(f"{name.rpartition('.')[2]}={str(value).rpartition('.')[2] if key in parts else value}")
    return ", ".join(told) or "all runs"
