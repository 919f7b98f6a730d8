"""The end of a run: what its best member is worth on tasks that nobody was trained or selected on."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from envs.core import Episode
from evo_hpo.evolution import hyperparameters
from evo_hpo.runtime.evaluate import Success
from evo_hpo.runtime.selection import finite_or_none

if TYPE_CHECKING:
    from evo_hpo.runtime.training import Training


def result_of(training: Training) -> dict[str, Any]:
    """Measure the best member on the final tasks, on which nobody was trained or selected; content of result.json."""
    progress, policy, config, measure = training.progress, training.policy, training.config, training.measure
    best = progress.best()  # never chosen on the final tasks
    values = hyperparameters.rows(progress.values, policy.members)[best]
    generations = progress.generation
    if progress.crowned is not None:
        generations = progress.crowned["generation"] + 1
        best, values = policy.slots.index(progress.crowned["slot"]), progress.crowned["values"]
        for name, block in training.blocks().items():
            block.data[best] = training.champion[name]
    others = [m for m in range(policy.members) if m != best] if config.evaluation.everyone else []
    of_member = {m: _final(training, m) for m in [*others, best]}  # the best last: details are of the last
    final, episodes = of_member[best]
    training.send_episodes("final", episodes)
    return {
        "name": config.name,
        "seed": config.seed,
        "base": progress.base,
        "best": interval(final) | {"member": policy.slots[best], "generations": generations, "hyperparameters": values},
        "members": [interval(of_member[m][0]) | {"member": policy.slots[m]} for m in sorted(of_member) if others],
        "gain": finite_or_none(
            final.rate - (progress.base["success"] if progress.base["success"] is not None else math.nan)
        ),
        "final_tasks": measure.final_size,
        "held_out": measure.of,
        "measured": measure.about,
        "details": measure.details(),
        "seconds": round(training.seconds, 1),
        "policy_tokens": progress.policy_tokens,
        "environment_turns": progress.environment_turns,
        "generations": progress.generation,
        "updates": progress.update,
        "population": config.evolution.population,
        "alarms": progress.alarms,
    }


def _final(training: Training, member: int) -> tuple[Success, list[Episode]]:
    """What a member is worth on the final tasks, which all members play with its weights."""
    blocks = list(training.blocks().values())
    kept = [block.data.clone() for block in blocks]
    for block, data in zip(blocks, kept, strict=True):
        block.load(data[member].expand_as(data))
    measured = training.measure.final(training.learner)
    for block, data in zip(blocks, kept, strict=True):
        block.load(data)
    return measured


def interval(success: Success) -> dict[str, Any]:
    """As result.json has it."""
    return {
        "success": finite_or_none(success.rate),
        "low": finite_or_none(success.low),
        "high": finite_or_none(success.high),
        "episodes": success.episodes,
    }
