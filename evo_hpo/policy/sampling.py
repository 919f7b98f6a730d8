"""From logits to the distribution that is sampled from, the same one in the sampler and in the trainer."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Sampling:
    """Sampling settings per member: temperature [N], top-k [N] (0 = off), top-p [N] (1 = off)."""

    temperature: Tensor
    top_k: Tensor
    top_p: Tensor

    @classmethod
    def same(cls, members: int, temperature: float, top_k: int = 0, top_p: float = 1.0) -> Sampling:
        return cls(
            torch.full((members,), float(temperature)),
            torch.full((members,), top_k),
            torch.full((members,), float(top_p)),
        )

    def rows(self, member_B: Tensor) -> Sampling:
        """The settings of each row's member, [B]."""
        member_B = member_B.cpu()
        return Sampling(self.temperature[member_B], self.top_k[member_B], self.top_p[member_B])


def processed_logits(logits_BV: Tensor, sampling: Sampling, always_B: Tensor | None = None) -> Tensor:
    """[B, V] float32 logits after temperature, top-k and top-p; -inf where the distribution gives nothing.

    Args:
        logits_BV: raw logits.
        sampling: settings per row, [B].
        always_B: a token per row that stays in the distribution. The trainer passes the sampled token: it was in the
            set when it was sampled, and must not get probability 0 because the policy has moved since.
    """
    device = logits_BV.device
    logits_BV = logits_BV.float() / sampling.temperature.to(device).unsqueeze(1)
    keep_BV: Tensor | None = None
    if bool((sampling.top_k > 0).any()):
        top_k = torch.where(sampling.top_k > 0, sampling.top_k, logits_BV.shape[1]).clamp(max=logits_BV.shape[1])
        kth = logits_BV.detach().sort(1, descending=True).values.gather(1, (top_k.to(device) - 1).unsqueeze(1))
        keep_BV = logits_BV >= kth
    if bool((sampling.top_p < 1).any()):
        limited = logits_BV.detach() if keep_BV is None else logits_BV.detach().masked_fill(~keep_BV, -torch.inf)
        ordered, index = limited.sort(1, descending=True)
        mass = ordered.softmax(1).cumsum(1)
        # a token stays while the mass before it is below top_p, so at least one stays
        stay = (mass - ordered.softmax(1)) < sampling.top_p.to(device).unsqueeze(1)
        nucleus = torch.zeros_like(stay).scatter(1, index, stay)
        keep_BV = nucleus if keep_BV is None else keep_BV & nucleus
    if keep_BV is None:
        return logits_BV
    if always_B is not None:
        keep_BV = keep_BV.scatter(1, always_B.unsqueeze(1), True)
    return logits_BV.masked_fill(~keep_BV, -torch.inf)


def logprob_and_entropy(logits_BV: Tensor, token_B: Tensor, entropy_gradient: bool = False) -> tuple[Tensor, Tensor]:
    """Log-probability [B] of each row's token, and entropy [B] of each row's distribution, in nats.

    Args:
        logits_BV: processed logits; -inf counts as impossible.
        entropy_gradient: whether the entropy is differentiable as well.
    """
    logprob_BV = logits_BV.log_softmax(1)
    with torch.set_grad_enabled(entropy_gradient and torch.is_grad_enabled()):
        source = logprob_BV if entropy_gradient else logprob_BV.detach()
        entropy_B = -(source.exp() * source.masked_fill(source == -torch.inf, 0.0)).sum(1)
    return logprob_BV.gather(1, token_B.unsqueeze(1)).squeeze(1), entropy_B


def sample(logits_BV: Tensor, uniform_B: Tensor) -> tuple[Tensor, Tensor]:
    """Token [B] at which the cumulative probability passes `uniform_B`, and its log-probability [B] in nats.

    Args:
        logits_BV: processed logits.
        uniform_B: float64 in (0, 1).
    """
    logprob_BV = logits_BV.log_softmax(1)
    cumulative = logprob_BV.double().exp().cumsum(1)
    target = uniform_B.to(cumulative.device).unsqueeze(1) * cumulative[:, -1:]
    token_B = torch.searchsorted(cumulative, target, right=True).squeeze(1).clamp(max=logits_BV.shape[1] - 1)
    return token_B, logprob_BV.gather(1, token_B.unsqueeze(1)).squeeze(1)
