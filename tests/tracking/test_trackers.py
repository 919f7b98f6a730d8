from pathlib import Path

import pytest

from evo_hpo.tracking.core import Alarm, RunInfo, Tracker, Trackers
from evo_hpo.tracking.jsonl import JsonlTracker, read_jsonl
from tests.tracking.fake_run import play, run_info


class Broken(Tracker):
    """Fails in the method it is told to, and counts what it is asked."""

    def __init__(self, method: str, error: BaseException) -> None:
        self.calls: list[str] = []

        def fail(*_: object) -> None:
            self.calls.append(method)
            raise error

        setattr(self, method, fail)

    def abort(self, reason: str) -> None:
        self.calls.append("abort")


@pytest.mark.parametrize("method", ["start", "update", "generation", "episodes", "alarm", "finish"])
def test_a_broken_tracker_is_reported_once_and_the_others_go_on(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], method: str
) -> None:
    broken = Broken(method, OSError("no space left\nsecond line"))
    trackers, run = Trackers([broken, JsonlTracker()]), run_info(tmp_path)
    trackers.start(run)
    result = play(trackers, run)
    trackers.finish(result)
    assert broken.calls == [method, "abort"]
    assert capsys.readouterr().err == "Broken failed and is left out from here on (OSError: no space left)\n"
    lines = read_jsonl(tmp_path / "metrics.jsonl")
    assert sum(line["kind"] == "update" for line in lines) == 6 * 8 * 8


def test_ctrl_c_in_a_tracker_reaches_the_run(tmp_path: Path) -> None:
    trackers = Trackers([Broken("alarm", KeyboardInterrupt())])
    with pytest.raises(KeyboardInterrupt):
        trackers.alarm(Alarm("x", "y", 0, 0))


def test_a_tracker_that_cannot_even_abort_stops_nothing(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    class Hopeless(Tracker):
        def start(self, run: RunInfo) -> None:
            raise RuntimeError

        def abort(self, reason: str) -> None:
            raise RuntimeError("again")

    trackers = Trackers([Hopeless()])
    trackers.start(run_info(tmp_path))
    trackers.abort("the end")
    assert capsys.readouterr().err == "Hopeless failed and is left out from here on (RuntimeError)\n"
