"""What stops a run from outside: SIGTERM, as schedulers and containers send it, stops it as Ctrl-C does."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def terminable() -> Iterator[None]:
    """Within: SIGTERM raises KeyboardInterrupt, so that trackers are closed and the folder is let go."""
    if threading.current_thread() is not threading.main_thread():
        yield  # Python runs handlers in the main thread only
        return
    before = signal.signal(signal.SIGTERM, _stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt(signal.Signals(number).name)
