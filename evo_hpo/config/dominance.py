"""Whether the outcome outweighs what turns can pay, at the config's own weights and wherever they may evolve to."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import product

from evo_hpo.config.facts import Facts, Violation

MOST_WEIGHTS = 8  # that evolve; of more the corners are too many to be tried


def failing_never_pays(facts: Facts) -> Iterator[Violation]:
    """A failed episode cannot earn as much as a successful one, where what they can earn is known."""
    config = facts.config
    bounds = config.reward.bounds(config.env) if config.granularity.reward == "mixed" else None
    if bounds is None or bounds.succeeded_outcome[0] <= bounds.failed_outcome[1]:
        return  # unknown (the alarm `outcome_overruled` watches), or an outcome that itself may favour failing
    margin = config.granularity.margin(bounds)
    if margin <= 0:
        low, high = bounds.succeeded_turns[0], bounds.failed_turns[1]
        gap = bounds.succeeded_outcome[0] - bounds.failed_outcome[1]
        worth = gap * config.granularity.outcome_weight
        enough = config.granularity.turn_weight * (high - low) / gap
        yield Violation(
            f"{facts.named('granularity')} lets a failed episode earn as much as a successful one: with "
            f"{facts.named('reward')} in {facts.named('env')} a failure can collect {high:.3g} in turn rewards, a "
            f"success as little as {low:.3g} and an outcome that is worth {worth:.3g} more",
            f"write granularity.outcome_weight={_above(enough):g} or more, or granularity=sparse",
        )


def failing_never_pays_where_weights_evolve(facts: Facts) -> Iterator[Violation]:
    """The same at every corner of the search space; the margin is linear in each weight, so it is least at one."""
    config = facts.config
    if config.granularity.reward != "mixed" or next(failing_never_pays(facts), None):
        return
    from evo_hpo.evolution.hyperparameters import of_part, with_value

    known = of_part(config.reward, "reward") | of_part(config.granularity, "granularity")
    space = {key: one for key, one in config.evolution.space.items() if key in known}
    ends = [one.choices or [end for end in (one.low, one.high) if end is not None] for one in space.values()]
    for corner in product(*ends) if 0 < len(ends) <= MOST_WEIGHTS else ():
        changed = config
        for key, value in zip(space, corner, strict=True):
            root = key.partition(".")[0]
            try:
                changed = replace(changed, **{root: with_value(getattr(changed, root), key, value)})
            except ValueError:
                return  # reported by itself
        if next(failing_never_pays(replace(facts, config=changed)), None):
            told = ", ".join(f"{key}={value:g}" for key, value in zip(space, corner, strict=True))
            yield Violation(
                f"evolution.space allows {told}, and with that a failed episode earns as much as a successful one "
                f"under {facts.named('granularity')}",
                "narrow these ranges, or write granularity=sparse",
            )
            return


def _above(value: float) -> float:
    """The next tenth above `value`."""
    return (int(value * 10) + 1) / 10
