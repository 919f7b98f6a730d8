"""At which grain learning acts: where a score is paid out, and the grains of credit, ratio, KL and aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from rewards.core import Score


@dataclass(frozen=True)
class Granularity:
    """Turns the score of an episode into the reward of each of its turns, and may override grains of the algorithm.

    - sparse: `outcome_weight * outcome` on the last turn, 0 before
    - dense: `turn_weight * turn reward` on every turn
    - mixed: the sum of both

    `credit`, `ratio`, `kl` and `aggregation` replace what a policy-gradient algorithm says; None leaves it.
    """

    reward: Literal["sparse", "dense", "mixed"]
    turn_weight: float = 1.0
    outcome_weight: float = 1.0
    credit: Literal["trajectory", "turn", "token"] | None = None
    ratio: (  # a grain of `algorithms.ratios`
        Literal["token", "turn_geometric", "turn_product", "sequence_geometric", "sequence_product", "sequence_token"]
        | None
    ) = None
    kl: Literal["sequence", "turn", "token"] | None = None
    aggregation: (  # a mode of `algorithms.aggregation`
        Literal[
            "token_mean",
            "sequence_mean_token_mean",
            "sequence_mean_token_sum",
            "constant",
            "turn_mean",
            "prompt_mean",
        ]
        | None
    ) = None

    def __post_init__(self) -> None:
        if self.reward not in ("sparse", "dense", "mixed"):
            raise ValueError(f"granularity.reward is {self.reward!r}; write sparse, dense or mixed")

    @property
    def needs_turn_rewards(self) -> bool:
        return self.reward != "sparse"

    def __call__(self, score: Score, turns: int) -> list[float]:
        """The reward of each turn.

        Args:
            score: of the episode.
            turns: number of turns the episode had; an episode of none has no reward.
        Returns:
            [turns] rewards, in reward units.
        Raises:
            ValueError: where turn rewards are needed and the score has none, or not one per turn.
        """
        rewards = [self.turn_weight * reward for reward in self._turn_rewards(score, turns)]
        if self.reward != "dense" and turns:
            rewards[-1] += self.outcome_weight * score.outcome
        return rewards

    def _turn_rewards(self, score: Score, turns: int) -> tuple[float, ...]:
        if not self.needs_turn_rewards:
            return (0.0,) * turns
        if score.turn_rewards is None:
            raise ValueError(
                f"granularity={self.reward} needs turn rewards and the reward gives none; "
                "use granularity=sparse, or a reward that scores turns"
            )
        if len(score.turn_rewards) != turns:
            raise ValueError(
                f"the reward gave {len(score.turn_rewards)} turn rewards to an episode of {turns} turns; "
                "give exactly one per turn"
            )
        return score.turn_rewards
