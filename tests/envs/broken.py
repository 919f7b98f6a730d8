"""Environments that break on purpose, to show that a broken environment costs its episode and not the run."""

from __future__ import annotations

import math
import random
import time
from dataclasses import dataclass, field, replace
from typing import ClassVar

from envs.core import Environment, Feature, Step


@dataclass
class Plain(Environment):
    """Lasts `length` turns; the episode succeeds if the last action is not empty. Works; the others break it.

    `every`: the fault strikes on tasks whose seed is a multiple of it; 1 means on all.
    """

    length: int = 2
    every: int = 1
    max_turns: int = 4

    _seed: int = field(default=0, init=False, repr=False, compare=False)
    _turn: int = field(default=0, init=False, repr=False, compare=False)

    @property
    def faulty(self) -> bool:
        return self._seed % self.every == 0

    def reset(self, seed: int) -> str:
        self._seed, self._turn = seed, 0
        return "ready"

    def step(self, action: str) -> Step:
        self._turn += 1
        done = self._turn == self.length
        return Step(f"turn {self._turn}", done=done, success=done and bool(action.strip()))


@dataclass
class RaisesOnReset(Plain):
    """Raises ValueError("no such task: <seed>") on reset."""

    def reset(self, seed: int) -> str:
        first = super().reset(seed)
        if self.faulty:
            raise ValueError(f"no such task: {seed}")
        return first


@dataclass
class RewardsNaN(Plain):
    """Gives NaN as the reward of its first turn."""

    def step(self, action: str) -> Step:
        answer = super().step(action)
        return replace(answer, reward=math.nan) if self.faulty and self._turn == 1 else answer


@dataclass
class RaisesOnStep(Plain):
    """Raises RuntimeError("broke on turn <n>") on turn `turn`, counted from 1."""

    turn: int = 1

    def step(self, action: str) -> Step:
        answer = super().step(action)
        if self.faulty and self._turn == self.turn:
            raise RuntimeError(f"broke on turn {self._turn}")
        return answer


@dataclass
class HangsOnStep(Plain):
    """Does not answer its first step for `seconds`."""

    seconds: float = 1.0

    def step(self, action: str) -> Step:
        answer = super().step(action)
        if self.faulty and self._turn == 1:
            time.sleep(self.seconds)
        return answer


@dataclass
class NoisyText(Plain):
    """Observations are random Unicode: all planes, control characters, chat markers; or nothing at all.

    `surrogates` adds lone surrogates, which are in Python strings but in no valid UTF-8.
    """

    longest: int = 40  # characters
    surrogates: bool = False

    features: ClassVar[frozenset[Feature]] = frozenset({Feature.TURN_REWARDS})

    def reset(self, seed: int) -> str:
        super().reset(seed)
        return self._noise() if self.faulty else "ready"

    def step(self, action: str) -> Step:
        answer = super().step(action)
        observation = self._noise() if self.faulty else answer.observation
        return Step(observation, reward=1 / self.length, done=answer.done, success=answer.success)

    def _noise(self) -> str:
        stream = random.Random(f"{self._seed} {self._turn}")
        kinds = [
            lambda: chr(stream.randrange(0x20)),
            lambda: chr(stream.randrange(0x20, 0xD800)),
            lambda: chr(stream.randrange(0xE000, 0x110000)),
            lambda: stream.choice(["<|im_start|>", "<|im_end|>", "<s>", "</s>", "[INST]", "<|endoftext|>"]),
        ]
        if self.surrogates:
            kinds.append(lambda: chr(stream.randrange(0xD800, 0xE000)))
        return "".join(stream.choice(kinds)() for _ in range(stream.randrange(self.longest + 1)))
