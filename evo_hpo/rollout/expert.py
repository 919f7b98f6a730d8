"""Episodes played by an environment's own expert, as token rows for supervised fine-tuning."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from envs.core import Environment, Episode, StopReason, Turn
from evo_hpo.policy.chat import ChatFormat
from evo_hpo.policy.noise import generator
from evo_hpo.rollout.pool import EnvironmentPool


def demonstrate(
    environment: Environment,
    chat: ChatFormat,
    tasks: Sequence[int],
    members: int,
    noise: float,
    purpose: tuple[object, ...],
    pool: EnvironmentPool,
    max_context: int,
    instructions: bool,
) -> list[Episode]:
    """One expert episode per task, the same for every member.

    Args:
        noise: chance of a random well-formed action (which is learned, too) instead of the expert's.
        purpose: labels the stream of random numbers, so that it has nothing to do with the task's own.
        max_context: an episode ends before the turn that would make it longer.
    """
    calls: list[Callable[[], Episode]] = [
        lambda task=task, g=g: _play(  # type: ignore[misc]
            environment.fresh(), chat, task, g, noise, generator("expert", *purpose, task, g), max_context, instructions
        )
        for g, task in enumerate(tasks)
    ]
    episodes = []
    for g, (task, outcome) in enumerate(zip(tasks, pool.run(calls), strict=True)):
        if outcome.complaint:
            stop = StopReason.ENV_TIMEOUT if outcome.timed_out else StopReason.ENV_ERROR
            episodes.append(Episode(task, 0, g, stop=stop, error=outcome.complaint))
        else:
            episodes.append(outcome.value)
    return [replace(episode, member=member) for member in range(members) for episode in episodes]


def _play(
    environment: Environment,
    chat: ChatFormat,
    task: int,
    group: int,
    noise: float,
    rng: np.random.Generator,
    max_context: int,
    instructions: bool,
) -> Episode:
    observation = environment.reset(task)
    episode = Episode(task, 0, group, answer=environment.answer())
    ids = chat.first(observation, environment.instructions if instructions else "")
    used = 0
    while True:
        action = environment.expert()
        if rng.random() < noise:
            choices = environment.actions() or []
            if choices:
                action = choices[int(rng.integers(len(choices)))]
        if action is None:
            raise ValueError(
                f"{type(environment).__name__} has no expert action for task {task} after {len(episode.turns)} turns"
            )
        action_ids = chat.action(action)
        used += len(ids) + len(action_ids)
        if used > max_context:
            episode.stop = StopReason.CONTEXT_OVERFLOW
            break
        turn = Turn(observation, action, ids, action_ids, [0.0] * len(action_ids))
        turn.state_key, turn.potential = environment.state_key(), environment.potential()
        step = environment.step(action)
        turn.reward, turn.valid, turn.signals = step.reward, step.valid, dict(step.signals)
        episode.turns.append(turn)
        observation = step.observation
        if step.done:
            episode.stop, episode.success = StopReason.TERMINATED, step.success
            break
        if len(episode.turns) >= environment.max_turns:
            episode.stop = StopReason.TURN_LIMIT
            break
        ids = chat.following(observation)
    episode.final_observation = observation
    return episode
