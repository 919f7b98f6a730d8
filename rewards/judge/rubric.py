"""A language model scores each episode on its own, by criteria that no program can check (tone, say)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

from annotated_types import Gt, MinLen

from envs.core import Episode
from rewards.core import Score
from rewards.judge.answers import score_list, scores_by_id
from rewards.judge.client import Question
from rewards.judge.core import Judge, alike
from rewards.judge.quoting import DATA_RULE, Message, block, fence_for, fitted

LABEL = "criterion"


@dataclass(frozen=True)
class Criterion:
    ask: str  # what the judge is asked
    weight: Annotated[float, Gt(0)]  # share of the outcome; shares are divided by their sum


@dataclass(frozen=True)
class Rubric(Judge):
    """outcome = weighted mean of the criteria, each scored from 0 (not at all) to 1 (fully).

    An LLM as a judge of single answers (Zheng et al. 2023, arXiv:2306.05685). One call an episode, not a group: a judge
    that sees several compares them, and these scores must mean the same in every group. Identical episodes share one.

    Components: each criterion, by its name.
    """

    criteria: Annotated[dict[str, Criterion], MinLen(1)]
    max_chars: Annotated[int, Gt(0)]

    def __post_init__(self) -> None:
        super().__post_init__()
        taken = self.fallback.component_names | {"independent"} if self.fallback else frozenset()
        if both := sorted(taken & set(self.criteria)):
            raise ValueError(f"criteria has {', '.join(both)}, which is a component of the fallback too; rename it")

    @property
    def relative(self) -> bool:
        return self.fallback is not None and self.fallback.relative

    @property
    def judged_names(self) -> frozenset[str]:
        return frozenset(self.criteria)

    def questions(self, group: Sequence[Episode]) -> list[Question]:
        return [self._question(messages) for messages in alike(group)[0]]

    def scores(self, group: Sequence[Episode], answers: Sequence[Any]) -> list[Score]:
        """As `Judge.scores`; each answer holds the score of every criterion for one different conversation."""
        total = sum(criterion.weight for criterion in self.criteria.values())
        outcomes = [
            sum(criterion.weight * answer[name] for name, criterion in self.criteria.items()) / total
            for answer in answers
        ]
        return [Score(outcomes[place], components=dict(answers[place])) for place in alike(group)[1]]

    def _question(self, messages: list[Message]) -> Question:
        context, [record] = fitted(self.context([]), [messages], self.max_chars)
        fence = fence_for([context, record])
        blocks = [block("context", fence, context)] if context else []
        names = list(self.criteria)
        system = "\n".join(
            [
                "Score what the agent (role assistant) did in the trajectory below, from 0 (not at all) to 1 (fully), "
                "by each of these criteria on its own:",
                *(f"- {name}: {criterion.ask}" for name, criterion in self.criteria.items()),
                "",
                DATA_RULE.format(fence=fence),
                "",
                f'Answer with JSON: {{"scores": [{{"{LABEL}": "…", "explanation": "…", "score": 0.0}}, …]}}, with each '
                f"of the criteria {', '.join(names)} exactly once.",
            ]
        )
        user = "\n\n".join([*blocks, block("trajectory", fence, record)])
        return Question(system, user, score_list(LABEL, names), partial(_read, names))


def _read(names: Sequence[str], answer: Any) -> dict[str, float]:
    return scores_by_id(answer, LABEL, names)
