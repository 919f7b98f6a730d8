"""Algorithms built from parts whose settings are in sight, since components have no defaults."""

from __future__ import annotations

from typing import Any

from algorithms.advantages import GAE, Returns
from algorithms.core import AdamW
from algorithms.critic import Critic
from algorithms.entropy import Entropy
from algorithms.kl import KL
from algorithms.objectives import Clipped, Unclipped
from algorithms.policy_gradient import PolicyGradient
from tests.algorithms.estimators import GRPO

ADAMW = AdamW(learning_rate=1e-3, beta1=0.9, beta2=0.99, epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0)
PPO_CLIP = Clipped(clip_low=0.2, clip_high=0.2, dual_clip=None)


def kl(**changes: Any) -> KL:
    """Weight 0.1, k2 per token in the loss, not adaptive, except for `changes`."""
    parts = {"coef": 0.1, "estimator": "k2", "place": "loss", "grain": "token", "target": None, "horizon": 10000.0}
    return KL(**{**parts, **changes})


def entropy(**changes: Any) -> Entropy:
    """No bonus, not adaptive, all tokens, except for `changes`."""
    return Entropy(**{"coef": 0.0, "target": None, "step": 0.005, "top_quantile": 1.0, **changes})


def policy_gradient(**changes: Any) -> PolicyGradient:
    """Token ratios, PPO's clip, token mean, no KL, no entropy bonus, no filter, no critic, except for `changes`."""
    parts: dict[str, Any] = {
        "optimizer": ADAMW,
        "advantage": GRPO,
        "ratio": "token",
        "objective": PPO_CLIP,
        "aggregation": "token_mean",
        "aggregation_constant": 8.0,
        "kl": kl(coef=0.0),
        "entropy": entropy(),
        "filters": [],
        "epochs": 1,
        "minibatches": 1,
        "old_logprobs": "sampler",
        "critic": None,
    }
    return PolicyGradient(**{**parts, **changes})


def ppo(**changes: Any) -> PolicyGradient:
    """With a critic and whitened GAE."""
    estimator = GAE(credit="token", gamma=1.0, lam=0.95, whiten=True)
    critic = Critic(value_clip=0.2, optimizer=ADAMW)
    return policy_gradient(**{"advantage": estimator, "critic": critic, **changes})


def reinforce(**changes: Any) -> PolicyGradient:
    """Standardised reward to go, no ratio."""
    estimator = Returns(credit="turn", gamma=0.9, baseline="batch", decay=0.0)
    return policy_gradient(**{"advantage": estimator, "objective": Unclipped(), **changes})
