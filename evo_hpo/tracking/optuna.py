"""A run as an Optuna study: every member of every generation is a trial, with its fitness as the value.

While a run goes on the study lies in `optuna.journal`; `python -m evo_hpo study` writes it as an SQLite file for
optuna-dashboard. Both are made from the records of the run, so that a resumed run has each trial once.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Dimension
from evo_hpo.config.species import name_of
from evo_hpo.evolution.space import distribution
from evo_hpo.tracking.core import GenerationRecord, MemberGeneration, RunInfo, Tracker
from evo_hpo.tracking.jsonl import LINEAGE, read_jsonl

JOURNAL = "optuna.journal"
Spaces = Mapping[str, Mapping[str, Dimension]]
PARENT = "lineage:parent"  # attribute that holds "generation/member" of the trial a trial descends from


@dataclass
class OptunaTracker(Tracker):
    """Adds the members of each generation to the study in the run folder.

    Args:
        spaces: species -> what may differ between members; the species "" where there are none.
    """

    spaces: Spaces
    _study: Any = field(default=None, init=False, repr=False)

    def start(self, run: RunInfo) -> None:
        journal = run.folder / JOURNAL
        journal.unlink(missing_ok=True)  # what was there may know more than the checkpoint that the run goes on from
        self._study = _create(f"journal:{journal}", run.name)
        lineage = run.folder / LINEAGE
        _add(self._study, read_jsonl(lineage) if lineage.exists() else [], self.spaces)

    def generation(self, record: GenerationRecord) -> None:
        _add(self._study, [_line(record.generation, member) for member in record.members], self.spaces)


def export_study(run: Path, target: Path, spaces: Spaces, name: str) -> int:
    """Write the study of a run as SQLite, with the report as an artifact in a folder beside it.

    Returns:
        The number of trials.
    Raises:
        UserError: nothing of the run is on record, or `target` exists.
    """
    from optuna.artifacts import FileSystemArtifactStore, upload_artifact

    if target.exists():
        raise UserError(f"{target} exists already; name a file that does not")
    try:
        lines = read_jsonl(run / LINEAGE)
    except (OSError, ValueError) as error:
        raise UserError(f"{run / LINEAGE} cannot be read ({error}), so there is no study to write") from error
    if not lines:
        raise UserError(f"no generation of {run} is complete, so there is no study to write")
    study = _create(f"sqlite:///{target}", name)
    _add(study, lines, spaces)
    report = run / "report.html"
    if report.is_file():
        store = FileSystemArtifactStore(_made(target.with_name(f"{target.stem}_artifacts")))
        upload_artifact(artifact_store=store, file_path=str(report), study_or_trial=study)
    return len(lines)


def best_values(source: str, space: Mapping[str, Dimension]) -> list[dict[str, Any]]:
    """Hyperparameters of an earlier run or study inside `space`, best fitness first, each once.

    Args:
        source: a run folder, or an SQLite file that `study` wrote.
    Raises:
        UserError: there is none, or it knows nothing of these hyperparameters.
    """
    rated = sorted(_rated(source), key=lambda pair: -pair[0])
    found: list[dict[str, Any]] = []
    for _, values in rated:
        own = {name: values[name] for name in space if name in values}
        if (
            len(own) == len(space)
            and all(_holds(space[name], value) for name, value in own.items())
            and own not in found
        ):
            found.append(own)
    if not found:
        keys = ", ".join(space)
        raise UserError(
            f"evolution.start_from={source} has no trial with all of {keys} inside their ranges; leave it out"
        )
    return found


def _rated(source: str) -> list[tuple[float, dict[str, Any]]]:
    path = Path(source).expanduser()
    try:
        if path.is_dir():
            lines = read_jsonl(path / LINEAGE)
            pairs = [(line.get("fitness"), line.get("before")) for line in lines]
        else:
            optuna = _optuna()
            if not path.is_file():
                raise FileNotFoundError(path)
            storage = optuna.storages.RDBStorage(f"sqlite:///{path}")
            pairs = [
                (trial.value, trial.params)
                for summary in optuna.get_all_study_summaries(storage)
                for trial in optuna.load_study(study_name=summary.study_name, storage=storage).trials
            ]
    except Exception as error:  # of a database that is none there are many
        raise UserError(
            f"evolution.start_from={source} cannot be read ({type(error).__name__}); write a run folder, or a file "
            "that `python -m evo_hpo study` has written"
        ) from error
    return [
        (float(fitness), values)
        for fitness, values in pairs
        if isinstance(fitness, int | float) and math.isfinite(fitness) and isinstance(values, dict)
    ]


def _add(study: Any, lines: Iterable[Mapping[str, Any]], spaces: Spaces) -> None:
    """One complete trial for each line of a lineage; a member without a usable fitness is a failed one."""
    optuna = _optuna()
    places = {
        f"{trial.user_attrs['generation']}/{trial.user_attrs['member']}": trial.user_attrs["filled_by"]
        for trial in study.get_trials(deepcopy=False)
    }
    for line in lines:
        space = spaces[name_of(line.get("before") or {})]
        used = {name: value for name, value in (line.get("before") or {}).items() if name in space}
        usable = isinstance(line["fitness"], int | float) and math.isfinite(line["fitness"])
        place = f"{line['generation']}/{line['member']}"
        earlier = places.get(f"{line['generation'] - 1}/{line['member']}")
        places[place] = f"{line['generation']}/{line['parent']}"
        attributes = {
            "generation": line["generation"],
            "member": line["member"],
            "event": line["event"],
            "text": line["text"],
            "filled_by": places[place],
            PARENT: earlier,
        }
        study.add_trial(
            optuna.trial.create_trial(
                params=used,
                distributions={name: distribution(space[name]) for name in used},
                value=line["fitness"] if usable else None,
                state=optuna.trial.TrialState.COMPLETE if usable else optuna.trial.TrialState.FAIL,
                user_attrs=attributes,
            )
        )


def _line(generation: int, member: MemberGeneration) -> dict[str, Any]:
    """As lineage.jsonl has it."""
    return {
        "generation": generation,
        "member": member.member,
        "parent": member.parent,
        "event": member.event,
        "text": member.text,
        "fitness": member.fitness,
        "before": member.hyperparameters,
    }


def _create(storage: str, name: str) -> Any:
    optuna = _optuna()
    kind, _, place = storage.partition(":")
    backend: Any = storage
    if kind == "journal":
        backend = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(place))
    return optuna.create_study(storage=backend, study_name=name, direction="maximize")


def _holds(dimension: Dimension, value: Any) -> bool:
    if dimension.type == "categorical":
        return value in (dimension.choices or [])
    inside = isinstance(value, int | float) and not isinstance(value, bool)
    return inside and (dimension.low or 0) <= value <= (dimension.high if dimension.high is not None else math.inf)


def _made(folder: Path) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    return str(folder)


def _optuna() -> Any:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    warnings.filterwarnings("ignore", category=optuna.exceptions.ExperimentalWarning)
    return optuna
