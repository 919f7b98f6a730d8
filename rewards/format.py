"""Whether actions have the form they should have."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from envs.core import Episode, Feature
from rewards.patterns import compiled
from rewards.per_turn import PerTurn


@dataclass(frozen=True, kw_only=True)
class Format(PerTurn):
    """value of a turn = 1 if its action is well formed, else 0; an episode is worth a number from 0 to 1.

    - pattern: a regular expression that the whole action must match; null asks the environment
    - count=share: an episode is worth its share of well-formed actions
    - count=every: it is worth 1 if every action is well formed, else 0

    Component: `well_formed`, the share.

    Raises:
        ValueError: `pattern` is no regular expression, or count=every is to be paid turn by turn.
    """

    pattern: str | None
    count: Literal["share", "every"]

    mean = True
    value_range = (0.0, 1.0)

    def __post_init__(self) -> None:
        if self.pattern is not None:
            compiled(self.pattern, "pattern")
        if self.count == "every" and self.paid == "turns":
            raise ValueError(
                "count=every is known when the episode is over and cannot be paid turn by turn; "
                "write paid=outcome, or count=share"
            )

    @property
    def needs(self) -> frozenset[Feature]:
        return frozenset({Feature.VALIDITY} if self.pattern is None else ())

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"well_formed"})

    def values(self, episode: Episode) -> tuple[list[float], dict[str, float]]:
        if self._pattern is None:
            formed = [float(turn.valid) for turn in episode.turns]
        else:
            formed = [float(self._pattern.fullmatch(turn.action) is not None) for turn in episode.turns]
        share = sum(formed) / max(len(formed), 1)
        values = formed if self.count == "share" else [float(share == 1)] * len(formed)
        return values, {"well_formed": share}

    @cached_property
    def _pattern(self) -> re.Pattern[str] | None:
        return None if self.pattern is None else compiled(self.pattern, "pattern")
