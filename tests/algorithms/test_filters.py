"""Which episodes are learned from."""

from __future__ import annotations

import dataclasses
import math
import random

import pytest
import torch
from hypothesis import given

from algorithms.core import TurnTable
from algorithms.filters import (
    DynamicSampling,
    Filter,
    MaxAge,
    TopP,
    TopSpread,
    Truncated,
    VoidTurn,
    ZeroSpread,
    kept,
)
from tests.algorithms.batches import BATCHES, seeds
from tests.algorithms.tables import turn_table


def groups_of_two(spreads: list[float], members: list[int] | None = None) -> TurnTable:
    """A group of two episodes for each standard deviation, of one member unless given."""
    outcomes = [outcome for spread in spreads for outcome in (0.0, spread * math.sqrt(2))]
    member = [m for m in (members or [0] * len(spreads)) for _ in range(2)]
    return turn_table([[o] for o in outcomes], [g for g in range(len(spreads)) for _ in range(2)], member)


def kept_groups(filter_: Filter, turns: TurnTable) -> list[int]:
    keep_E = filter_(turns)
    assert torch.equal(keep_E[::2], keep_E[1::2])
    return torch.nonzero(keep_E[::2]).squeeze(1).tolist()


@pytest.mark.parametrize("filter_", [ZeroSpread(floor=0.0), DynamicSampling(floor=0.0, max_batches=3)])
def test_only_groups_whose_outcomes_differ_are_kept(filter_: Filter) -> None:
    accuracy = [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    turns = turn_table([[a] for a in accuracy], groups=[0] * 4 + [1] * 4 + [2] * 4)
    assert filter_(turns).tolist() == [False] * 4 + [True] * 4 + [False] * 4


def test_dynamic_sampling_plays_further_batches_up_to_its_cap() -> None:
    assert DynamicSampling(floor=0.0, max_batches=3).resamples == 2
    assert DynamicSampling(floor=0.0, max_batches=1).resamples == ZeroSpread(floor=0.0).resamples == 0


EVERY_SPREAD_FILTER = pytest.mark.parametrize(
    "filter_",
    [ZeroSpread(floor=0.0), DynamicSampling(floor=0.0, max_batches=2), TopSpread(share=1.0), TopP(p=1.0)],
)


@EVERY_SPREAD_FILTER
def test_the_raw_outcome_decides_not_the_shaped_reward(filter_: Filter) -> None:
    shaped = [[0.9], [0.7], [0.3], [0.3]]
    turns = turn_table(shaped, groups=[0, 0, 1, 1], outcomes=[1.0, 1.0, 1.0, 0.0])
    assert filter_(turns).tolist() == [False, False, True, True]


@EVERY_SPREAD_FILTER
@pytest.mark.parametrize("size", [3, 5, 6, 7])
def test_equal_outcomes_have_no_spread_whatever_the_rounding(filter_: Filter, size: int) -> None:
    turns = turn_table([[0.1]] * size, groups=[0] * size)
    assert not filter_(turns).any()


def test_a_spread_up_to_the_floor_is_none() -> None:
    turns = turn_table([[0.5], [0.501], [0.0], [1.0]], groups=[0, 0, 1, 1])
    assert ZeroSpread(floor=0.01)(turns).tolist() == [False, False, True, True]


@EVERY_SPREAD_FILTER
def test_a_group_of_one_has_no_spread(filter_: Filter) -> None:
    turns = turn_table([[1.0], [1.0], [0.0]], groups=[0, 1, 1])
    assert filter_(turns).tolist() == [False, True, True]


def test_the_widest_quarter_of_the_groups_is_kept() -> None:
    turns = groups_of_two([0.0, 0.5, 0.1, 0.49, 0.3, 0.0, 0.2, 0.45])
    assert kept_groups(TopSpread(share=0.25), turns) == [1, 3]


def test_a_share_of_less_than_one_group_keeps_one() -> None:
    assert kept_groups(TopSpread(share=0.25), groups_of_two([0.1, 0.3, 0.2])) == [1]


def test_groups_as_wide_as_the_last_one_are_kept_with_it() -> None:
    assert kept_groups(TopSpread(share=0.5), groups_of_two([0.2, 0.3, 0.2, 0.2])) == [0, 1, 2, 3]
    assert kept_groups(TopP(p=0.5), groups_of_two([0.2, 0.3, 0.2, 0.2])) == [0, 1, 2, 3]
    assert kept_groups(TopSpread(share=0.5), groups_of_two([0.2, 0.3, 0.2, 0.3])) == [1, 3]


@pytest.mark.parametrize(("p", "expected"), [(0.6, [0, 1]), (0.7005, [0, 1]), (0.9, [0, 1, 2]), (1.0, [0, 1, 2, 3])])
def test_the_widest_groups_are_kept_until_they_hold_the_share_of_all_spread(p: float, expected: list[int]) -> None:
    assert kept_groups(TopP(p=p), groups_of_two([4.0, 3.0, 2.0, 1.0])) == expected


def test_where_nothing_spreads_nothing_is_kept() -> None:
    assert kept_groups(TopP(p=0.9), groups_of_two([0.0] * 4)) == []
    assert kept_groups(TopSpread(share=0.5), groups_of_two([0.0] * 4)) == []


@given(seeds)
@BATCHES
@pytest.mark.parametrize("filter_", [TopSpread(share=0.4), TopP(p=0.7)])
def test_the_groups_of_other_members_do_not_matter(filter_: Filter, seed: int) -> None:
    draw = random.Random(seed)
    spreads = [draw.choice([0.0, 0.1, 0.2, 0.3, draw.random()]) for _ in range(draw.randint(1, 9))]
    members = [draw.randrange(3) for _ in spreads]
    together = kept_groups(filter_, groups_of_two(spreads, members))
    for member in set(members):
        mine = [g for g, m in enumerate(members) if m == member]
        alone = kept_groups(filter_, groups_of_two([spreads[g] for g in mine]))
        assert [g for g in together if members[g] == member] == [mine[g] for g in alone]


def test_one_void_turn_drops_the_episode_and_its_return_still_counts() -> None:
    turns = turn_table([[0.0, 0.0, 1.0]] * 3, groups=[0, 0, 0])
    valid = torch.tensor([1, 1, 1, 1, 0, 1, 1, 1, 0]).bool()
    trained, counted = kept([VoidTurn()], dataclasses.replace(turns, valid_K=valid))
    assert trained.tolist() == [True, False, False]
    assert counted.all()
    assert VoidTurn().needs == {"validity"}


def test_one_truncated_turn_drops_the_episode_from_loss_and_baseline() -> None:
    turns = turn_table([[0.0, 1.0], [0.0], [0.0, 0.0]], groups=[0, 0, 0])
    trained, counted = kept([Truncated()], dataclasses.replace(turns, truncated_K=torch.tensor([0, 0, 1, 0, 1]).bool()))
    assert trained.tolist() == counted.tolist() == [True, False, False]


@pytest.mark.parametrize(("updates", "expected"), [(0, [True, False, False]), (3, [True, True, False])])
def test_an_episode_is_as_old_as_its_oldest_turn(updates: int, expected: list[bool]) -> None:
    turns = turn_table([[0.0, 1.0], [0.0, 1.0], [0.0, 1.0]], groups=[0, 0, 0])
    aged = dataclasses.replace(turns, age_K=torch.tensor([0, 0, 3, 1, 4, 0]))
    assert MaxAge(updates=updates)(aged).tolist() == expected


def test_an_episode_is_kept_where_every_filter_keeps_it() -> None:
    turns = turn_table([[0.5], [0.6], [0.0], [1.0], [2.0], [2.0]], groups=[0, 0, 1, 1, 2, 2])
    trained, counted = kept([ZeroSpread(floor=0.0), ZeroSpread(floor=0.3)], turns)
    assert trained.tolist() == counted.tolist() == [False, False, True, True, False, False]
    assert kept([], turns)[0].all()


def test_a_filter_may_leave_the_baseline_alone_while_another_does_not() -> None:
    turns = turn_table([[0.5], [0.5], [0.0], [1.0]], groups=[0, 0, 1, 1])
    void = dataclasses.replace(turns, valid_K=torch.tensor([True, True, False, True]))
    trained, counted = kept([VoidTurn(), ZeroSpread(floor=0.0)], void)
    assert trained.tolist() == [False, False, False, True]
    assert counted.tolist() == [False, False, True, True]
