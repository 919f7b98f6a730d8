"""TPE over whole trainings: trials of equal length, suggestions inside the space, and better ones with time."""

from __future__ import annotations

import math

import numpy as np

from evo_hpo.config.schema import Dimension
from evo_hpo.evolution.strategies import TPE, Past, Standing, Values

SPACE = {
    "rate": Dimension("float", low=1e-5, high=1e-1, log=True),
    "size": Dimension("int", low=1, high=8),
    "kind": Dimension("categorical", choices=["a", "b"]),
}


def worth(values: Values) -> float:
    """Best at a rate of 1e-3, a size of 6 and kind b."""
    return 1 - abs(math.log10(values["rate"]) + 3) / 4 - abs(values["size"] - 6) / 16 - 0.2 * (values["kind"] == "a")


def search(strategy: TPE, members: int, generations: int, seed: int) -> list[list[float]]:
    """[generation][member] worth, of a search in which every trial is one generation."""
    rng = np.random.default_rng(seed)
    values: list[Values] = [{"rate": 1e-5, "size": 1, "kind": "a"} for _ in range(members)]
    past: list[Past] = []
    found = []
    for generation in range(generations):
        fitness = [worth(each) for each in values]
        found.append(fitness)
        standing = Standing.of(fitness, generation=generation, values=values, space=SPACE, past=list(past))
        fates = strategy.select(standing, rng)
        assert {fate.event for fate in fates} == {"restarted"} and not any(fate.explore for fate in fates)
        past.append(Past(fitness, values, list(range(members)), [fate.event for fate in fates]))
        values = [dict(fate.values or {}) for fate in fates]
        for each in values:
            assert 1e-5 <= each["rate"] <= 1e-1 and each["size"] in range(1, 9) and each["kind"] in "ab"
    return found


def test_it_gets_better_than_random_search() -> None:
    late = [max(map(max, search(TPE(trial=1, startup=6), 3, 12, seed)[6:])) for seed in range(6)]
    random = [max(map(max, search(TPE(trial=1, startup=1000), 3, 12, seed)[6:])) for seed in range(6)]
    assert np.mean(late) > np.mean(random)


def test_a_trial_goes_on_until_it_is_over() -> None:
    strategy = TPE(trial=3, startup=1)
    values = [{"rate": 1e-3, "size": 2, "kind": "a"}] * 2
    for generation in (0, 1, 3):
        standing = Standing.of([0.1, 0.2], generation=generation, values=values, space=SPACE)
        assert {fate.event for fate in strategy.select(standing, np.random.default_rng(0))} == {"kept"}
    standing = Standing.of([0.1, 0.2], generation=2, values=values, space=SPACE)
    assert {fate.event for fate in strategy.select(standing, np.random.default_rng(0))} == {"restarted"}


def test_the_same_random_state_suggests_the_same_and_members_differ() -> None:
    values = [{"rate": 1e-3, "size": 2, "kind": "a"}] * 3
    standing = Standing.of([0.1, math.nan, 0.3], values=values, space=SPACE)  # a broken trial is left out
    first, second = (TPE(trial=1, startup=1).select(standing, np.random.default_rng(3)) for _ in range(2))
    assert first == second
    assert len({repr(fate.values) for fate in first}) == 3


def test_what_is_not_in_the_space_stays() -> None:
    values = [{"rate": 1e-3, "size": 2, "kind": "a", "other": 7}]
    [fate] = TPE(trial=1, startup=1).select(Standing.of([0.1], values=values, space=SPACE), np.random.default_rng(0))
    assert fate.values is not None and fate.values["other"] == 7


def test_each_member_tries_what_its_species_may_have() -> None:
    spaces = {"grpo": {"size": SPACE["size"]}, "ppo": {"rate": SPACE["rate"]}}
    values: list[Values] = [{"algorithm": "ppo", "rate": 1e-5}, {"algorithm": "grpo", "size": 1}]
    standing = Standing.of([0.5, 0.4], values=values, spaces=spaces)
    ppo, grpo = (fate.values or {} for fate in TPE(trial=1, startup=1).select(standing, np.random.default_rng(0)))
    assert grpo.keys() == {"algorithm", "size"} and ppo.keys() == {"algorithm", "rate"}
    assert (grpo["algorithm"], ppo["algorithm"]) == ("grpo", "ppo") and ppo["rate"] != 1e-5
