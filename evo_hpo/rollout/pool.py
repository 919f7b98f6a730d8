"""Environments in worker threads with a time limit: one that raises or hangs costs its own episode only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from evo_hpo.tracking.secrets import scrub


@dataclass
class Outcome:
    """What came of one call: a value, the exception it raised, or `timed_out`."""

    value: Any = None
    error: BaseException | None = None
    timed_out: bool = False

    @property
    def complaint(self) -> str:
        """What went wrong, without secrets (a client may quote its key when it is refused); empty if nothing did."""
        if self.timed_out:
            return "the environment did not answer in time"
        if self.error is None:
            return ""
        return str(scrub({"error": f"{type(self.error).__name__}: {self.error}"})["error"])


@dataclass
class _Share:
    """The calls that one worker takes, one after another."""

    calls: list[tuple[int, Callable[[], Any]]]
    outcomes: dict[int, Outcome]
    at: int = 0
    since: float = field(default_factory=time.monotonic)
    done: threading.Event = field(default_factory=threading.Event)
    abandoned: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)  # a result is either taken or given up, never both

    def work(self) -> None:
        while self.at < len(self.calls) and not self.abandoned:
            index, call = self.calls[self.at]
            self.since = time.monotonic()
            outcome = Outcome()
            try:
                outcome.value = call()
            except Exception as error:  # whatever an environment raises is that episode's business
                outcome.error = error
            with self.lock:
                if self.abandoned:
                    return
                self.outcomes[index] = outcome
                self.at += 1
                self.since = time.monotonic()
        self.done.set()

    def give_up(self, limit: float) -> bool:
        """Abandon the call in progress if it has run for longer than `limit` seconds."""
        with self.lock:
            self.abandoned = self.at < len(self.calls) and time.monotonic() - self.since > limit
            return self.abandoned


class EnvironmentPool:
    """Runs calls side by side. A hanging call is left behind in its daemon thread; a new thread takes the rest.

    Args:
        threads: calls that run at the same time.
        limit: seconds that one call may take.
    """

    def __init__(self, threads: int, limit: float) -> None:
        self.threads, self.limit = threads, limit
        self.left_behind = 0

    def run(self, calls: list[Callable[[], Any]]) -> list[Outcome]:
        """The outcome of every call, in their order."""
        outcomes: dict[int, Outcome] = {}
        numbered = list(enumerate(calls))
        shares = [_Share(numbered[i :: self.threads], outcomes) for i in range(min(self.threads, len(calls)))]
        for share in shares:
            self._start(share)
        while shares:
            share = shares.pop()
            while not share.done.wait(self._patience(share)):
                if share.give_up(self.limit):
                    self.left_behind += 1
                    outcomes[share.calls[share.at][0]] = Outcome(timed_out=True)
                    share = _Share(share.calls[share.at + 1 :], outcomes)
                    self._start(share)
        return [outcomes[i] for i in range(len(calls))]

    def _patience(self, share: _Share) -> float:
        return max(0.001, self.limit - (time.monotonic() - share.since) + 0.001)

    @staticmethod
    def _start(share: _Share) -> None:
        threading.Thread(target=share.work, daemon=True, name="environment").start()
