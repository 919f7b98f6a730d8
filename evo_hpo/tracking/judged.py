"""What a run asked its judge, and what that cost, as a sentence."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from evo_hpo.tracking.progress import count


def judged(updates: Iterable[Mapping[str, Any]]) -> str | None:
    """The sentence; None where no judge was asked.

    Args:
        updates: lines of metrics.jsonl, of all members and updates; what a resumed run took back is not among them.
    """
    total: dict[str, float] = {}
    for line in updates:
        for name, value in line.items():
            if line.get("kind") == "update" and name.startswith("judge/") and isinstance(value, int | float):
                total[name] = total.get(name, 0.0) + value

    def of(name: str) -> float:
        return total.get(f"judge/{name}", 0.0)

    if not of("groups"):
        return None
    asides = {"cached": "from the cache", "failed": "without a usable answer", "over_budget": "not asked any more"}
    told = ", ".join(f"{count(of(name))} {words}" for name, words in asides.items() if of(name))
    tokens = f"{count(of('prompt_tokens'))} prompt and {count(of('completion_tokens'))} completion tokens"
    cost = f", at a cost of {of('cost'):.4g}" if of("cost") else ""
    return (
        f"The judge had {count(of('calls'))} requests about {count(of('groups'))} groups"
        f"{f' ({told})' if told else ''}: {tokens}{cost}"
    )
