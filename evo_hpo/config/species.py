"""Populations of several algorithms, rewards or granularities: what every member has from birth, and its search space.

`evolution.species.algorithm=[grpo,ppo]` lists options; each combination is composed like a run of its own and is a
species. A member keeps its species; whoever takes its place brings the parent's.
"""

from __future__ import annotations

import copy
import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

from evo_hpo.config.errors import ConfigError
from evo_hpo.config.facts import Facts, Violation
from evo_hpo.config.grains import with_grains
from evo_hpo.config.provenance import leaves
from evo_hpo.config.schema import Config, Dimension, SpeciesParts
from evo_hpo.config.space import absolute
from evo_hpo.config.validate import Provenance

GROUPS = ("algorithm", "reward", "granularity")
PARTS = "evolution.species.parts."  # before the keys of a species: its name, and the key as in a run of its own


@dataclass(frozen=True)
class Species:
    """Members that are alike in whole parts.

    Args:
        choices: group -> option, of the groups between which the members of the run differ.
        config: the run's, as if all its members were of this species; ranges of its search space are absolute.
    """

    choices: dict[str, str]
    config: Config

    @property
    def name(self) -> str:
        return name_of(self.choices)

    @property
    def space(self) -> Mapping[str, Dimension]:
        return self.config.evolution.space


def name_of(values: Mapping[str, Any]) -> str:
    """Name of the species of a member with these hyperparameters; "" where the run has no species."""
    return "+".join(str(values[group]) for group in GROUPS if group in values)


def species_of(config: Config) -> list[Species]:
    """Those of a run in the order of their lists; one without a name where all members are alike."""
    parts = config.evolution.species.parts
    if not parts:
        return [Species({}, config)]
    return [Species(dict(one.choices), absolute(with_grains(_of_one(config, one)))) for one in parts.values()]


def recorded_spaces(config: Config) -> dict[str, dict[str, Dimension]]:
    """Species -> all that may differ between members, the choice of the species included."""
    listed = _listed(vars(config.evolution.species))
    groups = {group: Dimension("categorical", choices=options) for group, options in listed.items()}
    return {one.name: groups | dict(one.space) for one in species_of(config)}


def left_out(config: Config) -> list[str]:
    """Names of the combinations of listed options that do not go together."""
    species = config.evolution.species
    names = map(name_of, _combinations(_listed(vars(species)))) if species.parts else ()
    return [name for name in names if name not in species.parts]


def _listed(species: Mapping[str, Any]) -> dict[str, list[str]]:
    """Group -> its options, of the groups between which members differ."""
    return {group: species[group] for group in GROUPS if species.get(group)}


