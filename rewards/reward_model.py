"""A trained reward model as the reward: what it thinks of the episode, or what each turn changed about that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from annotated_types import Gt

from envs.core import Episode
from rewards.core import Score
from rewards.learned import LearnedReward


@dataclass(frozen=True)
class RewardModelReward(LearnedReward):
    """The score of a Bradley-Terry model (`algorithm=reward_model`), in standard deviations of its held-out scores.

    - grain=episode: the outcome is the score after the last turn; no turn rewards.
    - grain=turn: the reward of a turn is what it changed about the score (the first: against the mean), so that they
      sum to the score of the episode; the outcome is 0.

    A score has an offset of its own for every task, so it is compared within a group, or by a critic that knows the
    task. Components: `model` (the score), `success` (never used here: the metric that the model should stand for).
    """

    kind: ClassVar[str] = "reward_model"

    grain: Literal["episode", "turn"]
    kl_limit: Annotated[float, Gt(0)] | None

    @property
    def gives_turn_rewards(self) -> bool:
        return self.grain == "turn"

    @property
    def paid_by_turn(self) -> frozenset[str]:
        return frozenset({""}) if self.grain == "turn" else frozenset()

    @property
    def kl_budget(self) -> float | None:
        return self.kl_limit

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"model", "success"})

    def score(self, episode: Episode, told: Sequence[float]) -> Score:
        mean, std = self.scorer.about["mean"], self.scorer.about["std"]
        scores = [(value - mean) / std for value in told]
        components = {"model": scores[-1], "success": float(episode.success)}
        if self.grain == "episode":
            return Score(scores[-1], None, components)
        changes = tuple(now - before for before, now in zip([0.0, *scores], scores, strict=False))
        return Score(0.0, changes, components)
