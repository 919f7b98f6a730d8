"""How sure was the policy of a turn, and of the one after it?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from algorithms.advantages.core import Advantage, group_mean, trained_turns
from algorithms.core import Credit, TokenTable, TurnTable, evolvable


@dataclass(frozen=True, kw_only=True)
class EntropyModulated(Advantage):
    """EMPG (Wang et al. 2025, arXiv:2509.09265) around another estimator.

    With H the mean entropy of a turn's tokens, scaled to 0..1 over the member's turns:
    A_k exp(-k H_k) / mean(exp(-k H)) + zeta exp(-k_future H_{k+1}), minus the member's mean over turns, each turn
    counted once. The second term, for turns that another follows, rewards a next state in which the policy is sure. So
    turns that are sure and wrong are punished more and low entropy is rewarded on its own: watch for entropy collapse.
    """

    credits: ClassVar[tuple[Credit, ...]] = ("turn",)
    credit: ClassVar[Credit] = "turn"
    needs_entropy: ClassVar[bool] = True

    of: Advantage
    k: Annotated[float, Ge(0)] = evolvable()
    k_future: Annotated[float, Ge(0)] = evolvable()
    zeta: Annotated[float, Ge(0)] = evolvable()

    @property
    def min_group(self) -> int:
        return self.of.min_group

    @property
    def needs(self) -> frozenset[str]:
        return self.of.needs

    @property
    def needs_values(self) -> bool:
        return self.of.needs_values

    @property
    def needs_turn_rewards(self) -> bool:
        return self.of.needs_turn_rewards

    @property
    def baseline_decay(self) -> float | None:
        return self.of.baseline_decay

    def targets(self, turns: TurnTable, tokens: TokenTable) -> tuple[Tensor, Tensor] | None:
        return self.of.targets(turns, tokens)

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        if tokens.entropy_RT is None:
            raise ValueError("EMPG needs the entropy of each token at the start of the update, and it was not measured")
        trained_K = trained_turns(turns, tokens)
        scaled_K = _scaled(tokens.of_turns(tokens.entropy_RT, trained_K.numel()), trained_K, turns.member_K)
        sure_K = torch.exp(-turns.by_turn(self.k) * scaled_K)
        factor_K = sure_K / _mean(sure_K, trained_K, turns.member_K)
        bonus_K = turns.by_turn(self.zeta) * _of_next(turns, torch.exp(-turns.by_turn(self.k_future) * scaled_K))
        modulated_RT = self.of(turns, tokens) * tokens.spread(factor_K) + tokens.spread(bonus_K)
        mean_K = _mean(tokens.of_turns(modulated_RT, trained_K.numel()), trained_K, turns.member_K)
        return modulated_RT - tokens.spread(mean_K)


def _scaled(entropy_K: Tensor, trained_K: Tensor, member_K: Tensor) -> Tensor:
    """[K] entropy from 0 (the member's lowest) to 1 (its highest); 0 where all are equal."""
    members = int(member_K.max()) + 1 if member_K.numel() else 0
    index, value = member_K[trained_K], entropy_K[trained_K]
    lowest, highest = (
        entropy_K.new_zeros(members).scatter_reduce(0, index, value, which, include_self=False)[member_K]
        for which in ("amin", "amax")
    )
    width = highest - lowest
    return (entropy_K - lowest) / torch.where(width > 0, width, 1.0)


def _mean(value_K: Tensor, trained_K: Tensor, member_K: Tensor) -> Tensor:
    """[K] the member's mean over its trained turns; 1 for a turn that is not trained."""
    result = torch.ones_like(value_K)
    result[trained_K] = group_mean(value_K[trained_K], member_K[trained_K])[1]
    return result


def _of_next(turns: TurnTable, value_K: Tensor) -> Tensor:
    """[K] the value of the next turn of the episode; 0 for the last one."""
    width = int(turns.index_K.max()) + 2 if turns.index_K.numel() else 1
    grid = value_K.new_zeros(turns.outcome_E.shape[0], width)
    grid[turns.episode_K, turns.index_K] = value_K
    return grid[turns.episode_K, turns.index_K + 1]
