"""How much better than its group was an episode, in each part of its score on its own?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from algorithms.advantages.core import Advantage, whiten
from algorithms.advantages.normalisation import Normalisation
from algorithms.core import Credit, TokenTable, TurnTable


@dataclass(frozen=True, kw_only=True)
class Decoupled(Advantage):
    """GDPO (Liu et al. 2026, arXiv:2601.05242): the components of the score are normalised in the group, then added.

    So a component with a small spread is not drowned by one with a large spread, and episodes that differ in the parts
    but not in the sum differ in advantage. The weighted sum is standardised over the member's episodes; groups in which
    no component spreads stay 0 and out of these statistics. The rewards of turns are not read.
    """

    credits: ClassVar[tuple[Credit, ...]] = ("trajectory",)
    credit: ClassVar[Credit] = "trajectory"
    reads_rewards: ClassVar[bool] = False

    weights: dict[str, float]
    normalisation: Normalisation

    @property
    def min_group(self) -> int:
        return 2 if self.normalisation.needs_groups else 1

    @property
    def needs_components(self) -> frozenset[str]:
        return frozenset(self.weights)

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        if tokens.penalty_RT is not None:
            raise ValueError(
                "GDPO reads the components of the score, so a KL penalty in the reward would be lost; "
                "write algorithm.kl.place=loss"
            )
        advantage_E, teaches_E = self.summed(turns)
        trained_E = torch.zeros_like(teaches_E)
        trained_E[turns.episode_K[tokens.turn_RT[tokens.mask_RT]]] = True
        return tokens.spread(whiten(advantage_E, teaches_E & trained_E, turns.member_E)[turns.episode_K])

    def summed(self, turns: TurnTable) -> tuple[Tensor, Tensor]:
        """[E] weighted sum of the normalised components, and [E] bool, whether any of them spreads in the group.

        Raises:
            ValueError: the score has no such component.
        """
        advantage_E, teaches_E = torch.zeros_like(turns.outcome_E), torch.zeros_like(turns.outcome_E, dtype=torch.bool)
        for name, weight in self.weights.items():
            if name not in turns.components:
                there_are = ", ".join(sorted(turns.components)) or "none"
                raise ValueError(
                    f"algorithm.advantage.weights names the component {name!r}, which the reward does not give; "
                    f"there are: {there_are}"
                )
            part_E = turns.components[name].to(advantage_E.dtype)
            among_E = (turns.group_E, turns.member_E)
            advantage_E = advantage_E + weight * self.normalisation(part_E, *among_E, part_E)
            teaches_E |= self.normalisation.teaches(part_E, *among_E)
        return advantage_E, teaches_E
