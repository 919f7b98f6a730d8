"""Which runs are repeats of one setting, what they cost, and what they were worth when all had cost the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from evo_hpo.config.errors import UserError
from evo_hpo.config.provenance import leaves
from evo_hpo.tracking.compare.labels import Setting, differing_keys, labels
from evo_hpo.tracking.report.data import RunData, load, number, rate

REPEATS = ("seed", "name", "run_dir")  # keys in which repeats of one setting may differ
SILENT = ("tracker.", "checkpoint.", "sweep.", "device", "threads", "learner.", "plugins", "rollout.threads")
BUDGETS = {
    "policy_tokens": "sampled tokens",
    "environment_turns": "environment turns",
    "updates": "updates of each member",
    "seconds": "seconds",
}
CONFIG = "config.yaml"


@dataclass
class RunSummary:
    """What a run was worth, and what it cost until then."""

    folder: Path
    data: RunData
    curve: list[dict[str, float]] = field(default_factory=list)  # after each generation: costs, and the best fitness

    @property
    def seed(self) -> str:
        return str(self.data.config.get("seed", "?"))

    @property
    def finished(self) -> bool:
        return bool(self.data.result)

    @property
    def generations(self) -> int:
        """That it was trained for; a budget may have ended it before its settings would."""
        return len({line["generation"] for line in self.data.generations})

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


def arms_of(named: Sequence[Path]) -> list[Arm]:
    """Runs grouped by all that is not a seed, in the order in which they were named.

    Args:
        named: run folders, each of which counts once; a folder of run folders stands for all in it.
    Raises:
        UserError: a folder holds nothing of a run, or not all were measured by the same.
    """
    runs = [RunSummary(folder, data := load(folder), _curve(data)) for folder in _run_folders(named)]
    _refuse_different_measures(runs)
    settings = [_setting(run.data) for run in runs]
    differing = differing_keys(settings)
    grouped: dict[str, list[int]] = {}
    for place, setting in enumerate(settings):
        grouped.setdefault(repr([setting.values.get(key) for key in differing]), []).append(place)
    names = labels([settings[places[0]] for places in grouped.values()])
    return [
        Arm(f"{name} ({number})" if names.count(name) > 1 else name or "all runs", [runs[place] for place in places])
        for number, (name, places) in enumerate(zip(names, grouped.values(), strict=True), start=1)
    ]


def common_budget(arms: Sequence[Arm], budget: str) -> float:
    """What every run has spent at least until its last generation."""
    return min(run.trained(budget) for arm in arms for run in arm.runs)


def remarks(arms: Sequence[Arm]) -> list[str]:
    """Sentences about runs that are no full repeats."""
    found = []
    for arm in arms:
        of_seed: dict[str, list[str]] = {}
        for run in arm.runs:
            of_seed.setdefault(run.seed, []).append(str(run.folder))
            if not run.finished:
                found.append(f"{run.folder} is not finished; it counts as far as it went.")
        found += [
            f"{' and '.join(folders)} have the same settings and the same seed, {seed}: no repeats of each other."
            for seed, folders in of_seed.items()
            if len(folders) > 1
        ]
    return found


def _run_folders(named: Sequence[Path]) -> list[Path]:
    """Each run once; the runs of a multirun in the order of their numbers."""
    found: dict[Path, Path] = {}
    for folder in named:
        inside = [] if (folder / CONFIG).is_file() else [path.parent for path in folder.glob(f"*/{CONFIG}")]
        inside.sort(key=lambda one: (len(one.name.partition("_")[0]), one.name))  # 2_… before 10_…
        for one in inside or [folder]:
            if not (one / CONFIG).is_file():
                raise UserError(
                    f"{one} is no run folder, and holds none: there is no {CONFIG} in it or one level below"
                )
            found.setdefault(one.resolve(), one)
    return list(found.values())


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
        # a record counts the updates until its end under the name of the update that it is
        costs = {budget: number(line.get("update" if budget == "updates" else budget)) for budget in BUDGETS}
        if fitness is None or any(cost is None for cost in costs.values()):
            continue
        point = by_generation.setdefault(
            int(line["generation"]), {"fitness": fitness, **{name: float(cost or 0) for name, cost in costs.items()}}
        )
        point["fitness"] = max(point["fitness"], fitness)
    return [point for _, point in sorted(by_generation.items())]


def _setting(data: RunData) -> Setting:
    kept = {key: value for key, value in leaves(data.config) if key not in REPEATS and not key.startswith(SILENT)}
    return Setting(kept, {key: source for key, source in data.provenance.items() if isinstance(source, str)})
