"""What every programmatic reward must hold, on episodes of every kind."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.core import Episode, StopReason, Turn
from envs.guess_number import GuessNumber
from rewards.core import Reward
from rewards.per_turn import PerTurn
from tests.rewards.every import NAMES, reward
from tests.rewards.played import play, said

every_reward = pytest.mark.parametrize("name", NAMES)
TEXT = st.one_of(
    st.text(max_size=60),
    st.text("01 -+.@a", max_size=60),
    st.builds(str.__mul__, st.text(max_size=4), st.integers(0, 40)),
    st.sampled_from(["", " ", "\ud800", "\u202e", "\x00", "4111 1111 1111 1111", "a@b.co", "nan", "²"]),
)
TURN = st.builds(
    Turn,
    TEXT,
    TEXT,
    st.just([3]),
    st.lists(st.integers(0, 9), max_size=5),
    st.just([]),
    reward=st.floats(-1e6, 1e6),
    valid=st.booleans(),
    state_key=st.one_of(st.none(), st.integers(0, 3), st.tuples(st.text(max_size=2))),
    potential=st.floats(-1e6, 1e6),
)
EPISODE = st.builds(
    Episode,
    st.just(7),
    st.just(0),
    st.just(0),
    st.lists(TURN, max_size=5),
    st.sampled_from([stop for stop in StopReason if not stop.failed]),
    st.booleans(),
    answer=TEXT,
)
GROUP = st.lists(EPISODE, min_size=1, max_size=3)


def ways(name: str) -> list[Reward]:
    """The option as it ships and, where there is a choice, paid the other way."""
    made = reward(name)
    return [replace(made, paid=paid) for paid in ("turns", "outcome")] if isinstance(made, PerTurn) else [made]


@settings(deadline=None, max_examples=60)
@given(group=GROUP)
def test_odd_episodes_get_whole_and_finite_scores(group: list[Episode]) -> None:
    for made in (way for name in NAMES for way in ways(name)):
        scores = made(group)
        assert len(scores) == len(group), made
        for episode, score in zip(group, scores, strict=True):
            assert (score.turn_rewards is not None) == made.gives_turn_rewards, made
            assert score.turn_rewards is None or len(score.turn_rewards) == len(episode.turns), made
            numbers = [score.outcome, *(score.turn_rewards or ()), *score.components.values()]
            assert all(map(math.isfinite, numbers)), made
            assert set(score.components) == made.component_names, made


@every_reward
def test_real_episodes_are_scored_within_the_bounds_and_alike_in_any_order(name: str) -> None:
    env = GuessNumber()
    group = [play(env, 3, player) for player in range(24)]
    for made in ways(name):
        scores = made(group)
        assert made(group[::-1]) == scores[::-1]
        if (bounds := made.bounds(env)) is None:
            continue
        for episode, score in zip(group, scores, strict=True):
            outcomes, totals = (
                (bounds.succeeded_outcome, bounds.succeeded_turns)
                if episode.success
                else (bounds.failed_outcome, bounds.failed_turns)
            )
            assert outcomes[0] - 1e-9 <= score.outcome <= outcomes[1] + 1e-9
            assert totals[0] - 1e-9 <= sum(score.turn_rewards or ()) <= totals[1] + 1e-9


def seconds(work: Callable[[], object]) -> float:
    """The quickest of three, so that nobody else's work is counted."""
    spent = []
    for _ in range(3):
        start = time.process_time()
        work()
        spent.append(time.process_time() - start)
    return min(spent)


@cache
def update_of_256() -> list[list[Episode]]:
    return [[play(GuessNumber(), task, player, task) for player in range(16)] for task in range(16)]


@every_reward
def test_an_update_of_256_episodes_is_scored_in_no_time(name: str) -> None:
    [made, *_] = ways(name)
    assert seconds(lambda: made.judge(update_of_256())) < 0.1


@pytest.mark.parametrize("name", [name for name in NAMES if name != "composite"])
@pytest.mark.parametrize("piece", ["a", "1", "1 ", "ab ", "a@a.", "+1-", "\n", "é", "0" * 16 + " "])
def test_a_very_long_action_is_scored_in_linear_time(name: str, piece: str) -> None:
    text = piece * (100_000 // len(piece))
    episode = said(text, text + "!", answer="1", state_key="AB", potential=(0.0, 1.0))
    [made, *_] = ways(name)
    assert seconds(lambda: made([episode])) < 2.0
