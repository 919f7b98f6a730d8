"""All parameters of one kind as one matrix [N, P]: optimiser, clone and checkpoint are one operation each."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Mapping

import torch
from torch import Tensor, nn

# Gradients are strided views on purpose, one row per member; the warning is about a speed that does not matter here.
warnings.filterwarnings("ignore", message="grad and param do not obey the gradient layout contract")


class Block:
    """Named parameters that are views into one matrix, with gradients that are views into another.

    Attributes:
        data: [N, P] float32, one row per member.
        grad: [N, P] float32; autograd accumulates into it through the views.
        views: name -> parameter [N, *shape].
    """

    def __init__(self, shapes: Mapping[str, tuple[int, ...]], members: int, device: torch.device) -> None:
        self.shapes = dict(shapes)
        self.size = sum(_count(shape) for shape in shapes.values())
        self.data = torch.zeros(members, self.size, device=device)
        self.grad = torch.zeros_like(self.data)
        self.views: dict[str, nn.Parameter] = {}
        for name, shape, start, stop in self._slices():
            view = nn.Parameter(self.data[:, start:stop].view(members, *shape))
            view.grad = self.grad[:, start:stop].view(members, *shape)
            self.views[name] = view

    @property
    def members(self) -> int:
        return self.data.shape[0]

    def _slices(self) -> list[tuple[str, tuple[int, ...], int, int]]:
        result, start = [], 0
        for name, shape in self.shapes.items():
            result.append((name, shape, start, start + _count(shape)))
            start += _count(shape)
        return result

    @torch.no_grad()
    def load(self, matrix: Tensor) -> None:
        """Take the values of `matrix` [N, P]; the views keep their identity."""
        if matrix.shape != self.data.shape:
            raise ValueError(f"expected parameters of shape {tuple(self.data.shape)}, got {tuple(matrix.shape)}")
        self.data.copy_(matrix)

    @torch.no_grad()
    def gather(self, parent_M: Tensor) -> None:
        """Row i becomes what row parent_M[i] was. With more or fewer rows than before the views are new."""
        if len(parent_M) == self.members:
            self.data.copy_(self.data[parent_M])
            return
        other = self.rows(parent_M)
        self.data, self.grad, self.views = other.data, other.grad, other.views

    @torch.no_grad()
    def rows(self, index_M: Tensor) -> Block:
        """A block of copies of the rows index_M."""
        copied = Block(self.shapes, len(index_M), self.data.device)
        copied.data.copy_(self.data[index_M])
        for name, view in self.views.items():
            copied.views[name].requires_grad_(view.requires_grad)
        return copied

    def of_member(self, member: int) -> dict[str, Tensor]:
        """name -> [*shape], detached copies."""
        return {name: view.detach()[member].clone() for name, view in self.views.items()}

    def checksum(self, member: int) -> str:
        """First 16 hex digits of the SHA-256 of the member's parameters."""
        return hashlib.sha256(self.data[member].detach().cpu().numpy().tobytes()).hexdigest()[:16]


class BaseBlock(Block):
    """The base model's own parameters as a block of one member, for full-parameter training."""

    def __init__(self, model: nn.Module, device: torch.device) -> None:
        parameters = dict(model.named_parameters())
        super().__init__({name: tuple(p.shape) for name, p in parameters.items()}, 1, device)
        for name, parameter in parameters.items():
            view = self.views[name]
            assert view.grad is not None
            view.data.copy_(parameter.data.unsqueeze(0))
            parameter.data = view.data[0]
            parameter.requires_grad_(True)
            parameter.grad = view.grad[0]


def _count(shape: tuple[int, ...]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
