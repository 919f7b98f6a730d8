"""Episodes from policies and environments: who plays what, turn by turn."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from functools import partial

from envs.core import Environment, Episode, Step, StopReason, Turn
from evo_hpo.policy.chat import ChatFormat, encodable
from evo_hpo.rollout.pool import EnvironmentPool, Outcome
from evo_hpo.rollout.sampler import Action, Request, Sampler


@dataclass(frozen=True)
class Assignment:
    """One episode to be played."""

    member: int
    group: int
    task: int  # seed of the environment
    key: int  # of the sampling noise


@dataclass
class _Running:
    index: int
    assignment: Assignment
    environment: Environment
    conversation: int
    episode: Episode
    observation: str = ""
    ids: list[int] | None = None  # to be fed before the next action


def play(
    sampler: Sampler,
    chat: ChatFormat,
    environment: Environment,
    assignments: Sequence[Assignment],
    pool: EnvironmentPool,
    max_action_tokens: int,
    max_context: int,
    instructions: bool,
    version: int,
) -> list[Episode]:
    """Play all assignments and return their episodes in the same order.

    Args:
        sampler: the engine; a finished episode frees its slot for the next one of the member.
        environment: prototype; every episode plays on a fresh copy.
        max_context: tokens of one episode; checked on the ids that would be fed and the action that would follow.
        instructions: whether the environment's instructions become the system message.
        version: policy version that is stamped on every turn.
    """
    waiting: dict[int, deque[int]] = {}
    for index, assignment in enumerate(assignments):
        waiting.setdefault(assignment.member, deque()).append(index)
    episodes: list[Episode | None] = [None] * len(assignments)
    running: list[_Running] = []
    while True:
        running += _admit(sampler, chat, environment, assignments, waiting, pool, instructions)
        if not running:
            break
        acting = []
        for one in running:
            assert one.ids is not None or one.episode.stop is not None
            needed = sampler.length(one.conversation) + len(one.ids or []) + max_action_tokens
            if one.episode.stop is None and needed > max_context:
                one.episode.stop, one.episode.final_observation = StopReason.CONTEXT_OVERFLOW, one.observation
            if one.episode.stop is None:
                acting.append(one)
        actions = sampler.act([Request(one.conversation, one.ids or [], one.assignment.key) for one in acting])
        texts = [chat.decode(action.ids) for action in actions]
        outcomes = pool.run([partial(_step, one.environment, text) for one, text in zip(acting, texts, strict=True)])
        for one, action, text, outcome in zip(acting, actions, texts, outcomes, strict=True):
            _record(one, action, text, outcome, chat, version)
        for one in running:
            if one.episode.stop is not None:
                episodes[one.index] = one.episode
                sampler.close(one.conversation)
        running = [one for one in running if one.episode.stop is None]
    return [episode for episode in episodes if episode is not None]


def _admit(
    sampler: Sampler,
    chat: ChatFormat,
    environment: Environment,
    assignments: Sequence[Assignment],
    waiting: dict[int, deque[int]],
    pool: EnvironmentPool,
    instructions: bool,
) -> list[_Running]:
    """Start waiting episodes in free slots; an episode whose reset fails is over at once."""
    started = []
    for member, queue in waiting.items():
        while queue and (conversation := sampler.open(member)) is not None:
            index = queue.popleft()
            a = assignments[index]
            started.append(_Running(index, a, environment.fresh(), conversation, Episode(a.task, a.member, a.group)))
    outcomes = pool.run([partial(_reset, one.environment, one.assignment.task) for one in started])
    for one, outcome in zip(started, outcomes, strict=True):
        if _failed(one, outcome):
            continue
        observation, text, one.episode.answer = outcome.value
        one.episode.instructions = encodable(text)
        one.observation = encodable(observation)
        one.ids = chat.first(one.observation, encodable(text) if instructions else "")
    return started


def _reset(environment: Environment, seed: int) -> tuple[str, str, str | None]:
    observation = environment.reset(seed)
    return observation, environment.instructions, environment.answer()


def _step(environment: Environment, action: str) -> tuple[Hashable, float | None, Step]:
    return environment.state_key(), environment.potential(), environment.step(action)


def _failed(one: _Running, outcome: Outcome) -> bool:
    if outcome.complaint:
        one.episode.stop = StopReason.ENV_TIMEOUT if outcome.timed_out else StopReason.ENV_ERROR
        one.episode.error = outcome.complaint
    return one.episode.stop is not None


def _record(one: _Running, action: Action, text: str, outcome: Outcome, chat: ChatFormat, version: int) -> None:
    """Write the turn down and decide what is fed next, or why the episode ends."""
    turn = Turn(
        observation=one.observation,
        action=text,
        observation_ids=one.ids or [],
        action_ids=action.ids,
        logprobs=action.logprobs,
        truncated=action.truncated,
        version=version,
    )
    one.episode.turns.append(turn)
    if _failed(one, outcome):
        return
    turn.state_key, turn.potential, step = outcome.value
    turn.reward, turn.valid, turn.signals = step.reward, step.valid, dict(step.signals)
    if step.done:
        one.episode.stop, one.episode.success = StopReason.TERMINATED, step.success
    elif len(one.episode.turns) >= one.environment.max_turns:
        one.episode.stop = StopReason.TURN_LIMIT
    one.observation = encodable(step.observation)
    if one.episode.stop is not None:
        one.episode.final_observation = one.observation
        return
    # a truncated action is closed for it: the stop token is then part of what is fed, and not trained
    closing = [chat.stop_id] if action.truncated else []
    one.ids = closing + chat.following(one.observation)
