"""At which grain does the policy ratio act? Each function turns token log-ratios into the log-ratio that is used."""

from __future__ import annotations

from typing import Literal, get_args

import torch
from torch import Tensor

Grain = Literal["token", "turn_geometric", "turn_product", "sequence_geometric", "sequence_product", "sequence_token"]
GRAINS: tuple[str, ...] = get_args(Grain)
LIMIT = 20.0  # log-ratios are clamped to +-LIMIT before they are exponentiated (verl)


def log_ratio_at(grain: Grain, log_ratio_RT: Tensor, mask_RT: Tensor, turn_RT: Tensor) -> Tensor:
    """[R, T] log-ratio of each trained token's token, turn or sequence; 0 where not trained.

    `geometric` averages the token log-ratios (GSPO, arXiv:2507.18071), `product` sums them (LOOP, arXiv:2502.01600).
    Gradients flow through the pooled value to every token of the pool. `sequence_token` has the value of
    `sequence_geometric` and lets each token move its own copy of it, sg[log s] + log pi - sg[log pi] (GSPO-token, same
    paper): the same loss and gradient where a sequence has one advantage, and sound where its tokens differ.

    Args:
        log_ratio_RT: [R, T] log pi_theta - log pi_old of the sampled tokens, in nats.
        mask_RT: [R, T] bool, trained tokens.
        turn_RT: [R, T] int64, equal for the tokens of one turn, -1 where not trained.
    """
    log_ratio_RT = torch.where(mask_RT, log_ratio_RT, 0.0)
    if grain == "token":
        pooled_RT = log_ratio_RT
    elif grain.startswith("sequence"):
        total = log_ratio_RT.sum(1, keepdim=True)
        if grain != "sequence_product":
            total = total / mask_RT.sum(1, keepdim=True).clamp(min=1)
        pooled_RT = total.expand_as(log_ratio_RT)
        if grain == "sequence_token":
            pooled_RT = pooled_RT.detach() + (log_ratio_RT - log_ratio_RT.detach())
    else:
        _, index = torch.unique(turn_RT[mask_RT], return_inverse=True)
        size = int(index.max()) + 1 if index.numel() else 0
        total = log_ratio_RT.new_zeros(size).index_add(0, index, log_ratio_RT[mask_RT])
        if grain == "turn_geometric":
            total = total / log_ratio_RT.new_zeros(size).index_add(0, index, torch.ones_like(log_ratio_RT[mask_RT]))
        pooled_RT = torch.zeros_like(log_ratio_RT).masked_scatter(mask_RT, total[index])
    return torch.where(mask_RT, pooled_RT.clamp(-LIMIT, LIMIT), 0.0)
