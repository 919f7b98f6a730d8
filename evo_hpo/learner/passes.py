"""Passes over rows: quantities of every row, and gradients of losses, in pieces that fit into memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from algorithms.core import AdamW, TokenTable
from evo_hpo.learner.batch import Batch
from evo_hpo.learner.optimizer import PopulationAdamW
from evo_hpo.policy.noise import key
from evo_hpo.policy.policy import Policy, Role
from evo_hpo.policy.sampling import Sampling
from evo_hpo.runtime.processes import Processes

Piece = Callable[[Tensor, int], Tensor]  # row numbers [P] and the width of their widest row -> something of them


class Passes:
    """Walks over the rows of a batch, each process over its share.

    Nothing here depends on how rows are grouped: neither the sum of gradients nor the quantities of rows.
    """

    def __init__(self, policy: Policy, processes: Processes, micro_tokens: int) -> None:
        self.policy, self.processes, self.micro_tokens = policy, processes, micro_tokens

    @torch.no_grad()
    def everywhere(self, role: Role, batch: Batch, of: Callable[[Tensor, int], tuple[Tensor, ...]]) -> list[Tensor]:
        """[R, T] quantities of every row; what `of` gives for some rows is [P, width] each."""
        results: list[Tensor] = []
        everything = torch.arange(batch.rows, device=batch.ids_RT.device).expand(batch.members, batch.rows)
        with self.policy.acting(role):
            for part, width in self.micro_batches(everything, batch):
                for i, value in enumerate(of(part, width)):
                    if i == len(results):
                        results.append(torch.zeros(batch.ids_RT.shape, device=value.device))
                    results[i][part, :width] = value
        return [self.processes.sum_(result) for result in results]

    def logprobs(self, role: Role, batch: Batch, sampling: Sampling) -> tuple[Tensor, Tensor]:
        """[R, T] log-probabilities and entropies in nats of every trained token; 0 elsewhere."""

        def of(part: Tensor, width: int) -> tuple[Tensor, Tensor]:
            tokens = cut(batch.tokens, part, width)
            return self.policy.logprobs(batch.ids_RT[part, :width], tokens.mask_RT, sampling.rows(tokens.member_R))

        found = self.everywhere(role, batch, of) or [torch.zeros(batch.ids_RT.shape, device=batch.ids_RT.device)] * 2
        return found[0], found[1]

    def gradient(self, role: Role, rows_NC: Tensor, batch: Batch, loss_of: Piece, finite_N: Tensor) -> Tensor:
        """Add the gradient of the summed losses of the rows to the block of `role`.

        Args:
            loss_of: [P] losses of some rows.
            finite_N: [N] bool, made false for members with a loss that is not finite; the others do not notice.
        Returns:
            [N] bool, members whose losses were finite on every process.
        """
        with self.policy.acting(role):
            for part, width in self.micro_batches(rows_NC, batch):
                loss_R = loss_of(part, width)
                finite_N[batch.tokens.member_R[part[~loss_R.detach().isfinite()]]] = False
                loss_R.sum().backward()
        block = self.policy.block if role == "policy" else self.policy.critic
        assert block is not None
        self.processes.sum_(block.grad)
        return self.processes.max_((~finite_N).float()) == 0

    def step(
        self,
        optimizer: PopulationAdamW,
        settings: AdamW,
        rows_NC: Tensor,
        batch: Batch,
        finite_N: Tensor,
        rate: float = 1.0,
    ) -> tuple[Tensor, Tensor]:
        """One optimiser step of every member with a trained token here.

        Returns:
            [N] gradient norms before clipping, and [N] bool, false where a step had to be skipped.
        """
        # a member without a trained token here has nothing to step for; momentum alone must not move it
        present_N = batch.tokens.mask_RT[chosen(batch, rows_NC)].view(batch.members, -1).any(1)
        norm_N, stepped_N = optimizer.step(settings, finite_N & present_N, rate)
        return norm_N, stepped_N | ~present_N

    def all_finite(self) -> Tensor:
        """[N] bool, all true: what `gradient` starts from."""
        return torch.ones(self.policy.members, dtype=torch.bool, device=self.policy.base.device)

    def minibatches(self, batch: Batch, count: int, purpose: tuple[int, int]) -> Iterator[Tensor]:
        """[N, about C / count] row numbers within each member; the order is each member's own draw.

        A member's own rows are dealt out as if it were alone; the empty rows behind them, of a member that lost
        episodes, only fill its minibatches up to the width of the widest.
        """
        if count == 1:
            yield torch.arange(batch.rows, device=batch.ids_RT.device).expand(batch.members, -1)
            return
        count = min(count, batch.rows)
        dealt: list[list[Tensor]] = []
        for slot, own in zip(self.policy.slots, batch.own_rows, strict=True):
            generator = torch.Generator().manual_seed(key(self.policy.seed, "order", slot, *purpose) % 2**63)
            dealt.append(list(torch.randperm(own, generator=generator).tensor_split(count)))
        empty = [torch.arange(own, batch.rows) for own in batch.own_rows]
        for parts in zip(*dealt, strict=True):
            width = max(len(part) for part in parts)
            filled = []
            for member, part in enumerate(parts):
                missing = width - len(part)
                filled.append(torch.cat([part, empty[member][:missing]]))
                empty[member] = empty[member][missing:]
            yield torch.stack(filled).to(batch.ids_RT.device)

    def micro_batches(self, rows_NC: Tensor, batch: Batch) -> Iterator[tuple[Tensor, int]]:
        """My share of the rows, longest first, in parts of at most `micro_tokens` tokens, and the width of each part.

        A part has equally many rows of every member, one at least.
        """
        length_R = _lengths(batch.tokens.mask_RT)
        first = torch.arange(batch.members, device=rows_NC.device).unsqueeze(1) * batch.rows
        rows_NC = rows_NC + first
        order = length_R[rows_NC].argsort(dim=1, descending=True, stable=True)
        rows_NC = rows_NC.gather(1, order)[:, self.processes.rank :: self.processes.count]
        width_C = length_R[rows_NC].amax(0).tolist() if rows_NC.numel() else []
        start = 0
        while start < len(width_C) and width_C[start]:
            count = max(1, self.micro_tokens // (batch.members * width_C[start]))
            yield rows_NC[:, start : start + count].reshape(-1), width_C[start]
            start += count


def cut(tokens: TokenTable, rows: Tensor, width: int) -> TokenTable:
    """The part of the table that says what is trained and what the sampler said."""
    return TokenTable(
        tokens.mask_RT[rows, :width],
        tokens.turn_RT[rows, :width],
        tokens.member_R[rows],
        tokens.logprob_RT[rows, :width],
    )


def chosen(batch: Batch, rows_NC: Tensor) -> Tensor:
    """[N * C] rows of the batch behind row numbers within each member, member-major."""
    return (torch.arange(batch.members, device=rows_NC.device).unsqueeze(1) * batch.rows + rows_NC).reshape(-1)


def _lengths(mask_RT: Tensor) -> Tensor:
    """[R] columns up to the last trained token."""
    position = torch.arange(1, mask_RT.shape[1] + 1, device=mask_RT.device)
    return (mask_RT * position).amax(1)
