"""Each component by itself, by numbers."""

from __future__ import annotations

from typing import Any

import pytest

from envs.core import Episode, Feature
from rewards.answer_match import AnswerMatch
from rewards.core import Score
from rewards.efficiency import Efficiency
from rewards.forbidden import Forbidden
from rewards.format import Format
from rewards.overlong import Overlong
from rewards.per_turn import PerTurn
from rewards.repetition import Repetition, looped_share
from rewards.turn_limit import TurnLimit
from rewards.turn_reward import TurnReward
from tests.rewards.played import said


def score(reward: Any, episode: Episode) -> Score:
    [one] = reward([episode])
    assert isinstance(one, Score) and set(one.components) == reward.component_names
    return one


# Where it is paid


@pytest.mark.parametrize(
    ("reward", "values"),
    [
        (lambda paid: TurnReward(paid=paid), (0.5, -0.25, 0.25)),
        (lambda paid: TurnLimit(free_turns=1, paid=paid), (0.0, -1.0, -1.0)),
        (lambda paid: Forbidden(kinds=(), patterns=("x",), paid=paid), (-1.0, 0.0, -1.0)),
        (lambda paid: Format(pattern="xx?", count="share", paid=paid), (1 / 3, 0.0, 1 / 3)),
        (lambda paid: Efficiency(paid=paid), (1 / 3, 0.0, 0.0)),
        (lambda paid: Repetition(ngram=1, scope="episode", loops=8, paid=paid), (0.0, 0.0, -1 / 3)),
    ],
    ids=["turn_reward", "turn_limit", "forbidden", "format", "efficiency", "repetition"],
)
def test_an_episode_gets_the_same_in_total_wherever_it_is_paid(reward: Any, values: tuple[float, ...]) -> None:
    episode = said("x", "y", "x", reward=(0.5, -0.25, 0.25), valid=(True, False, True), state_key=(1, 2, 1))
    by_turn, at_the_end = score(reward("turns"), episode), score(reward("outcome"), episode)
    assert by_turn.turn_rewards == pytest.approx(values) and by_turn.outcome == 0.0
    assert at_the_end.turn_rewards is None and at_the_end.outcome == pytest.approx(sum(values))
    assert by_turn.components == at_the_end.components
    made: PerTurn = reward("turns")
    assert made.gives_turn_rewards and not reward("outcome").gives_turn_rewards


# The answer


def answered(
    action: str, answer: str, match: Any = "exact", extract: str | None = None, tolerance: float = 0.0
) -> float:
    reward = AnswerMatch(match=match, tolerance=tolerance, extract=extract)
    return score(reward, said("hm", action, answer=answer)).outcome


def test_an_exact_answer_is_the_same_text_but_for_case_and_white_space() -> None:
    assert answered(" The  Hague\n", "the hague") == 1
    assert answered("Hague", "the hague") == 0
    assert answered("", "") == 0, "nothing was said"


@pytest.mark.parametrize(
    ("action", "answer", "right"),
    [
        ("It is 42.", "42", 1),
        ("first 41, no, 42", "42", 1),
        ("42, or rather 41", "42", 0),
        ("1,234,567.5", "1234567.5", 1),
        ("-3", "3", 0),
        ("4.2e1", "42", 1),
        (".5", "0.50", 1),
        ("no number", "42", 0),
        ("9" * 5000, "42", 0),
        ("1e9999", "42", 0),
        ("nan", "42", 0),
        ("٤٢", "42", 0),
    ],
)
def test_a_numeric_answer_is_the_last_number(action: str, answer: str, right: int) -> None:
    assert answered(action, answer, "numeric") == right


def test_a_number_may_be_off_by_the_tolerance() -> None:
    assert [answered(said_, "10", "numeric", tolerance=0.5) for said_ in ("9.5", "10.5", "10.6")] == [1, 1, 0]


def test_the_answer_is_taken_from_the_last_place_that_the_expression_finds() -> None:
    assert answered("answer: 4; answer: 5", "5", extract=r"answer: (\d)") == 1
    assert answered("4 5 six", "5", extract=r"\d") == 1
    assert answered("the answer is 5", "5", extract=r"answer: (\d)") == 0
    assert answered("<a></a>", "5", extract=r"<a>(\d)?</a>") == 0
    assert answered("so 7 = <a>1,000 km</a>", "1000", "numeric", extract="<a>(.*?)</a>") == 1


def test_only_the_last_action_is_the_answer() -> None:
    reward = AnswerMatch(match="exact", tolerance=0.0, extract=None)
    assert score(reward, said("42", "bye", answer="42")).outcome == 0
    assert score(reward, said(answer="42")).outcome == 0
    assert score(reward, said("", answer="42")).components == {"given": 0.0}
    assert reward.needs == {Feature.ANSWER}


def test_a_missing_or_unusable_reference_is_told_by_its_task() -> None:
    with pytest.raises(ValueError, match="episode of task 7 has no reference answer"):
        answered("42", None)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="reference answer of task 7 is 'x', which holds no number; write match=exact"):
        answered("42", "x", "numeric")


# Form


def test_form_is_what_the_environment_or_the_whole_expression_says() -> None:
    episode = said("<a>1</a>", "<a>2</a> or 3", "<a>3</a>", valid=(True, True, False))
    by_env = Format(pattern=None, count="share", paid="outcome")
    by_pattern = Format(pattern=r"<a>\d</a>", count="share", paid="outcome")
    assert by_env.needs == {Feature.VALIDITY} and by_pattern.needs == frozenset()
    assert score(by_env, episode).outcome == score(by_pattern, episode).outcome == pytest.approx(2 / 3)
    every = Format(pattern=r"<a>\d</a>", count="every", paid="outcome")
    assert score(by_pattern, said("so <a>1</a>")).outcome == score(every, episode).outcome == 0
    assert score(every, said("<a>1</a>", "<a>2</a>")).outcome == 1


