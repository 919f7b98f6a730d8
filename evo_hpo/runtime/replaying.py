"""What `replay=<run folder> [key=value …]` asks for: agents from scratch along the schedule that a run found."""

from __future__ import annotations

import copy
import json
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from evo_hpo.config.build import build
from evo_hpo.config.errors import UserError
from evo_hpo.config.provenance import leaves
from evo_hpo.config.schema import Config
from evo_hpo.config.species import GROUPS, as_one_species
from evo_hpo.evolution.strategies.replay import ARMS
from evo_hpo.runtime.resuming import merged_with, stored_config
from evo_hpo.runtime.run import RESULT, SCHEDULE

# What may differ in a replay.
OWN = ("name", "seed", "run_dir", "on_alarm", "evaluation.everyone", "evolution.", "sweep.", "budget.", "tracker.")
REPLICAS = 3  # agents of each arm; below five they are shown as points


@dataclass(frozen=True)
class Replaying:
    """A run that replays another one."""

    config: Config
    resolved: dict[str, Any]
    provenance: dict[str, str]
    folder: Path


def asked_for(run: Path, overrides: Sequence[str]) -> Replaying:
    """The config of a run that follows the schedule of the run in the folder `run`.

    Args:
        overrides: `key=value` for single keys of the config, and `replicas=N`, the agents of each arm.
    Raises:
        UserError: the run has no schedule yet, nothing of it evolved, or an override is wrong.
    """
    replicas = [line.partition("=")[2] for line in overrides if line.startswith("replicas=")]
    if replicas and not (replicas[-1].isdecimal() and int(replicas[-1]) > 0):
        raise UserError(f"replicas={replicas[-1]} is no number of agents; write, say, replicas=5")
    count = int(replicas[-1]) if replicas else REPLICAS
    stored = stored_config(run)
    provenance = dict.fromkeys(dict(leaves(stored)), f"{run}/config.yaml")
    values = copy.deepcopy(stored)
    schedule = _schedule(run)
    as_one_species(values, next(step for steps in schedule.values() for step in steps if step))
    values["name"] = f"{stored.get('name', run.name)}-replay"
    values["seed"] = int(stored.get("seed", 0)) + 1
    values["evaluation"]["everyone"] = True
    values["budget"] = dict.fromkeys(values["budget"])
    for stage, steps in schedule.items():
        values["pipeline"]["stages"][stage]["generations"] = len(steps)
    values["on_alarm"], values["sweep"] = "warn", {"controls": []}
    values["evolution"] |= {
        "population": count * len(ARMS),
        "spread": False,
        "start_from": None,
        "strategy": {
            "_target_": "evo_hpo.evolution.strategies.Replay",
            "of": str(run.resolve()),
            "schedule": {
                stage: [{key: value for key, value in step.items() if key not in GROUPS} for step in steps]
                for stage, steps in schedule.items()
            },
        },
    }
    changes = [line for line in overrides if not line.startswith("replicas=")]
    resolved = merged_with(values, changes, provenance, "when replayed")
    config = build(resolved, provenance)
    stamp = time.strftime("%Y-%m-%d_%H-%M-%S")
    return Replaying(config, resolved, provenance, Path(config.run_dir) / f"{stamp}_{config.name}")


def compared(result: Mapping[str, Any], run: Path, resolved: Mapping[str, Any]) -> dict[str, Any]:
    """The success of both arms beside that of the agent whose schedule was replayed.

    Args:
        result: of the replay, with every member measured.
        run: folder of the original.
        resolved: config of the replay; what it has otherwise than the original is named.
    """
    try:
        before = dict(leaves(stored_config(run)))
    except UserError:  # it is gone
        before = {}
    now = dict(leaves(resolved))
    changed = [
        f"{key} {before[key]} to {value}"
        for key, value in now.items()
        if key in before and before[key] != value and not (key.startswith(OWN) or key.endswith(".generations"))
    ]
    arms: dict[str, list[float]] = {arm: [] for arm in ARMS}
    for member in result["members"]:
        if member["success"] is not None:
            arms[ARMS[member["member"] % len(ARMS)]].append(member["success"])
    return {"of": str(run), "original": _json(run / RESULT)["best"], "arms": arms, "changed": changed}


def _schedule(run: Path) -> dict[str, list[dict[str, Any]]]:
    """Stage -> hyperparameters of each generation."""
    path = run / SCHEDULE
    if not path.is_file():
        raise UserError(f"{run} has no {SCHEDULE}: a run writes it when it is finished; resume={run} goes on with it")
    try:
        steps = yaml.safe_load(path.read_text(encoding="utf-8"))
        by_stage: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for step in steps:
            by_stage[str(step["stage"])].append(dict(step["hyperparameters"]))
    except (OSError, ValueError, KeyError, TypeError, yaml.YAMLError) as error:
        raise UserError(
            f"{path} cannot be read ({error}); it is cut or was altered, so there is nothing to replay"
        ) from error
    if not any(values for generations in by_stage.values() for values in generations):
        raise UserError(
            f"nothing evolved in {run}, so its schedule is its config: replay a run with an evolution.space"
        )
    return dict(by_stage)


def _json(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        return content if isinstance(content["best"], dict) else {"best": {}}
    except (OSError, ValueError, KeyError, TypeError):
        return {"best": {}}
