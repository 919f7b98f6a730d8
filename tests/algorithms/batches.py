"""Random optimiser batches for the properties that must hold for every batch."""

from __future__ import annotations

import random
from dataclasses import dataclass, fields, replace

import torch
from hypothesis import settings
from hypothesis import strategies as st
from torch import Tensor

BATCHES = settings(max_examples=60, deadline=None)


@dataclass(frozen=True)
class Batch:
    """Rows of several members, untrained tokens before, between and after turns, and rows without a trained token."""

    mask_RT: Tensor
    turn_RT: Tensor
    member_R: Tensor
    group_R: Tensor
    old_RT: Tensor  # float64, like what follows
    log_ratio_RT: Tensor
    advantage_RT: Tensor  # one value per row

    def rows(self, index: Tensor) -> Batch:
        return replace(self, **{f.name: getattr(self, f.name)[index] for f in fields(self)})


def batch(seed: int, members: int = 2, spread: float = 0.5) -> Batch:
    draw = random.Random(seed)
    generator = torch.Generator().manual_seed(seed)
    rows, width, turn = draw.randint(1, 8), draw.randint(1, 9), -1
    turn_RT = torch.full((rows, width), -1)
    for r in range(rows):
        trained = draw.random() < 0.8
        for t in range(width):
            if trained and draw.random() < 0.7:
                turn += int(t == 0 or bool(turn_RT[r, t - 1] < 0) or draw.random() < 0.4)
                turn_RT[r, t] = turn
    mask_RT = turn_RT >= 0
    group_R = torch.tensor([draw.randrange(2 * members) for _ in range(rows)])
    noise = [torch.randn(rows, width, generator=generator, dtype=torch.float64) for _ in range(2)]
    advantage_RT = torch.randn(rows, 1, generator=generator, dtype=torch.float64).expand(rows, width)
    return Batch(
        mask_RT=mask_RT,
        turn_RT=turn_RT,
        member_R=group_R % members,
        group_R=group_R,
        old_RT=torch.where(mask_RT, -0.05 - noise[0].abs(), 0.0),
        log_ratio_RT=torch.where(mask_RT, spread * noise[1], 0.0),
        advantage_RT=torch.where(mask_RT, advantage_RT, 0.0),
    )


seeds = st.integers(0, 2**31 - 1)
