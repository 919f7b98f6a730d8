"""What `controls=<run folder>` asks for: the same budget spent without evolution, and on its halves."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evo_hpo.config.build import build
from evo_hpo.config.errors import UserError
from evo_hpo.config.legality import someone_is_selected
from evo_hpo.config.provenance import write
from evo_hpo.config.schema import Control
from evo_hpo.config.species import as_one_species
from evo_hpo.runtime.resuming import merged_with, stored_config
from evo_hpo.runtime.run import RESULT, resume, run
from evo_hpo.tracking.compare import arms_of, print_table, write_comparison
from evo_hpo.tracking.jsonl import METRICS, read_jsonl

CONTROLS = "controls"  # folder of the controls in that of the run
ARMS: dict[Control, str] = {
    "independent": "as many members that never meet",
    "selection_only": "selection as in the run, no mutation",
    "mutation_only": "mutation of those who would have been replaced, no selection",
    "single": "one member with the whole budget",
}


@dataclass(frozen=True)
class Asked:
    """Which controls of which run."""

    of: Path
    arms: list[Control]
    overrides: list[str]


def asked_for(of: Path, overrides: Sequence[str]) -> Asked:
    """The controls of the run in the folder `of`.

    Args:
        overrides: `arms=independent,single` for some of them, and `key=value` for single keys of the config.
    Raises:
        UserError: the run is not finished or selected nobody, or there is no such control.
    """
    chosen = [line.partition("=")[2] for line in overrides if line.startswith("arms=")]
    names = chosen[-1].strip("[]").split(",") if chosen else list(ARMS)
    if unknown := [name for name in names if name not in ARMS]:
        raise UserError(f"there is no control {unknown[0]!r}; write arms={','.join(ARMS)}, or some of them")
    if not (of / RESULT).is_file():
        raise UserError(
            f"{of} is not finished, so what its controls may spend is not known; resume={of} goes on with it"
        )
    if not someone_is_selected(build(stored_config(of))):
        raise UserError(f"nobody was selected in {of}, so there is no evolution to control for")
    if _spent(of) == 0:
        raise UserError(f"nothing was sampled in {of}, so there is no budget of tokens to give to controls")
    others = [line for line in overrides if not line.startswith("arms=")]
    return Asked(of, [arm for arm in ARMS if arm in names], others)


def asked_in(of: Path) -> Asked | None:
    """The controls that the finished run in the folder `of` asked for itself (`sweep.controls`), if any."""
    names = stored_config(of)["sweep"]["controls"]
    arms = list(ARMS) if "all" in names else names
    return asked_for(of, [f"arms={','.join(arms)}"]) if arms else None


def run_controls(asked: Asked) -> Path:
    """Run what is not finished yet, print the comparison and return its page."""
    again = " ".join([f"controls={asked.of}", f"arms={','.join(asked.arms)}", *asked.overrides])
    print(f"where this is cut short, it goes on with: python launch.py {again}", flush=True)
    for arm in asked.arms:
        folder = asked.of / CONTROLS / arm
        provenance: dict[str, str] = {}
        resolved = merged_with(control_values(asked.of, arm), asked.overrides, provenance, f"of the control {arm}")
        if (folder / "config.yaml").is_file():
            _refuse_outdated(folder, resolved)
        if (folder / RESULT).is_file():
            print(f"control {arm}: is there", flush=True)
            continue
        print(f"control {arm}: {ARMS[arm]}", flush=True)
        if (folder / "config.yaml").is_file():
            resume(folder, [])
            continue
        config = build(resolved, provenance)
        folder.mkdir(parents=True, exist_ok=True)
        write(folder, resolved, provenance)
        run(config, resolved, folder)
    compared = arms_of([asked.of, *(asked.of / CONTROLS / arm for arm in asked.arms)])
    for one, label in zip(compared, ["the run itself", *(ARMS[arm] for arm in asked.arms)], strict=True):
        one.label = label
    print_table(compared, "policy_tokens")
    return write_comparison(compared, "policy_tokens", asked.of / "controls.html")


def control_values(of: Path, arm: Control) -> dict[str, Any]:
    """The config of one control: that of the run with what it spent until its last generation as the budget."""
    values = copy.deepcopy(stored_config(of))
    evolution, name = values["evolution"], values.get("name", of.name)
    values["name"], values["sweep"] = f"{name}-{arm}", {"controls": []}
    values["budget"] = dict.fromkeys(values.get("budget", {})) | {"policy_tokens": _spent(of)}
    if values.get("on_alarm") == "replace":
        values["on_alarm"] = "warn"
    strategy = evolution["strategy"]
    package = "evo_hpo.evolution.strategies"
    if arm in ("independent", "single"):
        evolution["strategy"] = {"_target_": f"{package}.NoEvolution"}
    else:
        target = {"selection_only": "SelectionOnly", "mutation_only": "MutationOnly"}[arm]
        evolution["strategy"] = {"_target_": f"{package}.{target}", "of": strategy}
    if arm == "single":
        as_one_species(values, {})
        _give_to_one(values["pipeline"], int(evolution["population"]))
        evolution |= {"population": 1, "spread": False, "start_from": None}
    return values


def _refuse_outdated(folder: Path, now: Mapping[str, Any]) -> None:
    """A control that was made before its run went on has less to spend than the run."""
    before, budget = stored_config(folder)["budget"]["policy_tokens"], now["budget"]["policy_tokens"]
    if before != budget:
        raise UserError(
            f"{folder} had {before} tokens to spend, and a control of the run as it is now has {budget}; remove the "
            "folder, and it is made again"
        )


def _give_to_one(pipeline: dict[str, Any], members: int) -> None:
    """The generations of all to one member, in the stages that evolve.

    Others, such as the cloning of an expert, it goes through as every member did. What they cost the other members is
    left to the last stage, where a generation costs no less, so that the budget ends it.
    """
    stages = [pipeline["stages"][name] for name in pipeline["order"]]
    spared = sum((members - 1) * stage["generations"] for stage in stages if not stage["evolve"])
    for stage in stages:
        stage["generations"] *= members if stage["evolve"] else 1
    if stages[-1]["evolve"]:
        stages[-1]["generations"] += spared


def _spent(of: Path) -> int:
    """Sampled tokens until the end of the last generation; the result is measured on top of that by all alike."""
    lines = [line for line in read_jsonl(of / METRICS) if line.get("kind") == "generation"]
    if not lines:
        raise UserError(f"{of / METRICS} knows of no generation, so what its controls may spend is not known")
    return int(max(line["policy_tokens"] for line in lines))
