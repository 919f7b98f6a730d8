"""A language model says which of two episodes is better, for the pairs of a group."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Any

from annotated_types import Ge

from envs.core import Episode
from rewards.core import Score
from rewards.judge.answers import shape
from rewards.judge.client import Question
from rewards.judge.core import Comparing, alike
from rewards.judge.quoting import DATA_RULE, Message, block, common_prefix, fence_for, fitted

SHARE = {"first": 1.0, "second": 0.0, "tie": 0.5}  # of the point that a comparison is about, for the first
WITHOUT_OTHERS = 0.5  # score of a group in which there is nothing to compare


@dataclass(frozen=True)
class Pairwise(Comparing):
    """outcome = share of its comparisons that an episode wins, a tie counting half; it compares only inside the group.

    The win rate, not a Bradley-Terry strength: counting wins ranks as well as can be done without a model of the judge
    (Shah & Wainwright 2015, arXiv:1512.08949), and it is finite for an episode that beats all others. Every episode has
    equally many opponents, so that rates compare. With `both_orders` each pair is asked twice and a judge that prefers
    what it reads first (Zheng et al. 2023, arXiv:2306.05685) cancels itself to a tie.

    Components: `wins` (the outcome).
    """

    opponents: Annotated[int, Ge(2)] | None  # of each episode, at most; None: all
    both_orders: bool

    @property
    def judged_names(self) -> frozenset[str]:
        return frozenset({"wins"})

    def questions(self, group: Sequence[Episode]) -> list[Question]:
        different, _ = alike(group)
        return [self._question(different[one], different[other]) for one, other in self._asked(len(different))]

    def scores(self, group: Sequence[Episode], answers: Sequence[Any]) -> list[Score]:
        """As `Judge.scores`; each answer is the point that the one shown first gets."""
        different, which = alike(group)
        points, played = [0.0] * len(different), [0] * len(different)
        for (first, second), point in zip(self._asked(len(different)), answers, strict=True):
            points[first] += point
            points[second] += 1.0 - point
            played[first] += 1
            played[second] += 1
        rates = [won / games if games else WITHOUT_OTHERS for won, games in zip(points, played, strict=True)]
        return [Score(rates[place], components={"wins": rates[place]}) for place in which]

    def _asked(self, count: int) -> list[tuple[int, int]]:
        """Pairs in the order in which they are shown."""
        once = pairs(count, count if self.opponents is None else self.opponents)
        return [*once, *((other, one) for one, other in once)] if self.both_orders else once

    def _question(self, first: list[Message], second: list[Message]) -> Question:
        shared = common_prefix([first, second])
        context, records = fitted(self.context(first[:shared]), [first[shared:], second[shared:]], self.max_chars)
        fence = fence_for([context, *records])
        blocks = [block("context", fence, context)] if context else []
        blocks += [block("trajectory", fence, record, name) for name, record in zip(SHARE, records, strict=False)]
        system = "\n".join(
            [
                "Both trajectories below were given the same goal. Say which one did better, by this rubric:",
                *(f"- {line}" for line in self.rubric),
                "The order in which they are shown means nothing.",
                "",
                DATA_RULE.format(fence=fence),
                "",
                'Answer with JSON: {"explanation": "…", "winner": "first", "second" or "tie"}.',
            ]
        )
        schema = shape({"explanation": {"type": "string"}, "winner": {"type": "string", "enum": list(SHARE)}})
        return Question(system, "\n\n".join(blocks), schema, _read)


def pairs(count: int, opponents: int) -> list[tuple[int, int]]:
    """Who meets whom, so that each of `count` meets the same number of others, `opponents` at most (or 1 of 2).

    Everyone sits in a circle and meets the neighbours at distance 1, then those at distance 2, and so on. Who is shown
    first alternates as far as it can.
    """
    met: list[tuple[int, int]] = []
    for distance in range(1, count // 2 + 1):
        opposite = 2 * distance == count  # at that distance there is one neighbour, not two
        if 2 * distance - opposite > opponents:
            break
        met += [(seat, (seat + distance) % count) for seat in range(count // 2 if opposite else count)]
    return met


def _read(answer: Any) -> float:
    winner = answer.get("winner") if isinstance(answer, dict) else None
    if not isinstance(winner, str) or winner not in SHARE:
        raise ValueError('it is not an object whose "winner" is first, second or tie')
    return SHARE[winner]
