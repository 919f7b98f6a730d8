"""Which episodes are worth learning from? A filter looks at raw outcomes and flags, never at shaped rewards."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from algorithms.advantages.core import group_std
from algorithms.core import TurnTable


class Filter(ABC):
    """Base of every filter. Dropped episodes leave the loss, the KL term, token statistics and all denominators."""

    in_baseline: ClassVar[bool] = False  # whether the returns of what is dropped still count in baselines and spreads
    needs: ClassVar[frozenset[str]] = frozenset()  # names of environment features (`envs.core.Feature`)

    @property
    def resamples(self) -> int:
        """Batches of further tasks that may be played in place of groups that are dropped."""
        return 0

    @abstractmethod
    def __call__(self, turns: TurnTable) -> Tensor:
        """[E] bool, true where the episode is kept."""


@dataclass(frozen=True)
class ZeroSpread(Filter):
    """Drop groups whose raw outcomes spread by no more than `floor`: they teach no group-relative method (DAPO)."""

    floor: Annotated[float, Ge(0)]

    def __call__(self, turns: TurnTable) -> Tensor:
        return group_std(turns.outcome_E, turns.group_E) > self.floor


@dataclass(frozen=True)
class DynamicSampling(ZeroSpread):
    """Drop groups without spread and play further tasks in their place (DAPO, Yu et al. 2025, arXiv:2503.14476).

    At most `max_batches` batches are played for one update, the first included; it then goes on with what there is,
    where DAPO's code stops the run. It leans to tasks of medium difficulty: that is its purpose.
    """

    max_batches: Annotated[int, Gt(0)]

    @property
    def resamples(self) -> int:
        return self.max_batches - 1


@dataclass(frozen=True)
class TopSpread(Filter):
    """Keep the `share` of each member's groups with the widest raw outcomes (StarPO-S, RAGEN, arXiv:2504.20073).

    int(share * groups) of them, at least one. Groups as wide as the last one that is kept are kept with it; a group
    without any spread is never kept.
    """

    share: Annotated[float, Gt(0), Le(1)]

    def __call__(self, turns: TurnTable) -> Tensor:
        spread_G, wider_GG, same_GG, group_E = _spreads(turns)
        allowed_G = (same_GG.sum(1).double() * self.share + 1e-9).floor().clamp(min=1)
        return ((wider_GG.sum(1) < allowed_G) & (spread_G > 0))[group_E]


@dataclass(frozen=True)
class TopP(Filter):
    """Keep each member's widest groups until they hold the share `p` of all spread (RAGEN-2, linear top-p).

    By descending standard deviation of the raw outcomes until the sum kept reaches p * total - 0.01 (reward units; the
    tolerance of RAGEN-2's code). Equally wide groups are kept or dropped together; one without spread is never kept.
    """

    p: Annotated[float, Gt(0), Le(1)]

    def __call__(self, turns: TurnTable) -> Tensor:
        spread_G, wider_GG, same_GG, group_E = _spreads(turns)
        total_G = (same_GG * spread_G).sum(1)
        before_G = (wider_GG * spread_G).sum(1)
        return ((before_G < self.p * total_G - 0.01) & (spread_G > 0))[group_E]


@dataclass(frozen=True)
class Truncated(Filter):
    """Drop episodes in which an action or the context ran out of tokens (overlong filtering, DAPO, arXiv:2503.14476).

    Their outcome says where the budget ended rather than how good they were, so it leaves the baseline as well (TRL
    keeps it there).
    """

    def __call__(self, turns: TurnTable) -> Tensor:
        assert turns.truncated_K is not None
        return ~_any_turn(turns.truncated_K, turns)


@dataclass(frozen=True)
class VoidTurn(Filter):
    """Drop episodes with a turn that could not be understood or done (SimpleTIR, Xue et al. 2025, arXiv:2509.02479).

    Their returns still count in the baselines of the others. Nothing pushes the policy away from void turns, so keep a
    format penalty if they must go.
    """

    in_baseline: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"validity"})

    def __call__(self, turns: TurnTable) -> Tensor:
        assert turns.valid_K is not None
        return ~_any_turn(~turns.valid_K, turns)


@dataclass(frozen=True)
class MaxAge(Filter):
    """Drop episodes with a turn that was sampled more than `updates` updates ago; 0 keeps only the present policy's."""

    updates: Annotated[int, Ge(0)]

    def __call__(self, turns: TurnTable) -> Tensor:
        assert turns.age_K is not None
        return ~_any_turn(turns.age_K > self.updates, turns)


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


def _any_turn(flag_K: Tensor, turns: TurnTable) -> Tensor:
    """[E] bool, whether the flag is set in any turn of the episode."""
    count_E = torch.zeros_like(turns.group_E).index_add(0, turns.episode_K, flag_K.to(turns.group_E.dtype))
    return count_E > 0


def _spreads(turns: TurnTable) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Groups G of one member compared: [G] spreads, [G, G] who is wider than me, who has my member, and [E] the group.

    Comparing all pairs leaves nothing to the order of the table.
    """
    _, group_E = torch.unique(turns.group_E, return_inverse=True)
    groups = int(group_E.max()) + 1 if group_E.numel() else 0
    std_E = group_std(turns.outcome_E, turns.group_E)
    spread_G = std_E.new_zeros(groups).scatter(0, group_E, std_E)
    member_G = turns.member_E.new_zeros(groups).scatter(0, group_E, turns.member_E)
    same_GG = member_G.unsqueeze(1) == member_G
    return spread_G, same_GG & (spread_G.unsqueeze(1) < spread_G), same_GG, group_E
