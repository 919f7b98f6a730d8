"""Keeps secrets out of everything a run writes down: config dumps, trackers, reports."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from typing import Any

REMOVED = "<removed>"

# A word of these anywhere in a key makes its value secret.
SECRET_WORDS = frozenset(
    "password passwords passwd passphrase secret secrets credential credentials authorization bearer apikey".split()
)
# `key` and `token` are secret as the last word of a key, unless the word before says that it is something else.
SECRET_ENDINGS = frozenset({"key", "token"})
HARMLESS_BEFORE = frozenset(
    "state task group anchor sort step cache row config public primary foreign dict metric "
    "eos bos pad unk sep cls mask stop start end first last special image per action think turn".split()
)
KNOWN_SHAPES = re.compile(
    r"\b(?:hf_[A-Za-z0-9]{20,}|sk-[A-Za-z0-9_-]{20,}|gh[pousr]_[A-Za-z0-9]{20,}|AKIA[A-Z0-9]{16})\b"
)
URL_PASSWORD = re.compile(r"(?<=://)[^/\s:@]*:[^/\s@]+(?=@)")
ASSIGNMENT = re.compile(r"^([+~]{0,2}[\w.@/-]+)=(.+)$", re.DOTALL)
SHORTEST = 6  # an environment value below this length is too common a string to be looked for inside others
_learned: set[str] = set()


def scrub(mapping: Mapping[str, Any]) -> dict[str, Any]:
    """A deep copy of `mapping` in which no secret is left; removed values read `<removed>`.

    Secret are: values under a key that looks like one (`wandb_api_key`, `hf_token`, `password`, but not
    `max_action_tokens`, `policy_tokens`, `state_key` or `eos_token`); the values of environment variables with such a
    name, and those given to `learn`, wherever they occur; overrides like `judge.api_key=…` in lists; passwords in URLs;
    well-known key formats.
    """
    known = _known_secrets()
    return {key: _clean(key, value, known) for key, value in mapping.items()}


def learn(mapping: Mapping[str, Any]) -> None:
    """Remove the secrets of `mapping` from now on wherever they occur, also in what an environment says of them."""
    for key, value in mapping.items():
        if isinstance(value, Mapping):
            learn({str(inner): item for inner, item in value.items()})
        elif isinstance(value, str) and value != REMOVED and len(value) >= SHORTEST:
            if is_secret_name(key.rsplit(".", 1)[-1]):
                _learned.add(value)


def is_secret_name(name: str) -> bool:
    """True where a key or environment variable is named like one that holds a secret."""
    words = [word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|\d+", name)]
    if SECRET_WORDS.intersection(words):
        return True
    if not words or words[-1] not in SECRET_ENDINGS:
        return False
    return len(words) == 1 or words[-2] not in HARMLESS_BEFORE


def _known_secrets() -> list[str]:
    values = {value for name, value in os.environ.items() if is_secret_name(name)} | _learned
    values = {value for value in values if value.strip()}
    return sorted(values, key=len, reverse=True)  # the longer first, where one contains another


def _clean(key: str, value: Any, known: list[str]) -> Any:
    last = key.rsplit(".", 1)[-1]
    if is_secret_name(last) and _can_be_secret(last, value):
        return REMOVED
    if isinstance(value, Mapping):
        return {inner: _clean(str(inner), item, known) for inner, item in value.items()}
    if isinstance(value, list | tuple):
        return [_clean("", item, known) for item in value]
    return _clean_text(value, known) if isinstance(value, str) else value


def _can_be_secret(key: str, value: Any) -> bool:
    """A flag or an absent value is none; under `key` and `token` only text is (`token: 0.5` is a weight)."""
    if value is None or isinstance(value, bool):
        return False
    return isinstance(value, str) or bool(SECRET_WORDS.intersection(key.lower().split("_")))


def _clean_text(text: str, known: list[str]) -> str:
    assignment = ASSIGNMENT.match(text)
    if assignment and is_secret_name(re.split(r"[.@/]", assignment[1])[-1]):
        return f"{assignment[1]}={REMOVED}"
    for secret in known:
        if text == secret:
            return REMOVED
        if len(secret) >= SHORTEST:
            text = text.replace(secret, REMOVED)
    return KNOWN_SHAPES.sub(REMOVED, URL_PASSWORD.sub(REMOVED, text))
