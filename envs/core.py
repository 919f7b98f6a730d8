"""What an environment is, and what an episode in it leaves behind. Text in, text out; no torch.

An environment is one mutable dataclass: its init fields are its YAML keys, and `fresh()` gives a copy that plays one
episode at a time. Optional abilities are declared in `features`, so that an algorithm that needs one can be refused
before anything is loaded.
"""

from __future__ import annotations

import dataclasses
import math
from abc import ABC, abstractmethod
from collections.abc import Hashable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, ClassVar, Self


class StopReason(StrEnum):
    """Why an episode ended."""

    TERMINATED = "terminated"  # the environment said so (won or lost)
    TURN_LIMIT = "turn_limit"  # max_turns were played
    CONTEXT_OVERFLOW = "context_overflow"  # the next observation and action would not fit into the context
    ENV_ERROR = "env_error"  # reset or step raised; the episode is dropped from groups and losses
    ENV_TIMEOUT = "env_timeout"  # reset or step did not return in time; likewise dropped

    @property
    def failed(self) -> bool:
        """True where the environment, not the agent, broke the episode."""
        return self in (StopReason.ENV_ERROR, StopReason.ENV_TIMEOUT)


class Feature(StrEnum):
    """Optional abilities of an environment."""

    TURN_REWARDS = "turn_rewards"  # `Step.reward` says something before the end
    STATE_KEY = "state_key"
    SNAPSHOT = "snapshot"
    EXPERT = "expert"
    PRIVILEGED = "privileged"
    VALIDITY = "validity"  # `Step.valid` tells whether the action could be understood and done
    FIXED_TURNS = "fixed_turns"  # every episode of a task has the same number of turns
    SIGNALS = "signals"  # `Step.signals` holds verifiable facts about the turn
    ANSWER = "answer"  # the task has a reference answer
    POTENTIAL = "potential"  # how far the agent is can be measured in every state


@dataclass(frozen=True)
class Step:
    """What the environment answers to one action.

    Raises:
        ValueError: a reward or signal that is not finite; in a run that costs the episode, as any error of `step` does.
    """

    observation: str
    reward: float = 0.0  # turn reward; verifiable progress, never a judge's score
    done: bool = False
    success: bool = False  # only meaningful with done=True
    valid: bool = True
    signals: dict[str, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name, value in {"reward": self.reward, **self.signals}.items():
            if not math.isfinite(value):
                raise ValueError(f"the environment gave {name}={value}, which is no finite number")


class Environment(ABC):
    """Base class of every environment. Subclasses are (non-frozen) dataclasses with a default for every field.

    Read `features`, `max_turns` and `instructions` on the instance: the last two may depend on the task (a mixture),
    so read them after `reset`.
    """

    features: ClassVar[frozenset[Feature]] = frozenset()
    max_turns: int = 16  # turns after which the episode stops with StopReason.TURN_LIMIT

    @property
    def turn_totals(self) -> tuple[tuple[float, float], tuple[float, float]] | None:
        """Smallest and largest sum of turn rewards of an episode that fails, and of one that succeeds, if known."""
        return None

    @property
    def instructions(self) -> str:
        """What a model that never saw this environment has to know; becomes the system message."""
        return ""

    def fresh(self) -> Self:
        """A copy with the same settings and no episode in progress."""
        settings = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.init}  # type: ignore[arg-type]
        return type(self)(**settings)

    @abstractmethod
    def reset(self, seed: int) -> str:
        """Start the task `seed` and return its first observation. Equal seeds give equal episodes."""

    @abstractmethod
    def step(self, action: str) -> Step:
        """Play one turn. Any text is a legal argument; text that is no action costs a turn and has valid=False."""

    def task_key(self) -> str | None:
        """Identity of the task apart from its seed (say, the map), so that held-out tasks are never trained on."""
        return None

    def state_key(self) -> Hashable | None:
        """Canonical key of the present state: equal iff the future is equal; no step counter, no history."""
        return None

    def answer(self) -> str | None:
        """The reference answer of the task in progress; declared by Feature.ANSWER, and never shown to the agent."""
        return None

    def potential(self) -> float | None:
        """How far the agent is in the present state: 0 at the start of nothing, 1 where all is done, or any scale.

        A function of the state alone; declared by Feature.POTENTIAL.
        """
        return None

    def snapshot(self) -> Any:
        """The present state with its randomness, for `restore` on any `fresh()` copy."""
        raise TypeError(f"{type(self).__name__} does not declare Feature.SNAPSHOT, so it cannot be forked")

    def restore(self, snapshot: Any) -> None:
        """Continue exactly where `snapshot` was taken."""
        raise TypeError(f"{type(self).__name__} does not declare Feature.SNAPSHOT, so it cannot be forked")

    def expert(self) -> str | None:
        """A best action in the present state, or None where there is none."""
        return None

    def actions(self) -> list[str] | None:
        """All well-formed actions in the present state, where they can be listed (for noisy experts)."""
        return None

    def privileged(self) -> str | None:
        """What a critic may know and the agent may not (say, the hidden solution)."""
        return None

    def close(self) -> None:  # noqa: B027 - most environments hold nothing
        """Free whatever the episode holds."""


@dataclass
class Turn:
    """One turn: the tokens that were fed, the tokens that were sampled, and what came of them."""

    observation: str
    action: str
    observation_ids: list[int]  # everything fed since the last sampled token: glue, template, observation
    action_ids: list[int]  # exactly the sampled ids; the last is the stop token unless truncated
    logprobs: list[float]  # log-probability of each sampled id under the distribution that was sampled from
    reward: float = 0.0
    valid: bool = True
    truncated: bool = False  # the action used up its token budget before a stop token
    state_key: Hashable | None = None  # state *before* the action
    potential: float | None = None  # of the state before the action
    version: int = 0  # policy version that sampled the turn
    signals: dict[str, float] = field(default_factory=dict)


@dataclass
class Episode:
    """The turns of one task by one member, and how it stopped."""

    task: int  # seed of the task
    member: int
    group: int  # episodes with equal (member, group) share the task
    turns: list[Turn] = field(default_factory=list)
    stop: StopReason | None = None
    success: bool = False
    final_observation: str = ""
    answer: str | None = None  # reference answer of the task
    instructions: str = ""  # what the agent had to know beforehand, whether or not it was told
    error: str = ""  # what the environment raised, if it did

    @property
    def failed(self) -> bool:
        return self.stop is not None and self.stop.failed

    @property
    def policy_tokens(self) -> int:
        return sum(len(turn.action_ids) for turn in self.turns)
