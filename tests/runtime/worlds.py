"""Environments and a reward for tests of the runtime, named by `_target_` like anybody's plugin."""

from __future__ import annotations

import os
import resource
import signal
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import numpy as np

from envs.core import Environment, Episode, Feature, Step
from evo_hpo.evolution.strategies import Fate, Standing, Strategy, Values
from evo_hpo.evolution.strategies.core import Mutation
from rewards.core import Score, Verdict
from rewards.environment import EnvironmentReward

SIGNAL_AT, SIGNAL, FILE_LIMIT = "WORLD_SIGNAL_AT", "WORLD_SIGNAL", "WORLD_FILE_LIMIT"


@dataclass
class Stopping(Environment):
    """Lasts `length` turns whatever the agent does, so that steps can be counted; what it says decides the success.

    At the step of this process that `WORLD_SIGNAL_AT` counts, it sends the process the signal `WORLD_SIGNAL`, or lets
    the disk be full: files cannot grow beyond `WORLD_FILE_LIMIT` bytes from then on.
    """

    length: int = 3
    features: ClassVar[frozenset[Feature]] = frozenset({Feature.TURN_REWARDS, Feature.EXPERT})
    steps: ClassVar[int] = 0

    _said: list[str] = field(default_factory=list, init=False, repr=False)
    _seed: int = field(default=0, init=False, repr=False)

    def reset(self, seed: int) -> str:
        self._seed, self._said = seed, []
        return f"{seed % 1000}?"

    def step(self, action: str) -> Step:
        Stopping.steps += 1
        if Stopping.steps == int(os.environ.get(SIGNAL_AT, "0")):
            if SIGNAL in os.environ:
                os.kill(os.getpid(), signal.Signals[os.environ[SIGNAL]])
            if FILE_LIMIT in os.environ:
                _, most = resource.getrlimit(resource.RLIMIT_FSIZE)
                resource.setrlimit(resource.RLIMIT_FSIZE, (int(os.environ[FILE_LIMIT]), most))
        self._said.append(action)
        luck = (sum(map(ord, "".join(self._said))) + self._seed) % 3
        done = len(self._said) == self.length
        return Step(f"{luck}?", reward=luck / 10, done=done, success=done and luck == 0)

    def expert(self) -> str:
        return "up" if self._seed % 2 else "down"


@dataclass
class Telling(Stopping):
    """Its instructions depend on the task, which has a name of its own."""

    @property
    def instructions(self) -> str:
        return f"You play {self._seed}."

    def task_key(self) -> str:
        return f"task {self._seed}"


@dataclass
class Talkative(Stopping):
    """Fails at the end of every third episode, or of all, with its key in the message."""

    api_key: str = ""
    always: bool = False

    def step(self, action: str) -> Step:
        answer = super().step(action)
        if answer.done and (self.always or answer.reward == 0.1):
            raise ConnectionError(f"the server refused the key {self.api_key}")
        return answer


@dataclass
class FewTasks(Environment):
    """Lasts one turn; has `count` distinct tasks, whatever the seed. Every reset fails if `broken`."""

    count: int = 1
    broken: bool = False
    resets: ClassVar[int] = 0
    _seed: int = 0

    def reset(self, seed: int) -> str:
        FewTasks.resets += 1
        if self.broken:
            raise OSError("the server is down")
        self._seed = seed
        return "say something"

    def step(self, action: str) -> Step:
        return Step("thanks", done=True, success=bool(action))

    def task_key(self) -> str:
        return f"task {self._seed % self.count}"


@dataclass
class Unwinnable(FewTasks):
    """Asks the same in every task, and nothing that is said succeeds."""

    def step(self, action: str) -> Step:
        return Step("no", done=True)


@dataclass(frozen=True)
class Listening(EnvironmentReward):
    """The environment's reward; keeps what it hears."""

    heard: ClassVar[list[tuple[int, int, tuple[tuple[int, ...], ...]]]] = []

    def __call__(self, episodes: Sequence[Episode]) -> list[Score]:
        for episode in episodes:
            ids = tuple(tuple(turn.action_ids) for turn in episode.turns)
            Listening.heard.append((episode.member, episode.task, ids))
        return super().__call__(episodes)


@dataclass(frozen=True)
class Refusing(EnvironmentReward):
    """A reward that can score no group."""

    def judge(self, groups: Sequence[Sequence[Episode]]) -> list[Verdict]:
        return [Verdict(None) for _ in groups]


class Broken(EnvironmentReward):
    """A reward with a hole in it."""

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [Score(float("nan")) for _ in group]


@dataclass(frozen=True)
class Scripted(Strategy):
    """Does what the test says: the place to retire after each generation (-1: nobody), and one to restart."""

    retire: list[int]
    restart: list[int]

    def select(self, standing: Standing, rng: np.random.Generator) -> list[Fate]:
        fates = [Fate(m, "kept", False, "so it is written") for m in range(len(standing.fitness))]
        for places, event in ((self.retire, "retired"), (self.restart, "restarted")):
            place = places[standing.generation]
            if place >= 0:
                fates[place] = Fate(place, event, event == "restarted", "so it is written")  # type: ignore[arg-type]
        return fates

    def explore(
        self, children: Mapping[int, Values], standing: Standing, rng: Callable[[int], np.random.Generator]
    ) -> dict[int, Values]:
        return Mutation(1.0, 0).of_all(children, standing, rng)
