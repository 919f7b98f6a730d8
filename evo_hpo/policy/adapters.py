"""Stacked LoRA: the adapters of all members on one frozen base, applied to member-major rows in two batched products.

A forward pass is routed first (`Router.use`): whose adapters, and in which order the rows lie. The adapters hang on the
linear modules as forward hooks, so that any architecture keeps its classes and names.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from evo_hpo.policy.blocks import Block


@dataclass(frozen=True)
class LoraShape:
    """Rank and scale, the same for all members and modules."""

    rank: int
    alpha: float

    @property
    def scale(self) -> float:
        return self.alpha / self.rank


@dataclass
class Route:
    """Whose adapters the next forward passes use, and how many members the rows are split between."""

    weights: Mapping[str, tuple[Tensor, Tensor]]
    members: int
    scale: float


class Router:
    """Holds the route that the hooks of one model read."""

    def __init__(self) -> None:
        self.route: Route | None = None

    @contextmanager
    def use(self, block: Block | None, scale: float) -> Iterator[None]:
        """Within: rows are member-major, equally many for each member, with the adapters of `block` (None: the base).

        Backward passes that recompute activations must lie within as well.
        """
        before = self.route
        if block is None:
            self.route = None
        else:
            names = {name.rsplit(".", 1)[0] for name in block.views if name.endswith((".A", ".B"))}
            weights = {name: (block.views[f"{name}.A"], block.views[f"{name}.B"]) for name in names}
            self.route = Route(weights, block.members, scale)
        try:
            yield
        finally:
            self.route = before

    def hook(self, name: str) -> Any:
        """A forward hook for the linear module `name`."""

        def add_delta(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
            route = self.route
            if route is None or name not in route.weights:
                return output
            x = inputs[0]
            if x.shape[0] % route.members:
                raise ValueError(
                    f"{name} received {x.shape[0]} rows for {route.members} members; it regroups tokens across rows "
                    "(an expert layer?), so leave it out of model.lora.target_modules"
                )
            down, up = route.weights[name]
            flat = x.reshape(route.members, -1, x.shape[-1])
            inner = torch.bmm(flat, down.to(x.dtype))
            base = output.reshape(route.members, -1, output.shape[-1])
            return torch.baddbmm(base, inner, up.to(x.dtype), alpha=route.scale).view(output.shape)

        return add_delta


def target_modules(model: nn.Module, targets: Sequence[str], head: nn.Module | None) -> dict[str, tuple[int, int]]:
    """Names and (in, out) sizes of the linear modules that get an adapter.

    Args:
        targets: suffixes of module names (`q_proj`), or ["all-linear"]: every linear module but the output head.
    Raises:
        ValueError: a target matches nothing; the message lists what there is.
    """
    linear = {name: _sizes(module) for name, module in model.named_modules() if _sizes(module) and module is not head}
    if list(targets) == ["all-linear"]:
        chosen = linear
    else:
        chosen = {name: sizes for name, sizes in linear.items() if any(f".{name}".endswith(f".{t}") for t in targets)}
        unknown = [t for t in targets if not any(f".{name}".endswith(f".{t}") for name in linear)]
        if unknown:
            there = sorted({name.rsplit(".", 1)[-1] for name in linear})
            raise ValueError(
                f"model.lora.target_modules names {', '.join(unknown)}, which this model does not have; "
                f"it has {', '.join(there)} (or write [all-linear])"
            )
    return {name: sizes for name, sizes in chosen.items() if sizes is not None}


def _sizes(module: nn.Module) -> tuple[int, int] | None:
    if isinstance(module, nn.Linear):
        return module.in_features, module.out_features
    if type(module).__name__ == "Conv1D":  # transformers' GPT-2 style linear keeps its weight as [in, out]
        weight = module.weight
        assert isinstance(weight, Tensor)
        return int(weight.shape[0]), int(weight.shape[1])
    return None


def adapter_shapes(targets: dict[str, tuple[int, int]], rank: int) -> dict[str, tuple[int, ...]]:
    """Shapes of the block of stacked adapters: `A` [in, r] and `B` [r, out] per module."""
    shapes: dict[str, tuple[int, ...]] = {}
    for name, (size_in, size_out) in targets.items():
        shapes[f"{name}.A"] = (size_in, rank)
        shapes[f"{name}.B"] = (rank, size_out)
    return shapes


@torch.no_grad()
def initialise(block: Block, seeds: Sequence[int]) -> None:
    """peft's default start: A uniform (Kaiming, a = sqrt 5), B zero, so that every member starts as the base.

    Each member draws from its own seed, so its start does not depend on who else is in the population.
    """
    for member, seed in enumerate(seeds):
        initialise_member(block, member, seed)


def initialise_member(block: Block, member: int, seed: int) -> None:
    """`initialise` for one member."""
    generator = torch.Generator().manual_seed(seed)
    for name, view in block.views.items():
        if name.endswith(".A"):
            size_in = view.shape[1]
            bound = 1 / math.sqrt(size_in)
            value = torch.rand(view.shape[1:], generator=generator) * 2 * bound - bound
            view.data[member].copy_(value)
        else:
            view.data[member].zero_()
