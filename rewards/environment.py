"""The environment's own reward: success at the end, and what it says about progress at every turn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from envs.core import Environment, Episode, Feature
from rewards.core import Bounds, Reward, Score


@dataclass(frozen=True)
class EnvironmentReward(Reward):
    """outcome = success_reward * success - turn_penalty * turns; turn reward = the environment's - invalid_penalty.

    Components: `success` (0 or 1), `turns` (number played), `progress` (sum of the environment's turn rewards),
    `invalid` (number of turns whose action could not be understood or done).
    """

    success_reward: float = 1.0
    turn_penalty: float = 0.0
    invalid_penalty: float = 0.0

    def __post_init__(self) -> None:
        for name in ("turn_penalty", "invalid_penalty"):
            if getattr(self, name) < 0:
                raise ValueError(f"reward.{name} is {getattr(self, name)}; it is subtracted, so write 0 or more")

    @property
    def gives_turn_rewards(self) -> bool:
        return True

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"success", "turns", "progress", "invalid"})

    @property
    def turn_reward_needs(self) -> frozenset[Feature]:
        validity = {Feature.VALIDITY} if self.invalid_penalty else set()
        return frozenset({Feature.TURN_REWARDS} | validity)

    def bounds(self, env: Environment) -> Bounds | None:
        totals = env.turn_totals
        if totals is None:
            return None
        dearest, penalty = self.turn_penalty * env.max_turns, self.invalid_penalty * env.max_turns
        (failed_low, failed_high), (low, high) = totals
        return Bounds(
            failed_outcome=(-dearest, -self.turn_penalty),
            succeeded_outcome=(self.success_reward - dearest, self.success_reward - self.turn_penalty),
            failed_turns=(failed_low - penalty, failed_high),
            succeeded_turns=(low - penalty, high),
        )

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [self._score(episode) for episode in group]

    def _score(self, episode: Episode) -> Score:
        turns = episode.turns
        return Score(
            outcome=self.success_reward * episode.success - self.turn_penalty * len(turns),
            turn_rewards=tuple(turn.reward - self.invalid_penalty * (not turn.valid) for turn in turns),
            components={
                "success": float(episode.success),
                "turns": float(len(turns)),
                "progress": sum((turn.reward for turn in turns), 0.0),
                "invalid": float(sum(not turn.valid for turn in turns)),
            },
        )
