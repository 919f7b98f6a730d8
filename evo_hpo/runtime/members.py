"""A member of a stored run, alone on its base: what `export` and `play` work with."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

from evo_hpo.config.build import build
from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Config
from evo_hpo.policy.exchange import start_from
from evo_hpo.policy.policy import Policy
from evo_hpo.runtime.checkpoints import Checkpoints
from evo_hpo.runtime.progress import Progress
from evo_hpo.runtime.resuming import refuse_foreign, stored_config
from evo_hpo.runtime.run import BEST, RESULT
from evo_hpo.runtime.setup import population_of, processes_of


@dataclasses.dataclass(frozen=True)
class Stored:
    """A policy of one member, and in words which one it is."""

    config: Config
    policy: Policy
    name: str


def finished(run: Path, member: str) -> Path | None:
    """The folder with the agent of a finished run, where that is the `member` asked for."""
    try:
        result: dict[str, Any] = json.loads((run / RESULT).read_text(encoding="utf-8"))
        best = str(result["best"]["member"])
        last = result["best"]["generations"] == result["generations"]  # else the member has trained on, or begun anew
    except (OSError, ValueError, KeyError, TypeError):
        return None  # not finished: the checkpoints know
    asked = member == BEST or (member == best and last)
    return run / BEST if asked and (run / BEST).is_dir() else None


def stored_member(run: Path, member: str) -> Stored:
    """Load one member of a run folder: from its result, else from the newest intact checkpoint.

    Args:
        member: "best" or a number.
    Raises:
        UserError: no intact checkpoint, or no such member.
    """
    config = build(stored_config(run))
    # what the run started from may be gone, and is not needed
    alone = dataclasses.replace(config.model, lora=dataclasses.replace(config.model.lora, start=None))
    config = dataclasses.replace(config, model=alone)
    folder = finished(run, member)
    if trains_scorers(config):
        raise UserError(
            f"{run} trained a scorer, and its agent is the base; the scorer is {run / BEST}, once the run is finished"
        )
    if folder is not None:
        return Stored(config, _from_folder(config, folder), "the best member, as the result has it")
    checkpoints = Checkpoints(run, config.checkpoint.keep)
    intact = checkpoints.intact()
    if not intact:
        raise UserError(f"{run} has no intact checkpoint, so none of its members can be loaded; resume the run first")
    checkpoint = checkpoints.load(intact[-1])
    refuse_foreign(checkpoint, run)
    progress = Progress.of(checkpoint.state["progress"])
    place = _place(member, progress, run)
    slot = progress.slots[place]
    policy = population_of(config, processes_of(config).device, 1, [slot])
    policy.block.load(checkpoint.tensors["policy"][place : place + 1])
    return Stored(config, policy, f"member {slot} after {checkpoint.generation} generations")


def trains_scorers(config: Config) -> bool:
    """Whether what the run leaves behind is a scorer, and no agent."""
    pipeline = config.pipeline
    return any(pipeline.stages[name].algorithm.trains_scorer for name in pipeline.order)


def _place(member: str, progress: Progress, run: Path) -> int:
    if member == BEST:
        return progress.best()
    if int(member) not in progress.slots:
        raise UserError(f"{run} has no member {member}; its members are {', '.join(map(str, progress.slots))}")
    return progress.slots.index(int(member))


def _from_folder(config: Config, folder: Path) -> Policy:
    device = processes_of(config).device
    if config.model.train == "base":
        model = dataclasses.replace(config.model, path=str(folder), init="pretrained", gguf_file=None)
        return population_of(dataclasses.replace(config, model=model), device, 1)
    policy = population_of(config, device, 1)
    try:
        start_from(policy, str(folder))
    except ValueError as error:
        raise UserError(f"{folder} is not what the run wrote: {error}") from error
    return policy
