"""Which numbers of a run can change while it trains, and the values that each member has of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar

import torch
from torch import Tensor

from algorithms.core import Algorithm
from evo_hpo.config.schema import Config, RolloutConfig
from evo_hpo.config.validate import fields_of
from evo_hpo.policy.sampling import Sampling

Part = TypeVar("Part")
ROLLOUT_KEYS = ("temperature", "top_k", "top_p")


def evolvable(config: Config) -> dict[str, Any]:
    """Dotted key -> the config's own value, for every key that evolution may change, over all stages that evolve."""
    found: dict[str, Any] = {}
    for name in config.pipeline.order:
        if config.pipeline.stages[name].evolve:
            found.update(of_stage(config.pipeline.stages[name].algorithm, config.rollout))
    return found


def of_stage(algorithm: Algorithm, rollout: RolloutConfig) -> dict[str, Any]:
    """Those of one stage: of its algorithm, and of the sampling if anything is sampled."""
    sampled = {f"rollout.{name}": getattr(rollout, name) for name in ROLLOUT_KEYS}
    return ({} if algorithm.learns_from == "pairs" else sampled) | of_algorithm(algorithm)


def types_of(config: Config) -> dict[str, Any]:
    """Dotted key -> the type, range included, that the key has in a YAML; for the keys of `evolvable`."""
    algorithms = [stage.algorithm for stage in config.pipeline.stages.values()]
    found: dict[str, Any] = {}
    for dotted in evolvable(config):
        first, *between, name = dotted.split(".")
        for part in [config.rollout] if first == "rollout" else algorithms:
            for step in between:
                part = getattr(part, step, None)
            if part is not None and name in (types := fields_of(type(part))):
                found[dotted] = types[name]
    return found


def of_algorithm(algorithm: Algorithm) -> dict[str, Any]:
    """`algorithm.…` keys of the fields declared `evolvable()`, through nested components."""
    found: dict[str, Any] = {}

    def walk(part: Any, prefix: str) -> None:
        for f in dataclasses.fields(part):
            value = getattr(part, f.name)
            if f.metadata.get("evolvable"):
                found[f"{prefix}.{f.name}"] = value
            elif dataclasses.is_dataclass(value) and not isinstance(value, type):
                walk(value, f"{prefix}.{f.name}")

    walk(algorithm, "algorithm")
    return found


def bind(algorithm: Algorithm, values: Mapping[str, list[Any]], device: torch.device) -> Algorithm:
    """`algorithm` with its evolving fields replaced by tensors [N]; keys of other stages are passed over."""
    known = of_algorithm(algorithm)
    for dotted, column in values.items():
        if dotted in known:
            tensor = torch.tensor(column, dtype=torch.float32, device=device)
            algorithm = _replaced(algorithm, dotted.split(".")[1:], tensor)
    return algorithm


def sampling(rollout: RolloutConfig, values: Mapping[str, list[Any]], members: int) -> Sampling:
    """Sampling settings per member."""
    columns = [values.get(f"rollout.{name}", [getattr(rollout, name)] * members) for name in ROLLOUT_KEYS]
    return Sampling(torch.tensor(columns[0]).float(), torch.tensor(columns[1]).long(), torch.tensor(columns[2]).float())


def _replaced(part: Part, path: list[str], value: Tensor) -> Part:
    if len(path) > 1:
        return dataclasses.replace(part, **{path[0]: _replaced(getattr(part, path[0]), path[1:], value)})  # type: ignore[type-var]
    return dataclasses.replace(part, **{path[0]: value})  # type: ignore[type-var]
