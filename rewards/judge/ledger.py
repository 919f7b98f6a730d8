"""What a judge has cost so far, what it may still cost, and what the person at the console already knows."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping
from typing import Any


class OverBudget(Exception):
    """No further call is paid for; the message says what is used up."""


class Ledger:
    """Shared by the threads of one client. All but what was said survives a resume."""

    def __init__(self) -> None:
        self.calls = 0
        self.spent = 0.0  # money
        self.plain = False  # the server knows no JSON schemas
        self._said: set[str] = set()
        self._lock = threading.Lock()

    def start_call(self, max_calls: int | None, budget: float | None) -> None:
        """Count one call before it is made, so that threads cannot pass `max_calls` together.

        What a call costs is known afterwards, so those that are under way when `budget` is reached go beyond it.

        Raises:
            OverBudget: this call would be one too many, or the money is spent.
        """
        with self._lock:
            if max_calls is not None and self.calls >= max_calls:
                raise OverBudget(f"the judge's {max_calls} calls (max_calls) are used up")
            if budget is not None and self.spent >= budget:
                raise OverBudget(f"the judge has spent {self.spent:.4g} of its budget of {budget:g}")
            self.calls += 1

    def pay(self, cost: float) -> None:
        with self._lock:
            self.spent += cost

    def say(self, about: str, sentence: str) -> None:
        """Print `sentence`, once for each thing it may be about."""
        with self._lock:
            known = about in self._said
            self._said.add(about)
        if not known:
            print(sentence, file=sys.stderr)

    def state(self) -> dict[str, Any]:
        with self._lock:
            return {"calls": self.calls, "spent": self.spent, "plain": self.plain}

    def load_state(self, state: Mapping[str, Any]) -> None:
        self.calls, self.spent, self.plain = int(state["calls"]), float(state["spent"]), bool(state["plain"])
