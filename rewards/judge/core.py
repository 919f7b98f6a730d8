"""What the judges share: which questions make a verdict, and what becomes of a group that could not be judged."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from annotated_types import Gt, MinLen

from envs.core import Environment, Episode, Feature
from rewards.core import Bounds, Models, Reward, Score, Verdict
from rewards.judge.client import Answer, Client, Question
from rewards.judge.quoting import Message, conversation

COUNTED = ("calls", "cached", "retries", "repaired", "prompt_tokens", "completion_tokens", "cost")


@dataclass(frozen=True)
class Judge(Reward):
    """Base class. A group of whose questions one stays without an answer is not judged, for half a verdict is a bias.

    Its episodes then get the outcome of `fallback`, or nothing learns from them. Never both scales in one group.

    Components: those of `fallback`, `independent` (its outcome), and of judged groups those of the judge.
    Metrics, each a sum over groups: `judge/groups`, `judge/failed` (the judge gave no usable answer),
    `judge/over_budget` (not asked any more), `judge/fallback` and `judge/dropped` (what became of both), and what the
    questions took: `judge/calls` (requests, with retries and repairs), `judge/cached`, `judge/retries`,
    `judge/repaired`, `judge/prompt_tokens`, `judge/completion_tokens`, `judge/cost`.

    A judge's score is a reward and nothing else: it leaves `Episode.success`, from which fitness is made, alone.
    """

    client: Client
    fallback: Reward | None
    task: str | None  # what the agent was told apart from its observations

    def __post_init__(self) -> None:
        if self.fallback is not None and self.fallback.once:
            raise ValueError(
                f"fallback is {type(self.fallback).__name__}, which may fail or cost money itself; "
                "write one that always scores, such as rewards.environment.EnvironmentReward, or null"
            )

    @abstractmethod
    def questions(self, group: Sequence[Episode]) -> list[Question]:
        """What to ask about a group; nothing where its scores are known without."""

    @abstractmethod
    def scores(self, group: Sequence[Episode], answers: Sequence[Any]) -> list[Score]:
        """The scores that the values of all answers give, in the order of the episodes."""

    @property
    def needs(self) -> frozenset[Feature]:
        return self.fallback.needs if self.fallback else frozenset()

    @property
    def once(self) -> bool:
        return True

    @property
    def centered(self) -> bool:
        """Whether an episode is paid what it is better than the mean of its group, by judge and fallback alike."""
        return False

    @property
    def judged_names(self) -> frozenset[str]:
        """Components of a judged group that the judge gives."""
        return frozenset()

    @property
    def component_names(self) -> frozenset[str]:
        return self.fallback.component_names | {"independent"} if self.fallback else self.judged_names

    def bounds(self, env: Environment) -> Bounds | None:
        """A judge may give any score to any episode."""
        return None if self.fallback else Bounds((0.0, 1.0), (0.0, 1.0), (0.0, 0.0), (0.0, 0.0))

    def check(self) -> None:
        self.client.check()
        if self.fallback:
            self.fallback.check()

    def attach(self, models: Models) -> None:
        if self.fallback:
            self.fallback.attach(models)

    def state(self) -> dict[str, Any]:
        return {"client": self.client.ledger.state(), "fallback": self.fallback.state() if self.fallback else {}}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.client.ledger.load_state(state["client"])
        if self.fallback:
            self.fallback.load_state(state["fallback"])

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        """As `judge` does for many groups.

        Raises:
            ValueError: the group could not be judged, and there is no fallback.
        """
        [verdict] = self.judge([group])
        if verdict.scores is None:
            raise ValueError(
                f"{type(self).__name__} could not judge a group and has no fallback; write one, or call judge"
            )
        return verdict.scores

    def judge(self, groups: Sequence[Sequence[Episode]]) -> list[Verdict]:
        asked = [self.questions(group) for group in groups]
        answers = iter(self.client.ask([question for questions in asked for question in questions]))
        independent = self.fallback.judge(groups) if self.fallback else [None] * len(groups)
        return [
            self._verdict(group, [next(answers) for _ in questions], own)
            for group, questions, own in zip(groups, asked, independent, strict=True)
        ]

    def context(self, shared: Sequence[Message]) -> list[Message]:
        """What is said once about all episodes: the task, and the messages with which they begin alike."""
        return [*([{"role": "system", "content": self.task}] if self.task else []), *shared]

    def _verdict(self, group: Sequence[Episode], answers: Sequence[Answer], own: Verdict | None) -> Verdict:
        metrics = {f"judge/{name}": sum(answer.counts.get(name, 0.0) for answer in answers) for name in COUNTED}
        failures = [answer for answer in answers if answer.kind is not None]
        over = any(answer.over_budget for answer in failures)
        scores = None if own is None else own.scores
        metrics |= {
            "judge/groups": 1.0,
            "judge/failed": float(bool(failures) and not over),
            "judge/over_budget": float(over),
            "judge/fallback": float(bool(failures) and scores is not None),
            "judge/dropped": float(bool(failures) and scores is None),
        }
        if own is not None:
            metrics |= own.metrics
        for failure in failures:
            self._say(failure)
        parts: list[dict[str, float]] = [{} for _ in group]
        if scores is not None:
            parts = [{**score.components, "independent": score.outcome} for score in scores]
        if not failures:
            scores = self.scores(group, [answer.value for answer in answers])
        if scores is None:
            return Verdict(None, metrics)
        if self.centered:
            mean = sum(score.outcome for score in scores) / len(scores)
            scores = [replace(score, outcome=score.outcome - mean) for score in scores]
        named = [part if failures else {**part, **score.components} for part, score in zip(parts, scores, strict=True)]
        return Verdict(
            [replace(score, turn_rewards=None, components=part) for score, part in zip(scores, named, strict=True)],
            metrics,
        )

    def _say(self, failure: Answer) -> None:
        """Once for each kind of failure: why, and what scores the group now."""
        instead = f"{type(self.fallback).__name__} scores" if self.fallback else "nothing learns from"
        if failure.over_budget:
            sentence = f"{failure.failure}: from here on {instead} groups that are not in the cache"
        else:
            sentence = (
                f"the judge failed: {failure.failure}; {instead} the group, and more failures of this kind are only "
                "counted (judge/failed)"
            )
        self.client.ledger.say(failure.kind or "", sentence)


@dataclass(frozen=True)
class Comparing(Judge):
    """Base of the judges whose scores compare only inside a group."""

    rubric: Annotated[list[str], MinLen(1)]  # what counts, one line each
    max_chars: Annotated[int, Gt(0)]  # of all records that one question shows
    center: bool

    @property
    def relative(self) -> bool:
        return not self.center

    @property
    def centered(self) -> bool:
        return self.center


def alike(group: Sequence[Episode]) -> tuple[list[list[Message]], list[int]]:
    """The different conversations of a group, in the order in which they first occur, and which one each episode is."""
    different: list[list[Message]] = []
    which: list[int] = []
    for messages in map(conversation, group):
        if messages not in different:
            different.append(messages)
        which.append(different.index(messages))
    return different, which
