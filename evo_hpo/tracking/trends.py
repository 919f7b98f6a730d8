"""What goes wrong over several updates: rules over what a member did lately, each with a sentence on what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median, variance

Metrics = Mapping[str, float]

REMEMBERED = ("grad_norm", "entropy", "reward", "group_std", "zero_spread")
RECENT = 30  # updates that are looked at
EVIDENCE = 5  # updates needed before anything counts as unusual
LATEST = 3  # updates whose mean says where the entropy is now
COLLAPSED = 0.02  # nats a token below which nothing is explored; has an alarm of its own
SKILLED = 0.9  # success above which few different actions and low entropy are no fault


def gradient_explosion(earlier: Sequence[Metrics], now: Metrics) -> str | None:
    norms = [each["grad_norm"] for each in earlier if "grad_norm" in each]
    norm = now.get("grad_norm", 0.0)
    usual = median(norms) if len(norms) >= EVIDENCE else math.inf
    # the floor keeps a run that starts with vanishing gradients from crying wolf; one that is not finite has a rule
    if not math.isfinite(norm) or norm <= 100 * max(usual, 0.01):
        return None
    return (
        f"its gradient norm jumped to {norm:.3g}, usually {usual:.3g}: lower the learning rate or the norm that "
        "gradients are clipped to"
    )


def entropy_fall(earlier: Sequence[Metrics], now: Metrics) -> str | None:
    values = [each["entropy"] for each in [*earlier, now] if "entropy" in each]
    if len(values) < EVIDENCE + LATEST or now.get("success", 0.0) >= SKILLED:
        return None
    before, latest = fmean(values[:-LATEST]), fmean(values[-LATEST:])
    if not COLLAPSED <= latest < min(0.1, 0.3 * before):  # from 2 to 0.2 is only learning how to answer
        return None
    return (
        f"its entropy fell from {before:.3g} to {latest:.3g} nats a token within {len(values)} updates, before it "
        "learned the task: lower the learning rate, or raise the entropy coefficient or clip_high"
    )


def echo_trap(earlier: Sequence[Metrics], now: Metrics) -> str | None:
    """RAGEN (arXiv:2504.20073): attempts at one task become copies of each other, and reward stops rising."""
    known = [each for each in [*earlier, now] if {"group_std", "zero_spread", "reward"} <= each.keys()][-RECENT:]
    if len(known) < RECENT or now.get("success", 0.0) >= SKILLED:
        return None
    halves = known[: RECENT // 2], known[RECENT // 2 :]

    def change(name: str) -> tuple[float, float, float]:
        """Mean of the first half, mean of the second, and standard error of their difference."""
        first, second = ([each[name] for each in half] for half in halves)
        error = math.sqrt((variance(first) + variance(second)) / len(first))
        return fmean(first), fmean(second), error

    spread, later_spread, spread_error = change("group_std")
    reward, later_reward, reward_error = change("reward")
    alike, more_alike, alike_error = change("zero_spread")
    # three errors, because every update is a new chance to be fooled by noise
    fell = spread - later_spread > max(0.4 * spread, 3 * spread_error)
    rose = more_alike - alike > max(0.2, 2 * alike_error)
    if not (fell and rose and abs(later_reward - reward) < 2 * reward_error):
        return None
    return (
        f"its attempts at one task become alike: over {RECENT} updates the spread of their rewards fell from "
        f"{spread:.3g} to {later_spread:.3g} while the reward went from {reward:.3g} to {later_reward:.3g}. Raise "
        "rollout.temperature, clip_high or the entropy coefficient, leave out groups of equal reward, or start again "
        "from an earlier checkpoint"
    )


TRENDS: dict[str, tuple[int, Callable[[Sequence[Metrics], Metrics], str | None]]] = {
    "gradient_explosion": (1, gradient_explosion),
    "entropy_fall": (1, entropy_fall),
    "echo_trap": (2, echo_trap),
}
