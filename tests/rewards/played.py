"""Episodes for tests of rewards: written down by hand, or played in a real environment."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from envs.core import Environment, Episode, StopReason, Turn


def said(*actions: str, success: bool = False, answer: str | None = None, **columns: Sequence[Any]) -> Episode:
    """An episode of these actions; `columns` give other fields of its turns, one value per turn."""
    made = {"observation_ids": [[]] * len(actions), "action_ids": [[]] * len(actions), **columns}
    turns = [
        Turn("", action, logprobs=[], **{name: values[k] for name, values in made.items()})
        for k, action in enumerate(actions)
    ]
    return Episode(7, 0, 0, turns, StopReason.TERMINATED, success, answer=answer)


def play(env: Environment, task: int, player: int, group: int = 0) -> Episode:
    """An episode of random actions, some of which are nonsense; one to four tokens an action."""
    stream = random.Random(player)
    episode = Episode(task, 0, group)
    observation = env.reset(task)
    episode.answer = env.answer()
    while episode.stop is None:
        choices = env.actions() or [""]
        action = "nonsense" if stream.random() < 0.15 else stream.choice(choices)
        ids = [30 + len(action)] * stream.randint(1, 4)
        turn = Turn(observation, action, [3, 20], ids, [-1.0] * len(ids), state_key=env.state_key())
        turn.potential = env.potential()
        step = env.step(action)
        turn.reward, turn.valid, observation = step.reward, step.valid, step.observation
        episode.turns.append(turn)
        if step.done:
            episode.stop, episode.success = StopReason.TERMINATED, step.success
        elif len(episode.turns) == env.max_turns:
            episode.stop = StopReason.TURN_LIMIT
    return episode
