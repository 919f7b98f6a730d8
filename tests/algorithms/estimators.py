"""Advantage estimators whose settings are in sight, since components have no defaults."""

from __future__ import annotations

from typing import Any

from algorithms.advantages import (
    GAE,
    Advantage,
    AnchorState,
    BiLevelGAE,
    Decoupled,
    EntropyModulated,
    GroupRelative,
    Normalisation,
    Returns,
    TurnRelative,
)


def normalisation(**changes: Any) -> Normalisation:
    """The group's mean, no spread, no floor, except for `changes`."""
    parts: dict[str, Any] = {"centre": "group", "spread": "none", "unbiased": True, "epsilon": 0.0, "floor": 0.0}
    return Normalisation(**{**parts, **changes})


Z_SCORE = normalisation(spread="group", epsilon=1e-6, floor=1e-4)
CENTRED = normalisation()
LEAVE_ONE_OUT = normalisation(centre="leave_one_out")
CENTRED_BY_BATCH = normalisation(spread="batch", epsilon=1e-6)
BATCH = normalisation(centre="batch", spread="batch", epsilon=1e-6)

GRPO = GroupRelative(credit="trajectory", normalisation=Z_SCORE, whiten=False)
DR_GRPO = GroupRelative(credit="trajectory", normalisation=CENTRED, whiten=False)
RLOO = GroupRelative(credit="trajectory", normalisation=LEAVE_ONE_OUT, whiten=False)
RLOO_BY_TURN = GroupRelative(credit="turn", normalisation=LEAVE_ONE_OUT, whiten=False)
REINFORCE_PP_BASELINE = GroupRelative(credit="trajectory", normalisation=CENTRED, whiten=True)
TOKEN_PPO = GAE(credit="token", gamma=0.9, lam=0.8, whiten=True)
TURN_PPO = GAE(credit="turn", gamma=0.9, lam=0.8, whiten=True)
RAGEN = BiLevelGAE(gamma=0.98, turn_gamma=0.95, lam=0.9, whiten=True)
MT_GRPO = TurnRelative(alpha=0.7, normalisation=Z_SCORE, unequal="trajectory")
GIGPO = AnchorState(omega=0.5, gamma=0.9, normalisation=CENTRED, similarity=None)
GIGPO_SIMILAR = AnchorState(omega=0.5, gamma=0.9, normalisation=CENTRED, similarity=0.6)
EMPG = EntropyModulated(of=GRPO, k=1.0, k_future=0.7, zeta=0.1)
GDPO = Decoupled(weights={"fmt": 1.0, "acc": 2.0}, normalisation=Z_SCORE)

# Those that compare within groups only: a constant added to a group's returns says nothing to them.
GROUP_RELATIVE: dict[str, Advantage] = {
    "grpo": GRPO,
    "dr_grpo": DR_GRPO,
    "rloo": RLOO,
    "rloo_by_turn": RLOO_BY_TURN,
    "grpo_by_turn": GroupRelative(credit="turn", normalisation=Z_SCORE, whiten=False),
    "centred_by_batch_spread": GroupRelative(credit="trajectory", normalisation=CENTRED_BY_BATCH, whiten=False),
    "reinforce_pp_baseline": REINFORCE_PP_BASELINE,
    "mt_grpo": MT_GRPO,
    "gigpo": GIGPO,
    "gigpo_similar": GIGPO_SIMILAR,
    "gdpo": GDPO,
}
EVERY: dict[str, Advantage] = {
    **GROUP_RELATIVE,
    "batch": GroupRelative(credit="trajectory", normalisation=BATCH, whiten=False),
    **{
        f"returns_{credit}_{baseline}": Returns(credit=credit, gamma=0.9, baseline=baseline, decay=0.5)
        for credit in Returns.credits
        for baseline in ("none", "batch", "moving")
    },
    "token_ppo": TOKEN_PPO,
    "turn_ppo": TURN_PPO,
    "trajectory_ppo": GAE(credit="trajectory", gamma=0.9, lam=0.8, whiten=True),
    "token_ppo_raw": GAE(credit="token", gamma=0.9, lam=0.8, whiten=False),
    "turn_ppo_raw": GAE(credit="turn", gamma=0.9, lam=0.8, whiten=False),
    "ragen": RAGEN,
    "empg": EMPG,
    "empg_around_ppo": EntropyModulated(of=TOKEN_PPO, k=1.0, k_future=0.7, zeta=0.1),
}
