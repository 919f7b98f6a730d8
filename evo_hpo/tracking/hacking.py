"""When a reward says something else than it stands for: rules and a trend, each with a sentence on what to do."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, variance

Metrics = Mapping[str, float]

HALF = 15  # updates that are compared with as many later ones
TOLERATED = 0.05  # share of groups that a judge may fail on, and of comparisons that turn rewards may turn round
EXPLAINED = frozenset({"reward_hacking", "outcome_overruled"})  # these name episodes to look at


def judge_failures(metrics: Metrics) -> str | None:
    groups, failed = metrics.get("judge/groups", 0.0), metrics.get("judge/failed", 0.0)
    if not groups or failed / groups <= TOLERATED:
        return None
    return (
        f"the judge gave no usable answer for {failed / groups:.0%} of its groups, which got the fallback or were left "
        "out: is it running at its base_url? Look at its log, raise timeout or retries, or take a model that keeps to "
        "the schema"
    )


def judge_budget(metrics: Metrics) -> str | None:
    if not metrics.get("judge/over_budget", 0.0):
        return None
    return (
        "the judge's budget is spent, so groups get the fallback or are left out from here on: stop here, or resume "
        "with a larger reward.client.budget or reward.client.max_calls"
    )


def kl_budget(metrics: Metrics) -> str | None:
    kl, limit = metrics.get("kl", 0.0), metrics.get("kl_limit", math.inf)
    if not kl > limit:
        return None
    return (
        f"it is {kl:.3g} nats a token away from the reference, beyond the {limit:.3g} up to which the reward model is "
        "believed: raise algorithm.kl.coef, stop at an earlier checkpoint, or train the reward model on newer episodes"
    )


def outcome_overruled(metrics: Metrics) -> str | None:
    share = metrics.get("overruled", 0.0)
    if share <= TOLERATED:
        return None
    return (
        f"in {share:.0%} of the comparisons within its groups the turn rewards made the episode with the worse outcome "
        "the better one: raise granularity.outcome_weight, lower granularity.turn_weight, or let it fade "
        "(granularity.turn_decay); with reward=spa, reward.valid_bonus=0"
    )


def reward_hacking(earlier: Sequence[Metrics], now: Metrics) -> str | None:
    """What is rewarded rises while what is meant falls: turn rewards against the outcome, the outcome against success.

    Means of two halves of the latest updates are compared; the rise must be beyond two standard errors, the fall,
    which is what makes it serious, beyond three.
    """
    recent = [*earlier, now][-2 * HALF :]
    pairs = (("turn_reward_sum", "outcome", "turn rewards"), ("outcome", "success", "outcome"))
    for rewarded, meant, name in pairs:
        known = [each for each in recent if rewarded in each and meant in each]
        if len(known) < 2 * HALF:
            continue
        rise, rise_error, before, after = _change([each[rewarded] for each in known])
        fall, fall_error, meant_before, meant_after = _change([each[meant] for each in known])
        if rise > 2 * rise_error and fall < -3 * fall_error:
            return (
                f"its {name} rose from {before:.3g} to {after:.3g} over {2 * HALF} updates while its "
                f"{'success' if meant == 'success' else 'outcome'} fell from {meant_before:.3g} to {meant_after:.3g}: "
                "it learns to please the reward. Let turn rewards fade (granularity.turn_decay), raise the weight of "
                "the outcome or algorithm.kl.coef, or change the reward"
            )
    return None


def _change(values: Sequence[float]) -> tuple[float, float, float, float]:
    """Difference of the means of both halves, its standard error, and the two means."""
    first, second = values[: len(values) // 2], values[len(values) // 2 :]
    error = math.sqrt(variance(first) / len(first) + variance(second) / len(second))
    return fmean(second) - fmean(first), error, fmean(first), fmean(second)


RULES: dict[str, tuple[int, Callable[[Metrics], str | None]]] = {  # kind: (updates in a row, rule)
    "judge_failures": (1, judge_failures),
    "judge_budget": (1, judge_budget),
    "kl_budget": (2, kl_budget),
    "outcome_overruled": (3, outcome_overruled),
}
TRENDS: dict[str, tuple[int, Callable[[Sequence[Metrics], Metrics], str | None]]] = {
    "reward_hacking": (2, reward_hacking),
}
REMEMBERED = ("turn_reward_sum", "outcome", "success")
