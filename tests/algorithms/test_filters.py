"""Which groups are learned from."""

from __future__ import annotations

import pytest

from algorithms.filters import ZeroSpread, kept
from tests.algorithms.tables import turn_table


def test_only_groups_whose_outcomes_differ_are_kept() -> None:
    accuracy = [1.0, 1.0, 1.0, 1.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0, 0.0]
    turns = turn_table([[a] for a in accuracy], groups=[0] * 4 + [1] * 4 + [2] * 4)
    assert ZeroSpread(floor=0.0)(turns).tolist() == [False] * 4 + [True] * 4 + [False] * 4


def test_the_raw_outcome_decides_not_the_shaped_reward() -> None:
    shaped = [[0.9], [0.7], [0.3], [0.3]]
    turns = turn_table(shaped, groups=[0, 0, 1, 1], outcomes=[1.0, 1.0, 1.0, 0.0])
    assert ZeroSpread(floor=0.0)(turns).tolist() == [False, False, True, True]


@pytest.mark.parametrize("size", [3, 5, 6, 7])
def test_equal_outcomes_have_no_spread_whatever_the_rounding(size: int) -> None:
    turns = turn_table([[0.1]] * size, groups=[0] * size)
    assert not ZeroSpread(floor=0.0)(turns).any()


def test_a_spread_up_to_the_floor_is_none() -> None:
    turns = turn_table([[0.5], [0.501], [0.0], [1.0]], groups=[0, 0, 1, 1])
    assert ZeroSpread(floor=0.01)(turns).tolist() == [False, False, True, True]


def test_a_group_of_one_has_no_spread() -> None:
    turns = turn_table([[1.0], [1.0], [0.0]], groups=[0, 1, 1])
    assert ZeroSpread(floor=0.0)(turns).tolist() == [False, True, True]


def test_an_episode_is_kept_where_every_filter_keeps_it() -> None:
    turns = turn_table([[0.5], [0.6], [0.0], [1.0], [2.0], [2.0]], groups=[0, 0, 1, 1, 2, 2])
    both = kept([ZeroSpread(floor=0.0), ZeroSpread(floor=0.3)], turns)
    assert both.tolist() == [False, False, True, True, False, False]
    assert kept([], turns).all()
