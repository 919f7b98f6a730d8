"""Which strategy ends with the best member, on simulated populations at equal budget; see benchmarks/selection.py.

Gated selection may evaluate members again; it is given so many fewer common tasks that it can never play more than the
others. Margins are a third of what a thousand populations show, on seeds that are fixed.
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.evolution.strategies import Gated, Truncation
from tests.evolution.simulation import Outcome, Problem, play

POPULATIONS = 100
NOISY, EXACT = Problem(), Problem(noisy=False)


def shipped(name: str) -> Any:
    composed = compose([f"evolution={name}"])
    return build(composed.values, composed.provenance, composed.choices).evolution.strategy


@cache
def outcomes(name: str, problem: Problem) -> list[Outcome]:
    strategy, extra = shipped(name), 0.0
    if isinstance(strategy, Gated):
        strategy, extra = replace(strategy, resamples=300), strategy.evaluation_budget
    return [play(problem, strategy, seed, extra) for seed in range(20_000, 20_000 + POPULATIONS)]


def skills(name: str, problem: Problem) -> NDArray[np.float64]:
    return np.array([outcome.chosen for outcome in outcomes(name, problem)])


@pytest.mark.parametrize(
    ("rival", "lead", "wins"), [("truncation", 0.2, 0.6), ("tournament", 0.2, 0.6), ("none", 0.6, 0.8)]
)
def test_under_noise_gated_ends_with_a_better_member(rival: str, lead: float, wins: float) -> None:
    gated, other = skills("gated", NOISY), skills(rival, NOISY)
    assert np.mean(gated - other) > lead
    assert np.mean(gated > other) > wins


@pytest.mark.parametrize("rival", ["truncation", "tournament", "none"])
def test_without_noise_gated_is_not_worse(rival: str) -> None:
    assert np.mean(skills("gated", EXACT) - skills(rival, EXACT)) > 0


@pytest.mark.parametrize("problem", [NOISY, EXACT], ids=["noisy", "exact"])
def test_gated_never_plays_more_than_the_others(problem: Problem) -> None:
    most = problem.members * problem.generations * problem.tasks
    assert {outcome.episodes for outcome in outcomes("truncation", problem)} == {most}
    assert max(outcome.episodes for outcome in outcomes("gated", problem)) <= most
    assert len({outcome.episodes for outcome in outcomes("gated", problem)}) > 1  # some were asked again


@pytest.mark.parametrize("members", [1, 2, 3])
@pytest.mark.parametrize("name", ["gated", "truncation", "tournament", "none"])
def test_small_populations_come_to_an_end_and_the_chosen_one_learned(name: str, members: int) -> None:
    strategy, small = shipped(name), Problem(members=members)
    found = [play(small, strategy, seed) for seed in range(5)]
    assert all(math.isfinite(outcome.chosen) and outcome.chosen <= outcome.best for outcome in found)
    assert np.mean([outcome.chosen for outcome in found]) > -1.5  # where everybody began
    assert members > 1 or all(outcome.replaced == 0 for outcome in found)


def test_a_quantile_of_zero_is_independent_members() -> None:
    nobody = Truncation(quantile=0.0, elites=1, resample=0.25, mutated_keys=0)
    for seed in range(5):
        assert play(NOISY, nobody, seed).best == play(NOISY, shipped("none"), seed).best


def test_a_simulated_population_is_reproducible_and_its_world_does_not_depend_on_the_strategy() -> None:
    gated = shipped("gated")
    assert play(NOISY, gated, 3, 0.25) == play(NOISY, gated, 3, 0.25)
    alone = Problem(members=1)
    assert play(alone, gated, 3).best == play(alone, shipped("none"), 3).best
    assert play(alone, gated, 3).best != play(alone, gated, 4).best
