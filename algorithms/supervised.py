"""Supervised fine-tuning on expert episodes (behaviour cloning)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

import torch
from annotated_types import Ge, Gt, Le
from torch import Tensor

from algorithms.aggregation import Mode
from algorithms.core import Algorithm, TokenTable, TurnTable


@dataclass(frozen=True)
class Supervised(Algorithm):
    """Minimise -log pi of the expert's action tokens, stop token included, observations excluded.

    `noise` is the chance that a demonstration plays, and teaches, a random well-formed action instead of the expert's.
    `weighting=outcome` weighs each demonstration by its outcome, never below 0: what failed teaches nothing.
    """

    learns_from: ClassVar[str] = "expert"

    aggregation: Mode
    aggregation_constant: Annotated[float, Gt(0)]
    weighting: Literal["none", "outcome"]
    noise: Annotated[float, Ge(0), Le(1)]
    warmup: Annotated[int, Ge(0)]  # updates over which the learning rate rises linearly

    @property
    def needs(self) -> frozenset[str]:
        return frozenset({"expert"})


def example_weights(algorithm: Supervised, turns: TurnTable, tokens: TokenTable) -> Tensor:
    """[R, T] weight of each demonstration at its trained tokens, in reward units or 1; 0 where not trained."""
    if algorithm.weighting == "none":
        return tokens.mask_RT.to(torch.float32)
    return tokens.spread(turns.outcome_E.clamp(min=0)[turns.episode_K])
