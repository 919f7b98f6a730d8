"""How much better than other turns from the same state was a turn?"""

from __future__ import annotations

from dataclasses import dataclass
from difflib import SequenceMatcher
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from algorithms.advantages.core import Advantage
from algorithms.advantages.normalisation import Normalisation
from algorithms.advantages.returns import reward_to_go
from algorithms.core import Credit, TokenTable, TurnTable, evolvable


@dataclass(frozen=True, kw_only=True)
class AnchorState(Advantage):
    """GiGPO (Feng et al. 2025, arXiv:2505.10978): the episode's advantage plus `omega` times that of the step.

    The first compares undiscounted returns within the group, the second returns to go, discounted by `gamma` per turn,
    among all turns of the group that started from the same state, in whichever episode and however often; a state met
    once gives 0. A loop compares an episode with itself: the later visit has the larger return through `gamma` alone.

    States are equal where the environment's keys are (`similarity=null`), or where what was observed is alike by at
    least `similarity`: the turns of a group, in the order of the table, join the first cluster whose first observation
    is alike enough (difflib's ratio, as in verl-agent, but with every character counted in long texts as well).
    """

    credits: ClassVar[tuple[Credit, ...]] = ("turn",)
    credit: ClassVar[Credit] = "turn"
    min_group: ClassVar[int] = 2

    omega: Annotated[float, Ge(0)] = evolvable()
    gamma: Annotated[float, Ge(0), Le(1)] = evolvable()
    normalisation: Normalisation
    similarity: Annotated[float, Gt(0), Le(1)] | None

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"state_key"}) if self.similarity is None else frozenset()

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        paid = tokens.penalised(turns)
        whole_E = self.normalisation(paid.return_E, turns.group_E, turns.member_E, turns.return_E)
        state_K = _known(turns.state_K) if self.similarity is None else similar(turns, self.similarity)
        to_go_K, raw_K = reward_to_go(paid, self.gamma), reward_to_go(turns, self.gamma)
        step_K = self.normalisation(to_go_K, state_K, turns.member_K, raw_K)
        return tokens.spread(whole_E[turns.episode_K] + turns.by_turn(self.omega) * step_K)


def _known(state_K: Tensor) -> Tensor:
    """[K] with a state of its own for each turn whose state is not known."""
    return torch.where(state_K >= 0, state_K, -1 - torch.arange(state_K.numel(), device=state_K.device))


def similar(turns: TurnTable, threshold: float) -> Tensor:
    """[K] int64, equal iff the turns are of one group and their observations fell into one cluster.

    Raises:
        ValueError: the table holds no observations.
    """
    if len(turns.text_K) != turns.index_K.numel():
        raise ValueError(
            "similarity compares what was observed before each turn, and the turn table holds no observations; "
            "write algorithm.advantage.similarity=null"
        )
    heads: dict[int, list[tuple[str, int]]] = {}  # group -> first observation and number of each cluster
    found: dict[tuple[int, str], int] = {}  # equal observations of a group need one search
    numbers = []
    for group, text in zip(turns.group_E[turns.episode_K].tolist(), turns.text_K, strict=True):
        if (group, text) not in found:
            clusters, new = heads.setdefault(group, []), len(found)
            number = next((n for head, n in clusters if _alike(text, head, threshold)), new)
            if number == new:
                clusters.append((text, new))
            found[group, text] = number
        numbers.append(found[group, text])
    return torch.tensor(numbers, dtype=torch.int64, device=turns.index_K.device)


def _alike(text: str, head: str, threshold: float) -> bool:
    """Whether the ratio reaches the threshold; its two quick upper bounds are asked first."""
    matcher = SequenceMatcher(None, text, head, autojunk=False)  # autojunk leaves out frequent characters
    return all(bound() >= threshold for bound in (matcher.real_quick_ratio, matcher.quick_ratio, matcher.ratio))
