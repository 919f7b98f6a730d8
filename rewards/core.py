"""What a reward is: it scores the episodes of a group and says what it needs and gives."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from envs.core import Environment, Episode, Feature

Range = tuple[float, float]  # smallest and largest value


@dataclass(frozen=True)
class Score:
    """The score of one episode."""

    outcome: float  # how good the episode was as a whole, in reward units
    turn_rewards: tuple[float, ...] | None = None  # one per turn, without the outcome; None if the reward gives none
    components: dict[str, float] = field(default_factory=dict)  # named parts, logged on their own


@dataclass(frozen=True)
class Verdict:
    """What became of one group."""

    scores: list[Score] | None  # in the order of its episodes; None: it could not be scored, and nothing learns from it
    metrics: dict[str, float] = field(default_factory=dict)  # counts (calls, failures, tokens), added up per member


@dataclass(frozen=True)
class Bounds:
    """What an episode can get at most and at least, in reward units: those that fail, and those that succeed."""

    failed_outcome: Range
    succeeded_outcome: Range
    failed_turns: Range  # of the sum of turn rewards
    succeeded_turns: Range


def evolvable(**default: Any) -> Any:
    """A field that evolution may change while the run trains: a number, or a tuple with one for each member."""
    return field(metadata={"evolvable": True}, **default)


def of_member(value: float | Sequence[float], member: int) -> float:
    """An evolvable number as it is for one member."""
    return value[member] if isinstance(value, tuple) else float(value)  # type: ignore[arg-type]


def fault(score: Score, episode: Episode) -> str:
    """What is wrong with the numbers of a score, as the end of a sentence; empty where nothing is."""
    turns = () if score.turn_rewards is None else score.turn_rewards
    if score.turn_rewards is not None and len(turns) != len(episode.turns):
        return f"{len(turns)} turn rewards for {len(episode.turns)} turns; give exactly one per turn"
    named = {"outcome": score.outcome, **{f"component {name}": value for name, value in score.components.items()}}
    named |= {f"reward of turn {k}": reward for k, reward in enumerate(turns)}
    bad = [f"{what} {value}" for what, value in named.items() if not math.isfinite(value)]
    return f"{', '.join(bad)}; a reward is finite, so look at what it divides by" if bad else ""


class Scorer(Protocol):
    """A trained head on the run's base model."""

    @property
    def about(self) -> Mapping[str, Any]:
        """What is known about it: `mean` and `std` of its scores among other things."""

    def __call__(self, episodes: Sequence[Episode]) -> list[list[float]]:
        """[turns] the score of each episode as it stands after each of its turns."""


class Models(Protocol):
    """What a reward can ask of the run's model."""

    def scorer(self, path: str, kind: str) -> Scorer:
        """The scorer that was trained by `algorithm=<kind>` and is stored at `path`.

        Raises:
            ValueError: there is none at `path`, or it belongs to another base.
        """

    def answer_logprobs(self, episodes: Sequence[Episode]) -> list[list[float]]:
        """[turns] mean log-probability, in nats a token, of the reference answer where each action stands.

        The frozen base says it, without adapters. Episodes must have an answer.
        """


class Reward(ABC):
    """Base class of every reward. Subclasses are frozen dataclasses; their fields are their YAML keys."""

    @property
    def needs(self) -> frozenset[Feature]:
        """Abilities the environment must have."""
        return frozenset()

    @property
    def gives_turn_rewards(self) -> bool:
        return False

    @property
    def paid_by_turn(self) -> frozenset[str]:
        """Parts that pay turns and no outcome, so that granularity=sparse pays nothing of them; "" is the reward."""
        return frozenset()

    @property
    def turn_reward_needs(self) -> frozenset[Feature]:
        """Further abilities the environment must have, but only where turn rewards are used (dense, mixed)."""
        return frozenset()

    @property
    def relative(self) -> bool:
        """Whether scores compare only within a group (a ranking judge)."""
        return False

    @property
    def once(self) -> bool:
        """Whether asking twice costs money or may give another answer; then one process asks for all of them."""
        return False

    @property
    def component_names(self) -> frozenset[str]:
        """Names of the components that every score has."""
        return frozenset()

    @property
    def kl_budget(self) -> float | None:
        """Nats a token beyond which the reward says nothing about the policy any more; None: it always does."""
        return None

    def bounds(self, env: Environment) -> Bounds | None:
        """What episodes of `env` can get; None where that is not known."""
        return None

    def check(self) -> None:  # noqa: B027 - most rewards need nothing
        """Look for what must be there before anything is loaded (a key, a file).

        Raises:
            ValueError: it is not there; the message says what to write.
        """

    def attach(self, models: Models) -> None:  # noqa: B027 - most rewards need no model
        """Called once, before the first episode; a reward that scores with the run's model takes it from here.

        Raises:
            ValueError: what it needs of the model is not there.
        """

    def state(self) -> dict[str, Any]:
        """What a resumed run must know (money spent, say), as JSON types."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:  # noqa: B027 - most rewards have none
        """Go on from what `state` returned."""

    @abstractmethod
    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        """Score the episodes of one group (same task, same member), in their order. None of them has failed."""

    def judge(self, groups: Sequence[Sequence[Episode]]) -> list[Verdict]:
        """Score many groups; override it where that is faster than one after another (calls, a batched model)."""
        return [Verdict(self(group)) for group in groups]
