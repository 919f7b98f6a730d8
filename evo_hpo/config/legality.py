"""What must hold between the parts of a config. One row per requirement; a new one is one function and one row."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from algorithms.policy_gradient import PolicyGradient
from algorithms.preference import Preference
from envs.core import Environment, Feature
from evo_hpo.config.alternatives import fitting_options
from evo_hpo.config.errors import Problems
from evo_hpo.config.explain import nearest
from evo_hpo.config.grains import at_grains
from evo_hpo.config.schema import Config, Dimension
from evo_hpo.config.validate import Provenance, checked, from_where, show


@dataclass(frozen=True)
class Facts:
    """A config whose keys and types are right, and what was chosen to get it."""

    config: Config
    provenance: Provenance
    choices: Mapping[str, str]  # config group -> option; empty where only the values are known

    def named(self, group: str) -> str:
        """`env=frozen_lake`, or `env=FrozenLake` where the option is not known."""
        return f"{group}={self.choices.get(group) or type(getattr(self.config, group)).__name__}"

    @property
    def algorithms(self) -> dict[str, Any]:
        """Stage -> its algorithm, in the order of the pipeline."""
        pipeline = self.config.pipeline
        return {name: pipeline.stages[name].algorithm for name in pipeline.order if name in pipeline.stages}


@dataclass(frozen=True)
class Violation:
    reason: str  # what does not go together, and why
    remedy: str  # the nearest legal choice

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"


def violations(facts: Facts) -> list[str]:
    """One sentence for everything that does not go together; stages and grains are looked at before."""
    return [str(violation) for requirement in REQUIREMENTS.values() for violation in requirement(facts)]


def stage_violations(facts: Facts) -> list[str]:
    """One sentence for every stage that has a name and no content, or content and no name."""
    return [str(violation) for violation in _stages_are_named(facts)]


def grain_violations(facts: Facts) -> list[str]:
    """One sentence for every stage whose algorithm means nothing at the grain that the granularity lays down."""
    found = []
    for stage, algorithm in facts.algorithms.items():
        try:
            at_grains(algorithm, facts.config.granularity)
        except ValueError as error:
            found.append(
                f"{facts.named('granularity')} does not fit the algorithm of stage {stage}: {error}. To leave a grain "
                "to the algorithm write null for it, as in granularity.ratio=null"
            )
    return found


def _reward_has_its_features(facts: Facts) -> Iterator[Violation]:
    config = facts.config
    needs = frozenset(config.reward.needs)
    if missing := needs - config.env.features:
        yield Violation(
            f"{facts.named('reward')} needs {_names(missing)}, and {facts.named('env')} gives none",
            _use("env", partial(_offers, needs)),
        )


def _granularity_has_turn_rewards(facts: Facts) -> Iterator[Violation]:
    config = facts.config
    if not config.granularity.needs_turn_rewards:
        return
    if not config.reward.gives_turn_rewards:
        reason = f"{facts.named('granularity')} needs turn rewards, and {facts.named('reward')} gives none"
        better = _use("reward", lambda reward: reward.gives_turn_rewards and reward.needs <= config.env.features)
        yield Violation(reason, f"{_without_turn_rewards()}, or {better}")
    elif missing := config.reward.turn_reward_needs - config.env.features:
        reason = f"{facts.named('granularity')} needs turn rewards, for which {facts.named('reward')} needs "
        yield Violation(f"{reason}{_names(missing)}, and {facts.named('env')} gives none", _without_turn_rewards())


def _without_turn_rewards() -> str:
    return _use("granularity", lambda granularity: not granularity.needs_turn_rewards)


def _algorithm_has_its_features(facts: Facts) -> Iterator[Violation]:
    for stage, algorithm in facts.algorithms.items():
        needs = frozenset(Feature(need) for need in algorithm.needs)
        if missing := needs - facts.config.env.features:
            reason = f"stage {stage} learns with {type(algorithm).__name__}, which needs {_names(missing)}"
            yield Violation(f"{reason}, and {facts.named('env')} gives none", _use("env", partial(_offers, needs)))


def _estimator_has_turn_rewards(facts: Facts) -> Iterator[Violation]:
    if facts.config.granularity.needs_turn_rewards:
        return
    for stage, algorithm in facts.algorithms.items():
        if isinstance(algorithm, PolicyGradient) and algorithm.needs_turn_rewards:
            yield Violation(
                f"stage {stage} learns with {type(algorithm.advantage).__name__}, which weighs turn rewards against "
                f"the outcome, and {facts.named('granularity')} pays out the outcome alone",
                "use granularity=mixed",
            )


def _estimator_has_its_components(facts: Facts) -> Iterator[Violation]:
    given = facts.config.reward.component_names
    for stage, algorithm in facts.algorithms.items():
        if isinstance(algorithm, PolicyGradient) and (missing := algorithm.advantage.needs_components - given):
            yield Violation(
                f"stage {stage} weighs the components {' and '.join(sorted(missing))}, and {facts.named('reward')} "
                f"gives {', '.join(sorted(given)) or 'none'}",
                "write those of the reward into algorithm.advantage.weights",
            )


def _relative_scores_stay_in_their_group(facts: Facts) -> Iterator[Violation]:
    if not facts.config.reward.relative:
        return
    for stage, algorithm in facts.algorithms.items():
        if algorithm.learns_from == "rollout" and algorithm.min_group < 2:
            yield Violation(
                f"scores of {facts.named('reward')} compare only within a group, and stage {stage} compares episodes "
                "of different groups",
                _use("algorithm", lambda algorithm: algorithm.learns_from == "rollout" and algorithm.min_group > 1),
            )


def _ages_can_differ(facts: Facts) -> Iterator[Violation]:
    rollout = facts.config.rollout
    for name, stage in facts.config.pipeline.stages.items():
        if stage.algorithm.learns_from == "rollout" and stage.updates % rollout.ahead:
            yield Violation(
                f"stage {name} has {stage.updates} updates a generation, and rollout.ahead={rollout.ahead} samples the "
                "episodes of that many updates at once",
                f"write pipeline.stages.{name}.updates={-(-stage.updates // rollout.ahead) * rollout.ahead}",
            )


def _groups_are_large_enough(facts: Facts) -> Iterator[Violation]:
    size = facts.config.rollout.group_size
    for stage, algorithm in facts.algorithms.items():
        if algorithm.learns_from == "rollout" and size < algorithm.min_group:
            yield Violation(
                f"stage {stage} compares the episodes of a group, so it needs at least {algorithm.min_group} of them, "
                f"and rollout.group_size is {size}",
                f"write rollout.group_size={max(4, algorithm.min_group)}",
            )


def _whole_base_trains_alone(facts: Facts) -> Iterator[Violation]:
    config = facts.config
    if config.model.train == "base" and config.evolution.population > 1:
        yield Violation(
            f"model.train=base trains every weight of one model, and evolution.population is "
            f"{config.evolution.population}",
            "write evolution=none, or model.train=adapters",
        )


def _stages_are_named(facts: Facts) -> Iterator[Violation]:
    pipeline = facts.config.pipeline
    known = ", ".join(pipeline.stages)
    for name in pipeline.order:
        if name not in pipeline.stages:
            yield Violation(
                f"pipeline.order names the stage {name}, and pipeline.stages has {known or 'none'}",
                f"write pipeline.order=[{','.join(pipeline.stages)}]",
            )
    for name in sorted({name for name in pipeline.order if pipeline.order.count(name) > 1}):
        yield Violation(f"pipeline.order names the stage {name} twice", "give the second one a name of its own")
    for name in pipeline.stages:
        if name not in pipeline.order:
            order = ",".join([*pipeline.order, name])
            yield Violation(f"the stage {name} is in pipeline.stages and never runs", f"write pipeline.order=[{order}]")


def _whole_base_is_no_reference(facts: Facts) -> Iterator[Violation]:
    if facts.config.model.train != "base":
        return
    moved, adapters = "model.train=base leaves no frozen base behind, and stage", "write model.train=adapters"
    for stage, algorithm in facts.algorithms.items():
        if isinstance(algorithm, Preference):
            yield Violation(f"{moved} {stage} compares with a reference", adapters)
        elif isinstance(algorithm, PolicyGradient) and algorithm.critic is not None:
            yield Violation(f"{moved} {stage} has a critic, which is an adapter on it", adapters)
        elif isinstance(algorithm, PolicyGradient) and algorithm.kl.coef > 0:
            reason = f"{moved} {stage} measures the divergence from a reference"
            yield Violation(reason, f"{adapters}, or algorithm.kl.coef=0")


def _an_action_fits_the_context(facts: Facts) -> Iterator[Violation]:
    rollout = facts.config.rollout
    if rollout.max_action_tokens >= rollout.max_context:
        yield Violation(
            f"an action of rollout.max_action_tokens={rollout.max_action_tokens} tokens does not fit into "
            f"rollout.max_context={rollout.max_context}, which holds the observations as well",
            f"write rollout.max_context={4 * rollout.max_action_tokens} or more",
        )


def _name_is_one_word(facts: Facts) -> Iterator[Violation]:
    name = facts.config.name
    if re.search(r"[/\\\0\n]", name):
        yield Violation(f"name is {name!r}, and it becomes part of the name of a folder", "write it without slashes")


def _device_is_there(facts: Facts) -> Iterator[Violation]:
    device = facts.config.device
    if device in ("auto", "cpu"):
        return
    if not re.fullmatch(r"cuda(:\d+)?", device):
        yield Violation(f"device is {device!r}", "write auto, cpu, cuda or cuda:N")
        return
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if count <= int(device.partition(":")[2] or 0):
        yield Violation(f"device={device} is not there: torch sees {count or 'no'} CUDA devices", "write device=auto")


def _space_is_legal(facts: Facts) -> Iterator[Violation]:
    space = facts.config.evolution.space
    if not space:
        return
    from evo_hpo.evolution.hyperparameters import evolvable, types_of

    values, types = evolvable(facts.config), types_of(facts.config)
    if unknown := [key for key, dimension in space.items() if key not in values and not dimension.optional]:
        guesses = {key: nearest(key, values, cutoff=0.9) for key in unknown}
        told = " and ".join(f"{key}{f' (did you mean {guess}?)' if guess else ''}" for key, guess in guesses.items())
        source = from_where(f"evolution.space.{unknown[0]}", facts.provenance)
        yield Violation(
            f"evolution.space has {told}, which cannot evolve in this run{source}",
            f"write optional: true to leave it out where it is missing, or choose among {', '.join(sorted(values))}",
        )
    for key, dimension in space.items():
        if key in values:
            where = f"evolution.space.{key}"
            senseless = list(_dimension_is_legal(where, key, dimension, values[key]))
            yield from senseless or _every_value_is_legal(where, dimension, types[key])


def _dimension_is_legal(where: str, key: str, dimension: Dimension, value: Any) -> Iterator[Violation]:
    if dimension.relative:
        yield Violation(
            f"{where} is relative to {key}, which is {show(key, value)}",
            f"give {key} a number other than 0, or write relative: false",
        )
        return
    if dimension.type == "categorical":
        if not dimension.choices:
            yield Violation(f"{where} is categorical and has no choices", "write choices: [...]")
        elif value not in dimension.choices:
            shown = show(key, value)
            yield Violation(f"{key} starts at {shown}, which is no choice of {where}", f"add {shown} to the choices")
        if dimension.low is not None or dimension.high is not None or dimension.log:
            yield Violation(f"{where} is categorical, so low, high and log mean nothing", "leave them out")
        return
    if dimension.choices is not None:
        yield Violation(f"{where} is a range, so choices mean nothing", "leave them out, or write type: categorical")
    low, high = dimension.low, dimension.high
    if low is None or high is None:
        yield Violation(f"{where} has no end", "write both low and high")
        return
    if not (math.isfinite(low) and math.isfinite(high) and low < high):
        yield Violation(f"{where} runs from {low:g} to {high:g}", "write a low that is less than high")
        return
    if dimension.log and low <= 0:
        yield Violation(f"{where} is logarithmic and starts at {low:g}", "write a low above 0, or log: false")
    if dimension.type == "int" and not (low.is_integer() and high.is_integer()):
        yield Violation(f"{where} holds whole numbers and runs from {low:g} to {high:g}", "write whole numbers")
    if isinstance(value, bool) or not isinstance(value, int | float):
        yield Violation(f"{key} is {show(key, value)}, and {where} is a range of numbers", "write type: categorical")
        return
    if dimension.type == "float" and isinstance(value, int):
        yield Violation(f"{key} is a whole number, and {where} is not", "write type: int")
    if not low <= value <= high:
        yield Violation(
            f"{key} starts at {value:g}, outside the range {low:g} to {high:g} of {where}",
            f"start inside it, for example {key}={low if value < low else high:g}, or widen the range",
        )


def _every_value_is_legal(where: str, dimension: Dimension, hint: Any) -> Iterator[Violation]:
    """The ends of a range, or the choices, against the type and range that the key itself has."""
    ends = {"low": dimension.low, "high": dimension.high}
    told: dict[str, Any] = {name: end for name, end in ends.items() if end is not None}
    if dimension.type == "int":
        told = {name: int(end) for name, end in told.items()}
    elif dimension.type == "categorical":
        told = {f"choices.{index}": choice for index, choice in enumerate(dimension.choices or ())}
    problems = Problems()
    for name, value in told.items():
        checked(hint, value, f"{where}.{name}", {}, problems)
    for sentence in problems.by_key.values():
        yield Violation(sentence, "keep the space inside what the key may be")


def _offers(needs: frozenset[Feature], env: Environment) -> bool:
    return needs <= env.features


def _names(features: frozenset[Feature]) -> str:
    return " and ".join(sorted(feature.value for feature in features))


def _use(group: str, fits: Callable[[Any], bool]) -> str:
    options = fitting_options(group, fits)
    if not options:
        return f"no {group} that comes with the package does"
    return "use " + " or ".join(f"{group}={option}" for option in options[:3])


# What must hold -> what looks for violations of it. Each may rely on the stages and the grains.
REQUIREMENTS: dict[str, Callable[[Facts], Iterator[Violation]]] = {
    "the environment has what the reward needs": _reward_has_its_features,
    "turn rewards exist where the granularity reads them": _granularity_has_turn_rewards,
    "the environment has what the algorithm needs": _algorithm_has_its_features,
    "an estimator that weighs turn rewards gets them": _estimator_has_turn_rewards,
    "the reward has the components that the estimator weighs": _estimator_has_its_components,
    "scores that compare within a group stay there": _relative_scores_stay_in_their_group,
    "groups are large enough for the estimator": _groups_are_large_enough,
    "a generation holds whole batches of episodes sampled ahead": _ages_can_differ,
    "the whole base is trained only by a population of one": _whole_base_trains_alone,
    "a reference or a critic has a frozen base": _whole_base_is_no_reference,
    "an action fits into the context": _an_action_fits_the_context,
    "the name can be that of a folder": _name_is_one_word,
    "the device is there": _device_is_there,
    "the search space holds what can evolve, and the config's own values": _space_is_legal,
}
