"""How is the critic trained?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Gt
from torch import Tensor

from algorithms.core import AdamW, evolvable


@dataclass(frozen=True, kw_only=True)
class Critic:
    """A second stacked adapter with a linear head per member on the same frozen base, and its own optimiser."""

    value_clip: Annotated[float, Gt(0)] = evolvable()
    optimizer: AdamW


def value_loss(value_RT: Tensor, old_RT: Tensor, return_RT: Tensor, clip: float | Tensor) -> Tensor:
    """[R, T] half the larger of the squared errors of the value and of the value clipped around the old one.

    (Schulman et al. 2017; verl `compute_value_loss`.) `clip` is in reward units, a scalar or [R, 1].
    """
    change = torch.minimum(torch.maximum(value_RT - old_RT, _like(-clip, old_RT)), _like(clip, old_RT))
    return torch.maximum((value_RT - return_RT).square(), (old_RT + change - return_RT).square()) / 2


def _like(bound: float | Tensor, old_RT: Tensor) -> Tensor:
    return torch.as_tensor(bound, dtype=old_RT.dtype, device=old_RT.device)
