"""How much better than the same turn of the other episodes was a turn, and how well did they end?"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from algorithms.advantages.core import Advantage, group_std, place
from algorithms.advantages.normalisation import Normalisation
from algorithms.advantages.returns import reward_to_go
from algorithms.core import Credit, TokenTable, TurnTable, evolvable


@dataclass(frozen=True, kw_only=True)
class TurnRelative(Advantage):
    """MT-GRPO (Zeng et al. 2025, arXiv:2505.11821), for two turns as published and for any fixed number.

    Each turn's reward is normalised among the rewards of the same turn index in its group. A turn before the last gets
    the sum of these from itself to the last but one, plus `alpha` times that of the last turn, where the outcome is;
    the last turn gets its own alone.

    Where episodes of a group differ in their number of turns this is biased: the baseline of turn k is that of the
    episodes which got so far, the outcome of some is compared with an intermediate reward of others, and the sum has
    more terms in longer episodes, so an action that prolongs the episode collects what its worth does not explain. Such
    a group gets its whole returns compared (`unequal=trajectory`), or stops the run (`unequal=refuse`). With a fixed
    number, turns after the first still compare states that differ, which costs variance.
    """

    credits: ClassVar[tuple[Credit, ...]] = ("turn",)
    credit: ClassVar[Credit] = "turn"
    min_group: ClassVar[int] = 2
    needs_turn_rewards: ClassVar[bool] = True

    alpha: Annotated[float, Ge(0)] = evolvable()
    normalisation: Normalisation
    unequal: Literal["trajectory", "refuse"]

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"fixed_turns"}) if self.unequal == "refuse" else frozenset()

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        paid = tokens.penalised(turns)
        own_K = self.normalisation(paid.reward_K, place(turns), turns.member_K, turns.reward_K)
        ahead_K = reward_to_go(
            dataclasses.replace(turns, reward_K=torch.where(turns.last_K, turns.by_turn(self.alpha) * own_K, own_K)),
            1.0,
        )
        whole_E = self.normalisation(paid.return_E, turns.group_E, turns.member_E, turns.return_E)
        advantage_K = torch.where(turns.last_K, own_K, ahead_K)
        return tokens.spread(torch.where(self._equal(turns)[turns.episode_K], advantage_K, whole_E[turns.episode_K]))

    def _equal(self, turns: TurnTable) -> Tensor:
        """[E] bool, whether all episodes of the group have equally many turns."""
        count_E = torch.zeros_like(turns.outcome_E).index_add(0, turns.episode_K, torch.ones_like(turns.reward_K))
        equal_E = group_std(count_E, turns.group_E) == 0
        if self.unequal == "refuse" and not equal_E.all():
            odd = turns.group_E == turns.group_E[~equal_E][0]
            counts = ", ".join(str(int(count)) for count in count_E[odd])
            raise ValueError(
                f"the episodes of one group of member {int(turns.member_E[odd][0])} have {counts} turns, and MT-GRPO "
                "compares turns by their index; write algorithm.advantage.unequal=trajectory, or play an environment "
                "with a fixed number of turns"
            )
        return equal_E
