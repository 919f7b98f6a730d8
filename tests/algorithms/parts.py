"""Algorithms built from parts whose settings are in sight, since components have no defaults."""

from __future__ import annotations

from typing import Any

from algorithms.advantages import GroupRelative, RewardToGo, TokenGAE
from algorithms.core import AdamW
from algorithms.critic import Critic
from algorithms.kl import KL
from algorithms.objectives import Clipped, Unclipped
from algorithms.policy_gradient import PolicyGradient

ADAMW = AdamW(learning_rate=1e-3, beta1=0.9, beta2=0.99, epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0)
GRPO = GroupRelative(leave_one_out=False, spread="group", epsilon=1e-6, floor=1e-4)
DR_GRPO = GroupRelative(leave_one_out=False, spread="none", epsilon=0.0, floor=0.0)
RLOO = GroupRelative(leave_one_out=True, spread="none", epsilon=0.0, floor=0.0)
NO_KL = KL(coef=0.0, estimator="k2", place="loss")
PPO_CLIP = Clipped(clip_low=0.2, clip_high=0.2)


def policy_gradient(**changes: Any) -> PolicyGradient:
    """Token ratios, PPO's clip, token mean, no KL, no entropy bonus, no filter, no critic, except for `changes`."""
    parts: dict[str, Any] = {
        "optimizer": ADAMW,
        "advantage": GRPO,
        "ratio": "token",
        "objective": PPO_CLIP,
        "aggregation": "token_mean",
        "aggregation_constant": 8.0,
        "kl": NO_KL,
        "entropy_coef": 0.0,
        "filters": [],
        "epochs": 1,
        "minibatches": 1,
        "old_logprobs": "sampler",
        "critic": None,
    }
    return PolicyGradient(**{**parts, **changes})


def ppo(**changes: Any) -> PolicyGradient:
    """With a critic and whitened GAE."""
    estimator = TokenGAE(gamma=1.0, lam=0.95, whiten=True)
    critic = Critic(value_clip=0.2, optimizer=ADAMW)
    return policy_gradient(**{"advantage": estimator, "critic": critic, **changes})


def reinforce(**changes: Any) -> PolicyGradient:
    """Standardised reward to go, no ratio."""
    estimator = RewardToGo(gamma=0.9, baseline="batch")
    return policy_gradient(**{"advantage": estimator, "objective": Unclipped(), **changes})
