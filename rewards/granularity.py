"""At which grain learning acts: where a score is paid out, and the grains of credit, ratio, KL and aggregation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from annotated_types import Gt, Le

from rewards.core import Bounds, Score, evolvable, of_member


@dataclass(frozen=True)
class Granularity:
    """Turns the score of an episode into the reward of each of its turns, and may override grains of the algorithm.

    - sparse: `outcome_weight * outcome` on the last turn, 0 before
    - dense: `turn_weight * turn reward` on every turn
    - mixed: the sum of both

    Turn rewards fade: in update number u they count `turn_weight * turn_decay ** u`.
    `credit`, `ratio`, `kl` and `aggregation` replace what a policy-gradient algorithm says; None leaves it.
    """

    reward: Literal["sparse", "dense", "mixed"]
    turn_weight: float = evolvable(default=1.0)
    outcome_weight: float = evolvable(default=1.0)
    turn_decay: Annotated[float, Gt(0), Le(1)] = evolvable(default=1.0)  # per update
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

    def margin(self, bounds: Bounds) -> float:
        """What the worst success is paid more than the best failure, in reward units; below 0, failing can pay off.

        Only `mixed` weighs one against the other. What fades is judged as it begins.
        """
        outcome = self.outcome_weight * (bounds.succeeded_outcome[0] - bounds.failed_outcome[1])
        return outcome + self.turn_weight * (bounds.succeeded_turns[0] - bounds.failed_turns[1])

    def __call__(self, score: Score, turns: int, update: int = 0, member: int = 0) -> list[float]:
        """The reward of each turn.

        Args:
            score: of the episode.
            turns: number of turns the episode had; an episode of none has no reward.
            update: number of the update that learns from it.
            member: whose episode it is, where members differ.
        Returns:
            [turns] rewards, in reward units.
        Raises:
            ValueError: where turn rewards are needed and the score has none, or not one per turn.
        """
        weight = of_member(self.turn_weight, member) * of_member(self.turn_decay, member) ** update
        rewards = [weight * reward for reward in self._turn_rewards(score, turns)]
        if self.reward != "dense" and turns:
            rewards[-1] += of_member(self.outcome_weight, member) * score.outcome
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
