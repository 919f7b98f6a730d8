"""Statistics of many groups at once: a value that is not finite spoils its own group and no other."""

from __future__ import annotations

import math

import torch
from torch import Tensor


class Groups:
    """M values that each belong to one of G groups; every statistic is [G], NaN where a group is empty.

    Attributes:
        size_G: number of values of each group, as a float.
    """

    def __init__(self, index_M: Tensor, count: int) -> None:
        """`index_M` is [M] int64, the group of each value, in 0..count-1."""
        self.index_M, self.count = index_M, count
        self.size_G = self.total(torch.ones(index_M.shape, device=index_M.device))

    def total(self, value_M: Tensor) -> Tensor:
        """The sum; 0 for an empty group."""
        value_M = value_M.float()
        return value_M.new_zeros(self.count).index_add_(0, self.index_M, value_M)

    def mean(self, value_M: Tensor) -> Tensor:
        return self.total(value_M) / self.size_G

    def variance(self, value_M: Tensor) -> Tensor:
        """The mean squared distance from the group's mean."""
        return self.mean((value_M - self.mean(value_M)[self.index_M]).square())

    def std(self, value_M: Tensor) -> Tensor:
        return self.variance(value_M).sqrt()

    def largest(self, value_M: Tensor) -> Tensor:
        nothing = torch.full((self.count,), math.nan, device=self.index_M.device)
        return nothing.scatter_reduce(0, self.index_M, value_M.float(), "amax", include_self=False)

    def quantiles(self, value_M: Tensor, *shares: float) -> list[Tensor]:
        """One [G] for each share in 0..1, linear between neighbours; NaN counts as larger than any number."""
        order = value_M.argsort()
        order = order[self.index_M[order].argsort(stable=True)]  # by group, and within a group by value
        sorted_M = torch.nn.functional.pad(value_M[order].float(), (0, 1), value=math.nan)
        size_G = self.size_G.double()
        first_G = size_G.cumsum(0) - size_G
        result = []
        for share in shares:
            place_G = share * (size_G - 1).clamp(min=0)
            low_G = first_G + place_G.floor()
            low, high = sorted_M[low_G.long()], sorted_M[(first_G + place_G.ceil()).long()]
            between = torch.where(low == high, low, torch.lerp(low, high, (place_G % 1).float()))
            result.append(torch.where(size_G > 0, between, math.nan))
        return result