def _combinations(listed: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
    """Group -> option, for every choice of one option of each group; none where no group is listed."""
    return [dict(zip(listed, options, strict=True)) for options in product(*listed.values())] if listed else []


# ---- composing ----


def compose_species(
    values: dict[str, Any], compose: Callable[[Mapping[str, str]], tuple[Mapping[str, Any], Provenance]]
) -> dict[str, str]:
    """Put what the lists in `evolution.species` stand for into `values`; nothing where there are none.

    Args:
        values: of the run; whatever is wrong with the lists is left to the schema.
        compose: group -> option in, values and their sources out: the run with these options.
    Returns:
        Dotted key -> source, of what was put in.
    Raises:
        ConfigError: somebody wrote parts by hand, which would be lost.
    """
    node = values.get("evolution", {}).get("species") if isinstance(values.get("evolution"), dict) else None
    if not isinstance(node, dict):
        return {}
    if node.get("parts", {}) != {}:
        raise ConfigError(
            [
                "evolution.species.parts is made from lists of options and nothing can be written there; leave it out, "
                "and list options: evolution.species.algorithm=[grpo,ppo], your own too (see --config-dir)"
            ]
        )
    listed = _listed(node)
    if not all(isinstance(one, list) and all(isinstance(o, str) for o in one) for one in listed.values()):
        return {}
    sources: dict[str, str] = {}
    node["parts"] = {}
    for choices in _combinations(listed):
        own, provenance = compose(choices)
        name = name_of(choices)
        node["parts"][name] = {"choices": choices} | {group: copy.deepcopy(own[group]) for group in GROUPS}
        for key, source in provenance.items():
            if key.partition(".")[0] in GROUPS:
                sources[f"{PARTS}{name}.{key}"] = source
    return sources


def within_species(key: str) -> tuple[str, str]:
    """Species, and what the dotted key would be in a run of its own; "" and the key where it is of no species."""
    found = re.fullmatch(rf"{re.escape(PARTS)}(.+?)\.((?:{'|'.join(GROUPS)})\..+)", key)
    return (found[1], found[2]) if found else ("", key)


def needed_by_species(key: str) -> str | None:
    """The sentence for a dotted key without a value that some species have; None for other keys."""
    name, own = within_species(key)
    if not name:
        return None
    group = own.partition(".")[0]
    return (
        f"{own} is needed by the species {name}, and an override would be for all species: write an option of your "
        f"own, {group}/<name>.yaml in a folder that --config-dir names, with `defaults: [<the option>, _self_]` and "
        "the value"
    )


def with_species(values: Mapping[str, Any], key: str) -> list[str]:
    """The dotted keys of a stored run that an override of `key` is meant for: its own, and those of its species."""
    return [name for name, _ in leaves(values) if key in (name, within_species(name)[1])] or [key]


def as_one_species(values: dict[str, Any], choices: Mapping[str, Any]) -> None:
    """Make a stored run with species one of members that are all alike.

    Args:
        values: of config.yaml, changed in place; nothing happens where there are no species.
        choices: hyperparameters of a member; its species is that of all. One that is unknown is the first.
    """
    species = values["evolution"]["species"]
    if not species["parts"]:
        return
    parts = species["parts"].get(name_of(choices)) or next(iter(species["parts"].values()))
    for stage in values["pipeline"]["stages"].values():
        stage["algorithm"] = copy.deepcopy(parts["algorithm"])
    values |= {group: copy.deepcopy(parts[group]) for group in GROUPS}
    values["evolution"]["space"] = _without_conditions(values["evolution"]["space"], parts["choices"])
    values["evolution"]["species"] = dict.fromkeys(GROUPS) | {"parts": {}}


def _without_conditions(space: Mapping[str, Any], choices: Mapping[str, str]) -> dict[str, Any]:
    """The raw search space of one species."""
    found: dict[str, Any] = {}
    for name, node in space.items():
        if isinstance(node, Mapping) and isinstance(node.get("type"), str):
            if _holds(node.get("when"), choices):
                found[name] = {key: value for key, value in node.items() if key != "when"}
        elif isinstance(node, Mapping):
            found[name] = _without_conditions(node, choices)
    return found


# ---- checking ----


def checked_species(facts: Facts, violations: Callable[[Facts], list[str]]) -> Config:
    """The config with the species that are legal; its own algorithm, reward and granularity are those of the first.

    A combination that does not go together is left out, unless an option would be in none.

    Args:
        violations: what is wrong with a run whose members are all of one species.
    Raises:
        ConfigError: what is wrong with the lists, with an option, or with the only combination.
    """
    config = facts.config
    if about_lists := [str(one) for one in _lists_are_legal(facts)]:
        raise ConfigError(about_lists)
    legal: dict[str, SpeciesParts] = {}
    complaints: dict[str, list[str]] = {}
    for name, parts in config.evolution.species.parts.items():
        own = Facts(_of_one(config, parts), facts.provenance, dict(facts.choices) | parts.choices)
        complaints[name] = violations(own)
        if not complaints[name]:
            legal[name] = parts
    used = {(group, option) for parts in legal.values() for group, option in parts.choices.items()}
    lost = {
        f"{group}={option}": complaints[name]
        for name, parts in config.evolution.species.parts.items()
        for group, option in parts.choices.items()
        if (group, option) not in used
    }
    if lost:
        raise ConfigError([f"of evolution.species, {what}: {why}" for what, told in lost.items() for why in told])
    if config.evolution.population < len(legal):
        raise ConfigError(
            [
                f"evolution.population={config.evolution.population} is less than the {len(legal)} species "
                f"{', '.join(legal)}; write evolution.population={len(legal)} or more, or list fewer options"
            ]
        )
    species = dataclasses.replace(config.evolution.species, parts=legal)
    evolution = dataclasses.replace(config.evolution, species=species)
    first = with_grains(_of_one(config, next(iter(legal.values()))))
    return dataclasses.replace(first, evolution=evolution)


def conditions_are_legal(facts: Facts) -> Iterator[Violation]:
    """`when` of a dimension speaks of groups and options between which members differ."""
    species = facts.config.evolution.species
    for key, dimension in facts.config.evolution.space.items():
        for group, options in (dimension.when or {}).items():
            listed = getattr(species, group, None) if group in GROUPS else None
            where = f"evolution.space.{key}.when"
            if not listed:
                yield Violation(
                    f"{where} names {group}, in which the members of this run do not differ",
                    f"leave it out, or list options: evolution.species.{group if group in GROUPS else GROUPS[0]}=[…]",
                )
            elif unknown := [option for option in options if option not in listed]:
                yield Violation(f"{where} names {unknown[0]}", f"choose among {', '.join(listed)}")


def _lists_are_legal(facts: Facts) -> Iterator[Violation]:
    config, species = facts.config, facts.config.evolution.species
    for group in GROUPS:
        listed: Sequence[str] = getattr(species, group) or []
        if odd := [option for option in listed if not re.fullmatch(r"[\w-]+(/[\w-]+)*", option)]:
            yield Violation(f"evolution.species.{group} has {odd[0]!r}", "write an option's name alone")
        if twice := [option for number, option in enumerate(listed) if option in listed[:number]]:
            yield Violation(f"evolution.species.{group} names {twice[0]} twice", "name it once")
    order = config.pipeline.order
    if len(order) > 1:
        yield Violation(f"species need one stage, and pipeline.order={order} has more", "write pipeline=single")
    elif not config.pipeline.stages[order[0]].evolve:
        yield Violation(
            f"stage {order[0]} does not evolve, so nothing would come of its species",
            f"write pipeline.stages.{order[0]}.evolve=true, or -m {next(g for g in GROUPS if getattr(species, g))}=…",
        )
    for name, parts in species.parts.items():
        what = "trains a scorer" if parts.algorithm.trains_scorer else "does not learn from what members play"
        if parts.algorithm.trains_scorer or parts.algorithm.learns_from != "rollout":
            yield Violation(
                f"evolution.species has {name}, which {what}, so its members cannot be compared with others",
                "train it in a run of its own",
            )
    if config.evolution.start_from is not None:
        yield Violation(
            "evolution.start_from and evolution.species do not go together, as a study says nothing about species",
            "leave one of them out",
        )


def _of_one(config: Config, parts: SpeciesParts) -> Config:
    """`config` as if all members were of one species; grains and relative ranges are as they were written."""
    stages = {
        name: dataclasses.replace(stage, algorithm=parts.algorithm) for name, stage in config.pipeline.stages.items()
    }
    evolution = config.evolution
    space = {
        key: dataclasses.replace(dimension, when=None)
        for key, dimension in evolution.space.items()
        if _holds(dimension.when, parts.choices)
    }
    return dataclasses.replace(
        config,
        algorithm=parts.algorithm,
        reward=parts.reward,
        granularity=parts.granularity,
        pipeline=dataclasses.replace(config.pipeline, stages=stages),
        evolution=dataclasses.replace(
            evolution, space=space, species=dataclasses.replace(evolution.species, parts={}, **dict.fromkeys(GROUPS))
        ),
    )


def _holds(when: Mapping[str, Sequence[str]] | None, choices: Mapping[str, str]) -> bool:
    return all(choices.get(group) in options for group, options in (when or {}).items())
