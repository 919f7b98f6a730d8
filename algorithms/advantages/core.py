"""What an advantage estimator is, and the statistics that several share."""

from __future__ import annotations

import dataclasses
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, ClassVar, get_args

import torch
from torch import Tensor

from algorithms.core import Credit, TokenTable, TurnTable


class Advantage(ABC):
    """Base of every estimator. Subclasses are frozen dataclasses; their fields are their YAML keys.

    A subclass has `credit`, the grain it works at, as a field (where it can work at several) or as a class variable.
    What is a property here may be a class variable there.
    """

    credits: ClassVar[tuple[Credit, ...]]  # every grain it can work at
    needs_entropy: ClassVar[bool] = False
    reads_rewards: ClassVar[bool] = True  # false where only components of the score are read

    if TYPE_CHECKING:  # at run time a dataclass would take this property for the default of its field

        @property
        def credit(self) -> Credit: ...

    @property
    def min_group(self) -> int:
        """Episodes per task below which it has nothing to compare."""
        return 1

    @property
    def needs(self) -> frozenset[str]:
        """Names of the environment features (`envs.core.Feature`) without which it means nothing."""
        return frozenset()

    @property
    def needs_values(self) -> bool:
        return False

    @property
    def needs_turn_rewards(self) -> bool:
        """Whether it means nothing where the outcome is all there is."""
        return False

    @property
    def baseline_decay(self) -> float | None:
        """What an update leaves of the moving mean of a member's returns; None for an estimator that reads none."""
        return None

    @property
    def needs_components(self) -> frozenset[str]:
        """Names of the components of a score without which the estimator cannot run."""
        return frozenset()

    @abstractmethod
    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        """[R, T] advantage of each trained token in reward units, detached; 0 where not trained.

        Evolvable fields are scalars or [N]; `turns.by_turn` and the like make them broadcast.
        """

    def targets(self, turns: TurnTable, tokens: TokenTable) -> tuple[Tensor, Tensor] | None:
        """[R, T] what the critic should have said, in reward units, and [R, T] bool where it is asked.

        None for an estimator that reads no values.
        """
        return None

    def at(self, credit: Credit) -> Advantage:
        """The same estimator at another grain.

        Raises:
            ValueError: where the estimator means nothing at that grain.
        """
        if credit == self.credit:
            return self
        if credit not in self.credits:
            grains = get_args(Credit)
            nearest = min(self.credits, key=lambda grain: abs(grains.index(grain) - grains.index(credit)))
            raise ValueError(
                f"{type(self).__name__} gives credit by {' or '.join(self.credits)}, not by {credit}; "
                f"use granularity={nearest}"
            )
        return dataclasses.replace(self, credit=credit)  # type: ignore[type-var]


class Critical(Advantage):
    """Base of the estimators that compare with the values of a critic."""

    needs_values: ClassVar[bool] = True

    @abstractmethod
    def targets(self, turns: TurnTable, tokens: TokenTable) -> tuple[Tensor, Tensor]: ...


def group_sum(value_B: Tensor, group_B: Tensor) -> Tensor:
    """[B] sum of the values of each entry's group."""
    _, index = torch.unique(group_B, return_inverse=True)
    total = torch.zeros(int(index.max()) + 1 if index.numel() else 0, dtype=value_B.dtype, device=value_B.device)
    return total.index_add(0, index, value_B)[index]


def group_mean(value_B: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor]:
    """Size [B] and mean [B] of each entry's group; the mean of equal values is exactly that value."""
    lowest, above, size = _above_lowest(value_B, group_B)
    return size, lowest + group_sum(above, group_B) / size


def centred(value_B: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor]:
    """Size [B] of each entry's group, and [B] how far the entry is from the group's mean.

    Computed from differences within the group alone: equal values are exactly 0, and what is added to all changes
    nothing but their rounding.
    """
    _, above, size = _above_lowest(value_B, group_B)
    return size, above - group_sum(above, group_B) / size


def _above_lowest(value_B: Tensor, group_B: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """[B] lowest value of each entry's group, [B] height above it, [B] size of the group."""
    _, index = torch.unique(group_B, return_inverse=True)
    lowest = value_B.new_zeros(int(index.max()) + 1 if index.numel() else 0)
    lowest = lowest.scatter_reduce(0, index, value_B, "amin", include_self=False)[index]
    return lowest, value_B - lowest, group_sum(torch.ones_like(value_B), group_B)


def group_std(value_B: Tensor, group_B: Tensor, unbiased: bool = True) -> Tensor:
    """[B] standard deviation of each entry's group, with n-1 or with n; 0 for a group of one."""
    size, apart = centred(value_B, group_B)
    return (group_sum(apart**2, group_B) / (size - 1 if unbiased else size).clamp(min=1)).sqrt()


def whiten(value: Tensor, mask: Tensor, member: Tensor, epsilon: float = 1e-8) -> Tensor:
    """Shift and scale the entries in `mask` of each member to mean 0 and unbiased variance 1.

    Statistics are the member's own, over the whole optimiser batch (verl `masked_whiten`).

    Args:
        value, mask: [R, T] tokens with `member` [R], or [B] turns or episodes with `member` [B].
    Returns:
        Of the shape of `value`; 0 outside the mask, and 0 for a member with fewer than two entries.
    """
    member = (member.unsqueeze(1).expand_as(value) if value.ndim == 2 else member)[mask]
    size, apart = centred(value[mask], member)
    variance = group_sum(apart**2, member) / (size - 1).clamp(min=1)
    result = torch.zeros_like(value)
    result[mask] = torch.where(size > 1, apart * torch.rsqrt(variance + epsilon), 0.0)
    return result


def place(turns: TurnTable) -> Tensor:
    """[K] int64, equal iff group and turn index are equal."""
    width = int(turns.index_K.max()) + 1 if turns.index_K.numel() else 1
    return turns.group_E[turns.episode_K] * width + turns.index_K


def of_first_turns(turns: TurnTable, value_K: Tensor) -> Tensor:
    """[E] the value of each episode's first turn."""
    first_K = turns.index_K == 0
    return value_K.new_zeros(turns.outcome_E.shape[0]).index_add(0, turns.episode_K[first_K], value_K[first_K])


def trained_turns(turns: TurnTable, tokens: TokenTable) -> Tensor:
    """[K] bool, the turns that have a trained token; of an episode that a filter dropped only the reward counts."""
    present_K = torch.zeros_like(turns.index_K, dtype=torch.bool)
    present_K[tokens.turn_RT[tokens.mask_RT]] = True
    return present_K
