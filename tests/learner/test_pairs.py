"""Preference pairs: what may stand in a file, who belongs to which part, and that they are fed like what is played."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from transformers import AutoTokenizer

from envs.core import Environment, Episode, StopReason
from envs.frozen_lake import FrozenLake
from envs.guess_number import GuessNumber
from evo_hpo.config.errors import UserError
from evo_hpo.learner.pairs import Message, Pair, episodes_of, read_pairs, split
from evo_hpo.policy.base import TINY
from evo_hpo.policy.chat import ChatFormat
from evo_hpo.policy.sampling import Sampling
from evo_hpo.rollout.fused import FusedSampler
from evo_hpo.rollout.pool import EnvironmentPool
from evo_hpo.rollout.runner import Assignment, play
from tests.building import config, policy_of


def user(text: str) -> dict[str, str]:
    return {"role": "user", "content": text}


def assistant(text: str) -> dict[str, str]:
    return {"role": "assistant", "content": text}


def read(folder: Path, *rows: Any) -> list[Pair]:
    path = folder / "pairs.jsonl"
    path.write_text("".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows))
    return read_pairs(str(path))


def words(messages: Sequence[Message]) -> str:
    return " ".join(f"{message.role[0]}:{message.content}" for message in messages)


GOOD = {"prompt": [user("2+2?")], "chosen": [assistant("4")], "rejected": [assistant("5")]}


# ---- files ----


@pytest.mark.parametrize(
    "row",
    [
        GOOD,
        {"prompt": "2+2?", "chosen": "4", "rejected": "5"},
        {"prompt": "2+2?", "chosen": [assistant("4")], "rejected": [assistant("5")]},
        {"chosen": [user("2+2?"), assistant("4")], "rejected": [user("2+2?"), assistant("5")]},
        {"prompt": "2+2?", "chosen": [user("2+2?"), assistant("4")], "rejected": [user("2+2?"), assistant("5")]},
        {
            "prompt": [user("2+2?")],
            "chosen": [user("2+2?"), assistant("4")],
            "rejected": [user("2+2?"), assistant("5")],
        },
        GOOD | {"score_chosen": 8.5, "messages": None},
    ],
    ids=["messages", "strings", "mixed", "no prompt", "string repeated", "prompt repeated", "other keys"],
)
def test_every_way_to_write_a_pair_reads_the_same(tmp_path: Path, row: dict[str, Any]) -> None:
    [pair] = read(tmp_path, row)
    question, right, wrong = Message("user", "2+2?"), Message("assistant", "4"), Message("assistant", "5")
    assert pair == Pair((question,), (right,), (wrong,), "pairs.jsonl:1")


def test_the_prompt_is_what_both_conversations_begin_with(tmp_path: Path) -> None:
    common = [{"role": "system", "content": "Be kind."}, user("a"), assistant("b"), user("c")]
    [pair] = read(tmp_path, {"chosen": [*common, assistant("d")], "rejected": [*common, assistant("e")]})
    assert (words(pair.prompt), words(pair.chosen)) == ("s:Be kind. u:a a:b u:c", "a:d")


def test_a_conversation_that_only_goes_on_longer_keeps_an_answer_on_both_sides(tmp_path: Path) -> None:
    short = [user("a"), assistant("b")]
    [pair] = read(tmp_path, {"chosen": [*short, user("c"), assistant("d")], "rejected": short})
    assert (words(pair.prompt), words(pair.chosen), words(pair.rejected)) == ("u:a", "a:b u:c a:d", "a:b")


def test_what_a_tool_says_is_an_observation(tmp_path: Path) -> None:
    rest = [assistant("look"), {"role": "tool", "content": "a door"}, assistant("open")]
    [pair] = read(tmp_path, GOOD | {"chosen": rest})
    assert words(pair.chosen) == "a:look u:a door a:open"


def test_blank_lines_are_skipped_and_lines_keep_their_numbers(tmp_path: Path) -> None:
    pairs = read(tmp_path, "\ufeff" + json.dumps(GOOD), "", GOOD | {"task": "sums"})
    assert [(pair.where, pair.task) for pair in pairs] == [("pairs.jsonl:1", None), ("pairs.jsonl:3", "sums")]


def test_a_text_that_no_tokenizer_takes_is_read_as_the_rollout_does(tmp_path: Path) -> None:
    [pair] = read(tmp_path, {"prompt": "2\ud8002", "chosen": "4", "rejected": "5"})
    assert pair.prompt[0].content == "2?2"


@pytest.mark.parametrize(
    ("row", "sentence"),
    [
        ("nonsense", "this is no JSON .*; write one object on the line"),
        ("[" * 100_000, "this is no JSON"),
        ([GOOD], "this is no JSON object; write {"),
        ({"chosen": GOOD["chosen"]}, "rejected is missing"),
        (GOOD | {"chosen": None}, "chosen is missing"),
        (GOOD | {"chosen": []}, "chosen is empty; write the assistant's answer"),
        ({"prompt": "2+2?", "chosen": "4", "rejected": ""}, "rejected is empty"),
        (GOOD | {"chosen": 4}, "chosen is a number; write a list of messages"),
        (GOOD | {"rejected": GOOD["chosen"]}, "chosen and rejected are the same"),
        (GOOD | {"chosen": [user("4")]}, "chosen has no assistant message"),
        (GOOD | {"chosen": [{"role": "bot", "content": "4"}]}, "message 1 of chosen has the role 'bot'; write one of "),
        (GOOD | {"chosen": [{"role": "assistant"}]}, "message 1 of chosen has nothing as content; write a string"),
        (GOOD | {"chosen": [assistant("4") | {"tool_calls": [{}]}]}, "message 1 of chosen has tool_calls"),
        (GOOD | {"chosen": ["4"]}, "message 1 of chosen is a string without a role"),
        (GOOD | {"chosen": "4"}, "write all three as strings, or all as lists"),
        ({"chosen": "4", "rejected": "5"}, "a plain string takes a prompt"),
        (GOOD | {"prompt": {"role": "user"}}, "prompt is an object; write a list of messages or a string"),
        ({"chosen": [user("a"), assistant("4")], "rejected": [user("b"), assistant("5")]}, "different questions"),
        ({"chosen": GOOD["chosen"], "rejected": GOOD["rejected"]}, "different questions"),
        (GOOD | {"prompt": [assistant("hi"), user("a")]}, "chosen begins with the assistant, which answers nothing"),
        (GOOD | {"rejected": [assistant("5"), assistant("6")]}, "rejected has two assistant messages in a row"),
        (GOOD | {"prompt": [user("a"), {"role": "system", "content": "b"}]}, "chosen has a system message after"),
        (GOOD | {"task": 3}, "task is 3; write the name"),
    ],
)  # fmt: skip
def test_a_wrong_line_is_named_with_what_to_write(tmp_path: Path, row: Any, sentence: str) -> None:
    with pytest.raises(UserError, match=f"^pairs.jsonl:2: .*{sentence}"):
        read(tmp_path, GOOD, row, GOOD)


def test_a_line_that_is_not_utf8_is_named(tmp_path: Path) -> None:
    path = tmp_path / "latin.jsonl"
    path.write_bytes(json.dumps(GOOD, ensure_ascii=False).replace("4", "\xe4").encode("latin-1"))
    with pytest.raises(UserError, match="latin.jsonl:1: this is no JSON"):
        read_pairs(str(path))


def test_of_many_wrong_lines_the_first_five_are_named_and_all_are_counted(tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        read(tmp_path, GOOD, *["nonsense"] * 7)
    lines = str(refused.value).splitlines()
    assert [line.partition(": ")[0] for line in lines[:5]] == [f"pairs.jsonl:{number}" for number in range(2, 7)]
    assert lines[5] == f"7 lines of {tmp_path / 'pairs.jsonl'} are wrong; the first 5 are named" and len(lines) == 6


def test_what_holds_no_pairs_is_refused_with_what_to_name(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="there is no .*nothing.jsonl; name a JSONL file of pairs"):
        read_pairs(str(tmp_path / "nothing.jsonl"))
    with pytest.raises(UserError, match="holds no pair; write one JSON object a line"):
        read(tmp_path, "", "")
    with pytest.raises(UserError, match="holds no dataset; name a JSONL file"):
        read_pairs(str(tmp_path))


def test_a_dataset_without_its_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "dataset_info.json").write_text("{}")
    monkeypatch.setitem(sys.modules, "datasets", None)  # which makes the import fail, installed or not
    with pytest.raises(UserError, match="`pip install datasets`, or write the pairs as JSONL"):
        read_pairs(str(tmp_path))


def test_several_datasets_in_a_folder_are_told_apart_by_name(tmp_path: Path) -> None:
    (tmp_path / "dataset_dict.json").write_text('{"splits": ["test", "train"]}')
    for name in ("test", "train"):
        (tmp_path / name).mkdir()
    with pytest.raises(UserError, match=f"name one of them: {tmp_path}/test, {tmp_path}/train"):
        read_pairs(str(tmp_path))


# ---- parts ----


def asked(count: int, answers: int = 2, task: str | None = None) -> list[Pair]:
    return [
        Pair(
            (Message("user", f"{q}?"),),
            (Message("assistant", f"{a}"),),
            (Message("assistant", "no"),),
            f"{q}.{a}",
            task,
        )
        for q in range(count)
        for a in range(answers)
    ]


def test_no_prompt_is_in_two_parts_and_the_shares_are_those_asked_for() -> None:
    parts = split(asked(1000), 0.4)
    prompts = {name: {pair.prompt for pair in part} for name, part in parts.items()}
    assert sum(map(len, prompts.values())) == 1000
    assert {name: round(len(found) / 1000, 1) for name, found in prompts.items()} == {
        "train": 0.6, "fitness": 0.2, "final": 0.2,
    }  # fmt: skip


def test_parts_depend_on_nothing_but_the_prompt() -> None:
    pairs = asked(40)
    mixed = random.Random(1).sample(pairs, len(pairs)) + asked(60)[80:]
    for name, part in split(pairs, 0.5).items():
        assert {pair.where for pair in part} <= {pair.where for pair in split(mixed, 0.5)[name]}


def test_where_tasks_begin_alike_pairs_are_split_by_their_task() -> None:
    prompt, no = (Message("user", "1..32?"),), (Message("assistant", "no"),)
    pairs = [Pair(prompt, (Message("assistant", f"{a}"),), no, "", f"secret {t}") for t in range(30) for a in range(3)]
    parts = split(pairs, 0.5)
    tasks = [{pair.task for pair in part} for part in parts.values()]
    assert sum(map(len, tasks)) == 30 and all(tasks)


def test_an_empty_part_is_refused() -> None:
    with pytest.raises(UserError, match="the 2 pairs have 1 different prompts, .* none of them falls"):
        split(asked(1), 0.5)


# ---- tokens ----


@pytest.fixture(scope="module")
def chat() -> ChatFormat:
    return ChatFormat(AutoTokenizer.from_pretrained(TINY))


def fed(episode: Episode) -> list[tuple[list[int], list[int]]]:
    return [(turn.observation_ids, turn.action_ids) for turn in episode.turns]


@pytest.mark.parametrize(
    ("environment", "instructions"), [(FrozenLake(), False), (FrozenLake(), True), (GuessNumber(), False)]
)
def test_a_pair_is_fed_as_the_rollout_fed_its_episodes(
    tmp_path: Path, environment: Environment, instructions: bool
) -> None:
    policy = policy_of(config(), 1)
    sampler = FusedSampler(policy, Sampling.same(1, 1.0), 2, 6, 512)
    assignments = [Assignment(0, 0, 3, key) for key in range(8)]
    form = policy.base.chat
    pool = EnvironmentPool(threads=1, limit=5.0)
    played = play(sampler, form, environment, assignments, pool, 6, 512, instructions, 0)
    # an action that was cut off, or spelled with other tokens than its text has, cannot come back from the text
    played = [one for one in played if all(form.action(turn.action) == turn.action_ids for turn in one.turns)]
    first, other = played[0], next(one for one in played if fed(one) != fed(played[0]))
    environment.reset(3)
    system = [{"role": "system", "content": environment.instructions}] if instructions else []
    sides = [
        [m for turn in episode.turns for m in (user(turn.observation), assistant(turn.action))]
        for episode in (first, other)
    ]
    [pair] = read(
        tmp_path, {"chosen": [*system, *sides[0]], "rejected": [*system, *sides[1]], "prompt": [*system, sides[0][0]]}
    )
    chosen, rejected = episodes_of(pair, form, group=5, max_context=512, member=2)
    assert fed(chosen) == fed(first) and fed(rejected) == fed(other)
    assert [(turn.observation, turn.action) for turn in chosen.turns] == [
        (t.observation, t.action) for t in first.turns
    ]
    assert all(turn.logprobs == [0.0] * len(turn.action_ids) for turn in chosen.turns + rejected.turns)
    assert {(one.member, one.group, one.task, one.stop) for one in (chosen, rejected)} == {
        (2, 5, 5, StopReason.TERMINATED)
    }


def conversation(*texts: str) -> tuple[Message, ...]:
    return tuple(Message(("user", "assistant")[place % 2], text) for place, text in enumerate(texts))


def test_what_the_assistant_said_in_the_prompt_is_fed_and_no_action(chat: ChatFormat) -> None:
    whole = conversation("a", "left", "b", "up")
    pair = Pair(whole[:3], whole[3:], conversation("b", "down")[1:], "")
    chosen, _ = episodes_of(pair, chat, 0, 512)
    before = chat.first("a") + chat.action("left") + chat.following("b")
    assert fed(chosen) == [(before, chat.action("up"))]


def test_observations_in_a_row_are_fed_as_one(chat: ChatFormat) -> None:
    tools = (Message("user", "one"), Message("user", "two"))
    pair = Pair(tools, conversation("", "up")[1:], conversation("", "down")[1:], "")
    assert fed(episodes_of(pair, chat, 0, 512)[0]) == [(chat.first("one\n\ntwo"), chat.action("up"))]


def test_what_came_after_the_last_action_is_kept_and_not_fed(chat: ChatFormat) -> None:
    pair = Pair(conversation("a"), conversation("a", "up", "won")[1:], conversation("a", "down")[1:], "")
    chosen, rejected = episodes_of(pair, chat, 0, 512)
    assert len(chosen.turns) == 1 and (chosen.final_observation, rejected.final_observation) == ("won", "")


def test_of_an_episode_that_is_too_long_the_leading_turns_stay(chat: ChatFormat) -> None:
    pair = Pair(conversation("a"), conversation("a", "up", "b", "up", "c", "up")[1:], conversation("a", "down")[1:], "")
    whole, _ = episodes_of(pair, chat, 0, 512)
    two = sum(len(ids) for turn in fed(whole)[:2] for ids in turn)
    for limit in (two, two + 1):
        chosen, rejected = episodes_of(pair, chat, 0, limit)
        assert fed(chosen) == fed(whole)[:2] and chosen.stop is StopReason.CONTEXT_OVERFLOW
        assert rejected.stop is StopReason.TERMINATED
    assert len(episodes_of(pair, chat, 0, two - 1)[0].turns) == 1


def test_a_pair_of_which_nothing_fits_or_no_difference_fits_is_named(chat: ChatFormat) -> None:
    up = conversation("a", "up", "b", "up")
    pair = Pair(up[:1], up[1:], (*up[1:3], Message("assistant", "down")), "pairs.jsonl:17")
    one = len(chat.first("a") + chat.action("up"))
    with pytest.raises(UserError, match=f"pairs.jsonl:17: both sides are the same up to rollout.max_context={one}"):
        episodes_of(pair, chat, 0, one)
    with pytest.raises(UserError, match=f"pairs.jsonl:17: .* are {one} tokens, and rollout.max_context is {one - 1}"):
        episodes_of(pair, chat, 0, one - 1)
