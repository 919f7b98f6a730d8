"""How do token losses become one number per member?

Every mode is a weight per token, so that a member's loss is a plain sum over its rows whatever the micro-batches are:
denominators come from the member's whole optimiser batch. Fully masked rows count nowhere.
"""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

Mode = Literal["token_mean", "sequence_mean_token_mean", "sequence_mean_token_sum", "constant"]


def token_weights(mode: Mode, mask_RT: Tensor, member_R: Tensor, members: int, constant: float) -> Tensor:
    """[R, T] weight of each token loss; a member's loss is the weighted sum over its rows.

    token_mean: sum / trained tokens (DAPO, arXiv:2503.14476). sequence_mean_token_mean: mean over rows of the mean over
    tokens (GRPO, arXiv:2402.03300). sequence_mean_token_sum: mean over rows of the sum. constant: sum / (rows *
    `constant`) (Dr. GRPO, arXiv:2503.20783).

    Args:
        mask_RT: [R, T] bool, trained tokens of the whole optimiser batch.
        member_R: [R] int64 in 0..members-1.
        constant: tokens; only read by `constant`.
    """
    length_R = mask_RT.sum(1).to(torch.float32)
    filled_R = (length_R > 0).to(torch.float32)
    zeros = torch.zeros(members, device=mask_RT.device)
    tokens_N = zeros.index_add(0, member_R, length_R).clamp(min=1)
    rows_N = zeros.index_add(0, member_R, filled_R).clamp(min=1)
    if mode == "token_mean":
        weight_R = 1 / tokens_N[member_R]
    elif mode == "sequence_mean_token_mean":
        weight_R = 1 / (rows_N[member_R] * length_R.clamp(min=1))
    elif mode == "sequence_mean_token_sum":
        weight_R = 1 / rows_N[member_R]
    else:
        weight_R = 1 / (rows_N[member_R] * constant)
    return weight_R.unsqueeze(1) * mask_RT
