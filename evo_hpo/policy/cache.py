"""Keys and values that stay in place: one slot per running episode, appended to turn after turn."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from transformers import Cache


class SlotCache(Cache):
    """A transformers cache of fixed slots [S, W, heads, size] per layer.

    Each forward pass is announced with `begin`: which slots its rows are, and at which positions its tokens lie. Writes
    beyond a slot's length do no harm: attention never looks past a query's own position, and the next append overwrites
    them.
    """

    def __init__(self, slots: int, width: int, device: torch.device) -> None:
        self.layers = []  # transformers reads this; ours are below, allocated when the first keys arrive
        self.layer_class_to_replicate = None
        self.offloading = False
        self.slots, self.width, self.device = slots, width, device
        self._keys: dict[int, Tensor] = {}
        self._values: dict[int, Tensor] = {}
        self._rows: Tensor | None = None
        self._index = torch.arange(slots, device=device).unsqueeze(1)
        self._position = torch.zeros(slots, 1, dtype=torch.long, device=device)
        self._seen = 0

    def begin(self, rows: Tensor | None, position_BQ: Tensor, seen: int) -> None:
        """Announce a forward pass.

        Args:
            rows: [B] slot of each row; None where the rows are all slots in order (nothing is copied then).
            position_BQ: [B, Q] position of each fed token in its slot.
            seen: columns that attention needs, at least the largest position + 1.
        """
        self._rows = rows
        self._index = (torch.arange(self.slots, device=self.device) if rows is None else rows).unsqueeze(1)
        self._position, self._seen = position_BQ, seen

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: Any, **kwargs: Any
    ) -> tuple[Tensor, Tensor]:
        """Append [B, heads, Q, size] and return the first `seen` columns of the rows, [B, heads, seen, size]."""
        return (
            self._append(self._keys, key_states, layer_idx),
            self._append(self._values, value_states, layer_idx),
        )

    def _append(self, store: dict[int, Tensor], states: Tensor, layer: int) -> Tensor:
        if layer not in store:
            heads, size = states.shape[1], states.shape[3]
            store[layer] = torch.zeros(self.slots, self.width, heads, size, dtype=states.dtype, device=states.device)
        buffer = store[layer]
        buffer[self._index, self._position] = states.transpose(1, 2)
        rows = buffer[:, : self._seen] if self._rows is None else buffer[self._rows, : self._seen]
        return rows.transpose(1, 2)

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self._seen
