"""What must hold between the parts of a config. One row per requirement; a new one is one function and one row."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from algorithms.policy_gradient import PolicyGradient
from algorithms.preference import Preference
from envs.core import Environment, Feature
from evo_hpo.config.alternatives import fitting_options
from evo_hpo.config.dominance import failing_never_pays, failing_never_pays_where_weights_evolve
from evo_hpo.config.facts import Facts, Violation
from evo_hpo.config.legal_space import space_is_legal
from evo_hpo.config.schema import Config


def violations(facts: Facts) -> list[str]:
    """One sentence for everything that does not go together; stages and grains are looked at before."""
    return [str(violation) for requirement in REQUIREMENTS.values() for violation in requirement(facts)]


def stage_violations(facts: Facts) -> list[str]:
    """One sentence for every stage that has a name and no content, or content and no name."""
    return [str(violation) for violation in _stages_are_named(facts)]


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


def _what_is_paid_by_turn_counts(facts: Facts) -> Iterator[Violation]:
    if facts.config.granularity.reward != "sparse":
        return
    if silent := facts.config.reward.paid_by_turn:
        parts = " and ".join(sorted(silent))
        who = facts.named("reward") if "" in silent else f"the part {parts} of {facts.named('reward')}"
        yield Violation(
            f"{who} pays turns and no outcome, and {facts.named('granularity')} pays out the outcome alone",
            _use("granularity", lambda granularity: granularity.needs_turn_rewards)
            + ", or let it be paid as the outcome (paid: outcome, grain: episode) where it can",
        )


def _without_turn_rewards() -> str:
    return _use("granularity", lambda granularity: not granularity.needs_turn_rewards)


def _algorithm_has_its_features(facts: Facts) -> Iterator[Violation]:
    for stage, algorithm in facts.algorithms.items():
        needs = frozenset(Feature(need) for need in algorithm.needs)
        if missing := needs - facts.config.env.features:
            reason = f"stage {stage} learns with {_who_needs(algorithm, missing)}, which needs {_names(missing)}"
            yield Violation(f"{reason}, and {facts.named('env')} gives none", _use("env", partial(_offers, needs)))


def _who_needs(algorithm: Any, missing: frozenset[Feature]) -> str:
    """Name of the part of an algorithm that asks for what is missing."""
    parts: list[Any] = [algorithm.advantage, *algorithm.filters] if isinstance(algorithm, PolicyGradient) else []
    found = [type(part).__name__ for part in parts if missing & {Feature(need) for need in part.needs}]
    return " and ".join(found) or type(algorithm).__name__


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
                "take them away with "
                + " ".join(f"~algorithm.advantage.weights.{name}" for name in sorted(missing))
                + ", and write those of the reward, as in +algorithm.advantage.weights.success=1",
            )


def _relative_scores_stay_in_their_group(facts: Facts) -> Iterator[Violation]:
    if not facts.config.reward.relative:
        return
    for stage, algorithm in facts.algorithms.items():
        if algorithm.learns_from == "rollout" and algorithm.min_group < 2:
            yield Violation(
                f"scores of {facts.named('reward')} compare only within a group, and stage {stage} compares episodes "
                "of different groups",
                _use("algorithm", lambda algorithm: algorithm.learns_from == "rollout" and algorithm.min_group > 1)
                + (", or write reward.center=true" if hasattr(facts.config.reward, "center") else ""),
            )


def _scorers_are_trained_alone(facts: Facts) -> Iterator[Violation]:
    for stage, algorithm in facts.algorithms.items():
        if algorithm.trains_scorer and len(facts.algorithms) > 1:
            yield Violation(
                f"stage {stage} trains a scorer, and what is measured between its generations is not what the other "
                "stages are measured by",
                "train it in a run of its own (pipeline=single), and give reward.path its folder `best`",
            )


def _ages_can_differ(facts: Facts) -> Iterator[Violation]:
    rollout = facts.config.rollout
    for name, stage in facts.config.pipeline.stages.items():
        if stage.algorithm.learns_from == "rollout" and stage.updates % rollout.ahead:
            yield Violation(
                f"a generation of stage {name} is {stage.updates} updates long, and rollout.ahead={rollout.ahead} "
                "samples the episodes of that many updates at once",
                f"write pipeline.stages.{name}.updates={-(-stage.updates // rollout.ahead) * rollout.ahead}",
            )


def _stale_episodes_have_a_ratio(facts: Facts) -> Iterator[Violation]:
    for stage, algorithm in facts.algorithms.items():
        stale = isinstance(algorithm, PolicyGradient) and not algorithm.objective.off_policy
        if stale and facts.config.rollout.ahead > 1:
            yield Violation(
                f"rollout.ahead={facts.config.rollout.ahead} makes episodes stale, and stage {stage} learns with "
                f"{type(algorithm.objective).__name__}, which has no ratio to correct for that",
                "write rollout.ahead=1, or algorithm/objective=clipped",
            )


def _replacing_has_a_next_selection(facts: Facts) -> Iterator[Violation]:
    config = facts.config
    if config.on_alarm == "replace" and not someone_is_selected(config):
        yield Violation(
            "on_alarm=replace makes a member lose the next selection, and in this run nobody is selected",
            "write on_alarm=warn or on_alarm=stop, or evolution=truncation",
        )


def someone_is_selected(config: Config) -> bool:
    """Whether members can take each other's places in any stage."""
    evolution, stages = config.evolution, config.pipeline.stages.values()
    return evolution.population > 1 and evolution.strategy.evolves and any(stage.evolve for stage in stages)


