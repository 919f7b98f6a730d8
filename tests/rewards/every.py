"""Every programmatic reward under conf/reward, by its name; a further one is a line here."""

from __future__ import annotations

from functools import cache

from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from rewards.core import Reward

BY_TURN = ("turn_reward", "format", "forbidden", "turn_limit", "efficiency", "repetition", "novelty")
OTHERS = ("answer_match", "overlong", "state_progress", "composite")
NAMES = (*BY_TURN, *OTHERS)


@cache
def reward(name: str, *overrides: str) -> Reward:
    """The option as it ships, with `overrides` of the form key=value."""
    grain = "dense" if name in ("state_progress", "composite") or "paid=turns" in overrides else "sparse"
    keys = [f"reward.{override}" for override in overrides]
    composed = compose([f"reward={name}", f"granularity={grain}", "env=guess_number", "evolution=none", *keys])
    return build(composed.values, composed.provenance, composed.choices).reward
