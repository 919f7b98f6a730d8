"""What a surrogate objective is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from algorithms.ratios import GRAINS


@dataclass(frozen=True)
class Surrogate:
    """Per-token loss [R, T] and where the ratio was clipped (bool [R, T])."""

    loss_RT: Tensor
    clipped_low_RT: Tensor
    clipped_high_RT: Tensor


class Objective(ABC):
    """Base of every surrogate. Subclasses are frozen dataclasses; evolvable fields are scalars or [R, 1]."""

    off_policy: ClassVar[bool] = True  # corrects for a policy that has moved since it sampled
    grains: ClassVar[tuple[str, ...]] = GRAINS  # grains of the ratio that it is defined for

    @abstractmethod
    def __call__(self, log_ratio_RT: Tensor, advantage_RT: Tensor, logprob_RT: Tensor, old_RT: Tensor) -> Surrogate:
        """Loss of each token, to be minimised.

        Args:
            log_ratio_RT: [R, T] log-ratio at the chosen grain, in nats, 0 where not trained.
            advantage_RT: [R, T] advantages, detached.
            logprob_RT: [R, T] log-probabilities of the present policy, in nats, with gradient.
            old_RT: [R, T] log-probabilities of the policy that the ratio is taken against.
        """


def like(setting: float | Tensor, value_RT: Tensor) -> Tensor:
    """A setting as a tensor of the type of `value_RT`: torch's own default would round a float to float32."""
    return torch.as_tensor(setting, dtype=value_RT.dtype, device=value_RT.device)
