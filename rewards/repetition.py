"""A charge for text that says itself again."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Ge

from envs.core import Episode
from rewards.per_turn import PerTurn


@dataclass(frozen=True, kw_only=True)
class Repetition(PerTurn):
    """value of a turn = -(larger share of its action that is repeated or looped); an episode is worth the mean, -1..0.

    - repeated: share of its runs of `ngram` words that were said before in the same action, or (scope=episode) in an
      earlier one; an action of fewer words has none
    - looped: share of its characters that only repeat the piece before them, where it ends in one and the same piece
      at least `loops` times in a row (a generation that never stopped)

    Components: `repeated` and `looped`, the mean shares.
    """

    ngram: Annotated[int, Ge(1)]
    scope: Literal["turn", "episode"]
    loops: Annotated[int, Ge(2)]

    mean = True
    value_range = (-1.0, 0.0)

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"repeated", "looped"})

    def values(self, episode: Episode) -> tuple[list[float], dict[str, float]]:
        said: set[tuple[str, ...]] = set()
        repeated = []
        for turn in episode.turns:
            if self.scope == "turn":
                said = set()
            repeated.append(self._repeated(turn.action, said))
        looped = [looped_share(turn.action, self.loops) for turn in episode.turns]
        values = [-max(shares) or 0.0 for shares in zip(repeated, looped, strict=True)]
        return values, {"repeated": _mean(repeated), "looped": _mean(looped)}

    def _repeated(self, action: str, said: set[tuple[str, ...]]) -> float:
        """Share of the n-grams of `action` that are in `said`, which takes each of them up."""
        words = action.casefold().split()
        again = count = 0
        for gram in zip(*(words[k:] for k in range(self.ngram)), strict=False):
            again += gram in said
            count += 1
            said.add(gram)
        return again / max(count, 1)


def looped_share(text: str, loops: int) -> float:
    """Share of `text` that only repeats the piece before it, where it ends in a piece `loops` times or more in a row.

    Of all such endings the longest counts; its first piece is no repetition. Linear in the text: the prefix function
    (Knuth, Morris & Pratt 1977) of the reversed text gives the shortest period of every ending.
    """
    text = text.strip()
    backwards = text[::-1]
    borders = [0] * len(text)  # longest proper prefix of backwards[: i + 1] that is also its suffix
    looped = 0
    for i in range(1, len(text)):
        border = borders[i - 1]
        while border and backwards[i] != backwards[border]:
            border = borders[border - 1]
        borders[i] = border + (backwards[i] == backwards[border])
        period = i + 1 - borders[i]
        if i + 1 >= loops * period:
            looped = i + 1 - period
    return looped / max(len(text), 1)


def _mean(values: Iterable[float]) -> float:
    values = list(values)
    return sum(values) / max(len(values), 1)
