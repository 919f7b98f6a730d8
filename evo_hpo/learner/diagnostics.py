"""What an update looked like, per member: sums that are gathered while micro-batches pass and divided at the end."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from algorithms.core import TokenTable
from algorithms.policy_gradient import PolicyLoss
from evo_hpo.runtime.processes import Processes

SUPERVISED = ("loss", "tokens", "entropy")
POLICY = (*SUPERVISED, "kl", "clip_fraction_low", "clip_fraction_high", "ratio_mean")
CRITIC = ("value_loss",)


class Sums:
    """Per-member sums over trained tokens. Every number is of what was trained; observations count nowhere."""

    def __init__(self, members: int, device: torch.device, *parts: Sequence[str]) -> None:
        self.members, self.device = members, device
        # there from the start, because a process without a row of its own takes part in every sum over processes
        names = [name for part in parts for name in part]
        self.sums: dict[str, Tensor] = {name: torch.zeros(members, device=device) for name in names}
        self.largest: dict[str, Tensor] = {"ratio_max": torch.zeros(members, device=device)}
        self.norms: dict[str, list[Tensor]] = {}
        self.stepped = torch.ones(members, device=device)
        self.fixed: dict[str, Tensor] = {}
        self.passes: dict[str, int] = {}

    def _add(self, name: str, value_R: Tensor, member_R: Tensor) -> None:
        self.sums[name].index_add_(0, member_R, value_R.detach().float())

    def policy(
        self, loss: PolicyLoss, loss_R: Tensor, entropy_RT: Tensor, weight_RT: Tensor, tokens: TokenTable
    ) -> None:
        member_R, mask_RT = tokens.member_R, tokens.mask_RT
        self._add("loss", loss_R, member_R)
        self._add("tokens", mask_RT.sum(1), member_R)
        self._add("entropy", (entropy_RT * mask_RT).sum(1), member_R)
        self._add("kl", loss.kl_RT.sum(1), member_R)
        self._add("clip_fraction_low", loss.clipped_low_RT.sum(1), member_R)
        self._add("clip_fraction_high", loss.clipped_high_RT.sum(1), member_R)
        self._add("ratio_mean", (loss.ratio_RT * mask_RT).sum(1), member_R)
        ratio_R = torch.where(mask_RT, loss.ratio_RT, 0.0).amax(1)
        self.largest["ratio_max"] = self.largest["ratio_max"].scatter_reduce(0, member_R, ratio_R, "amax")

    def supervised(self, loss_R: Tensor, entropy_RT: Tensor, weight_RT: Tensor, tokens: TokenTable) -> None:
        self._add("loss", loss_R, tokens.member_R)
        self._add("tokens", tokens.mask_RT.sum(1), tokens.member_R)
        self._add("entropy", (entropy_RT * tokens.mask_RT).sum(1), tokens.member_R)

    def critic(self, loss_R: Tensor, tokens: TokenTable) -> None:
        self._add("value_loss", loss_R, tokens.member_R)

    def advantages(self, advantage_RT: Tensor, tokens: TokenTable) -> None:
        """Mean magnitude of the advantages; the same on every process."""
        count = torch.zeros(self.members, device=self.device).index_add(
            0, tokens.member_R, tokens.mask_RT.sum(1).float()
        )
        total = torch.zeros(self.members, device=self.device).index_add(
            0, tokens.member_R, advantage_RT.abs().sum(1).float()
        )
        self.fixed["advantage_abs"] = total / count.clamp(min=1)

    def step(self, role: str, norm_N: Tensor, stepped_N: Tensor) -> None:
        self.norms.setdefault(role, []).append(norm_N)
        self.stepped = self.stepped * stepped_N
        self.passes[role] = self.passes.get(role, 0) + 1

    def metrics(self, processes: Processes) -> dict[str, Tensor]:
        """name -> [N]; means over trained tokens, losses and norms as means over the optimiser steps."""
        result: dict[str, Tensor] = dict(self.fixed)
        sums = {name: processes.sum_(value.clone()) for name, value in self.sums.items()}
        tokens = sums.pop("tokens").clamp(min=1)
        for name, value in sums.items():
            if name == "loss":
                result[name] = value / self.passes["policy"]
            elif name == "value_loss":
                result[name] = value / self.passes["critic"]
            else:
                result[name] = value / tokens
        for name, value in self.largest.items():
            result[name] = processes.max_(value.clone())
        for role, norms in self.norms.items():
            result["grad_norm" if role == "policy" else "critic_grad_norm"] = torch.stack(norms).mean(0)
        result["finite"] = self.stepped
        return result
