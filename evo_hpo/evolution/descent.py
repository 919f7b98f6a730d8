"""Where do members come from? Lines of descent through the generations of a stage, past and planned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # the strategies import this
    from evo_hpo.evolution.strategies.core import Past

SAME = ("kept", "elite")  # the slot still holds the member that it held
FOUNDERS = ("injected", "restarted")  # with what comes from nobody: a line of descent begins


def lost_its_place(member: int, parent: int, event: str) -> bool:
    """Whether a member did not go on: another came into its slot, it began anew, or it left."""
    return parent != member or event not in SAME


def changed_hands(past: Sequence[Past], member: int, selections: int) -> bool:
    """Whether the slot was filled by something else in one of the latest `selections`."""
    for generation in reversed(past[-selections:] if selections else []):
        if generation.events[member] not in SAME:
            return True
        member = generation.parents[member]
    return False


def successor(latest: Past, place: int) -> int | None:
    """Place of the member that goes on where the one at `place` of the latest generation was; None if nobody does."""
    for member, parent in enumerate(latest.parents):
        if parent == place and latest.events[member] in SAME:
            return member
    return None


def lineages(steps: Sequence[tuple[Sequence[int], Sequence[str]]]) -> int:
    """Distinct ancestors of the youngest members, as far back as the steps lead.

    Args:
        steps: parents and events of each selection, oldest first.
    """
    origins = set()
    for member in range(len(steps[-1][0])):
        place, back = member, 0
        for parents, events in reversed(steps):
            if events[place] in FOUNDERS:
                break
            place, back = parents[place], back + 1
        origins.add((back, place))
    return len(origins)
