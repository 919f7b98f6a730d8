"""Which episodes are worth learning from? A filter looks at raw outcomes and flags, never at shaped rewards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge
from torch import Tensor

from algorithms.advantages.core import group_std
from algorithms.core import TurnTable


class Filter(ABC):
    """Base of every filter. Dropped episodes leave the loss, the KL term, token statistics and all denominators."""

    in_baseline: ClassVar[bool] = False  # whether the returns of what is dropped still count in baselines and spreads
    resamples: ClassVar[int] = 0  # batches of further tasks that may be played in place of groups that are dropped
    needs: ClassVar[frozenset[str]] = frozenset()  # names of environment features (`envs.core.Feature`)

    @abstractmethod
    def __call__(self, turns: TurnTable) -> Tensor:
        """[E] bool, true where the episode is kept."""


@dataclass(frozen=True)
class ZeroSpread(Filter):
    """Drop groups whose raw outcomes spread by no more than `floor`: they teach no group-relative method (DAPO)."""

    floor: Annotated[float, Ge(0)]

    def __call__(self, turns: TurnTable) -> Tensor:
        return group_std(turns.outcome_E, turns.group_E) > self.floor


def kept(filters: list[Filter], turns: TurnTable) -> tuple[Tensor, Tensor]:
    """[E] bool, episodes that are trained on, and [E] bool, episodes that count in baselines and spreads."""
    trained_E = torch.ones_like(turns.outcome_E, dtype=torch.bool)
    counted_E = trained_E.clone()
    for filter_ in filters:
        keep_E = filter_(turns)
        trained_E &= keep_E
        if not filter_.in_baseline:
            counted_E &= keep_E
    return trained_E, counted_E
