"""Preference pairs: two conversations that begin alike, one of them better. Files of them, their parts, their tokens.

The format is the conversational preference format of Hugging Face TRL, one JSON object a line:

    {"prompt": [{"role": "user", "content": "2+2?"}], "chosen": [{"role": "assistant", "content": "4"}], "rejected": …}

Without a prompt, the messages that both sides begin with are the prompt. A prompt may also be a plain string, and so
may both answers to it. `task` is this project's own key, and optional: see `split`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from envs.core import Episode, StopReason, Turn
from evo_hpo.config.errors import UserError
from evo_hpo.policy.chat import ChatFormat, encodable
from evo_hpo.policy.noise import key

ROLES = ("system", "user", "assistant")
OBSERVED = {"tool": "user"}  # what a tool says is an observation
SHAPE = '{"prompt": [{"role": "user", "content": …}], "chosen": [{"role": "assistant", "content": …}], "rejected": […]}'
NAMED = 5  # wrong lines that are described one by one
PARTS = {"train": "training", "fitness": "measuring", "final": "the result"}


@dataclass(frozen=True)
class Message:
    """One message of a conversation."""

    role: str  # system | user | assistant
    content: str


@dataclass(frozen=True)
class Pair:
    """Two continuations of one prompt.

    The assistant's messages in `chosen` and `rejected` are the actions of an episode, the user's between them the
    observations. What the assistant says in the prompt is only read.
    """

    prompt: tuple[Message, ...]
    chosen: tuple[Message, ...]
    rejected: tuple[Message, ...]
    where: str  # file and line
    task: str | None = None  # what the pair is split by instead of its prompt


def read_pairs(path: str) -> list[Pair]:
    """All pairs of a JSONL file, or of a folder that `datasets.Dataset.save_to_disk` wrote. Blank lines are skipped.

    Raises:
        UserError: there are none, or some are wrong: the first five are named, each with its line and what to write.
    """
    source = Path(path)
    pairs, wrong = [], []
    for number, row in _rows(source):
        where = f"{source.name}:{number}"
        try:
            pairs.append(_pair(_parsed(row) if isinstance(row, bytes) else row, where))
        except ValueError as error:
            wrong.append(f"{where}: {error}")
    if wrong:
        more = [f"{len(wrong)} lines of {path} are wrong; the first {NAMED} are named"] if len(wrong) > NAMED else []
        raise UserError("\n".join(wrong[:NAMED] + more))
    if not pairs:
        raise UserError(f"{path} holds no pair; write one JSON object a line: {SHAPE}")
    return pairs


def split(pairs: Sequence[Pair], held_out: float) -> dict[str, list[Pair]]:
    """The pairs for training, for measuring, and for the result: `train`, `fitness` and `final`.

    Pairs of one prompt stay together, whatever else the file holds and in whatever order. Where all tasks of an
    environment begin alike, prompts tell nothing apart: pairs that name their `task` go by that.

    Args:
        held_out: share that is kept from training; half of it is for measuring, half for the result.
    Raises:
        UserError: a part is empty.
    """
    parts: dict[str, list[Pair]] = {name: [] for name in PARTS}
    identities = set()
    for pair in pairs:
        identity = pair.task or tuple((message.role, message.content) for message in pair.prompt)
        identities.add(identity)
        place = key("pairs", identity) / 2**64  # not the key of runtime.tasks, whose held-out tasks give no pairs
        parts["fitness" if place < held_out / 2 else "final" if place < held_out else "train"].append(pair)
    for name, part in parts.items():
        if not part:
            raise UserError(
                f"the {len(pairs)} pairs have {len(identities)} different prompts, and with held_out={held_out:g} none "
                f"of them falls into the part for {PARTS[name]}; add pairs with other prompts, or change held_out"
            )
    return parts


def episodes_of(pair: Pair, chat: ChatFormat, group: int, max_context: int, member: int = 0) -> tuple[Episode, Episode]:
    """The chosen and the rejected side as episodes, fed as `rollout.runner` feeds what is played.

    Of a side that is longer than `max_context` tokens, the leading turns that fit are kept. Every log-probability is
    0: nobody sampled these actions.

    Raises:
        UserError: not even the first action fits, or what fits is the same on both sides.
    """
    chosen, rejected = (_episode(pair, side, chat, group, max_context, member) for side in (pair.chosen, pair.rejected))
    if _ids(chosen) == _ids(rejected):
        raise UserError(
            f"{pair.where}: both sides are the same up to rollout.max_context={max_context} tokens; raise it, or leave "
            "the pair out"
        )
    return chosen, rejected


def _episode(
    pair: Pair, side: tuple[Message, ...], chat: ChatFormat, group: int, max_context: int, member: int
) -> Episode:
    episode = Episode(group, member, group, stop=StopReason.TERMINATED)
    instructions, observation, fed, used, begun = "", "", list[int](), 0, False
    only_read = len(_joined(pair.prompt))
    for place, message in enumerate(_joined(pair.prompt + side)):
        if message.role == "system":
            instructions = message.content
        elif message.role == "user":
            observation = message.content
            fed += chat.following(observation) if begun else chat.first(observation, instructions)
            begun = True
        elif place < only_read:
            fed += chat.action(message.content)
        else:
            action_ids = chat.action(message.content)
            used += len(fed) + len(action_ids)
            if used > max_context:
                episode.stop = StopReason.CONTEXT_OVERFLOW
                break
            episode.turns.append(Turn(observation, message.content, fed, action_ids, [0.0] * len(action_ids)))
            fed, observation = [], ""
    if not episode.turns:
        raise UserError(
            f"{pair.where}: the prompt and the first answer are {used} tokens, and rollout.max_context is "
            f"{max_context}; raise it, or leave the pair out"
        )
    episode.final_observation = observation
    return episode


def _ids(episode: Episode) -> list[list[int]]:
    return [ids for turn in episode.turns for ids in (turn.observation_ids, turn.action_ids)]


def _joined(messages: Sequence[Message]) -> list[Message]:
    """Observations that follow one another (of several tools, say) as one message."""
    joined: list[Message] = []
    for message in messages:
        if joined and joined[-1].role == message.role == "user":
            joined[-1] = Message("user", f"{joined[-1].content}\n\n{message.content}")
        else:
            joined.append(message)
    return joined


# ---- files ----


def _rows(source: Path) -> Iterator[tuple[int, Any]]:
    """(number, line as bytes or row as dictionary); numbers count from 1."""
    if source.is_dir():
        yield from enumerate(_dataset(source), start=1)
        return
    try:
        with open(source, "rb") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    yield number, line
    except FileNotFoundError as error:
        raise UserError(
            f"there is no {source}; name a JSONL file of pairs, such as `python -m evo_hpo prefs` writes from run "
            "folders, or a folder that datasets.Dataset.save_to_disk wrote"
        ) from error
    except OSError as error:
        raise UserError(f"{source} cannot be read ({error.strerror}); name a JSONL file of pairs") from error


def _dataset(folder: Path) -> Iterable[Any]:
    if (folder / "dataset_dict.json").is_file():
        parts = ", ".join(sorted(str(part) for part in folder.iterdir() if part.is_dir()))
        raise UserError(f"{folder} holds several datasets; name one of them: {parts}")
    if not (folder / "dataset_info.json").is_file():
        raise UserError(f"{folder} holds no dataset; name a JSONL file, or what datasets.Dataset.save_to_disk wrote")
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise UserError(
            f"{folder} is a folder, and reading datasets takes one more package; `pip install datasets`, or write the "
            "pairs as JSONL (datasets.Dataset.to_json)"
        ) from error
    try:
        rows: Iterable[Any] = load_from_disk(str(folder))
    except Exception as error:  # whatever that library makes of a folder that was altered
        raise UserError(
            f"{folder} cannot be read ({type(error).__name__}: {error}); write it again with save_to_disk"
        ) from error
    return rows


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"this is no JSON ({error}); write one object on the line: {SHAPE}") from error


def _pair(row: Any, where: str) -> Pair:
    """The pair of one line.

    Raises:
        ValueError: what is wrong, and what to write instead.
    """
    if not isinstance(row, dict):
        raise ValueError(f"this is no JSON object; write {SHAPE}")
    for name in ("chosen", "rejected"):
        if row.get(name) is None:
            raise ValueError(f"{name} is missing; write {SHAPE}")
        if not isinstance(row[name], str | list):
            raise ValueError(f"{name} is {_kind(row[name])}; write a list of messages, or a string beside a prompt")
        if not row[name]:
            raise ValueError(f"{name} is empty; write the assistant's answer")
    task = row.get("task")
    if task is not None and (not isinstance(task, str) or not task):
        raise ValueError(f"task is {task!r}; write the name of what the pair is about, or leave it out")
    prompt, chosen, rejected = _divided(row.get("prompt"), row["chosen"], row["rejected"])
    if not any(message.role == "user" for message in prompt):
        raise ValueError(
            "chosen and rejected do not begin with the same user message, so they answer different questions; write "
            "the question into both, or once as prompt"
        )
    for name, side in (("chosen", chosen), ("rejected", rejected)):
        if not any(message.role == "assistant" for message in side):
            raise ValueError(f"{name} has no assistant message, so there is nothing to prefer; write one")
        _check_order([*prompt, *side], name)
    if chosen == rejected:
        raise ValueError("chosen and rejected are the same; write two different answers, or leave the line out")
    return Pair(prompt, chosen, rejected, where, task)


def _divided(prompt: Any, chosen: Any, rejected: Any) -> tuple[tuple[Message, ...], ...]:
    """Prompt, chosen and rejected, with nothing of the prompt in the last two."""
    if isinstance(chosen, str) or isinstance(rejected, str):
        if not isinstance(prompt, str) or not isinstance(chosen, str) or not isinstance(rejected, str):
            raise ValueError(
                "an answer that is a plain string takes a prompt and another answer that are; write all three as "
                "strings, or all as lists of messages"
            )
        return (Message("user", encodable(prompt)),), *(
            (Message("assistant", encodable(s)),) for s in (chosen, rejected)
        )
    sides = _messages(chosen, "chosen"), _messages(rejected, "rejected")
    if isinstance(prompt, str):
        if all(side[0].role == "assistant" for side in sides):
            return (Message("user", encodable(prompt)),), *sides
        prompt = None  # the whole conversation is there; the string repeats a part of it (as UltraFeedback has it)
    if prompt is not None and not isinstance(prompt, list):
        raise ValueError(f"prompt is {_kind(prompt)}; write a list of messages or a string, or leave it out")
    if prompt:
        said = _messages(prompt, "prompt")
        repeated = all(side[: len(said)] == said for side in sides)
        return said, *(side[len(said) :] if repeated else side for side in sides)
    common = _common(*sides)
    return sides[0][:common], *(side[common:] for side in sides)


def _common(chosen: Sequence[Message], rejected: Sequence[Message]) -> int:
    """How many messages both begin with, an answer left to each."""
    answers = [max((i for i, m in enumerate(side) if m.role == "assistant"), default=0) for side in (chosen, rejected)]
    same = 0
    for one, other in zip(chosen[: answers[0]], rejected[: answers[1]], strict=False):
        if one != other:
            break
        same += 1
    return same


def _messages(value: Any, name: str) -> tuple[Message, ...]:
    messages = []
    for number, item in enumerate(value, start=1):
        place = f"message {number} of {name}"
        if not isinstance(item, dict) or not isinstance(item.get("role"), str):
            raise ValueError(f'{place} is {_kind(item)} without a role; write {{"role": "user", "content": "…"}}')
        role = OBSERVED.get(item["role"], item["role"])
        if role not in ROLES:
            raise ValueError(f"{place} has the role '{role}'; write one of {', '.join([*ROLES, *OBSERVED])}")
        if not isinstance(item.get("content"), str):
            raise ValueError(f"{place} has {_kind(item.get('content'))} as content; write a string")
        if item.get("tool_calls"):
            raise ValueError(f"{place} has tool_calls, which are not read; write the call into content")
        messages.append(Message(role, encodable(item["content"])))
    return tuple(messages)


def _check_order(messages: Sequence[Message], name: str) -> None:
    """A conversation that can be fed: a system message only at its beginning, and something before every answer."""
    for before, message in zip([None, *messages], messages, strict=False):
        if message.role == "system" and before is not None:
            raise ValueError(f"{name} has a system message after others; write it as the first message of the prompt")
        if message.role == "assistant" and (before is None or before.role == "system"):
            raise ValueError(f"{name} begins with the assistant, which answers nothing; write a user message before it")
        if message.role == "assistant" and before is not None and before.role == "assistant":
            raise ValueError(f"{name} has two assistant messages in a row; join them, or write what came between")


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", str: "a string", bool: "a truth value", type(None): "nothing"}
    return names.get(type(value), "a number")
