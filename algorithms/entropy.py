"""How much should the policy keep exploring?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from algorithms.core import evolvable


@dataclass(frozen=True, kw_only=True)
class Entropy:
    """Bonus per nat of entropy of each trained token, and which tokens are trained.

    `target` (nats a token) makes the coefficient adaptive: after each update it moves by `step`, up where the entropy
    was below the target and down where it was above, never below 0 (TRL's GRPO, after Skywork-OR1, arXiv:2505.22312).
    `top_quantile` below 1 trains the surrogate only on that share of each member's tokens with the highest entropy
    (Wang et al. 2025, arXiv:2506.01939); denominators stay those of all trained tokens.
    """

    coef: Annotated[float, Ge(0)] = evolvable()
    target: Annotated[float, Ge(0)] | None
    step: Annotated[float, Ge(0)]
    top_quantile: Annotated[float, Gt(0), Le(1)]


def stepped_coefficient(coef_N: Tensor, entropy_N: Tensor, target: float, step: float) -> Tensor:
    """[N] the coefficient of the next update: `step` towards `target`, at least 0; an entropy of NaN moves nothing.

    Args:
        coef_N: [N] coefficient of the update that was made.
        entropy_N: [N] mean entropy of its trained tokens, nats.
    """
    direction_N = torch.sign(target - entropy_N)  # 0 for NaN
    return (coef_N + step * direction_N).clamp(min=0)


def top_entropy(entropy_RT: Tensor, mask_RT: Tensor, member_R: Tensor, members: int, share: float) -> Tensor:
    """[R, T] bool, the `share` of each member's trained tokens with the highest entropy.

    At least one token a member. Tokens as uncertain as the last one that is taken are taken with it, so that the order
    of the rows decides nothing.

    Args:
        entropy_RT: [R, T] nats.
        mask_RT: [R, T] bool, trained tokens of the whole update.
        member_R: [R] int64 in 0..members-1.
    """
    entropy, member = entropy_RT[mask_RT], member_R.unsqueeze(1).expand_as(mask_RT)[mask_RT]
    if not entropy.numel():
        return mask_RT.clone()
    highest_first = entropy.argsort(descending=True)
    by_member = highest_first[member[highest_first].argsort(stable=True)]
    count_N = torch.bincount(member, minlength=members)
    taken_N = (count_N.double() * share + 1e-9).floor().long().clamp(min=1)  # 0.29 * 100 is 28.999… in binary
    last_N = (count_N.cumsum(0) - count_N + taken_N - 1).clamp(max=entropy.numel() - 1)
    result_RT = torch.zeros_like(mask_RT)
    result_RT[mask_RT] = entropy >= entropy[by_member][last_N][member]
    return result_RT
