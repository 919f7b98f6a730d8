"""A bonus for states that were seldom reached."""

from __future__ import annotations

import pytest

from envs.core import Feature
from rewards.novelty import Novelty
from tests.rewards.played import said


def test_a_turn_is_paid_for_the_state_that_it_reaches_by_the_visits_of_the_episode_so_far() -> None:
    """From A to B, back to A (the second visit), to B again, and on to where nothing is on record."""
    [score] = Novelty(scope="episode", paid="turns")([said(*"1234", state_key="ABAB")])
    assert score.turn_rewards == pytest.approx((1.0, 2**-0.5, 2**-0.5, 0.0))
    assert score.components == pytest.approx({"bonus": 1 + 2 * 2**-0.5, "states": 2.0})


def test_within_a_group_the_visits_of_the_others_count_and_their_order_does_not() -> None:
    one, other = said(*"123", state_key="ABC"), said(*"1234", state_key="ABBD")
    reward = Novelty(scope="group", paid="turns")
    first, second = reward([one, other])
    assert first.turn_rewards == pytest.approx((3**-0.5, 1.0, 0.0))  # B once here and twice there; C only here
    assert second.turn_rewards == pytest.approx((2**-0.5, 3**-0.5, 1.0, 0.0))
    assert [first, second] == reward([other, one])[::-1]


def test_a_group_of_one_is_an_episode() -> None:
    episode = said(*"1234", state_key="ABAB")
    by_episode, by_group = (Novelty(scope=scope, paid="turns")([episode]) for scope in ("episode", "group"))
    assert by_episode == by_group


def test_standing_still_earns_less_than_going_on_and_a_single_turn_nothing() -> None:
    reward = Novelty(scope="episode", paid="outcome")
    still, on, single = reward([said(*"123", state_key=key) for key in ("AAA", "ABC")] + [said("1", state_key="A")])
    assert still.outcome == pytest.approx(2**-0.5 + 3**-0.5)
    assert (on.outcome, single.outcome) == (2.0, 0.0)
    assert reward.needs == {Feature.STATE_KEY}