def _controls_have_something_to_control_for(facts: Facts) -> Iterator[Violation]:
    config = facts.config
    if not config.sweep.controls:
        return
    asked, leave = f"sweep.controls asks for {', '.join(config.sweep.controls)}", "write sweep.controls=[]"
    if not someone_is_selected(config):
        yield Violation(
            f"{asked}, and in this run nobody is selected, so there is no evolution to control for",
            f"{leave}, or let a population evolve (evolution=gated)",
        )
    if all(algorithm.learns_from == "pairs" for algorithm in facts.algorithms.values()):
        yield Violation(f"{asked}, which get as many sampled tokens as the run, and nothing is sampled in it", leave)


def _who_counts_generations_is_asked_after_each(facts: Facts) -> Iterator[Violation]:
    evolution = facts.config.evolution
    name = type(evolution.strategy).__name__
    if evolution.strategy.own_interval and evolution.every > 1:
        yield Violation(
            f"evolution.every is {evolution.every}, and {name} counts generations itself", "write evolution.every=1"
        )
    if evolution.strategy.own_start and evolution.burn_in > 0:
        yield Violation(
            f"evolution.burn_in is {evolution.burn_in}, and {name} counts generations from the first",
            "write evolution.burn_in=0",
        )


def _a_search_has_a_second_trial(facts: Facts) -> Iterator[Violation]:
    from evo_hpo.evolution.strategies import TPE

    strategy = facts.config.evolution.strategy
    for name, stage in facts.config.pipeline.stages.items():
        if isinstance(strategy, TPE) and stage.evolve and stage.generations < 2 * strategy.trial:
            shorter = f"evolution.strategy.trial={stage.generations // 2}, or " if stage.generations > 1 else ""
            yield Violation(
                f"stage {name} has {stage.generations} generation(s) and a trial takes {strategy.trial}, so it ends "
                "before anything is suggested",
                f"write {shorter}pipeline.stages.{name}.generations={2 * strategy.trial}",
            )


