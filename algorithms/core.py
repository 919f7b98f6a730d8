"""The tables that algorithms read, and the base of every algorithm. Pure tensors: no config, model or environment.

Axes: K turns, E episodes, R rows, T tokens of a row, N members.

A field made with `evolvable()` may hold a float (a unit test, a single run) or, while a population trains, a tensor [N]
with one value per member; `by_turn`, `by_episode` and `by_row` of the tables turn either into something that broadcasts
over lines of the table, and `gathered` does it for a whole component.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, is_dataclass
from typing import Annotated, Any, ClassVar, Literal, TypeVar

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

Part = TypeVar("Part")
Credit = Literal["trajectory", "turn", "token"]  # grain at which an advantage is given


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
    valid_K: Tensor | None = None  # bool; false where the action could not be understood or done
    truncated_K: Tensor | None = None  # bool; the action used up its token budget
    age_K: Tensor | None = None  # int64, updates since the turn was sampled
    text_K: tuple[str, ...] = ()  # what was observed before the action, for similarity of states
    components: Mapping[str, Tensor] = field(default_factory=dict)  # name -> [E] parts of the score
    baseline_E: Tensor | None = None  # moving mean of the member's earlier returns, where the estimator keeps one

    @property
    def member_K(self) -> Tensor:
        return self.member_E[self.episode_K]

    @property
    def last_K(self) -> Tensor:
        """[K] bool, the last turn of each episode."""
        count_E = torch.zeros_like(self.group_E).index_add(0, self.episode_K, torch.ones_like(self.episode_K))
        return self.index_K == count_E[self.episode_K] - 1

    def by_turn(self, value: float | Tensor) -> float | Tensor:
        """A number of each member as [K]; what is one number stays one."""
        return value[self.member_K] if isinstance(value, Tensor) and value.ndim else value

    def by_episode(self, value: float | Tensor) -> float | Tensor:
        """A number of each member as [E]; what is one number stays one."""
        return value[self.member_E] if isinstance(value, Tensor) and value.ndim else value

    @property
    def return_E(self) -> Tensor:
        """[E] undiscounted sum of turn rewards."""
        return torch.zeros_like(self.outcome_E).index_add(0, self.episode_K, self.reward_K)

    def only(self, keep_E: Tensor) -> tuple[TurnTable, Tensor]:
        """The table of the episodes in `keep_E` [E] bool, and [K] the new line of each old one, -1 where it is gone."""
        keep_K = keep_E[self.episode_K]
        line_K = torch.where(keep_K, keep_K.cumsum(0) - 1, -1)
        episode_E = keep_E.cumsum(0) - 1
        changes: dict[str, Any] = {}
        for f in fields(self):
            value = getattr(self, f.name)
            if f.name == "episode_K":
                changes[f.name] = episode_E[value[keep_K]]
            elif f.name == "text_K":
                changes[f.name] = tuple(text for text, keep in zip(value, keep_K.tolist(), strict=False) if keep)
            elif f.name == "components":
                changes[f.name] = {name: column[keep_E] for name, column in value.items()}
            elif value is not None:
                changes[f.name] = value[keep_K if f.name.endswith("_K") else keep_E]
        return dataclasses.replace(self, **changes), line_K


@dataclass(frozen=True)
class TokenTable:
    """The rows as they were fed, aligned with what is trained: position t holds the token that is predicted at t."""

    mask_RT: Tensor  # bool; true where the token was sampled by the policy and is trained
    turn_RT: Tensor  # int64, line of the turn table; -1 where not trained
    member_R: Tensor  # int64
    logprob_RT: Tensor  # of the sampler (behaviour policy); 0 where not trained
    value_RT: Tensor | None = None  # value of the context *before* the token
    penalty_RT: Tensor | None = None  # KL in reward units, already multiplied by its coefficient
    entropy_RT: Tensor | None = None  # of the policy at the start of the update, nats

    def by_row(self, value: float | Tensor) -> float | Tensor:
        """A number of each member as [R, 1]; what is one number stays one."""
        return value[self.member_R].unsqueeze(1) if isinstance(value, Tensor) and value.ndim else value

    @property
    def first_RT(self) -> Tensor:
        """[R, T] bool, the first token of every turn: its value is that of the state before the action."""
        before_RT = torch.nn.functional.pad(self.turn_RT[:, :-1], (1, 0), value=-1)
        return self.mask_RT & (before_RT != self.turn_RT)

    @property
    def last_RT(self) -> Tensor:
        """[R, T] bool, the last token of every turn, which carries the turn's reward."""
        return self.mask_RT & (_next_turn(self.turn_RT) != self.turn_RT)

    def of_turns(self, value_RT: Tensor, turns: int) -> Tensor:
        """[K] the mean of `value_RT` over the tokens of each of `turns` turns; 0 for a turn without a token here."""
        line = self.turn_RT[self.mask_RT]
        total = value_RT.new_zeros(turns).index_add(0, line, value_RT[self.mask_RT])
        count = value_RT.new_zeros(turns).index_add(0, line, torch.ones_like(value_RT[self.mask_RT]))
        return total / count.clamp(min=1)

    def spread(self, value_K: Tensor) -> Tensor:
        """[R, T] the value of each token's turn; 0 where not trained."""
        if value_K.numel() == 0:
            return torch.zeros(self.mask_RT.shape, dtype=value_K.dtype, device=value_K.device)
        return torch.where(self.mask_RT, value_K[self.turn_RT.clamp(min=0)], 0.0)

    def turn_reward_on_last_token(self, turns: TurnTable) -> Tensor:
        """[R, T] each turn's reward on the last of its tokens, minus each token's KL penalty; 0 where not trained."""
        reward_RT = torch.where(self.last_RT, self.spread(turns.reward_K), 0.0)
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

    learns_from: ClassVar[str] = "rollout"  # rollout | expert | pairs

    optimizer: AdamW

    @property
    def min_group(self) -> int:
        """Episodes per task below which it has nothing to compare."""
        return 1

    @property
    def trains_scorer(self) -> bool:
        """Whether what is trained is a scorer (adapters and a head), and the policy stays as it is."""
        return False

    @property
    def needs(self) -> frozenset[str]:
        """Names of the environment features (`envs.core.Feature`) without which the algorithm cannot run."""
        return frozenset()
