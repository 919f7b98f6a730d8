"""A mixture plays its members by seed and can do what all of them can."""

from __future__ import annotations

import pytest

from envs.core import Feature
from envs.frozen_lake import FrozenLake
from envs.guess_number import GuessNumber
from envs.mixture import Mixture
from tests.envs.broken import NoisyText, Plain


def both(lake: float = 1.0, guess: float = 1.0) -> Mixture:
    return Mixture({"lake": FrozenLake(), "guess": GuessNumber()}, {"lake": lake, "guess": guess})


def test_weights_are_the_shares_of_the_episodes() -> None:
    env = both(3.0, 1.0)
    lakes = sum(env.reset(seed) != "1..32?" for seed in range(2000))
    assert lakes / 2000 == pytest.approx(0.75, abs=0.04)
    assert {both(0.0, 1.0).reset(seed) for seed in range(20)} == {"1..32?"}


def test_an_episode_is_the_members_own_episode_of_that_seed() -> None:
    env = both()
    for seed in range(20):
        first = env.reset(seed)
        member = GuessNumber() if first == "1..32?" else FrozenLake()
        assert first == member.reset(seed)
        assert env.expert() == member.expert()
        assert env.step(env.expert() or "") == member.step(member.expert() or "")


def test_instructions_turn_limit_and_keys_are_those_of_the_environment_in_play() -> None:
    env = both()
    assert (env.instructions, env.max_turns) == ("", 12)
    for seed in range(20):
        guessing = env.reset(seed) == "1..32?"
        assert env.max_turns == (7 if guessing else 12)
        assert ("secret" in env.instructions) == guessing
        assert env.task_key() == (None if guessing else f"lake:{env.environments['lake'].task_key()}")
        assert env.state_key() == (("guess" if guessing else "lake"), env._playing.state_key())


def test_the_choice_of_the_member_says_nothing_about_its_task() -> None:
    """Were the choice drawn from the member's own stream, a member with a small share would get small secrets only."""
    guess = GuessNumber()
    env = Mixture({"guess": guess, "lake": FrozenLake()}, {"guess": 1.0, "lake": 3.0})
    secrets = [guess.state_key()[2] for seed in range(1000) if env.reset(seed) == "1..32?"]  # type: ignore[index]
    assert sum(secret > 16 for secret in secrets) / len(secrets) == pytest.approx(0.5, abs=0.12)


def test_answer_and_potential_are_those_of_the_environment_in_play_if_all_can_tell_them() -> None:
    guesses = Mixture({"small": GuessNumber(high=8), "large": GuessNumber()}, {"small": 1.0, "large": 1.0})
    for seed in range(20):
        guesses.reset(seed)
        assert (guesses.answer(), guesses.potential()) == (guesses._playing.answer(), -1.0)
    mixed = both()
    assert Feature.POTENTIAL in mixed.features and Feature.ANSWER not in mixed.features
    for seed in range(20):
        mixed.reset(seed)
        assert mixed.answer() is None and mixed.potential() == -1.0
    plain = Mixture({"guess": GuessNumber(), "plain": Plain()}, {"guess": 1.0, "plain": 0.0})
    plain.reset(0)
    assert plain.potential() is None and plain.answer() is None


def test_turn_rewards_of_a_mixture_add_up_to_what_any_of_its_members_allows() -> None:
    lake, guess = FrozenLake().turn_totals, GuessNumber().turn_totals
    assert lake[0] == pytest.approx((1 - 16 / 6, 11 / 12)) and lake[1] == (1.0, 1.0) and guess == ((0, 1), (1, 1))
    assert both().turn_totals == ((lake[0][0], 1.0), (1.0, 1.0))
    assert Mixture({"lake": FrozenLake(), "plain": Plain()}, {"lake": 1.0, "plain": 1.0}).turn_totals is None


def test_a_fresh_copy_has_members_of_its_own() -> None:
    env = both()
    copy = env.fresh()
    assert copy == env
    assert all(copy.environments[name] is not env.environments[name] for name in env.environments)


def test_features_are_those_that_all_members_have() -> None:
    assert both().features == frozenset(Feature) - {Feature.FIXED_TURNS, Feature.ANSWER}
    poor = Mixture({"lake": FrozenLake(), "noise": NoisyText()}, {"lake": 1.0, "noise": 0.0})
    assert poor.features == {Feature.TURN_REWARDS}
    poor.reset(0)  # plays the lake, which could do more
    assert [poor.state_key(), poor.expert(), poor.privileged()] == [None] * 3
    for fork in (poor.snapshot, lambda: poor.restore(("lake", None))):
        with pytest.raises(TypeError, match="does not declare Feature.SNAPSHOT"):
            fork()


def test_mixtures_nest() -> None:
    env = Mixture({"inner": both(), "plain": Plain()}, {"inner": 1.0, "plain": 1.0})
    firsts = {env.fresh().reset(seed)[:2] for seed in range(40)}
    assert {"re", "1.", "@."} <= firsts


@pytest.mark.parametrize(
    ("weights", "advice"),
    [
        ({"lake": 1.0}, "one weight for every environment"),
        ({"lake": 1.0, "guess": -1.0}, "at least 0"),
        ({"lake": 0.0, "guess": 0.0}, "not all of them 0"),
    ],
)
def test_weights_that_do_not_fit_are_refused(weights: dict[str, float], advice: str) -> None:
    with pytest.raises(ValueError, match=advice):
        Mixture({"lake": FrozenLake(), "guess": GuessNumber()}, weights)


def test_an_empty_mixture_is_refused() -> None:
    with pytest.raises(ValueError, match="at least one entry under environments"):
        Mixture()