def _known_values_have_who_takes_them(facts: Facts) -> Iterator[Violation]:
    evolution = facts.config.evolution
    if evolution.start_from is None:
        return
    from evo_hpo.evolution.hyperparameters import evolvable

    own, leave = "evolution.start_from gives members 1, 2, … the best values", "or leave evolution.start_from out"
    if evolution.population < 2:
        yield Violation(f"{own}, and there is only member 0", f"write evolution.population=8, {leave}")
    if not evolution.spread:
        yield Violation(
            f"{own}, and evolution.spread=false lets all begin alike", f"write evolution.spread=true, {leave}"
        )
    if not evolution.space.keys() & evolvable(facts.config).keys():
        yield Violation(f"{own} of the space, and evolution.space is empty", f"choose an evolution/space, {leave}")


def _groups_are_large_enough(facts: Facts) -> Iterator[Violation]:
    size = facts.config.rollout.group_size
    for stage, algorithm in facts.algorithms.items():
        if algorithm.learns_from == "rollout" and size < algorithm.min_group:
            yield Violation(
                f"stage {stage} compares the episodes of a group, so it needs at least {algorithm.min_group} of them, "
                f"and rollout.group_size is {size}",
                f"write rollout.group_size={max(4, algorithm.min_group)}",
            )


def _groups_stay_large_enough(facts: Facts) -> Iterator[Violation]:
    dimension = facts.config.evolution.space.get("rollout.group_size")
    if dimension is None:
        return
    low = min(dimension.choices or [dimension.low])
    for stage, algorithm in facts.algorithms.items():
        if algorithm.learns_from == "rollout" and low is not None and low < algorithm.min_group:
            yield Violation(
                f"evolution.space.rollout.group_size goes down to {low:g}, and stage {stage} needs at least "
                f"{algorithm.min_group} episodes in a group to compare",
                f"let it begin at {algorithm.min_group}",
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
        if algorithm.trains_scorer:
            yield Violation(f"{moved} {stage} trains a head on it", adapters)
        elif isinstance(algorithm, Preference):
            yield Violation(f"{moved} {stage} compares with a reference", adapters)
        elif isinstance(algorithm, PolicyGradient) and algorithm.critic is not None:
            yield Violation(f"{moved} {stage} has a critic, which is an adapter on it", adapters)
        elif facts.config.reward.kl_budget is not None and algorithm.learns_from == "rollout":
            yield Violation(
                f"{moved} {stage} measures how far it is from a reference, which {facts.named('reward')} limits",
                f"{adapters}, or reward.kl_limit=null",
            )
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
    "what is paid by turn is paid": _what_is_paid_by_turn_counts,
    "the environment has what the algorithm needs": _algorithm_has_its_features,
    "an estimator that weighs turn rewards gets them": _estimator_has_turn_rewards,
    "the reward has the components that the estimator weighs": _estimator_has_its_components,
    "scores that compare within a group stay there": _relative_scores_stay_in_their_group,
    "a failed episode cannot earn more than a successful one": failing_never_pays,
    "nor anywhere in the search space": failing_never_pays_where_weights_evolve,
    "a scorer is trained in a run of its own": _scorers_are_trained_alone,
    "stale episodes have a ratio": _stale_episodes_have_a_ratio,
    "who is to be replaced can be": _replacing_has_a_next_selection,
    "controls have an evolution to control for": _controls_have_something_to_control_for,
    "who counts generations is asked after each": _who_counts_generations_is_asked_after_each,
    "a search has a second trial": _a_search_has_a_second_trial,
    "values that are known have who takes them": _known_values_have_who_takes_them,
    "groups are large enough for the estimator": _groups_are_large_enough,
    "groups stay large enough where their size evolves": _groups_stay_large_enough,
    "a generation holds whole batches of episodes sampled ahead": _ages_can_differ,
    "the whole base is trained only by a population of one": _whole_base_trains_alone,
    "a reference or a critic has a frozen base": _whole_base_is_no_reference,
    "an action fits into the context": _an_action_fits_the_context,
    "the name can be that of a folder": _name_is_one_word,
    "the device is there": _device_is_there,
    "the search space holds what can evolve, and the config's own values": space_is_legal,
}
