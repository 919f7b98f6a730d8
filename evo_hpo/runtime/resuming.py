"""What `resume=<run folder> [key=value …]` asks for, and whether a run can go on with it."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf

from evo_hpo.config.build import build
from evo_hpo.config.errors import UserError
from evo_hpo.config.provenance import leaves
from evo_hpo.config.schema import Config
from evo_hpo.config.species import GROUPS, with_species, within_species
from evo_hpo.runtime.checkpoints import Checkpoint
from evo_hpo.runtime.progress import Progress

PARTS = {"progress", "watch", "offsets", "config"}  # of the state in a checkpoint
# What does not change what is learned, up to rounding.
CHANGEABLE = frozenset(
    "on_alarm device threads rollout.threads rollout.step_timeout learner.micro_tokens learner.logit_chunk".split()
)
# Of a judge: where it is and how it is asked, how long and how often, but not what.
OF_JUDGES = frozenset(
    "base_url api_key_env timeout deadline retries backoff concurrency cache "
    "prompt_price completion_price budget max_calls".split()
)


@dataclass(frozen=True)
class Resumption:
    """A stored run with the changes that were asked for."""

    config: Config
    resolved: dict[str, Any]
    provenance: dict[str, str]
    generation: int | None  # the checkpoint to go on from; None: the newest


def stored_config(run: Path) -> dict[str, Any]:
    """The resolved config that a run folder holds.

    Raises:
        UserError: config.yaml is missing or was altered so that it can no longer be read.
    """
    return _mapping(run / "config.yaml")


def asked_for(run: Path, overrides: Sequence[str]) -> Resumption:
    """The stored config with overrides.

    Args:
        overrides: `key=value` for single keys of the config, and `generation=N`.
    Raises:
        UserError: an override that is no `key=value` of a single key; ConfigError: what the schema refuses.
    """
    stored = stored_config(run)
    provenance = {key: str(source) for key, source in _mapping(run / "provenance.yaml").items()}
    generation, changes = None, []
    for override in overrides:
        name, _, value = override.lstrip("+").partition("=")
        if name != "generation":
            changes.append(override)
        elif value.isdecimal():
            generation = int(value)
        else:
            raise UserError(f"generation={value} is no number of a generation; write, say, generation=3")
    resolved = merged_with(stored, changes, provenance, "when resumed")
    return Resumption(build(resolved, provenance), resolved, provenance, generation)


def merged_with(
    stored: Mapping[str, Any], overrides: Sequence[str], provenance: dict[str, str], when: str
) -> dict[str, Any]:
    """The values of a stored config with overrides of single keys; `provenance` learns where they come from.

    What is overridden is so in every species that has the key, as when a run is composed.

    Raises:
        UserError: an override that is no `key=value` of a single key.
    """
    changes = []
    for override in overrides:
        name, equals, value = override.lstrip("+").partition("=")
        if not equals:
            raise UserError(f"'{override}' says nothing; write key=value")
        whole = isinstance(OmegaConf.select(OmegaConf.create(dict(stored)), name), Mapping)
        if whole or "/" in name or name.removeprefix("evolution.species.") in GROUPS:
            raise UserError(
                f"{override} would exchange a whole part of a run that has begun; "
                f"name single keys instead, like tracker.console=lines"
            )
        for key in with_species(stored, name):
            changes.append(f"{key}={value}")
            provenance[key] = f"override {name}={value} {when}"
    merged = OmegaConf.to_container(OmegaConf.merge(dict(stored), OmegaConf.from_dotlist(changes)))
    assert isinstance(merged, dict)
    return {str(key): value for key, value in merged.items()}


def refuse_foreign(checkpoint: Checkpoint, run: Path) -> None:
    """Refuse a checkpoint that holds something else than this version of the program writes.

    Raises:
        UserError: names the run.
    """
    state, known = checkpoint.state, {f.name for f in dataclasses.fields(Progress)}
    progress = state.get("progress")
    if not PARTS <= state.keys() or not isinstance(progress, dict) or progress.keys() != known:
        raise UserError(
            f"the checkpoint of generation {checkpoint.generation} in {run} was written by another version of this "
            "program, or altered; go on with that version, or start a new run"
        )


def refuse_differences(before: Mapping[str, Any], now: Mapping[str, Any], run: Path) -> None:
    """Refuse to go on with settings that would make another run of it.

    Args:
        before: resolved config of the checkpoint.
        now: resolved config that is asked for.
    Raises:
        UserError: names every difference.
    """
    old, new = dict(leaves(before)), dict(leaves(now))
    different = [name for name in sorted(old.keys() | new.keys()) if old.get(name) != new.get(name)]
    different = [name for name in different if not _changeable(name)]
    own = {name: within_species(name)[1] for name in different}
    different = [name for name in different if own[name] == name or own[name] not in own]
    if different:
        lines = [f"{name} was {old.get(name)!r} and is now {new.get(name)!r}" for name in different]
        raise UserError(
            f"a resumed run must go on as it began, and {'; '.join(lines)}; leave that as it was, or start a new run "
            f"(from this one's agent with model.lora.start={run}/best)"
        )


def refuse_less(before: Mapping[str, Any], config: Config, progress: Progress) -> None:
    """Refuse to go on with a length or a budget that the run is beyond already.

    Args:
        before: resolved config of the checkpoint.
        config: that is asked for.
    Raises:
        UserError: names what is asked for and what is done.
    """
    done = Counter(entry["stage"] for entry in progress.history)
    for name, stage in config.pipeline.stages.items():
        if done[name] > stage.generations:
            key = f"pipeline.stages.{name}.generations"
            raise UserError(
                f"{key}={stage.generations}, and the run has {done[name]} generations of it; write {done[name]} or "
                "more, or name an earlier one to go on from: generation=N"
            )
    for name, limit in vars(config.budget).items():
        spent = progress.spent.get(name, 0)
        if limit is not None and limit != before["budget"].get(name) and limit < spent:
            raise UserError(f"budget.{name}={limit:g}, and the run has spent {spent:,.0f}; write more, or leave it out")


def _changeable(name: str) -> bool:
    if name in CHANGEABLE or name.startswith(("tracker.", "checkpoint.", "budget.", "sweep.")):
        return True
    parts = within_species(name)[1].split(".")
    if parts[0] == "reward" and parts[-2] == "client" and parts[-1] in OF_JUDGES:
        return True
    return parts[:2] == ["pipeline", "stages"] and parts[-1] == "generations"


def _mapping(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, ValueError, yaml.YAMLError) as error:
        reason = str(error).strip().splitlines()[0]
        raise UserError(f"{path} cannot be read ({reason}); put back what the run wrote, or start a new run") from error
    if not isinstance(content, dict):
        raise UserError(f"{path} holds no settings any more; put back what the run wrote, or start a new run")
    return content
