"""Alarms count over stops: a resumed run raises those that an unbroken one raises, once."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.support import BASE, Left, resumed, started
from tests.runtime.worlds import SIGNAL, SIGNAL_AT

NOTHING_TO_LEARN = [  # which is an alarm after five updates
    "reward.success_reward=0",
    "granularity=sparse",
    "evolution=none",
    "pipeline.stages.train.updates=2",
    "pipeline.stages.train.generations=4",
]
STEPS = 108  # of the environment in a generation


@pytest.mark.parametrize("after", [2, 3], ids=["before the alarm", "after it"])
def test_a_stop_neither_delays_nor_repeats_an_alarm(
    after: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    result = started(tmp_path / "unbroken", *NOTHING_TO_LEARN)
    assert [(alarm["kind"], alarm["member"], alarm["update"]) for alarm in result["alarms"]] == [
        ("no_signal", member, 4) for member in range(3)
    ]
    monkeypatch.setenv(SIGNAL_AT, str(BASE + after * STEPS + 20))
    monkeypatch.setenv(SIGNAL, "SIGTERM")
    with pytest.raises(KeyboardInterrupt):
        started(tmp_path / "stopped", *NOTHING_TO_LEARN)
    monkeypatch.setenv(SIGNAL_AT, "0")
    resumed(tmp_path / "stopped")
    Left.by(tmp_path / "stopped").assert_same(Left.by(tmp_path / "unbroken"))
