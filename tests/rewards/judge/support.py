"""Judges and episodes whose every setting is in sight."""

from __future__ import annotations

from typing import Any

from envs.core import Episode, StopReason, Turn
from rewards.environment import EnvironmentReward
from rewards.judge import Client, Pairwise, Rubric, Ruler
from rewards.judge.rubric import Criterion

START = "Find the goal."


def client(url: str | None, **changes: Any) -> Client:
    """Hardly any waiting, no cache, no limits, except for `changes`."""
    parts: dict[str, Any] = {
        "base_url": url,
        "model": "judge-1",
        "api_key_env": None,
        "parameters": {},
        "timeout": 5.0,
        "deadline": 20.0,
        "retries": 2,
        "backoff": 0.01,
        "concurrency": 4,
        "cache": None,
        "prompt_price": 2.0,
        "completion_price": 8.0,
        "budget": None,
        "max_calls": None,
    }
    return Client(**{**parts, **changes})


def ruler(judge: Client, **changes: Any) -> Ruler:
    parts: dict[str, Any] = {
        "fallback": EnvironmentReward(),
        "task": None,
        "rubric": ["The goal counts."],
        "passes": 1,
        "min_spread": 0.0,
        "max_chars": 100_000,
        "center": False,
    }
    return Ruler(client=judge, **{**parts, **changes})


def rubric(judge: Client, **changes: Any) -> Rubric:
    criteria = {"tone": Criterion("Is it polite?", 1.0), "brevity": Criterion("Is it short?", 3.0)}
    parts: dict[str, Any] = {"fallback": None, "task": None, "criteria": criteria, "max_chars": 100_000}
    return Rubric(client=judge, **{**parts, **changes})


def pairwise(judge: Client, **changes: Any) -> Pairwise:
    parts: dict[str, Any] = {
        "fallback": EnvironmentReward(),
        "task": None,
        "rubric": ["The goal counts."],
        "opponents": None,
        "both_orders": False,
        "max_chars": 100_000,
        "center": False,
    }
    return Pairwise(client=judge, **{**parts, **changes})


def episode(*actions: str, success: bool = False, final: str = "", group: int = 0, member: int = 0) -> Episode:
    """An episode that begins like every other and answers each action alike."""
    seen = [START, *["Go on."] * (len(actions) - 1)]
    turns = [Turn(before, action, [1, 2], [3, 4], [-1.0, -1.0]) for before, action in zip(seen, actions, strict=True)]
    return Episode(0, member, group, turns, StopReason.TERMINATED, success, final)


def worths(*values: float, **changes: Any) -> list[Episode]:
    """A group of different episodes that the honest judge scores so."""
    return [episode(f"try {place}: worth {value}", **changes) for place, value in enumerate(values)]
