"""Composed values -> the typed `Config`, or a `ConfigError` that lists everything that is wrong with them."""

from __future__ import annotations

import copy
import importlib.util
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from evo_hpo.config.components import Builder, locate
from evo_hpo.config.errors import ConfigError
from evo_hpo.config.facts import Facts
from evo_hpo.config.grains import grain_violations, with_grains
from evo_hpo.config.hints import hint_for
from evo_hpo.config.legal_space import relative_ranges_hold_the_own_value
from evo_hpo.config.legality import stage_violations, violations
from evo_hpo.config.schema import Config
from evo_hpo.config.space import absolute, flat
from evo_hpo.config.species import checked_species, conditions_are_legal, needed_by_species
from evo_hpo.config.validate import MISSING, Provenance, checked, from_where, needed

# Where components stand, and the class each must be of; "*" is any name. Imported when a config is built.
COMPONENTS = {
    "algorithm": "algorithms.core.Algorithm",
    "reward": "rewards.core.Reward",
    "granularity": "rewards.granularity.Granularity",
    "env": "envs.core.Environment",
    "evolution.strategy": "evo_hpo.evolution.strategies.Strategy",
    "pipeline.stages.*.algorithm": "algorithms.core.Algorithm",
    "evolution.species.parts.*.algorithm": "algorithms.core.Algorithm",
    "evolution.species.parts.*.reward": "rewards.core.Reward",
    "evolution.species.parts.*.granularity": "rewards.granularity.Granularity",
}


@dataclass(frozen=True)
class Slot:
    """What became of a node: its component, or None where it was refused."""

    component: Any


def build(
    values: Mapping[str, Any], provenance: Provenance | None = None, choices: Mapping[str, str] | None = None
) -> Config:
    """The checked config.

    Args:
        values: resolved, as `compose` gives them or as config.yaml of a run folder holds them.
        provenance: dotted key -> where it was written, for the sentences.
        choices: config group -> option, for the sentences.
    Raises:
        ConfigError: unknown keys, missing values, wrong types, values out of range, components that are not allowed or
            not of the right kind, and parts that do not go together.
    """
    provenance = provenance or {}
    tree = copy.deepcopy(dict(values))
    builder = Builder(_plugins(tree), provenance)
    problems = builder.problems
    for index, name in enumerate(builder.plugins):
        if not name.isidentifier() or importlib.util.find_spec(name) is None:  # which runs nothing of it
            where = from_where("plugins", provenance)
            problems.add(f"plugins.{index}", f"plugins names {name!r}, and there is no such package to import{where}")
    waiting = list(_take_missing(tree))
    for key in waiting:
        if any(key.endswith(f".{other}") for other in waiting):
            continue  # it refers to the other, as the stages of a pipeline do to `algorithm`
        problems.add(key, needed_by_species(key) or needed(key, {}, hint_for(key, provenance)))
    built: list[tuple[Any, Slot]] = []
    for pattern, base in COMPONENTS.items():
        for parent, name, key in _places(tree, pattern.split(".")):
            twin = next((part for node, part in built if node == parent[name]), None)
            if twin is None:  # else `${algorithm}` again: one object, and one report of what is wrong with it
                twin = Slot(builder.component(parent[name], key, locate(base)))
                built.append((parent[name], twin))
            parent[name] = twin.component
    for parent, name, _ in _places(tree, ["evolution", "space"]):
        if isinstance(parent[name], dict):
            parent[name] = flat(parent[name])
    config = checked(Config, tree, "", provenance, problems)
    if problems.count:
        raise ConfigError(problems.by_key.values())
    assert isinstance(config, Config)
    facts = Facts(config, provenance, dict(choices or {}))
    written = (conditions_are_legal, relative_ranges_hold_the_own_value)
    if unmet := [str(violation) for requirement in written for violation in requirement(facts)]:
        raise ConfigError(unmet)
    if config.evolution.species.parts:
        return checked_species(facts, _illegal)
    if illegal := _illegal(facts):
        raise ConfigError(illegal)
    return absolute(with_grains(config))


def _illegal(facts: Facts) -> list[str]:
    """What does not go together in a run whose members are all alike."""
    if illegal := stage_violations(facts) or grain_violations(facts):
        return illegal
    return violations(Facts(absolute(with_grains(facts.config)), facts.provenance, facts.choices))


def _take_missing(tree: dict[str, Any], above: str = "") -> Iterator[str]:
    """Remove every key that still waits for a value, and say which."""
    for name, value in list(tree.items()):
        if value == MISSING:
            del tree[name]
            yield f"{above}{name}"
        elif isinstance(value, dict):
            yield from _take_missing(value, f"{above}{name}.")


def _plugins(tree: Mapping[str, Any]) -> tuple[str, ...]:
    """The allowed packages that the config adds; anything but names is reported when the schema is checked."""
    plugins = tree.get("plugins")
    return tuple(name for name in plugins if isinstance(name, str)) if isinstance(plugins, list) else ()


def _places(tree: Any, pattern: list[str], above: str = "") -> Iterator[tuple[dict[str, Any], str, str]]:
    """(mapping, name in it, dotted key) of every place that `pattern` matches."""
    if not isinstance(tree, dict):
        return
    head, *rest = pattern
    for name in list(tree) if head == "*" else [head]:
        if name not in tree:
            continue  # the schema reports it
        key = f"{above}{name}"
        if rest:
            yield from _places(tree[name], rest, f"{key}.")
        else:
            yield tree, name, key
