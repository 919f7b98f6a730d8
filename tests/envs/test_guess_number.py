"""Guess the number: hints, bits of information as turn rewards, binary search."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.guess_number import GuessNumber
from tests.envs.test_conformance import build


def with_secret(secret: int, show_interval: bool = False) -> GuessNumber:
    env = GuessNumber(show_interval=show_interval)
    env.restore((1, 32, secret, False))
    return env


def test_the_yaml_gives_the_defaults_of_the_class() -> None:
    assert build("guess_number") == GuessNumber()


def test_hints_say_where_the_secret_is() -> None:
    assert GuessNumber().reset(0) == "1..32?"
    env = with_secret(20)
    assert [env.step(guess).observation for guess in ("16", "24", "20")] == ["higher", "lower", "correct"]


def test_the_interval_is_shown_where_asked_for() -> None:
    env = with_secret(20, show_interval=True)
    assert [env.step(guess).observation for guess in ("16", "24", "20")] == ["higher 17..32", "lower 17..23", "correct"]


def test_the_turn_reward_is_the_share_of_the_bits_that_were_learned() -> None:
    env = with_secret(20)
    rewards = [env.step(guess).reward for guess in ("16", "8", "24", "20")]
    assert rewards == pytest.approx([1 / 5, 0.0, math.log2(16 / 7) / 5, math.log2(7) / 5])
    assert sum(rewards) == pytest.approx(1.0)


def test_a_wasted_guess_is_valid_teaches_nothing_and_is_signalled() -> None:
    env = with_secret(20)
    assert env.step("16").signals == {"candidates": 16.0, "possible": 1.0}
    again = env.step("10")
    assert again.valid and again.observation == "higher" and again.reward == 0
    assert again.signals == {"candidates": 16.0, "possible": 0.0}


@given(secret=st.integers(1, 32), guesses=st.lists(st.integers(1, 32), max_size=12))
def test_turn_rewards_are_never_negative_and_sum_to_at_most_one(secret: int, guesses: list[int]) -> None:
    env, total = with_secret(secret), 0.0
    for guess in guesses:
        step = env.step(str(guess))
        assert step.reward >= 0
        total += step.reward
        assert step.success == step.done == (guess == secret)
        if step.done:
            assert total == pytest.approx(1.0)
            break
    assert total <= 1 + 1e-9


@pytest.mark.parametrize("high", [2, 3, 32, 100, 1000])
def test_the_expert_finds_every_secret_within_binary_search(high: int) -> None:
    for secret in range(1, high + 1):
        env = GuessNumber(high=high, max_turns=12)
        env.restore((1, high, secret, False))
        turns = 0
        while (guess := env.expert()) is not None:
            env.step(guess)
            turns += 1
        assert turns <= high.bit_length()


def test_every_secret_is_drawn() -> None:
    env = GuessNumber()
    secrets = []
    for seed in range(640):
        env.reset(seed)
        secrets.append((env.privileged() or "").split(";")[0])
    counts = [secrets.count(f"The number is {secret}") for secret in range(1, 33)]
    assert sum(counts) == 640 and min(counts) >= 5


@pytest.mark.parametrize("action", ["17", " 17\n"])
def test_a_number_with_space_around_it_is_accepted(action: str) -> None:
    assert with_secret(20).step(action).valid


@pytest.mark.parametrize("action", ["0", "33", "017", "+17", "17.0", "1_7", "17 18", "seventeen", "I guess 17", "１７"])
def test_anything_but_a_number_in_range_is_told_what_to_say(action: str) -> None:
    step = with_secret(20).step(action)
    assert not step.valid
    assert step.observation == "Say a number from 1 to 32."


def test_two_routes_to_the_same_knowledge_give_one_key() -> None:
    first, second = with_secret(20), with_secret(20)
    for guess in ("16", "24"):
        first.step(guess)
    for guess in ("24", "30", "5", "16"):
        second.step(guess)
    assert first.state_key() == second.state_key()
    assert with_secret(21).state_key() != with_secret(20).state_key()


def test_a_step_after_the_end_is_refused() -> None:
    env = with_secret(20)
    env.step("20")
    with pytest.raises(RuntimeError, match="call reset"):
        env.step("20")


@pytest.mark.parametrize(
    ("settings", "advice"), [({"high": 1}, "from 2"), ({"high": 1000}, "write max_turns: 11"), ({"max_turns": 5}, "7")]
)
def test_settings_that_binary_search_cannot_win_are_refused(settings: dict[str, int], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        GuessNumber(**settings)  # type: ignore[arg-type]
