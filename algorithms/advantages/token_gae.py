"""How much better than the critic expected did things go from this token on?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Le
from torch import Tensor

from algorithms.advantages.core import Advantage, whiten
from algorithms.core import TokenTable, TurnTable, evolvable


@dataclass(frozen=True, kw_only=True)
class TokenGAE(Advantage):
    """Generalised advantage estimation over trained tokens (Schulman et al. 2016, arXiv:1506.02438).

    Observation tokens are skipped: the next value and the running advantage pass over them unchanged, so that a reward
    reaches the turns before it. A turn's reward sits on the last of its tokens, once. All episodes end where their row
    ends, so nothing is bootstrapped.
    """

    grain: ClassVar[Literal["trajectory", "turn", "token"]] = "token"
    needs_values: ClassVar[bool] = True

    gamma: Annotated[float, Ge(0), Le(1)] = evolvable()
    lam: Annotated[float, Ge(0), Le(1)] = evolvable()
    whiten: bool

    def __call__(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        advantage_RT = self.unwhitened(turns, tokens)
        return whiten(advantage_RT, tokens.mask_RT, tokens.member_R) if self.whiten else advantage_RT

    def unwhitened(self, turns: TurnTable, tokens: TokenTable) -> Tensor:
        """[R, T] advantages in reward units; the critic's targets are these plus the values."""
        if tokens.value_RT is None:
            raise ValueError("TokenGAE needs values of a critic; write algorithm=ppo, or give the algorithm a critic")
        reward_RT = tokens.turn_reward_on_last_token(turns)
        return token_gae(reward_RT, tokens.value_RT, tokens.mask_RT, self.gamma, self.lam)


def token_gae(
    reward_RT: Tensor, value_RT: Tensor, mask_RT: Tensor, gamma: float | Tensor, lam: float | Tensor
) -> Tensor:
    """[R, T] GAE over the positions of `mask_RT`; 0 elsewhere. `gamma` and `lam` are scalars or [R, 1]."""
    gamma_R, lam_R = (v.squeeze(-1) if isinstance(v, Tensor) and v.ndim == 2 else v for v in (gamma, lam))
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
