"""Training a scorer: adapters and a linear head on the base that put a number on every turn. The policy stays as it is.

A scorer says what an episode is worth, or what each turn contributed; it is stored, and rewards use it later.
"""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

from annotated_types import Ge, Gt
from torch import Tensor
from torch.nn.functional import logsigmoid

from algorithms.core import Algorithm, TurnTable, evolvable
from algorithms.preference import pairs


@dataclass(frozen=True)
class ScorerAlgorithm(Algorithm):
    """Base: a loss on the scores of turns, each read at the last token of the turn's action."""

    kind: ClassVar[str]  # name of the preset, written beside the stored scorer

    @property
    def trains_scorer(self) -> bool:
        return True

    @abstractmethod
    def losses(self, score_K: Tensor, turns: TurnTable) -> tuple[Tensor, Tensor]:
        """[Q] losses, and [Q] the member that each belongs to; a member's loss is the mean of its own."""

    @abstractmethod
    def ranked(self, score_K: Tensor, turns: TurnTable) -> tuple[Tensor, Tensor, Tensor]:
        """What the scorer should order: [Q] score of the better episode, [Q] of the worse one, [Q] their member."""


@dataclass(frozen=True, kw_only=True)
class RewardModel(ScorerAlgorithm):
    """Bradley & Terry (1952) as in InstructGPT (Ouyang et al. 2022, arXiv:2203.02155): P(c > r) = sigma(s_c - s_r).

    The score of an episode is that of its last turn. `margin` is what the better one should be ahead by, in nats;
    `center` weighs (s_c + s_r)^2, which keeps scores near 0 (Eisenstein et al. 2023, arXiv:2312.09244).
    """

    learns_from: ClassVar[str] = "pairs"
    kind: ClassVar[str] = "reward_model"

    data: str  # JSONL file of pairs, or a folder that `datasets` saved
    batch: Annotated[int, Gt(0)]  # pairs per update
    margin: Annotated[float, Ge(0)] = evolvable()
    center: Annotated[float, Ge(0)] = evolvable()

    def losses(self, score_K: Tensor, turns: TurnTable) -> tuple[Tensor, Tensor]:
        chosen_Q, rejected_Q, member_Q = self.ranked(score_K, turns)
        margin_Q, center_Q = (
            v[member_Q] if isinstance(v, Tensor) and v.ndim else v for v in (self.margin, self.center)
        )
        fit_Q = -logsigmoid(chosen_Q - rejected_Q - margin_Q)
        return fit_Q + center_Q * (chosen_Q + rejected_Q).square(), member_Q

    def ranked(self, score_K: Tensor, turns: TurnTable) -> tuple[Tensor, Tensor, Tensor]:
        last_K = turns.last_K
        score_E = score_K.new_zeros(turns.outcome_E.shape).index_add(0, turns.episode_K[last_K], score_K[last_K])
        chosen_Q, rejected_Q = pairs(turns)
        return score_E[chosen_Q], score_E[rejected_Q], turns.member_E[chosen_Q]


@dataclass(frozen=True, kw_only=True)
class ProgressModel(ScorerAlgorithm):
    """SPA-RL (Wang et al. 2025, arXiv:2505.20732): contributions c_k of the turns with (sum_k c_k - R)^2 -> min.

    R is the outcome of the episode.
    """

    kind: ClassVar[str] = "progress_model"

    def losses(self, score_K: Tensor, turns: TurnTable) -> tuple[Tensor, Tensor]:
        return (_total(score_K, turns) - turns.outcome_E).square(), turns.member_E

    def ranked(self, score_K: Tensor, turns: TurnTable) -> tuple[Tensor, Tensor, Tensor]:
        """All episodes of one member with different outcomes."""
        total_E, outcome_E, member_E = _total(score_K, turns), turns.outcome_E, turns.member_E
        better_EE = (outcome_E.unsqueeze(1) > outcome_E) & (member_E.unsqueeze(1) == member_E)
        better_Q, worse_Q = better_EE.nonzero(as_tuple=True)
        return total_E[better_Q], total_E[worse_Q], member_E[better_Q]


def _total(score_K: Tensor, turns: TurnTable) -> Tensor:
    return score_K.new_zeros(turns.outcome_E.shape).index_add(0, turns.episode_K, score_K)
