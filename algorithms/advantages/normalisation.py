"""What is a value compared with, and in which unit is the difference told?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from annotated_types import Ge
from torch import Tensor

from algorithms.advantages.core import centred, group_std


@dataclass(frozen=True, kw_only=True)
class Normalisation:
    """(value - centre) / (spread + epsilon), the one normalisation of all estimators that compare within groups.

    - centre: `group` the mean of the group, `leave_one_out` the mean of the others of the group, `batch` the mean of
      all that the member has, `none`
    - spread: the standard deviation of the group, of all that the member has (TRL's `scale_rewards=batch`), or none;
      `unbiased` divides by n-1 (verl, TRL), otherwise by n

    A value whose group (with a `batch`, whose member) spreads by no more than `floor` becomes 0, and so does a group of
    one: never the raw value, never a rounding error that was divided by itself. Leave-one-out without spread is
    unbiased, since the baseline does not depend on the episode's own actions; the mean of the group is that times
    (n-1)/n; a spread depends on the own value and weighs groups of nearly equal values more.
    """

    centre: Literal["none", "group", "leave_one_out", "batch"]
    spread: Literal["none", "group", "batch"]
    unbiased: bool
    epsilon: Annotated[float, Ge(0)]
    floor: Annotated[float, Ge(0)]

    def __post_init__(self) -> None:
        if self.centre == "none" and self.spread == "none":
            raise ValueError(
                "normalisation with centre=none and spread=none compares with nothing; write centre=group, or "
                "algorithm/advantage=returns with baseline=none for raw returns"
            )

    @property
    def needs_groups(self) -> bool:
        return self.centre in ("group", "leave_one_out") or self.spread == "group"

    def __call__(self, value_B: Tensor, group_B: Tensor, member_B: Tensor, raw_B: Tensor) -> Tensor:
        """[B] normalised values, in units of the values (`spread=none`) or in standard deviations.

        Args:
            value_B: [B] values, in reward units.
            group_B, member_B: [B] int64; all of a group are of one member.
            raw_B: [B] the values before any KL penalty, whose noise must not make a group of equal values teach.
        """
        teaches_B = self.teaches(raw_B, group_B, member_B) & self.teaches(value_B, group_B, member_B)
        result = value_B
        if self.centre != "none":
            size, result = centred(value_B, member_B if self.centre == "batch" else group_B)
            if self.centre == "leave_one_out":
                result = result * size / (size - 1).clamp(min=1)
        if self.spread != "none":
            peers_B = member_B if self.spread == "batch" else group_B
            result = result / (group_std(value_B, peers_B, self.unbiased) + self.epsilon)
        return torch.where(teaches_B, result, 0.0)

    def teaches(self, raw_B: Tensor, group_B: Tensor, member_B: Tensor) -> Tensor:
        """[B] bool, false where the raw values that an entry is compared with spread by no more than `floor`."""
        result = torch.ones_like(raw_B, dtype=torch.bool)
        for peers_B in self._peers(group_B, member_B):
            result &= group_std(raw_B, peers_B, self.unbiased) > self.floor
        return result

    def _peers(self, group_B: Tensor, member_B: Tensor) -> Iterator[Tensor]:
        if self.needs_groups:
            yield group_B
        if "batch" in (self.centre, self.spread):
            yield member_B
