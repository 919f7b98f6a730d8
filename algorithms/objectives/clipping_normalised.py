"""PPO's clipped surrogate with smaller steps where clipping biases them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from annotated_types import Ge, Gt, Lt
from torch import Tensor

from algorithms.core import evolvable
from algorithms.objectives.clipped import clipped_surrogate
from algorithms.objectives.core import Objective, Surrogate, like


@dataclass(frozen=True, kw_only=True)
class ClippingNormalised(Objective):
    """Clipping-triggered normalisation; our reading of SORL (arXiv:2511.20718), not the paper's confirmed formula.

    Per token this is `Clipped`. Clipping removes C = sum_t w_t 1{clipped} r_t A_t grad log pi_t from the gradient, with
    w_t the aggregation's weights. When |C| is larger than usual, the member's gradient is scaled by
    1 / max(1, |C| / bound) (`gradient_scale`). `exact: false` takes for |C| the norm of the token vector
    w_t 1{clipped} r_t A_t (`clip_terms`), which costs nothing; `exact: true` takes the norm of the gradient of
    `clipping_bias` with respect to the parameters, which costs one more backward pass. `bound: null` is the moving mean
    of the member's earlier |C|, weighted by `decay` (`moving_bound`).
    """

    clip_low: Annotated[float, Ge(0), Lt(1)] = evolvable()
    clip_high: Annotated[float, Ge(0)] = evolvable()
    bound: Annotated[float, Gt(0)] | None
    decay: Annotated[float, Ge(0), Lt(1)]
    exact: bool

    def __call__(self, log_ratio_RT: Tensor, advantage_RT: Tensor, logprob_RT: Tensor, old_RT: Tensor) -> Surrogate:
        return clipped_surrogate(log_ratio_RT.exp(), advantage_RT, self.clip_low, self.clip_high)


def clip_terms(surrogate: Surrogate, ratio_RT: Tensor, advantage_RT: Tensor, weight_RT: Tensor) -> Tensor:
    """[R, T] w 1{clipped} r A, detached: what clipping took from each token.

    The root of a member's sum of squares is |C| with `exact: false`.

    Args:
        surrogate: of these tokens; clipped are those whose gradient is 0.
        ratio_RT: [R, T] ratio at the chosen grain.
        advantage_RT: [R, T] advantages.
        weight_RT: [R, T] the aggregation's weights, 0 where not trained.
    """
    clipped_RT = (surrogate.clipped_low_RT | surrogate.clipped_high_RT) & (weight_RT > 0)
    return torch.where(clipped_RT, weight_RT * ratio_RT * advantage_RT, 0.0).detach()


def clipping_bias(term_RT: Tensor, logprob_RT: Tensor) -> Tensor:
    """[R, T] loss, already weighted, whose gradient with respect to the parameters is C; `term_RT` as `clip_terms`."""
    return torch.where(term_RT != 0, term_RT * logprob_RT, 0.0)


def gradient_scale(clip_norm_N: Tensor, bound_N: Tensor | float) -> Tensor:
    """[N] 1 / max(1, |C| / bound), the factor of each member's gradient; 1 where the bound is 0: not yet known."""
    bound_N = like(bound_N, clip_norm_N)
    known_N = bound_N > 0
    return torch.where(known_N, 1 / (clip_norm_N / torch.where(known_N, bound_N, 1.0)).clamp(min=1), 1.0)


def moving_bound(bound_N: Tensor, clip_norm_N: Tensor, decay: float) -> Tensor:
    """[N] the bound after a step: decay * bound + (1 - decay) * |C|; the first |C| where there was none (0).

    Steps without clipping are left out: a mean that they pull to 0 would stop the first step that clips again.
    """
    mean_N = torch.where(bound_N > 0, decay * bound_N + (1 - decay) * clip_norm_N, clip_norm_N)
    return torch.where((clip_norm_N > 0) & clip_norm_N.isfinite(), mean_N, bound_N)
