"""How much better than its group was an episode, or what followed a turn?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor

from algorithms.advantages.core import Advantage, group_sum, place, whiten
from algorithms.advantages.normalisation import Normalisation
from algorithms.advantages.returns import reward_to_go
from algorithms.core import Credit, TokenTable, TurnTable


@dataclass(frozen=True, kw_only=True)
class GroupRelative(Advantage):
    """Returns against the other returns of the same task and member.

    GRPO (Shao et al. 2024, arXiv:2402.03300): centre and spread of the group. Dr. GRPO (Liu et al. 2025,
    arXiv:2503.20783): no spread. RLOO (Ahmadian et al. 2024, arXiv:2402.14740) and LOOP (Chen et al. 2025,
    arXiv:2502.01600): leave-one-out, no spread. REINFORCE++-baseline (Hu et al. 2025, arXiv:2501.03262): no spread,
    and `whiten` over the member's trained tokens; groups that teach nothing stay 0 and out of these statistics.

    `credit=trajectory` gives the whole episode one number. `credit=turn` compares the reward to go of turn k with that
    of the episodes of the group that reached turn k; where no other did, the turn gets the number of its episode.
    Episodes that stopped earlier are not counted as zeros, so one more turn of equal worth earns no bonus: who else
    reached turn k does not depend on the own action, and leave-one-out stays unbiased. The states compared may differ,
    which costs variance; a centre that is the group's mean shrinks turns that few reached by (n-1)/n.
    """

    credits: ClassVar[tuple[Credit, ...]] = ("trajectory", "turn")

    credit: Literal["trajectory", "turn"]
    normalisation: Normalisation
    whiten: bool

    @property
    def min_group(self) -> int:
        return 2 if self.normalisation.needs_groups else 1

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        paid = tokens.penalised(turns)
        among_E = (turns.group_E, turns.member_E)
        advantage_K = self.normalisation(paid.return_E, *among_E, turns.return_E)[turns.episode_K]
        teaches_K = self.normalisation.teaches(turns.return_E, *among_E)[turns.episode_K]
        if self.credit == "turn":
            among_K = (place(turns), turns.member_K)
            raw_K = reward_to_go(turns, 1.0)
            shared_K = group_sum(torch.ones_like(raw_K), place(turns)) > 1
            by_turn_K = self.normalisation(reward_to_go(paid, 1.0), *among_K, raw_K)
            advantage_K = torch.where(shared_K, by_turn_K, advantage_K)
            teaches_K = torch.where(shared_K, self.normalisation.teaches(raw_K, *among_K), teaches_K)
        advantage_RT = tokens.spread(advantage_K)
        if not self.whiten:
            return advantage_RT
        return whiten(advantage_RT, tokens.mask_RT & tokens.spread(teaches_K).bool(), tokens.member_R)
