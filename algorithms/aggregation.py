"""How do token losses become one number per member?

Every mode is a weight per token, so that a member's loss is a plain sum over its rows whatever the micro-batches are:
denominators come from the member's whole optimiser batch. Fully masked rows count nowhere.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Mode = Literal[
    "token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant", "turn_mean", "prompt_mean"
]


def token_weights(
    mode: Mode,
    mask_RT: Tensor,
    member_R: Tensor,
    members: int,
    constant: float,
    turn_RT: Tensor | None = None,
    group_R: Tensor | None = None,
) -> Tensor:
    """[R, T] weight of each token loss; a member's loss is the weighted sum over its rows.

    token_mean: sum / trained tokens (DAPO, arXiv:2503.14476). sequence_mean_token_mean: mean over rows of the mean over
    tokens (GRPO, arXiv:2402.03300). sequence_mean_token_sum: mean over rows of the sum. constant: sum / (rows *
    `constant`) (Dr. GRPO, arXiv:2503.20783). turn_mean: mean over rows of the mean over turns of the mean over tokens
    (how we read LOOP with turn ratios, arXiv:2502.01600). prompt_mean: mean over groups of the mean over the tokens of
    a group (SkyRL).

    Args:
        mask_RT: [R, T] bool, trained tokens of the whole optimiser batch.
        member_R: [R] int64 in 0..members-1.
        constant: tokens; only read by `constant`.
        turn_RT: [R, T] int64, equal for the tokens of one turn and for no others; only read by `turn_mean`.
        group_R: [R] int64, equal for the rows of one task and member, at least 0; only read by `prompt_mean`.
    """
    length_R = mask_RT.sum(1).to(torch.float32)
    filled_R = (length_R > 0).to(torch.float32)
    zeros = torch.zeros(members, device=mask_RT.device)
    tokens_N = zeros.index_add(0, member_R, length_R).clamp(min=1)
    rows_N = zeros.index_add(0, member_R, filled_R).clamp(min=1)
    if mode == "turn_mean":
        assert turn_RT is not None
        return _mean_within_turns(mask_RT, turn_RT) / rows_N[member_R].unsqueeze(1)
    if mode == "prompt_mean":
        assert group_R is not None
        weight_R = _mean_within_groups(length_R, group_R, member_R, zeros)
    elif mode == "token_mean":
        weight_R = 1 / tokens_N[member_R]
    elif mode == "sequence_mean_token_mean":
        weight_R = 1 / (rows_N[member_R] * length_R.clamp(min=1))
    elif mode == "sequence_mean_token_sum":
        weight_R = 1 / rows_N[member_R]
    else:
        weight_R = 1 / (rows_N[member_R] * constant)
    return weight_R.unsqueeze(1) * mask_RT


def _mean_within_turns(mask_RT: Tensor, turn_RT: Tensor) -> Tensor:
    """[R, T] 1 / (turns of the row * tokens of the turn); 0 where not trained."""
    _, index, size = torch.unique(turn_RT[mask_RT], return_inverse=True, return_counts=True)
    share_RT = torch.zeros(mask_RT.shape, device=mask_RT.device)
    share_RT[mask_RT] = 1 / size[index].to(torch.float32)
    turns_R = share_RT.sum(1).round().clamp(min=1)  # the shares of a turn's tokens sum to 1
    return share_RT / turns_R.unsqueeze(1)


def _mean_within_groups(length_R: Tensor, group_R: Tensor, member_R: Tensor, zeros_N: Tensor) -> Tensor:
    """[R] 1 / (groups of the member * tokens of the group), counting groups that have a trained token."""
    _, index = torch.unique(group_R, return_inverse=True)
    size = int(index.max()) + 1 if index.numel() else 0
    tokens_G = length_R.new_zeros(size).index_add(0, index, length_R)
    member_G = member_R.new_zeros(size).scatter(0, index, member_R)
    groups_N = zeros_N.index_add(0, member_G, (tokens_G > 0).to(torch.float32)).clamp(min=1)
    return 1 / (groups_N[member_R] * tokens_G[index].clamp(min=1))
