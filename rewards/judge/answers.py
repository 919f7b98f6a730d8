"""Reading what a judge wrote. Every complaint is a sentence that the judge itself can act on."""

from __future__ import annotations

import json
from collections.abc import Collection
from typing import Any

SHOWN = 60  # characters of a judge's own words that a complaint repeats


def parsed(text: str) -> Any:
    """The JSON in `text`, with or without the reasoning before it and the code fence around it.

    Raises:
        ValueError: there is none.
    """
    body = text.rpartition("</think>")[2].strip()
    if body.startswith("```"):
        body = body.partition("\n")[2].rpartition("```")[0]
    try:
        return json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ValueError(f"it is not JSON ({_short(str(error))})" if body else "it is empty") from error


def scores_by_id(answer: Any, label: str, ids: Collection[str]) -> dict[str, float]:
    """Id -> score of `{"scores": [{label: id, "explanation": …, "score": …}, …]}`, wherever an id stands in the list.

    Raises:
        ValueError: not of that form, an unknown, double or missing id, or a score outside 0 to 1. Nothing is clamped:
            a judge that answers 7 may mean 7 of 10, or 7 of 100.
    """
    entries = answer.get("scores") if isinstance(answer, dict) else None
    if not isinstance(entries, list):
        raise ValueError('it is not an object with a list "scores"')
    found: dict[str, float] = {}
    for entry in entries:
        if not isinstance(entry, dict):
            raise ValueError('an entry of "scores" is not an object')
        name, score = entry.get(label), entry.get("score")
        name = str(name) if isinstance(name, int) else name
        if not isinstance(name, str) or name not in ids:
            raise ValueError(f"{label} {_short(repr(name))} is none of {', '.join(ids)}")
        if name in found:
            raise ValueError(f"{label} {name} is scored twice")
        if isinstance(score, bool) or not isinstance(score, int | float) or not 0 <= score <= 1:  # NaN is not in there
            raise ValueError(f"the score of {label} {name} is {_short(repr(score))}, not a number from 0 to 1")
        found[name] = float(score)
    missing = [name for name in ids if name not in found]
    if missing:
        raise ValueError(f"no score is given for {label} {', '.join(missing)}")
    return found


def score_list(label: str, ids: Collection[str]) -> dict[str, Any]:
    """JSON schema of what `scores_by_id` reads; the explanation comes before the score that it must lead to."""
    entry = {
        label: {"type": "string", "enum": list(ids)},
        "explanation": {"type": "string"},
        "score": {"type": "number"},
    }
    return shape({"scores": {"type": "array", "items": shape(entry)}})


def shape(properties: dict[str, Any]) -> dict[str, Any]:
    """JSON schema of an object with exactly these properties, as strict structured output wants it."""
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


def _short(text: str) -> str:
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
