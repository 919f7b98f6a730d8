"""SPA-RL: what a trained progress model says each turn contributed, and the outcome itself."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge

from envs.core import Episode, Feature
from rewards.core import Score
from rewards.learned import LearnedReward


@dataclass(frozen=True)
class ProgressReward(LearnedReward):
    """Turn reward = c_k + valid_bonus where the action could be done (Wang et al. 2025, arXiv:2505.20732).

    c_k comes from a model trained with `algorithm=progress_model`. The outcome is `success_reward` on success; the
    paper pays the turn rewards alone (`granularity=dense`). Components: `progress` (sum of the c_k), `success`, and
    `progress_error` (how far that sum is from the outcome, absolute).
    """

    kind: ClassVar[str] = "progress_model"

    valid_bonus: Annotated[float, Ge(0)]
    success_reward: float

    @property
    def gives_turn_rewards(self) -> bool:
        return True

    @property
    def turn_reward_needs(self) -> frozenset[Feature]:
        return frozenset({Feature.VALIDITY}) if self.valid_bonus else frozenset()

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"progress", "success", "progress_error"})

    def score(self, episode: Episode, told: Sequence[float]) -> Score:
        outcome, progress = self.success_reward * episode.success, sum(told)
        turn_rewards = tuple(
            value + self.valid_bonus * turn.valid for value, turn in zip(told, episode.turns, strict=True)
        )
        components = {"progress": progress, "success": float(episode.success)}
        return Score(outcome, turn_rewards, components | {"progress_error": abs(progress - outcome)})
