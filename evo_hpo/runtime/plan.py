"""What a run is going to do, before it does it: members, episodes, tokens, time and memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.core import Episode
from evo_hpo.config.schema import Config
from evo_hpo.config.species import left_out
from evo_hpo.policy.policy import Policy
from evo_hpo.tracking.progress import clock, count

COPIES = 4  # float32 numbers kept of every trained parameter: value, gradient and two moments


@dataclass(frozen=True)
class Plan:
    """Episodes of the whole run, all members together."""

    members: int
    generations: int
    updates: int  # of each member
    training: int
    fitness: int
    final: int

    @property
    def episodes(self) -> int:
        return self.training + self.fitness + self.final


def planned(config: Config) -> Plan:
    """What the config asks for, without what filters play again or a budget cuts off."""
    rollout, evaluation = config.rollout, config.evaluation
    members = config.evolution.population
    stages = [config.pipeline.stages[name] for name in config.pipeline.order]
    generations = sum(stage.generations for stage in stages)
    played = sum(stage.generations * stage.updates for stage in stages if stage.algorithm.learns_from == "rollout")
    measured = [stage for stage in stages if stage.algorithm.learns_from != "pairs"]
    a_generation = evaluation.tasks * evaluation.repeats * members
    return Plan(
        members=members,
        generations=generations,
        updates=sum(stage.generations * stage.updates for stage in stages),
        training=played * rollout.tasks * rollout.group_size * members,
        fitness=sum(stage.generations for stage in measured) * a_generation,
        final=evaluation.final_tasks * (members if evaluation.everyone else 1) if measured else 0,
    )


def told(config: Config, policies: Sequence[Policy]) -> str:
    """The plan as a line for a person.

    Args:
        policies: the population, and the teams of its species where it has some.
    """
    plan = planned(config)
    blocks = {id(block): block for one in policies for block in (one.block, one.critic) if block is not None}
    megabytes = sum(block.data.numel() for block in blocks.values()) * 4 * COPIES / 2**20
    learned, selected, result = count(plan.training), count(plan.fitness), count(plan.final)
    played = f"{learned} episodes to learn from, {selected} to select by, {result} for the result"
    return (
        f"plan: {_many(plan.members, 'member')}{_of_species(config)}, {_many(plan.generations, 'generation')}, "
        f"{_many(plan.updates, 'update')} each; {played if plan.episodes else 'nothing is played'}; "
        f"{megabytes:.1f} MB for what is trained beside the base{_limits(config)}"
    )


def estimated(config: Config, episodes: Sequence[Episode], seconds: float) -> str:
    """Tokens and time of the rest, at the pace of the episodes with which the base was measured."""
    played = [episode for episode in episodes if episode.turns]
    plan = planned(config)
    if not played or not plan.episodes:
        return ""
    tokens = sum(episode.policy_tokens for episode in played) / len(played) * plan.episodes
    playing = seconds / len(episodes) * plan.episodes
    return (
        f"at the pace of the base: about {count(tokens)} sampled tokens and {clock(playing)} for playing; learning "
        "comes on top, and takes about as long on a CPU"
    )


def _limits(config: Config) -> str:
    """Budgets that may end the run before that."""
    limits = [f"{limit:,g} {name.replace('_', ' ')}" for name, limit in vars(config.budget).items() if limit]
    return f"; it ends sooner where a budget is spent: {', '.join(limits)}" if limits else ""


def _of_species(config: Config) -> str:
    """Which there are, and which combinations do not go together."""
    parts = config.evolution.species.parts
    if not parts:
        return ""
    out = left_out(config)
    left = f", without {', '.join(out)}, which would be refused" if out else ""
    return f" ({', '.join(parts)}{left})"


def _many(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"
