"""Several processes as one: who I am, and how numbers and episodes are exchanged (through accelerate)."""

from __future__ import annotations

import atexit
from typing import Any

import torch
from accelerate import PartialState
from accelerate.utils import broadcast_object_list, gather_object
from torch import Tensor


class Processes:
    """The processes of one run. With one process every method returns its argument."""

    def __init__(self, cpu: bool) -> None:
        self.state = PartialState(cpu=cpu)
        self.rank, self.count = self.state.process_index, self.state.num_processes
        self.device: torch.device = self.state.device
        if self.count > 1:
            atexit.unregister(_leave)  # once for all runs of this process
            atexit.register(_leave)

    @property
    def main(self) -> bool:
        return self.rank == 0

    def sum_(self, tensor: Tensor) -> Tensor:
        """Sum over processes, in place."""
        if self.count > 1:
            torch.distributed.all_reduce(tensor)
        return tensor

    def max_(self, tensor: Tensor) -> Tensor:
        """Element-wise maximum over processes, in place."""
        if self.count > 1:
            torch.distributed.all_reduce(tensor, op=torch.distributed.ReduceOp.MAX)
        return tensor

    def share(self, items: list[Any]) -> list[Any]:
        """My part of a list that all processes hold: every `count`-th item."""
        return items[self.rank :: self.count]

    def collect(self, mine: list[Any]) -> list[Any]:
        """The whole list again, in its order, from everybody's `share`."""
        if self.count == 1:
            return mine
        parts: list[tuple[int, Any]] = gather_object(
            [(self.rank + i * self.count, item) for i, item in enumerate(mine)]
        )
        return [item for _, item in sorted(parts, key=lambda pair: pair[0])]

    def same(self, value: Any) -> Any:
        """The main process's value, on every process."""
        if self.count == 1:
            return value
        box = [value]
        broadcast_object_list(box)
        return box[0]

    def wait(self) -> None:
        if self.count > 1:
            self.state.wait_for_everyone()


def _leave() -> None:
    """Close the connections to the others: threads that still serve them at exit abort the process now and then."""
    if torch.distributed.is_initialized():
        torch.distributed.destroy_process_group()