def test_a_form_of_every_turn_cannot_be_paid_by_turn() -> None:
    with pytest.raises(ValueError, match="count=every is known when the episode is over"):
        Format(pattern=None, count="every", paid="turns")


@pytest.mark.parametrize(
    ("make", "key"),
    [
        (lambda text: Format(pattern=text, count="share", paid="outcome"), "pattern"),
        (lambda text: AnswerMatch(match="exact", tolerance=0.0, extract=text), "extract"),
        (lambda text: Forbidden(kinds=(), patterns=(text,), paid="outcome"), "patterns"),
    ],
)
def test_what_is_no_regular_expression_is_refused_by_its_key(make: Any, key: str) -> None:
    with pytest.raises(ValueError, match=rf"{key} is '\(a', which is no regular expression: missing \)"):
        make("(a")


# What must not be said


def test_a_leak_is_charged_once_a_turn_and_counted_by_kind() -> None:
    reward = Forbidden(kinds=("email", "phone"), patterns=("(?i)secret",), paid="turns")
    episode = said("ann@example.org and bo@example.org", "fine", "SECRET: 555-123-4567")
    assert score(reward, episode).turn_rewards == (-1.0, 0.0, -1.0)
    assert score(reward, episode).components == {"email": 2.0, "phone": 1.0, "pattern": 1.0}


def test_what_the_environment_says_is_no_leak() -> None:
    episode = said("fine")
    episode.turns[0].observation = episode.final_observation = "ann@example.org"
    assert score(Forbidden(kinds=("email",), patterns=(), paid="outcome"), episode).outcome == 0


def test_a_kind_that_is_not_named_is_allowed() -> None:
    assert score(Forbidden(kinds=("card",), patterns=(), paid="outcome"), said("ann@example.org")).outcome == 0


@pytest.mark.parametrize(
    ("patterns", "sentence"), [((), "both empty, so nothing is forbidden"), (("x*",), "matches empty text")]
)
def test_forbidding_nothing_or_everything_is_refused(patterns: tuple[str, ...], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        Forbidden(kinds=(), patterns=patterns, paid="outcome")


# Length


def test_turns_after_the_free_ones_cost_one_each() -> None:
    outcomes = [score(TurnLimit(free_turns=5, paid="outcome"), said(*"x" * n)).outcome for n in (1, 5, 6, 8)]
    assert outcomes == [0, 0, -1, -3]


def test_overlong_episodes_are_charged_as_in_dapo() -> None:
    reward = Overlong(limit=20480, buffer=4096)
    lengths = (16000, 16384, 18432, 20480)
    episodes = [said("x", "y", action_ids=([1] * 6000, [1] * (length - 6000))) for length in lengths]
    assert [one.outcome for one in reward(episodes)] == [0.0, 0.0, -0.5, -1.0]
    assert score(reward, said("x", action_ids=([1] * 30000,))).outcome == -1


def test_a_buffer_longer_than_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match="buffer is 5 and limit 4; write a buffer of 4 or less"):
        Overlong(limit=4, buffer=5)


# Waste


def test_a_turn_is_wasted_if_it_is_invalid_or_done_before_in_the_same_state() -> None:
    episode = said("up", "up", "up ", "??", "down", state_key=(1, 2, 1, 1, 1), valid=(True, True, True, False, True))
    one = score(Efficiency(paid="outcome"), episode)
    assert one.outcome == pytest.approx(3 / 5) and one.components == {"invalid": 1.0, "repeated": 1.0}


def test_without_state_keys_the_observation_is_the_state() -> None:
    episode = said("up", "up", "up")
    for turn, observation in zip(episode.turns, ("wall", "ice", "wall"), strict=True):
        turn.observation = observation
    assert score(Efficiency(paid="outcome"), episode).outcome == pytest.approx(2 / 3)


# Repetition


def repeated(*actions: str, scope: Any = "turn") -> float:
    return score(Repetition(ngram=2, scope=scope, loops=4, paid="outcome"), said(*actions)).components["repeated"]


def test_runs_of_words_said_again_are_counted_as_a_share() -> None:
    assert repeated("a b a b") == pytest.approx(1 / 3)  # ab ba ab
    assert repeated("A b a\nB") == pytest.approx(1 / 3)
    assert repeated("a b c d") == repeated("a") == repeated("") == 0
    assert repeated("a b", "a b") == 0
    assert repeated("a b", "a b", scope="episode") == pytest.approx(1 / 2)


@pytest.mark.parametrize(
    ("text", "share"),
    [
        ("", 0.0),
        ("abcabcabc", 0.0),  # three times, and four make a loop
        ("abcabcabcabc", 9 / 12),
        ("so abcabcabcabc", 9 / 15),
        ("aaaa", 3 / 4),
        ("abcabcabcabc and on", 0.0),  # it went on
        ("no no no no no no", 14 / 17),
        ("the cat sat on the mat", 0.0),
    ],
)
def test_a_text_that_ends_in_a_loop_is_looped_by_the_share_that_says_nothing_new(text: str, share: float) -> None:
    assert looped_share(text, 4) == pytest.approx(share)


def test_the_larger_of_both_shares_is_charged_and_an_ordinary_text_costs_nothing() -> None:
    reward = Repetition(ngram=2, scope="turn", loops=4, paid="turns")
    one = score(reward, said("xyxyxyxyxy", "a b a b", "take the parcel to the desk"))
    assert one.turn_rewards == pytest.approx((-8 / 10 / 3, -1 / 3 / 3, 0.0))
    assert one.components == pytest.approx({"looped": 0.8 / 3, "repeated": 1 / 9})
