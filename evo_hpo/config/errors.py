"""Errors that a user can do something about. They are printed as sentences, without a traceback."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field


class UserError(Exception):
    """Something the user has to change; `str()` is what they read."""


@dataclass
class Problems:
    """What is wrong with a config, one sentence per key: the first one said about it."""

    by_key: dict[str, str] = field(default_factory=dict)
    count: int = 0  # grows with every report, so that a step can tell whether it failed

    def add(self, key: str, sentence: str) -> None:
        self.by_key.setdefault(key, sentence)
        self.count += 1


class ConfigError(UserError):
    """A config that no run may start from, with every problem that was found in it.

    Attributes:
        problems: one sentence each: what is wrong, where it was written, and what to write instead.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.problems = list(dict.fromkeys(problems))
        super().__init__("\n".join(self.problems))

    def __reduce__(self) -> tuple[type[ConfigError], tuple[list[str]]]:
        """Lets the error travel between processes (Hydra's joblib launcher)."""
        return ConfigError, (self.problems,)
