"""Guess the number: the environment answers "higher" or "lower"; binary search is optimal."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import Any, ClassVar

from envs.core import Environment, Feature, Step

NUMBER = re.compile(r"[1-9][0-9]{0,3}")


@dataclass
class GuessNumber(Environment):
    """Find a secret whole number from 1 to `high`.

    The turn reward is what the hint (or the hit) taught: log2 of the factor by which the interval of possible numbers
    shrank, as a share of log2(high). It sums to at most 1 over an episode, whether or not the number was named.
    There are only `high` tasks, so they have no key: one that is held out would make the rest easier, not test it.

    Raises:
        ValueError: where binary search could not always win.
    """

    high: int = 32
    show_interval: bool = False  # easier: the agent need not remember the hints
    max_turns: int = 7

    _secret: int = field(default=0, init=False, repr=False, compare=False)  # 0: no episode in progress
    _low: int = field(default=0, init=False, repr=False, compare=False)  # smallest number still possible
    _top: int = field(default=0, init=False, repr=False, compare=False)  # largest number still possible
    _found: bool = field(default=False, init=False, repr=False, compare=False)

    features: ClassVar[frozenset[Feature]] = frozenset(Feature) - {Feature.FIXED_TURNS}

    def __post_init__(self) -> None:
        if not 2 <= self.high <= 9999:
            raise ValueError(f"guess_number: high is {self.high}; write a number from 2 to 9999")
        if self.max_turns < self.high.bit_length():
            raise ValueError(
                f"guess_number: binary search in 1..{self.high} takes up to {self.high.bit_length()} turns and "
                f"max_turns is {self.max_turns}; write max_turns: {self.high.bit_length() + 1}"
            )

    @property
    def instructions(self) -> str:
        return (
            f"Find a secret whole number from 1 to {self.high} within {self.max_turns} turns, the fewer the better. "
            "After each guess you hear whether the secret is higher or lower. Answer with one number only."
        )

    @property
    def turn_totals(self) -> tuple[tuple[float, float], tuple[float, float]]:
        return (0.0, 1.0), (1.0, 1.0)  # a number can be known and not named

    def reset(self, seed: int) -> str:
        self._low, self._top, self._found = 1, self.high, False
        # A stream of its own: whoever else seeds random.Random with the task (a noisy expert, say) must not share it.
        self._secret = random.Random(f"guess_number {seed}").randint(1, self.high)
        return f"{self._low}..{self._top}?"

    def step(self, action: str) -> Step:
        self._require_episode()
        if self._found:
            raise RuntimeError("guess_number: the episode is over; call reset before the next step")
        text = action.strip()
        guess = int(text) if NUMBER.fullmatch(text) else 0
        if not 1 <= guess <= self.high:
            return Step(f"Say a number from 1 to {self.high}.", valid=False, signals=self._facts(possible=False))
        possible, width = self._low <= guess <= self._top, self._width
        self._found = guess == self._secret
        if self._found:
            self._low = self._top = guess
            answer = "correct"
        elif guess < self._secret:
            self._low = max(self._low, guess + 1)
            answer = "higher"
        else:
            self._top = min(self._top, guess - 1)
            answer = "lower"
        return Step(
            observation=f"{answer} {self._low}..{self._top}" if self.show_interval and not self._found else answer,
            reward=math.log2(width / self._width) / math.log2(self.high),
            done=self._found,
            success=self._found,
            signals=self._facts(possible),
        )

    def state_key(self) -> Hashable:
        self._require_episode()
        return (self._low, self._top, self._secret, self._found)

    def answer(self) -> str:
        self._require_episode()
        return str(self._secret)

    def potential(self) -> float:
        """Minus the bits that are still missing, as a share of all."""
        self._require_episode()
        return -math.log2(self._width) / math.log2(self.high)

    def snapshot(self) -> Any:
        return self.state_key()

    def restore(self, snapshot: Any) -> None:
        self._low, self._top, self._secret, self._found = snapshot

    def expert(self) -> str | None:
        self._require_episode()
        return None if self._found else str((self._low + self._top) // 2)

    def actions(self) -> list[str]:
        """The numbers that are still possible; others are well-formed too, and wasted."""
        self._require_episode()
        return [str(number) for number in range(self._low, self._top + 1)]

    def privileged(self) -> str:
        self._require_episode()
        return f"The number is {self._secret}; the hints leave {self._low}..{self._top}."

    @property
    def _width(self) -> int:
        return self._top - self._low + 1

    def _require_episode(self) -> None:
        if self._secret == 0:
            raise RuntimeError("guess_number: no episode is in progress; call reset first")

    def _facts(self, possible: bool) -> dict[str, float]:
        """How many numbers the hints leave, and whether this guess was one of those left before it."""
        return {"candidates": float(self._width), "possible": float(possible)}
