"""Which numbers of a run can change while it trains, and the values that each member has of them.

Algorithms take a tensor [N] in an evolving field, rewards and granularity a tuple of N numbers, sampling a tensor [N].
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any, TypeVar, get_args, get_origin

import torch

from algorithms.core import Algorithm
from algorithms.policy_gradient import PolicyGradient
from evo_hpo.config.schema import Config, RolloutConfig
from evo_hpo.config.validate import fields_of
from evo_hpo.policy.sampling import Sampling

Part = TypeVar("Part")
SAMPLING_KEYS = ("temperature", "top_k", "top_p")
UNPAID: dict[str, tuple[str, ...]] = {  # numbers of a granularity that multiply what it does not pay
    "sparse": ("granularity.turn_",),
    "dense": ("granularity.outcome_",),
}


def rows(values: Mapping[str, list[Any]], members: int) -> list[dict[str, Any]]:
    """Hyperparameters member by member; a key that a member does not have, where it is None, is left out.

    Args:
        values: key -> value of each member.
    """
    return [{name: column[m] for name, column in values.items() if column[m] is not None} for m in range(members)]


def evolvable(config: Config) -> dict[str, Any]:
    """Dotted key -> the config's own value, for every key that evolution may change, over all stages that evolve."""
    found: dict[str, Any] = {}
    for name in config.pipeline.order:
        if config.pipeline.stages[name].evolve:
            found.update(of_stage(config.pipeline.stages[name].algorithm, config))
    return found


def of_stage(algorithm: Algorithm, config: Config) -> dict[str, Any]:
    """Those of one stage: of its algorithm, and of the reward and the episodes if anything is played."""
    found = of_algorithm(algorithm)
    if algorithm.learns_from == "pairs":
        return found
    found |= {f"rollout.{name}": getattr(config.rollout, name) for name in SAMPLING_KEYS}
    if algorithm.learns_from == "rollout":
        found["rollout.group_size"] = config.rollout.group_size
        if isinstance(algorithm, PolicyGradient) and not algorithm.advantage.reads_rewards:
            return found
        found |= of_part(config.reward, "reward")
        unpaid = UNPAID.get(config.granularity.reward, ())
        paid = of_part(config.granularity, "granularity")
        found |= {key: value for key, value in paid.items() if not key.startswith(unpaid)}
    return found


def of_algorithm(algorithm: Algorithm) -> dict[str, Any]:
    """`algorithm.…` keys that can evolve, and their values."""
    return of_part(algorithm, "algorithm")


def of_part(part: Any, prefix: str) -> dict[str, Any]:
    """Dotted keys of the fields declared evolvable, through nested components and mappings of them."""
    found: dict[str, Any] = {}
    for f in dataclasses.fields(part):
        value, key = getattr(part, f.name), f"{prefix}.{f.name}"
        if f.metadata.get("evolvable"):
            found |= (
                {f"{key}.{name}": item for name, item in value.items()} if isinstance(value, dict) else {key: value}
            )
        elif _is_part(value):
            found |= of_part(value, key)
        elif isinstance(value, dict):
            for name, item in value.items():
                found |= of_part(item, f"{key}.{name}") if _is_part(item) else {}
    return found


def types_of(config: Config) -> dict[str, Any]:
    """Dotted key -> the type, range included, that the key has in a YAML; for the keys of `evolvable`."""
    roots: dict[str, list[Any]] = {"rollout": [config.rollout], "reward": [config.reward]}
    roots |= {"granularity": [config.granularity]}
    roots |= {"algorithm": [stage.algorithm for stage in config.pipeline.stages.values()]}
    found: dict[str, Any] = {}
    for dotted in evolvable(config):
        first, *path = dotted.split(".")
        for root in roots[first]:
            hint = _type_at(root, path)
            if hint is not None:
                found[dotted] = hint
    return found


def bind(algorithm: Algorithm, values: Mapping[str, list[Any]], device: torch.device) -> Algorithm:
    """`algorithm` with its evolving fields replaced by tensors [N]; keys of other stages are passed over."""
    known = of_algorithm(algorithm)
    for dotted, column in values.items():
        if dotted in known:
            tensor = torch.tensor(column, dtype=torch.float32, device=device)
            algorithm = _replaced(algorithm, dotted.split(".")[1:], tensor)
    return algorithm


def bind_scoring(part: Part, prefix: str, values: Mapping[str, list[Any]]) -> Part:
    """A reward or granularity with its evolving fields replaced by tuples of a number for each member."""
    known = of_part(part, prefix)
    for dotted, column in values.items():
        if dotted in known:
            part = _replaced(part, dotted.split(".")[1:], tuple(column))
    return part


def with_value(part: Part, key: str, value: Any) -> Part:
    """`part` with another value at the dotted `key`, whose first word is the part itself.

    Raises:
        ValueError: the part refuses it.
    """
    replaced: Part = _replaced(part, key.split(".")[1:], value)
    return replaced


def sampling(rollout: RolloutConfig, values: Mapping[str, list[Any]], members: int) -> Sampling:
    """Sampling settings per member."""
    columns = [_column(rollout, name, values, members) for name in SAMPLING_KEYS]
    return Sampling(torch.tensor(columns[0]).float(), torch.tensor(columns[1]).long(), torch.tensor(columns[2]).float())


def group_sizes(rollout: RolloutConfig, values: Mapping[str, list[Any]], members: int) -> list[int]:
    """Episodes per task of each member."""
    return [int(size) for size in _column(rollout, "group_size", values, members)]


def _column(rollout: RolloutConfig, name: str, values: Mapping[str, list[Any]], members: int) -> list[Any]:
    own = getattr(rollout, name)
    return [own if value is None else value for value in values.get(f"rollout.{name}", [own] * members)]


def _is_part(value: Any) -> bool:
    return dataclasses.is_dataclass(value) and not isinstance(value, type)


def _replaced(part: Any, path: list[str], value: Any) -> Any:
    name, *rest = path
    if isinstance(part, dict):
        return part | {name: _replaced(part[name], rest, value) if rest else value}
    return dataclasses.replace(part, **{name: _replaced(getattr(part, name), rest, value) if rest else value})


def _type_at(part: Any, path: list[str]) -> Any:
    """Type of the field at the end of `path`, or None where there is none."""
    name, *rest = path
    if isinstance(part, dict):
        return _type_at(part[name], rest) if rest and name in part else None
    hint = fields_of(type(part)).get(name) if _is_part(part) else None
    if not rest or hint is None:
        return hint
    value = getattr(part, name, None)
    if isinstance(value, dict) and len(rest) == 1 and get_origin(hint) is dict and not _is_part(value.get(rest[0])):
        return get_args(hint)[1] if rest[0] in value else None
    return _type_at(value, rest)
