"""How much better than its group was an episode?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from algorithms.advantages.core import Advantage, group_mean, group_std
from algorithms.core import TokenTable, TurnTable


@dataclass(frozen=True)
class GroupRelative(Advantage):
    """Episode return against the other returns of the same task and member, one number for the whole episode.

    GRPO (Shao et al. 2024, arXiv:2402.03300): `spread=group`. Dr. GRPO (Liu et al. 2025, arXiv:2503.20783):
    `spread=none`. RLOO (Ahmadian et al. 2024, arXiv:2402.14740): `leave_one_out=true, spread=none`.
    The standard deviation is the unbiased one (n-1), as in verl and TRL. A group of one, and a group whose returns
    (before any KL penalty) spread by no more than `floor`, get advantage 0, never the raw return or a blown-up rounding
    error.
    """

    grain: ClassVar[Literal["trajectory", "turn", "token"]] = "trajectory"
    min_group: ClassVar[int] = 2

    leave_one_out: bool
    spread: Literal["none", "group"]
    epsilon: Annotated[float, Ge(0)]
    floor: Annotated[float, Ge(0)]

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        advantage_E = self.of_returns(tokens.penalised(turns).return_E, turns.group_E)
        # decided before the KL penalty: its noise must not turn a group of equal returns into one that teaches
        teaches_E = group_std(turns.return_E, turns.group_E) > self.floor
        return tokens.spread(torch.where(teaches_E, advantage_E, 0.0)[turns.episode_K])

    def of_returns(self, return_E: Tensor, group_E: Tensor) -> Tensor:
        """[E] advantages, in reward units (`spread=none`) or standard deviations of the group."""
        size, mean = group_mean(return_E, group_E)
        std = group_std(return_E, group_E)
        advantage = return_E - mean
        if self.leave_one_out:
            advantage = advantage * size / (size - 1).clamp(min=1)
        if self.spread == "group":
            advantage = advantage / (std + self.epsilon)
        return torch.where((size > 1) & (std > self.floor), advantage, 0.0)
