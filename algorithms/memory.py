"""What an algorithm carries from one update to the next: a few numbers per member, [N] each.

`kl_factor` of an adaptive KL coefficient, `entropy_shift` of an adaptive entropy coefficient, `return_mean` of a moving
baseline (NaN before the first update), `clip_bound` of clipping-triggered normalisation (0 before it ever clipped).
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping

import torch
from torch import Tensor

from algorithms.entropy import stepped_coefficient
from algorithms.kl import adapted_coefficient
from algorithms.objectives.clipping_normalised import ClippingNormalised
from algorithms.policy_gradient import PolicyGradient

Memory = dict[str, Tensor]


def beginning(algorithm: PolicyGradient, members: int, device: torch.device) -> Memory:
    """What is known before the first update; empty for an algorithm that carries nothing."""
    start: dict[str, float] = {}
    if algorithm.kl.target is not None:
        start["kl_factor"] = 1.0
    if algorithm.entropy.target is not None:
        start["entropy_shift"] = 0.0
    if algorithm.advantage.baseline_decay is not None:
        start["return_mean"] = math.nan
    if isinstance(algorithm.objective, ClippingNormalised) and algorithm.objective.bound is None:
        start["clip_bound"] = 0.0
    return {name: torch.full((members,), value, device=device) for name, value in start.items()}


def adapted(algorithm: PolicyGradient, memory: Memory) -> PolicyGradient:
    """`algorithm` with the coefficients of this update, as [N] where they adapt."""
    if "kl_factor" in memory:
        kl = dataclasses.replace(algorithm.kl, coef=algorithm.kl.coef * memory["kl_factor"])  # type: ignore[arg-type]
        algorithm = dataclasses.replace(algorithm, kl=kl)
    if "entropy_shift" in memory:
        coef = (algorithm.entropy.coef + memory["entropy_shift"]).clamp(min=0)
        entropy = dataclasses.replace(algorithm.entropy, coef=coef)  # type: ignore[arg-type]
        algorithm = dataclasses.replace(algorithm, entropy=entropy)
    return algorithm


def remembered(algorithm: PolicyGradient, memory: Memory, seen: Mapping[str, Tensor]) -> Memory:
    """Memory after an update.

    Args:
        algorithm: as it is configured, not `adapted`.
        seen: [N] what the update measured: `kl` and `entropy` in nats a token, `return` in reward units, and
            `episodes`; NaN where a member measured nothing.
    """
    after = dict(memory)
    if "kl_factor" in memory:
        assert algorithm.kl.target is not None
        after["kl_factor"] = adapted_coefficient(
            memory["kl_factor"], seen["kl"], algorithm.kl.target, seen["episodes"], algorithm.kl.horizon
        )
    if "entropy_shift" in memory:
        assert algorithm.entropy.target is not None
        coef = algorithm.entropy.coef
        after["entropy_shift"] = (
            stepped_coefficient(
                (coef + memory["entropy_shift"]).clamp(min=0),
                seen["entropy"],
                algorithm.entropy.target,
                algorithm.entropy.step,
            )
            - coef
        )
    if "return_mean" in memory:
        decay = algorithm.advantage.baseline_decay
        assert decay is not None
        before_N, seen_N = memory["return_mean"], seen["return"]
        mean_N = torch.where(before_N.isnan(), seen_N, decay * before_N + (1 - decay) * seen_N)
        after["return_mean"] = torch.where(seen_N.isnan(), before_N, mean_N)
    return after
