"""RULER: a language model ranks the episodes of a group against each other."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from annotated_types import Ge, Le

from envs.core import Episode
from rewards.core import Score
from rewards.judge.answers import score_list, scores_by_id
from rewards.judge.client import Question
from rewards.judge.core import Comparing, alike
from rewards.judge.quoting import DATA_RULE, Message, block, common_prefix, fence_for, fitted

LABEL = "trajectory_id"
WITHOUT_OTHERS = 0.5  # score of a group in which there is nothing to compare


@dataclass(frozen=True)
class Ruler(Comparing):
    """RULER (OpenPipe ART, `art/rewards/ruler.py`): one call a group, scores from 0 to 1 that compare only inside it.

    As there: the messages with which all trajectories begin are shown once, the rubric, an explanation before each
    score. Otherwise: scores are matched by id and checked; identical trajectories are shown once and score the same,
    and where there are no others that costs no call; records are cut alike and fenced as data; with `passes` = 2 the
    score is the mean of two calls, the second in another order (seeded by the content), against position bias; and
    scores closer than `min_spread` become their mean, because division by the spread would blow noise up to ±1.

    Components: `ruler` (the score).
    """

    passes: Annotated[int, Ge(1), Le(2)]
    min_spread: Annotated[float, Ge(0), Le(1)]

    @property
    def judged_names(self) -> frozenset[str]:
        return frozenset({"ruler"})

    def questions(self, group: Sequence[Episode]) -> list[Question]:
        different, _ = alike(group)
        if len(different) < 2:
            return []
        shared = common_prefix(different)
        context, records = fitted(
            self.context(different[0][:shared]), [messages[shared:] for messages in different], self.max_chars
        )
        fence = fence_for([context, *records])
        return [self._question(context, records, order, fence) for order in _orders(len(records), fence)[: self.passes]]

    def scores(self, group: Sequence[Episode], answers: Sequence[Any]) -> list[Score]:
        """As `Judge.scores`; each answer holds the score of every different conversation."""
        different, which = alike(group)
        worth = [sum(scores) / len(scores) for scores in zip(*answers, strict=True)] or [WITHOUT_OTHERS]
        if max(worth) - min(worth) < self.min_spread:
            worth = [sum(worth) / len(worth)] * len(different)
        return [Score(worth[place], components={"ruler": worth[place]}) for place in which]

    def _question(
        self, context: Sequence[Message], records: Sequence[list[Message]], order: Sequence[int], fence: str
    ) -> Question:
        ids = [str(number) for number in range(1, len(order) + 1)]
        blocks = [block("context", fence, context)] if context else []
        blocks += [block("trajectory", fence, records[place], name) for name, place in zip(ids, order, strict=True)]
        system = "\n".join(
            [
                "All trajectories below were given the same goal. Score each of them from 0 to 1 by how well it did. "
                "Scores are relative: they say how the trajectories compare with each other, by this rubric:",
                *(f"- {line}" for line in self.rubric),
                "",
                DATA_RULE.format(fence=fence),
                "",
                f'Answer with JSON: {{"scores": [{{"{LABEL}": "…", "explanation": "…", "score": 0.0}}, …]}}, with each '
                f"of the ids {', '.join(ids)} exactly once.",
            ]
        )
        return Question(system, "\n\n".join(blocks), score_list(LABEL, ids), partial(_in_place, ids, order))


def _in_place(ids: Sequence[str], order: Sequence[int], answer: Any) -> list[float]:
    """Scores in the order of the records, whatever order they were shown and answered in."""
    scores = scores_by_id(answer, LABEL, ids)
    by_place = {place: scores[name] for name, place in zip(ids, order, strict=True)}
    return [by_place[place] for place in range(len(order))]


def _orders(count: int, seed: str) -> list[list[int]]:
    """Two orders in which to show the records, which differ."""
    straight = list(range(count))
    shuffled = random.Random(seed).sample(straight, count)
    return [straight, shuffled if shuffled != straight else straight[::-1]]
