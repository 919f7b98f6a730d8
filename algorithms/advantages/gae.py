"""How much better than the critic expected did things go from here on?"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Annotated, ClassVar

import torch
from annotated_types import Ge, Le
from torch import Tensor

from algorithms.advantages.core import Critical, of_first_turns, trained_turns, whiten
from algorithms.core import Credit, TokenTable, TurnTable, evolvable


@dataclass(frozen=True, kw_only=True)
class GAE(Critical):
    """Generalised advantage estimation (Schulman et al. 2016, arXiv:1506.02438) with a critic.

    - credit=token: over trained tokens. Observation tokens are skipped: the next value and the running advantage pass
      over them unchanged, so that a reward reaches the turns before it. A turn's reward sits on the last of its tokens,
      once; rewards on turns before the last make it MT-PPO (Zeng et al. 2025, arXiv:2505.11821)
    - credit=turn: a turn is one action (Turn-PPO, 2025, arXiv:2512.17008). V(s_k) is the value at the turn's first
      token, of the state before the action; the advantage goes to all tokens of the turn, and the critic is asked at
      first tokens only. Read at a later token, a value would have seen part of the action and bias the baseline
    - credit=trajectory: the return of the episode, discounted per turn, minus the value of its first state; `lam` has
      no say

    `gamma` is per token or per turn. `whiten` standardises over what gets one number each, the member's tokens, turns
    or episodes, so that long turns weigh no more. All episodes end where their row ends: nothing is bootstrapped.
    """

    credits: ClassVar[tuple[Credit, ...]] = ("token", "turn", "trajectory")

    credit: Credit
    gamma: Annotated[float, Ge(0), Le(1)] = evolvable()
    lam: Annotated[float, Ge(0), Le(1)] = evolvable()
    whiten: bool

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        if self.credit == "token":
            advantage_RT = self._of_tokens(turns, tokens)
            return whiten(advantage_RT, tokens.mask_RT, tokens.member_R) if self.whiten else advantage_RT
        advantage_K = self._of_turns(turns, tokens)
        among_K = trained_turns(turns, tokens)
        if self.credit == "trajectory":
            among_K = among_K & (turns.index_K == 0)
        if self.whiten:
            advantage_K = whiten(advantage_K, among_K, turns.member_K)
        if self.credit == "trajectory":
            advantage_K = of_first_turns(turns, advantage_K)[turns.episode_K]
        return tokens.spread(advantage_K)

    def targets(self, turns: TurnTable, tokens: TokenTable) -> tuple[Tensor, Tensor]:
        if self.credit == "token":
            value_RT = values(tokens)
            return self._of_tokens(turns, tokens) + value_RT, tokens.mask_RT
        target_K = self._of_turns(turns, tokens) + state_values(turns, tokens)
        asked_RT = tokens.first_RT
        if self.credit == "trajectory":
            asked_RT = asked_RT & (tokens.spread(turns.index_K) == 0)
        return torch.where(asked_RT, tokens.spread(target_K), 0.0), asked_RT

    def _of_tokens(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        """[R, T] before whitening, in reward units."""
        gamma, lam = tokens.by_row(self.gamma), tokens.by_row(self.lam)
        return token_gae(tokens.turn_reward_on_last_token(turns), values(tokens), tokens.mask_RT, gamma, lam)

    def _of_turns(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        """[K] before whitening, in reward units; for whole trajectories only the first turn's is meant."""
        lam = 1.0 if self.credit == "trajectory" else self.lam  # at 1 the values of later states cancel
        return turn_gae(tokens.penalised(turns), state_values(turns, tokens), self.gamma, lam)


def values(tokens: TokenTable) -> Tensor:
    """[R, T] values of the critic, 0 where not trained.

    Raises:
        ValueError: there is no critic.
    """
    if tokens.value_RT is None:
        raise ValueError("the estimator needs values of a critic; write algorithm=ppo, or give the algorithm a critic")
    return torch.where(tokens.mask_RT, tokens.value_RT, 0.0)


def state_values(turns: TurnTable, tokens: TokenTable) -> Tensor:
    """[K] value of the state before each turn: that at its first token; 0 for a turn without trained tokens."""
    at_first = dataclasses.replace(tokens, mask_RT=tokens.first_RT)
    return at_first.of_turns(values(tokens), turns.index_K.numel())


def of_rows(value: float | Tensor) -> float | Tensor:
    """[R] of [R, 1]; what is one number stays one."""
    return value.squeeze(-1) if isinstance(value, Tensor) and value.ndim == 2 else value


def token_gae(
    reward_RT: Tensor, value_RT: Tensor, mask_RT: Tensor, gamma: float | Tensor, lam: float | Tensor
) -> Tensor:
    """[R, T] GAE over the positions of `mask_RT`; 0 elsewhere. `gamma` and `lam` are scalars or [R, 1]."""
    gamma_R, lam_R = of_rows(gamma), of_rows(lam)
    next_value = torch.zeros_like(value_RT[:, 0])
    running = torch.zeros_like(next_value)
    advantage_RT = torch.zeros_like(value_RT)
    for t in range(value_RT.shape[1] - 1, -1, -1):
        trained = mask_RT[:, t]
        delta = reward_RT[:, t] + gamma_R * next_value - value_RT[:, t]
        running = torch.where(trained, delta + gamma_R * lam_R * running, running)
        next_value = torch.where(trained, value_RT[:, t], next_value)
        advantage_RT[:, t] = torch.where(trained, running, 0.0)
    return advantage_RT


def turn_gae(turns: TurnTable, value_K: Tensor, gamma: float | Tensor, lam: float | Tensor) -> Tensor:
    """[K] GAE over the turns of each episode; `value_K` [K] is of the state before the turn.

    `gamma` and `lam` are scalars or [N].
    """
    if turns.index_K.numel() == 0:
        return torch.zeros_like(turns.reward_K)
    gamma_E, lam_E = turns.by_episode(gamma), turns.by_episode(lam)
    width = int(turns.index_K.max()) + 1
    reward_EK, value_EK = (_grid(turns, column, width) for column in (turns.reward_K, value_K.to(turns.reward_K.dtype)))
    next_value = running = torch.zeros_like(turns.outcome_E)
    advantage_EK = torch.zeros_like(reward_EK)
    for k in range(width - 1, -1, -1):
        running = reward_EK[:, k] + gamma_E * next_value - value_EK[:, k] + gamma_E * lam_E * running
        next_value = value_EK[:, k]
        advantage_EK[:, k] = running
    return advantage_EK[turns.episode_K, turns.index_K]


def _grid(turns: TurnTable, value_K: Tensor, width: int) -> Tensor:
    """[E, width] values by episode and turn index; 0 behind the last turn of an episode."""
    grid = value_K.new_zeros(turns.outcome_E.shape[0], width)
    grid[turns.episode_K, turns.index_K] = value_K
    return grid
