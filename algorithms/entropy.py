"""How much should the policy keep exploring?"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from annotated_types import Ge, Gt, Le

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
