"""Episodes as plain dictionaries that a person can read: what is kept of them, and in which form."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from itertools import zip_longest
from typing import Any

from envs.core import Episode

Transcript = dict[str, Any]
UNSCORED = "unscored"  # split of the episodes that a reward failed on


def transcript(episode: Episode, outcome: float | None = None, update: int | None = None) -> Transcript:
    """What is worth reading of an episode, as JSON types.

    Args:
        episode: a finished episode.
        outcome: its score under the run's reward, where it was scored.
        update: that learned from it, counted over all stages; None where none did.
    """
    return {
        "task": episode.task,
        "member": episode.member,
        "group": episode.group,
        "update": update,
        "success": episode.success,
        "stop": episode.stop.value if episode.stop else None,
        "outcome": outcome,
        "turns": [
            {
                "observation": turn.observation,
                "action": turn.action,
                "reward": turn.reward,
                "valid": turn.valid,
                "truncated": turn.truncated,
                "tokens": len(turn.action_ids),
            }
            for turn in episode.turns
        ],
        "final_observation": episode.final_observation,
        "error": episode.error,
    }


def choose(transcripts: Sequence[Transcript], room: int) -> list[Transcript]:
    """At most `room` transcripts, failures and successes in turn, so that both kinds can be read; order is kept."""
    if len(transcripts) <= room:
        return list(transcripts)
    kinds: dict[bool, list[int]] = defaultdict(list)
    for index, item in enumerate(transcripts):
        kinds[bool(item.get("success"))].append(index)
    in_turn = (index for pair in zip_longest(kinds[True], kinds[False]) for index in pair if index is not None)
    return [transcripts[index] for index in sorted(index for index, _ in zip(in_turn, range(room), strict=False))]
