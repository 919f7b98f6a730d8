"""The tables that algorithms read, and the base of every algorithm. Pure tensors: no config, model or environment.

Axes: K turns, E episodes, R rows, T tokens of a row, N members.

A field made with `evolvable()` may hold a float (a unit test, a single run) or, while a population trains, a tensor [N]
with one value per member; `gathered` turns the latter into something that broadcasts over rows or turns.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, ClassVar, TypeVar

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

Part = TypeVar("Part")


def evolvable() -> Any:
    """A field, of a keyword-only dataclass, that evolution may change while the run trains."""
    return field(metadata={"evolvable": True})


@dataclass(frozen=True)
class TurnTable:
    """One line per turn; failed episodes are not in it."""

    episode_K: Tensor  # int64, index into the per-episode columns
    index_K: Tensor  # int64, 0 for the first turn of an episode
    reward_K: Tensor  # reward units; the granularity has already decided where the outcome goes
    length_K: Tensor  # int64, sampled tokens
    state_K: Tensor  # int64, equal iff state before the action and group are equal; -1 where unknown
    group_E: Tensor  # int64, unique over members: episodes of one task by one member
    member_E: Tensor  # int64
    outcome_E: Tensor  # raw outcome, before any shaping

    @property
    def member_K(self) -> Tensor:
        return self.member_E[self.episode_K]

    @property
    def return_E(self) -> Tensor:
        """[E] undiscounted sum of turn rewards."""
        return torch.zeros_like(self.outcome_E).index_add(0, self.episode_K, self.reward_K)


@dataclass(frozen=True)
class TokenTable:
    """The rows as they were fed, aligned with what is trained: position t holds the token that is predicted at t."""

    mask_RT: Tensor  # bool; true where the token was sampled by the policy and is trained
    turn_RT: Tensor  # int64, line of the turn table; -1 where not trained
    member_R: Tensor  # int64
    logprob_RT: Tensor  # of the sampler (behaviour policy); 0 where not trained
    value_RT: Tensor | None = None  # value of the context *before* the token
    penalty_RT: Tensor | None = None  # KL in reward units, already multiplied by its coefficient

    def spread(self, value_K: Tensor) -> Tensor:
        """[R, T] the value of each token's turn; 0 where not trained."""
        if value_K.numel() == 0:
            return torch.zeros(self.mask_RT.shape, dtype=value_K.dtype, device=value_K.device)
        return torch.where(self.mask_RT, value_K[self.turn_RT.clamp(min=0)], 0.0)

    def turn_reward_on_last_token(self, turns: TurnTable) -> Tensor:
        """[R, T] each turn's reward on the last of its tokens, minus each token's KL penalty; 0 where not trained."""
        last_RT = self.mask_RT & (_next_turn(self.turn_RT) != self.turn_RT)
        reward_RT = torch.where(last_RT, self.spread(turns.reward_K), 0.0)
        if self.penalty_RT is None:
            return reward_RT
        return torch.where(self.mask_RT, reward_RT - self.penalty_RT, 0.0)

    def penalised(self, turns: TurnTable) -> TurnTable:
        """`turns` with the KL penalty of a turn's tokens taken off its reward; the same if KL is not in the reward."""
        if self.penalty_RT is None:
            return turns
        paid_K = turns.reward_K.index_add(0, self.turn_RT[self.mask_RT], -self.penalty_RT[self.mask_RT])
        return dataclasses.replace(turns, reward_K=paid_K)


def _next_turn(turn_RT: Tensor) -> Tensor:
    """[R, T] turn id of the next trained token of the row; -1 where there is none."""
    result = torch.full_like(turn_RT, -1)
    upcoming = torch.full_like(turn_RT[:, 0], -1)
    for t in range(turn_RT.shape[1] - 1, -1, -1):
        result[:, t] = upcoming
        upcoming = torch.where(turn_RT[:, t] >= 0, turn_RT[:, t], upcoming)
    return result


def gathered(part: Part, index: Tensor, column: bool = False) -> Part:
    """`part` with every per-member tensor [N] gathered by `index` [M] to [M], or to [M, 1] as a column."""

    def of(value: Any) -> Any:
        if isinstance(value, Tensor):
            taken = value[index]
            return taken.unsqueeze(-1) if column else taken
        if is_dataclass(value) and not isinstance(value, type):
            return gathered(value, index, column)
        return value

    changes = {f.name: of(getattr(part, f.name)) for f in fields(part)}  # type: ignore[arg-type]
    return dataclasses.replace(part, **changes)  # type: ignore[type-var]


@dataclass(frozen=True, kw_only=True)
class AdamW:
    """Settings of the population optimiser (Loshchilov & Hutter 2019); learning rates are per member."""

    learning_rate: Annotated[float, Gt(0)] = evolvable()
    beta1: Annotated[float, Ge(0), Lt(1)]
    beta2: Annotated[float, Ge(0), Lt(1)]
    epsilon: Annotated[float, Gt(0)]
    weight_decay: Annotated[float, Ge(0)] = evolvable()
    max_grad_norm: Annotated[float, Gt(0)] = evolvable()


@dataclass(frozen=True)
class Algorithm:
    """Base of every algorithm: what it learns from and what it needs."""

    learns_from: ClassVar[str] = "rollout"  # rollout | expert

    optimizer: AdamW

    @property
    def min_group(self) -> int:
        """Episodes per task below which it has nothing to compare."""
        return 1

    @property
    def needs(self) -> frozenset[str]:
        """Names of the environment features (`envs.core.Feature`) without which the algorithm cannot run."""
        return frozenset()
