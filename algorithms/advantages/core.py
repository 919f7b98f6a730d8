"""What an advantage estimator is, and the statistics that several share."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor

from algorithms.core import Credit, TokenTable, TurnTable


class Advantage(ABC):
    """Base of every estimator. Subclasses are frozen dataclasses; their fields are their YAML keys.

    A subclass has `credit`, the grain it works at, as a field (where it can work at several) or as a class variable.
    """

    credits: ClassVar[tuple[Credit, ...]]  # every grain it can work at
    credit: Credit | ClassVar[Credit]
    min_group: ClassVar[int] = 1
    needs_values: ClassVar[bool] = False
    needs_entropy: ClassVar[bool] = False
    needs_turn_rewards: ClassVar[bool] = False  # means nothing where the outcome is all there is
    needs: ClassVar[frozenset[str]] = frozenset()  # names of environment features (`envs.core.Feature`)

    @abstractmethod
    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        """[R, T] advantage of each trained token in reward units, detached; 0 where not trained.

        Evolvable fields are scalars or [N]; `turns.by_turn` and the like make them broadcast.
        """

    def at(self, credit: Credit) -> Advantage:
        """The same estimator at another grain.

        Raises:
            ValueError: where the estimator means nothing at that grain.
        """
        if credit == self.credit:
            return self
        if credit not in self.credits:
            raise ValueError(
                f"{type(self).__name__} gives credit by {' or '.join(self.credits)}, not by {credit}; "
                f"use granularity={self.credit}"
            )
        return dataclasses.replace(self, credit=credit)  # type: ignore[type-var]


class Critical(Advantage):
    """Base of the estimators that compare with the values of a critic."""

    needs_values: ClassVar[bool] = True

    @abstractmethod
    def targets(self, turns: TurnTable, tokens: TokenTable) -> tuple[Tensor, Tensor]:
        """[R, T] what the critic should have said, in reward units, and [R, T] bool where it is asked."""


def group_sum(value_B: Tensor, group_B: Tensor) -> Tensor:
    """[B] sum of the values of each entry's group."""
    _, index = torch.unique(group_B, return_inverse=True)
    total = torch.zeros(int(index.max()) + 1 if index.numel() else 0, dtype=value_B.dtype, device=value_B.device)
    return total.index_add(0, index, value_B)[index]


def group_mean(value_B: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor]:
    """Size [B] and mean [B] of each entry's group; the mean of equal values is exactly that value."""
    _, index = torch.unique(group_B, return_inverse=True)
    groups = int(index.max()) + 1 if index.numel() else 0
    lowest = value_B.new_zeros(groups).scatter_reduce(0, index, value_B, "amin", include_self=False)[index]
    size = group_sum(torch.ones_like(value_B), group_B)
    return size, lowest + group_sum(value_B - lowest, group_B) / size


def group_std(value_B: Tensor, group_B: Tensor) -> Tensor:
    """[B] unbiased (n-1) standard deviation of each entry's group; 0 for a group of one."""
    size, mean = group_mean(value_B, group_B)
    return (group_sum((value_B - mean) ** 2, group_B) / (size - 1).clamp(min=1)).sqrt()


def whiten(value_RT: Tensor, mask_RT: Tensor, member_R: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Shift and scale the trained entries of each member to mean 0 and unbiased variance 1.

    Statistics are the member's own, over the whole optimiser batch (verl `masked_whiten`).

    Returns:
        [R, T]; 0 where not trained, and 0 for a member with fewer than two trained entries.
    """
    member_RT = member_R.unsqueeze(1).expand_as(value_RT)[mask_RT]
    value = value_RT[mask_RT]
    size, mean = group_mean(value, member_RT)
    variance = group_sum((value - mean) ** 2, member_RT) / (size - 1).clamp(min=1)
    result = torch.zeros_like(value_RT)
    result[mask_RT] = torch.where(size > 1, (value - mean) * torch.rsqrt(variance + epsilon), 0.0)
    return result
