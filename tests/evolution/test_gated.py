"""Gated selection: who keeps its place, who loses it, and what is asked before."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.config.schema import Dimension
from evo_hpo.evolution.strategies import Fate, Gated, Past, Standing, Values

NAN = math.nan
TASKS = 40
SPACE = {
    "rate": Dimension("float", low=1e-5, high=1e-3, log=True),
    "kind": Dimension("categorical", choices=["a", "b"]),
}
GATED = Gated(
    probability=0.9,
    floor=0.02,
    smoothing=0.5,
    resamples=1000,
    margin=0.0,
    evaluation_budget=0.0,
    elites=2,
    cooldown=1,
    step_back=0.95,
    min_lineages=0,
    horizon=4,
    min_variety=0.0,
    resample=0.25,
    mutated_keys=0,
)


def solved(rate: float) -> list[float]:
    """Results of a member that solves the easiest tasks, as many as its rate says."""
    if not math.isfinite(rate):
        return [rate] * TASKS
    return [1.0 if task < round(rate * TASKS) else 0.0 for task in range(TASKS)]


def never(members: Sequence[int]) -> list[list[float]]:
    raise AssertionError("nobody was to be evaluated again")


def standing(rates: Sequence[float], **changes: Any) -> Standing:
    results = changes.pop("results", [solved(rate) for rate in rates])
    return Standing.of(rates, **{"results": results, "evaluate": never} | changes)


def past(
    rates: Sequence[float], parents: Sequence[int], events: Sequence[str], values: list[Values] | None = None
) -> Past:
    results = [solved(rate) for rate in rates]
    return Past(list(rates), values or [{}] * len(rates), list(parents), list(events), results)


def undisturbed(rates: Sequence[float]) -> Past:
    return past(rates, range(len(rates)), ["kept"] * len(rates))


def parents(fates: list[Fate]) -> list[int]:
    return [fate.parent for fate in fates]


def select(strategy: Gated, standing: Standing, seed: int = 0) -> list[Fate]:
    return strategy.select(standing, np.random.default_rng(seed))


# Never worse.

fitness_values = st.lists(st.sampled_from([0.0, 0.25, 0.5, 1.0, NAN, math.inf, -math.inf]), min_size=1, max_size=9)


@settings(deadline=None, max_examples=150)
@given(fitness=fitness_values, seed=st.integers(0, 10**6))
def test_only_a_strictly_better_finite_member_replaces_another(fitness: list[float], seed: int) -> None:
    found = select(replace(GATED, min_lineages=3), standing(fitness, space=SPACE, values=values_of(fitness)), seed)
    finite = [rate for rate in fitness if math.isfinite(rate)]
    elites = [m for m, fate in enumerate(found) if fate.event == "elite"]
    assert len(found) == len(fitness) and len(elites) == (min(2, max(1, len(finite) // 2)) if finite else 0)
    assert sorted(fitness[m] for m in elites) == sorted(finite)[len(finite) - len(elites) :]
    for slot, fate in enumerate(found):
        if fate.parent != slot:
            assert fate.parent in elites
            assert not math.isfinite(fitness[slot]) or fitness[fate.parent] > fitness[slot]
        elif not math.isfinite(fitness[slot]):
            assert not finite
        assert fate.explore == (fate.event in ("cloned", "rescued"))


def values_of(fitness: Sequence[float]) -> list[Values]:
    return [{"rate": 1e-4, "kind": "a"} for _ in fitness]


@pytest.mark.parametrize("size", [1, 2, 3, 8])
def test_equal_fitness_leaves_everybody_in_place(size: int) -> None:
    strategy = replace(GATED, probability=0.5, floor=0.0, min_lineages=8, min_variety=1.0)
    for seed in range(20):
        found = select(strategy, standing([0.5] * size, space=SPACE, values=values_of([0.5] * size)), seed)
        assert parents(found) == list(range(size))


def test_ties_are_not_broken_by_list_order() -> None:
    elites: Counter[int] = Counter()
    for seed in range(200):
        elites.update(m for m, fate in enumerate(select(GATED, standing([0.5] * 4), seed)) if fate.event == "elite")
    assert min(elites[m] for m in range(4)) > 60  # 100 each are expected


@pytest.mark.parametrize("size", [1, 2, 3, 5])
def test_where_nobody_has_a_fitness_nobody_is_replaced(size: int) -> None:
    found = select(GATED, standing([NAN] * size))
    assert parents(found) == list(range(size)) and all(fate.event == "kept" for fate in found)


def test_populations_of_one_two_and_three() -> None:
    assert [fate.event for fate in select(GATED, standing([0.4]))] == ["elite"]
    assert parents(select(GATED, standing([0.2, 0.8]))) == [1, 1]
    assert parents(select(GATED, standing([0.2, 0.8, 0.3]))) == [1, 1, 1]
    assert parents(select(GATED, standing([NAN, 0.8]))) == [1, 1]


def test_a_condemned_member_is_rescued_whatever_it_solved_and_never_wins() -> None:
    for seed in range(20):
        results = [solved(1.0), solved(0.2), solved(0.9), solved(0.8)]
        found = select(GATED, standing([NAN, 0.2, 0.9, 0.8], results=results), seed)
        assert found[0].event == "rescued" and found[0].parent in (2, 3)
        assert 0 not in parents(found)


def test_a_member_that_must_be_rescued_does_not_wait() -> None:
    before = past([0.8, 0.8, 0.1], [0, 1, 0], ["kept", "kept", "cloned"])
    assert select(GATED, standing([0.8, 0.8, NAN], past=[before]))[2].event == "rescued"


# The gate.


def test_a_member_that_is_clearly_worse_is_replaced_and_the_probability_is_told() -> None:
    found = select(GATED, standing([0.9, 0.9, 0.3, 0.9]))
    assert found[2].event == "cloned" and found[2].explore
    assert found[2].better is not None and found[2].better > 0.99
    assert found[2].reason == "behind by 0.600 on 40 tasks"


def test_a_lead_that_may_be_luck_changes_nothing() -> None:
    found = select(GATED, standing([0.5, 0.55]))  # two tasks of 40
    assert found[0].event == "kept" and found[0].better is None
    assert found[0].reason.startswith("one of the best leads by 0.050, with probability 0.75; it takes more than 0.9")
    assert select(replace(GATED, probability=0.7), standing([0.5, 0.55]))[0].event == "cloned"


def test_a_sure_lead_below_the_floor_changes_nothing() -> None:
    found = select(replace(GATED, floor=0.4), standing([0.5, 0.8]))
    assert found[0].event == "kept" and "behind by 0.300; up to 0.4 does not count" in found[0].reason
    assert select(replace(GATED, floor=0.2), standing([0.5, 0.8]))[0].event == "cloned"


def test_equal_members_seldom_lose_their_place_to_noise() -> None:
    replaced = 0
    for seed in range(300):
        noise = np.random.default_rng([seed, 1])
        results = (noise.random((2, TASKS)) < 0.5).astype(float).tolist()
        found = select(GATED, standing([float(np.mean(one)) for one in results], results=results), seed)
        replaced += parents(found) != [0, 1]
    assert replaced < 0.3 * 300  # either may be the better one, so 0.2 are expected; truncation replaces one every time


def test_both_elites_give_and_neither_takes() -> None:
    donors: Counter[int] = Counter()
    for seed in range(60):
        found = select(GATED, standing([0.9, 0.1, 0.8, 0.2]), seed)
        assert found[0].event == found[2].event == "elite" and not found[0].explore and not found[2].explore
        donors.update([found[1].parent, found[3].parent])
    assert set(donors) == {0, 2} and min(donors.values()) > 35  # 60 each are expected


def test_tasks_that_only_one_could_play_do_not_count() -> None:
    lucky = [1.0] * 10 + [NAN] * 30  # could play the easy ones only
    found = select(GATED, standing([1.0, 0.5], results=[lucky, solved(0.5)]))
    assert parents(found) == [0, 1]


# Two generations.


def test_one_lucky_generation_does_not_cost_a_place() -> None:
    now = standing([0.6, 0.9], past=[undisturbed([0.8, 0.4])])
    assert parents(select(GATED, now)) == [0, 1]  # means of 0.7 and 0.65
    assert parents(select(replace(GATED, smoothing=0.0), now)) == [1, 1]


def test_a_clone_is_compared_on_the_present_alone() -> None:
    before = past([0.9, 0.0], [0, 0], ["elite", "cloned"])
    found = select(replace(GATED, cooldown=0, step_back=1.0), standing([0.3, 0.9], past=[before]))
    assert parents(found) == [1, 1]
    assert found[0].reason == "behind by 0.600 on 40 tasks"  # the past of the other, 0.9, counts for neither
    before = past([0.5, 0.0], [0, 0], ["elite", "cloned"])
    found = select(replace(GATED, cooldown=0, step_back=1.0), standing([0.9, 0.3], past=[before]))
    assert found[1].reason == "behind by 0.600 on 40 tasks"


# Again.


def asked(answers: Callable[[int], float]) -> tuple[list[list[int]], Callable[[Sequence[int]], list[list[float]]]]:
    calls: list[list[int]] = []

    def evaluate(members: Sequence[int]) -> list[list[float]]:
        calls.append(list(members))
        return [solved(answers(member)) for member in members]

    return calls, evaluate


ASKING = replace(GATED, margin=0.05, evaluation_budget=1.0)


def test_a_close_pair_is_evaluated_again_and_what_it_shows_decides() -> None:
    close = [0.5, 0.6]  # four tasks of 40
    calls, evaluate = asked(lambda member: [0.3, 0.8][member])
    assert select(ASKING, standing(close, evaluate=evaluate))[0].event == "cloned"
    assert calls == [[0, 1]]
    calls, evaluate = asked(lambda member: [0.6, 0.5][member])
    assert select(ASKING, standing(close, evaluate=evaluate))[0].reason == "none of the best is ahead of it"
    calls, evaluate = asked(lambda member: 0.5)
    assert select(ASKING, standing(close, evaluate=evaluate))[0].reason == "behind by 0.050 on 40 tasks"  # 0.1 and 0


def test_what_is_clear_is_not_asked_again() -> None:
    assert select(ASKING, standing([0.2, 0.9]))[0].event == "cloned"
    assert select(ASKING, standing([0.5, 0.5]))[0].event == "kept"


@pytest.mark.parametrize(("budget", "most"), [(0.0, 0), (0.2, 0), (0.25, 2), (0.5, 4), (1.0, 8), (2.0, 16)])
def test_evaluations_stay_within_the_budget(budget: float, most: int) -> None:
    close = [0.5, 0.6, 0.5, 0.6, 0.5, 0.5, 0.5, 0.5]
    calls, evaluate = asked(lambda member: close[member])
    select(replace(ASKING, margin=0.2, evaluation_budget=budget), standing(close, evaluate=evaluate))
    assert sum(map(len, calls)) <= most
    assert bool(calls) == bool(most)


# After a change of hands.


def test_a_clone_neither_loses_its_place_nor_gives_until_it_has_cooled_down() -> None:
    cloned = past([0.9, 0.5, 0.5, 0.1], [0, 1, 0, 0], ["elite", "kept", "cloned", "cloned"])
    young = select(replace(GATED, step_back=1.0), standing([0.8, 0.2, 1.0, 0.0], past=[cloned]))
    assert [fate.event for fate in young] == ["elite", "cloned", "kept", "kept"]
    assert young[1].parent == 0 and young[3].reason == "has just changed hands"
    later = undisturbed([0.8, 0.8, 1.0, 0.0])
    assert parents(select(GATED, standing([0.8, 0.8, 1.0, 0.0], past=[cloned, later])))[3] in (0, 1, 2)
    longer = replace(GATED, cooldown=2, step_back=1.0)
    assert parents(select(longer, standing([0.8, 0.8, 1.0, 0.0], past=[cloned, later]))) == [0, 1, 2, 3]


VALUES: list[Values] = [{"rate": 1e-4}, {"rate": 2e-4}, {"rate": 3e-4}]


def test_a_child_that_got_clearly_worse_returns_to_its_parents_line_and_hyperparameters() -> None:
    before = past([0.8, 0.1, 0.9], [0, 0, 2], ["kept", "cloned", "elite"], VALUES)
    fate = select(GATED, standing([0.8, 0.2, 0.9], past=[before]))[1]
    assert (fate.event, fate.parent, fate.explore, fate.values) == ("stepped_back", 0, False, {"rate": 1e-4})
    assert fate.reason.startswith("0.600 worse than its parent was, with probability 1.00")


def test_it_returns_to_the_best_if_its_parents_slot_has_changed_hands() -> None:
    before = past([0.8, 0.1, 0.9], [2, 0, 2], ["cloned", "cloned", "elite"], VALUES)
    fate = select(GATED, standing([0.9, 0.2, 0.9], past=[before]))[1]
    assert (fate.event, fate.parent, fate.values) == ("stepped_back", 2, {"rate": 1e-4})


@pytest.mark.parametrize(
    ("now", "why"),
    [
        ([0.8, 0.8, 0.9], "it is as good as its parent was"),
        ([0.8, 0.78, 0.9], "it is worse by a task of 40 only"),
        ([0.2, 0.2, 0.2], "what it would return to is no better"),
    ],
)
def test_a_child_does_not_step_back(now: list[float], why: str) -> None:
    before = past([0.8, 0.1, 0.9], [0, 0, 2], ["kept", "cloned", "elite"], VALUES)
    assert select(GATED, standing(now, past=[before]))[1].event == "kept", why


# The diversity floor.

ALIKE = replace(GATED, min_lineages=2, horizon=3)


def test_where_one_line_would_remain_the_worst_begins_a_new_one_with_the_best_weights() -> None:
    rates = [0.9, 0.85, 0.8, 0.7, 0.1]
    cloned = past(rates, [0, 0, 0, 0, 4], ["elite", "cloned", "cloned", "cloned", "kept"])
    now = standing(rates, past=[cloned, undisturbed(rates)], space=SPACE, values=values_of(rates))
    found = select(ALIKE, now)
    fresh = found[4].values
    assert (found[4].event, found[4].parent, found[4].explore) == ("injected", 0, False)
    assert fresh is not None and 1e-5 <= fresh["rate"] <= 1e-3 and fresh["rate"] != 1e-4 and fresh["kind"] in ("a", "b")
    assert sum(fate.event == "injected" for fate in found) == 1
    assert found[4].reason.endswith("on 40 tasks, and 1 of the 2 lines of descent that must be there would remain")
    assert select(replace(ALIKE, min_lineages=1), now)[4].event == "cloned"
    assert select(replace(ALIKE, horizon=2), now)[4].event == "cloned"  # two steps back they were five
    assert select(ALIKE, replace(now, space={}))[4].event == "cloned"  # nothing fresh to give


def test_a_member_that_must_be_rescued_is_the_first_to_begin_a_new_line() -> None:
    rates = [0.9, 0.85, NAN, 0.1]
    cloned = past(rates, [0, 0, 2, 0], ["elite", "cloned", "kept", "cloned"])
    now = standing(rates, past=[cloned, undisturbed([0.9, 0.85, 0.5, 0.1])], space=SPACE, values=values_of(rates))
    fate = select(ALIKE, now)[2]
    assert (fate.event, fate.parent) == ("injected", 0)
    assert (
        fate.reason
        == "its fitness is not a finite number, and 1 of the 2 lines of descent that must be there would remain"
    )


def test_a_line_that_was_begun_counts_as_a_line() -> None:
    rates = [0.9, 0.9, 0.9, 0.9]
    began = past(rates, [0, 0, 0, 0], ["elite", "cloned", "cloned", "injected"])
    now = standing(rates, past=[began, undisturbed(rates)], space=SPACE, values=values_of(rates))
    assert not any(fate.event == "injected" for fate in select(ALIKE, now))


def test_where_hyperparameters_lie_too_close_a_settled_member_makes_room() -> None:
    rates = [0.9, 0.9, 0.85, 0.88]
    near = [{"rate": rate, "kind": "a"} for rate in (1e-4, 1.1e-4, 1e-4, 0.9e-4)]
    wide = [{"rate": rate, "kind": kind} for rate, kind in ((1e-4, "a"), (1e-3, "b"), (1e-5, "a"), (1e-4, "b"))]
    strategy = replace(GATED, min_variety=0.05)
    events = [fate.event for fate in select(strategy, standing(rates, space=SPACE, values=near))]
    assert events[2] == "injected" and events.count("injected") == 1
    spread = [fate.event for fate in select(strategy, standing(rates, space=SPACE, values=wide))]
    assert "injected" not in spread


@pytest.mark.parametrize("rates", [[0.2, 0.8], [0.2, 0.8, 0.3]])
def test_two_or_three_members_may_be_of_one_line(rates: list[float]) -> None:
    found = select(replace(GATED, min_lineages=3), standing(rates, space=SPACE, values=values_of(rates)))
    assert [fate.event for fate in found] == ["elite" if rate == 0.8 else "cloned" for rate in rates]


# Its place in the package.


def test_the_same_random_state_gives_the_same_fates() -> None:
    now = standing([0.9, 0.85, 0.2, 0.1, 0.3, 0.2])
    assert select(GATED, now, 4) == select(GATED, now, 4)
    assert len({tuple(parents(select(GATED, now, seed))) for seed in range(20)}) > 1


def test_it_comes_with_the_package() -> None:
    composed = compose(["evolution=gated"])
    config = build(composed.values, composed.provenance, composed.choices)
    assert isinstance(config.evolution.strategy, Gated)
    assert config.evolution.population == 8 and config.evolution.spread


@pytest.mark.parametrize("results", [[[], [], []], [[], [0.7], []]], ids=["nobody", "one"])
def test_members_whose_scorers_could_not_be_measured_have_no_results_at_all(results: list[list[float]]) -> None:
    rates = [one[0] if one else NAN for one in results]
    fates = GATED.select(standing(rates, results=results), np.random.default_rng(0))
    assert [fate.parent for fate in fates] == ([1, 1, 1] if results[1] else [0, 1, 2])


def test_a_new_line_draws_from_the_space_of_the_species_whose_weights_it_takes() -> None:
    rates = [0.9, 0.85, 0.8, 0.7, 0.1]
    cloned = past(rates, [0, 0, 0, 0, 4], ["elite", "cloned", "cloned", "cloned", "kept"])
    values = [one | {"algorithm": name} for one, name in zip(values_of(rates), ["ppo", *["grpo"] * 4], strict=True)]
    spaces = {"ppo": {"rate": Dimension("float", low=2.0, high=3.0)}, "grpo": SPACE}
    now = standing(rates, past=[cloned, undisturbed(rates)], spaces=spaces, values=values)
    fate = select(ALIKE, now)[4]
    assert (fate.event, fate.parent) == ("injected", 0) and fate.values is not None
    assert fate.values["algorithm"] == "ppo" and 2.0 <= fate.values["rate"] <= 3.0


def test_a_new_line_is_of_the_best_whose_species_has_something_to_draw() -> None:
    rates = [0.9, 0.8, 0.7, 0.6]
    values = [{"algorithm": "ppo"}, {"algorithm": "grpo", "rate": 0.5}, *[{"algorithm": "ppo"}] * 2]
    cloned = past(rates, [0, 0, 0, 0], ["elite", "cloned", "cloned", "cloned"])
    for spaces, injected in (({"ppo": {}, "grpo": SPACE}, {1}), ({"ppo": {}, "grpo": {}}, set())):
        now = standing(rates, past=[cloned, undisturbed(rates)], spaces=spaces, values=values)
        assert {fate.parent for fate in select(ALIKE, now) if fate.event == "injected"} == injected
