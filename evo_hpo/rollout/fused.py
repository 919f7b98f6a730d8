"""One decode batch for all members: the fused engine.

Every conversation owns a slot of the key-value cache; an observation is appended, the history is never fed again. Slots
are member-major, so that one forward pass serves everybody's adapters.
"""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from evo_hpo.policy.cache import SlotCache
from evo_hpo.policy.noise import uniform
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling, processed_logits, sample
from evo_hpo.rollout.sampler import Action, Request

WIDE_ENOUGH = 0.75  # when this share of the slots is needed, all of them are computed: cheaper than gathering the cache


class FusedSampler:
    """Implements `Sampler` on a `Policy`, in this process."""

    def __init__(
        self, policy: Policy, sampling: Sampling, slots: int, max_action_tokens: int, max_context: int
    ) -> None:
        self.policy, self.sampling = policy, sampling
        self.slots, self.budget = slots, max_action_tokens
        total = policy.members * slots
        self.device = policy.base.device
        self.cache = SlotCache(total, max_context + 1, self.device)
        self.held: NDArray[np.int64] = np.zeros(total, dtype=np.int64)  # tokens in the cache
        self.unfed: list[int | None] = [None] * total  # last sampled token: part of the conversation, not yet fed
        self.drawn: NDArray[np.uint64] = np.zeros(total, dtype=np.uint64)  # sampled tokens so far: counter of the noise
        self.free = [[member * slots + slot for slot in range(slots)][::-1] for member in range(policy.members)]
        self.boolean_mask = getattr(policy.base.model.config, "_attn_implementation", "sdpa") == "sdpa"

    def open(self, member: int) -> int | None:
        if not self.free[member]:
            return None
        slot = self.free[member].pop()
        self.held[slot], self.drawn[slot], self.unfed[slot] = 0, 0, None
        return slot

    def close(self, conversation: int) -> None:
        self.held[conversation], self.unfed[conversation] = 0, None
        self.free[conversation // self.slots].append(conversation)

    def length(self, conversation: int) -> int:
        return int(self.held[conversation]) + (self.unfed[conversation] is not None)

    @torch.no_grad()
    def act(self, requests: list[Request]) -> list[Action]:
        if not requests:
            return []
        fed = []
        for request in requests:
            last = self.unfed[request.conversation]
            fed.append(request.ids if last is None else [last, *request.ids])
        slots = np.array([request.conversation for request in requests])
        keys = np.array([request.key for request in requests], dtype=np.uint64)
        actions: list[list[int]] = [[] for _ in requests]
        logprobs: list[list[float]] = [[] for _ in requests]
        going = np.arange(len(requests))
        with self.policy.acting("policy"):
            logits = self._forward(slots, fed)
            for step in range(self.budget):
                token, logprob = self._draw(logits, slots[going], keys[going])
                ended = token == self.policy.base.chat.stop_id
                for i, t, lp in zip(going.tolist(), token.tolist(), logprob.tolist(), strict=True):
                    actions[i].append(t)
                    logprobs[i].append(lp)
                going = going[~ended]
                if not going.size or step + 1 == self.budget:
                    break
                logits = self._forward(slots[going], [[actions[i][-1]] for i in going])
        for request, ids in zip(requests, actions, strict=True):
            self.unfed[request.conversation] = ids[-1]
        stop = self.policy.base.chat.stop_id
        return [Action(ids, lps, ids[-1] != stop) for ids, lps in zip(actions, logprobs, strict=True)]

    def _draw(
        self, logits: Tensor, slots: NDArray[np.int64], keys: NDArray[np.uint64]
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        settings = self.sampling.rows(torch.from_numpy(slots // self.slots))
        noise = torch.from_numpy(uniform(keys, self.drawn[slots]))
        token, logprob = sample(processed_logits(logits, settings), noise)
        self.drawn[slots] += np.uint64(1)
        return token.cpu().numpy(), logprob.float().cpu().numpy()

    def _forward(self, slots: NDArray[np.int64], fed: list[list[int]]) -> Tensor:
        """Append `fed` to the slots and return the logits [B, V] after the last token of each."""
        rows, place = self._rows(slots)
        count = np.array([len(ids) for ids in fed])
        width = int(count.max())
        row_slots = np.arange(len(self.held)) if rows is None else rows
        ids = np.zeros((len(row_slots), width), dtype=np.int64)
        for at, tokens in zip(place, fed, strict=True):
            ids[at, : len(tokens)] = tokens
        # padding and idle rows write beyond what their slot holds, where the next append overwrites it
        position = np.minimum(self.held[row_slots][:, None] + np.arange(width), self.cache.width - 1)
        seen = int(position.max()) + 1
        position_BQ = torch.from_numpy(position).to(self.device)
        self.cache.begin(None if rows is None else torch.from_numpy(rows).to(self.device), position_BQ, seen)
        hidden = self.policy.base.hidden(
            torch.from_numpy(ids).to(self.device),
            position_BQ,
            attention_mask=self._mask(position_BQ, seen),
            cache=self.cache,
        )
        self.held[slots] += count
        last = hidden[torch.from_numpy(place).to(self.device), torch.from_numpy(count - 1).to(self.device)]
        return self.policy.base.logits(last)

    def _rows(self, slots: NDArray[np.int64]) -> tuple[NDArray[np.int64] | None, NDArray[np.int64]]:
        """Slots to compute, equally many per member (None: all in order), and the row of each wanted slot."""
        member = slots // self.slots
        wide = int(np.bincount(member, minlength=self.policy.members).max())
        if wide > WIDE_ENOUGH * self.slots:
            return None, slots
        rows = np.empty((self.policy.members, wide), dtype=np.int64)
        place = np.empty(len(slots), dtype=np.int64)
        for m in range(self.policy.members):
            mine = np.flatnonzero(member == m)
            wanted = slots[mine]
            spare = np.setdiff1d(np.arange(m * self.slots, (m + 1) * self.slots), wanted)
            rows[m] = np.concatenate([wanted, spare[: wide - len(wanted)]])
            place[mine] = m * wide + np.arange(len(wanted))
        return rows.reshape(-1), place

    def _mask(self, position_BQ: Tensor, seen: int) -> Tensor:
        """[B, 1, Q, seen] what each token may attend to: everything up to itself."""
        allowed = torch.arange(seen, device=self.device) <= position_BQ.unsqueeze(-1)
        mask = allowed.unsqueeze(1)
        if self.boolean_mask:
            return mask
        dtype = self.policy.base.model.dtype
        return torch.zeros(mask.shape, dtype=dtype, device=self.device).masked_fill(~mask, torch.finfo(dtype).min)
