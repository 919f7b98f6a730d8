"""A charge for actions that hold what must not be said."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from envs.core import Episode
from rewards.patterns import compiled
from rewards.per_turn import PerTurn
from rewards.personal_data import FINDERS


@dataclass(frozen=True, kw_only=True)
class Forbidden(PerTurn):
    """value of a turn = -1 if its action holds anything forbidden, else 0; an episode is worth the sum, 0 or less.

    What the environment says does not count.
    - kinds: personal data that is forbidden, as `rewards.personal_data` finds it; a card number has a right check
      digit (Luhn) and so has an IBAN (modulo 97), so that order numbers, dates and prices pass
    - patterns: regular expressions of what else is forbidden anywhere in an action

    Components: how many of each kind were found, and `pattern` for all patterns together.

    Raises:
        ValueError: nothing is forbidden, or a pattern is no regular expression or matches empty text.
    """

    kinds: tuple[Literal["email", "phone", "card", "iban"], ...]
    patterns: tuple[str, ...]

    value_range = (-1.0, 0.0)

    def __post_init__(self) -> None:
        if not self.kinds and not self.patterns:
            raise ValueError("kinds and patterns are both empty, so nothing is forbidden; write kinds=[email,phone]")
        for pattern in self.patterns:
            if compiled(pattern, "patterns").search(""):
                raise ValueError(f"patterns holds {pattern!r}, which matches empty text, so it forbids every action")

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset(self.kinds) | frozenset({"pattern"} if self.patterns else ())

    def values(self, episode: Episode) -> tuple[list[float], dict[str, float]]:
        components = dict.fromkeys(self.component_names, 0.0)
        values = []
        for turn in episode.turns:
            counts: dict[str, int] = {kind: len(FINDERS[kind](turn.action)) for kind in self.kinds}
            if self.patterns:
                counts["pattern"] = sum(len(pattern.findall(turn.action)) for pattern in self._patterns)
            for name, count in counts.items():
                components[name] += count
            values.append(-1.0 if any(counts.values()) else 0.0)
        return values, components

    @cached_property
    def _patterns(self) -> list[re.Pattern[str]]:
        return [compiled(pattern, "patterns") for pattern in self.patterns]
