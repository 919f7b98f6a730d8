"""AdamW for a population: every member has its own learning rate, moments, step count and clipping."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.core import AdamW
from evo_hpo.policy.blocks import Block


class PopulationAdamW:
    """Decoupled AdamW (Loshchilov & Hutter 2019) over a block [N, P].

    Equal to `torch.optim.AdamW` on each member alone.

    Attributes:
        first, second: [N, P] moments.
        count: [N] steps each member has made.
    """

    def __init__(self, block: Block) -> None:
        self.block = block
        self.first = torch.zeros_like(block.data)
        self.second = torch.zeros_like(block.data)
        self.count = torch.zeros(block.members, device=block.data.device)

    @torch.no_grad()
    def step(self, settings: AdamW, usable_N: Tensor, rate: float = 1.0) -> tuple[Tensor, Tensor]:
        """Clip each member's gradient, step, and clear the gradients.

        A member that is not usable, or whose gradient is not finite, keeps weights, moments and count bit for bit.

        Args:
            settings: fields are floats, or [N] where they evolve.
            usable_N: [N] bool, members whose loss was finite.
            rate: factor on every learning rate (warm-up).
        Returns:
            [N] gradient norms before clipping, and [N] bool who stepped.
        """
        grad = self.block.grad
        norm_N = torch.linalg.vector_norm(grad, dim=1)
        steps_N = usable_N & norm_N.isfinite()
        keep = ~steps_N.unsqueeze(1)
        scale = (_column(settings.max_grad_norm, grad) / (norm_N.unsqueeze(1) + 1e-6)).clamp(max=1.0)
        grad.mul_(scale).masked_fill_(keep, 0.0)

        self.count += steps_N
        beta1, beta2 = _column(settings.beta1, grad), _column(settings.beta2, grad)
        first = self.first * beta1 + grad * (1 - beta1)
        second = self.second * beta2 + grad.square() * (1 - beta2)
        self.first = torch.where(keep, self.first, first)
        self.second = torch.where(keep, self.second, second)

        count = self.count.clamp(min=1).unsqueeze(1)
        lr = _column(settings.learning_rate, grad) * rate
        denominator = (second / (1 - beta2**count)).sqrt_() + settings.epsilon
        stepped = self.block.data * (1 - lr * _column(settings.weight_decay, grad))
        stepped -= lr * (first / (1 - beta1**count)) / denominator
        self.block.data.copy_(torch.where(keep, self.block.data, stepped))
        grad.zero_()
        return norm_N, steps_N

    @torch.no_grad()
    def gather(self, parent_M: Tensor) -> None:
        """Row i becomes what row parent_M[i] was: a clone continues with its parent's moments and step count."""
        self.first, self.second, self.count = self.first[parent_M], self.second[parent_M], self.count[parent_M]

    @torch.no_grad()
    def restart(self, member: int) -> None:
        """Forget what is known of a member."""
        for column in (self.first, self.second, self.count):
            column[member] = 0

    def state(self) -> dict[str, Tensor]:
        return {"first": self.first, "second": self.second, "count": self.count}

    def load(self, state: dict[str, Tensor]) -> None:
        self.first, self.second, self.count = (
            state[name].to(self.first.device) for name in ("first", "second", "count")
        )


def _column(value: float | Tensor, like: Tensor) -> Tensor:
    column = torch.as_tensor(value, dtype=like.dtype, device=like.device)
    return column.unsqueeze(1) if column.ndim else column
