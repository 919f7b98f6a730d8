"""Which episodes are worth learning from? A filter looks at raw outcomes and keeps or drops whole groups."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge
from torch import Tensor

from algorithms.advantages.core import group_std
from algorithms.core import TurnTable


class Filter(ABC):
    """Base of every filter. Dropped episodes leave the loss, the KL term, the statistics and all denominators."""

    @abstractmethod
    def __call__(self, turns: TurnTable) -> Tensor:
        """[E] bool, true where the episode is kept."""


@dataclass(frozen=True)
class ZeroSpread(Filter):
    """Drop groups whose raw outcomes spread by no more than `floor`: they teach no group-relative method (DAPO)."""

    floor: Annotated[float, Ge(0)]

    def __call__(self, turns: TurnTable) -> Tensor:
        return group_std(turns.outcome_E, turns.group_E) > self.floor


def kept(filters: list[Filter], turns: TurnTable) -> Tensor:
    """[E] bool, true where every filter keeps the episode."""
    keep_E = torch.ones_like(turns.outcome_E, dtype=torch.bool)
    for filter_ in filters:
        keep_E &= filter_(turns)
    return keep_E
