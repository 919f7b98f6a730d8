"""Whether the last action gives the reference answer of the task."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Annotated, Literal

from annotated_types import Ge

from envs.core import Environment, Episode, Feature
from rewards.core import Bounds, Reward, Score
from rewards.patterns import compiled

# One number, with commas between thousands or without; the digits of the exponent are few, so no text takes long.
NUMBER = re.compile(r"[-+]?(?:[0-9]++(?:,[0-9]{3})*+(?:\.[0-9]*+)?|\.[0-9]++)(?:e[-+]?[0-9]{1,4})?", re.IGNORECASE)


@dataclass(frozen=True, kw_only=True)
class AnswerMatch(Reward):
    """outcome = 1 where the last action gives the reference answer, else 0.

    - extract: what is compared is the last place that this regular expression finds in the action (its first group, if
      it has one); null takes the whole action
    - match=exact: the same text, apart from upper and lower case and from white space
    - match=numeric: the last number in that text is the reference, up to `tolerance` (in units of the answer);
      thousands may be divided by commas

    Component: `given`, whether there was an answer to compare at all.

    Raises:
        ValueError: `extract` is no regular expression; an episode has no reference answer.
    """

    match: Literal["exact", "numeric"]
    tolerance: Annotated[float, Ge(0)]
    extract: str | None

    def __post_init__(self) -> None:
        if self.extract is not None:
            compiled(self.extract, "extract")

    @property
    def needs(self) -> frozenset[Feature]:
        return frozenset({Feature.ANSWER})

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"given"})

    def bounds(self, env: Environment) -> Bounds | None:
        return Bounds((0.0, 1.0), (0.0, 1.0), (0.0, 0.0), (0.0, 0.0))

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [self._score(episode) for episode in group]

    def _score(self, episode: Episode) -> Score:
        if episode.answer is None:
            raise ValueError(
                f"the episode of task {episode.task} has no reference answer to compare with; an environment that "
                "declares Feature.ANSWER returns one from answer() after every reset"
            )
        said = self._given(episode.turns[-1].action) if episode.turns else ""
        if self.match == "exact":
            given, right = bool(said), bool(said) and _plain(said) == _plain(episode.answer)
        else:
            number, wanted = _number(said), _number(episode.answer)
            if wanted is None:
                raise ValueError(
                    f"the reference answer of task {episode.task} is {episode.answer!r}, which holds no number; "
                    "write match=exact"
                )
            given, right = number is not None, number is not None and abs(number - wanted) <= self.tolerance
        return Score(float(right), None, {"given": float(given)})

    def _given(self, action: str) -> str:
        if self._extract is None:
            return action.strip()
        found = deque(self._extract.finditer(action), maxlen=1)
        if not found:
            return ""
        return found[0][1 if self._extract.groups else 0] or ""

    @cached_property
    def _extract(self) -> re.Pattern[str] | None:
        return None if self.extract is None else compiled(self.extract, "extract")


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()


def _number(text: str) -> float | None:
    """The last number in `text`, if there is one that a float can hold."""
    found = NUMBER.findall(text)
    number = float(found[-1].replace(",", "")) if found else math.inf
    return number if math.isfinite(number) else None
