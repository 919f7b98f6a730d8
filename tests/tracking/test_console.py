import io
import json
import os
import pty
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest
from rich.console import Console

from evo_hpo.tracking import console as console_module
from evo_hpo.tracking.console import ConsoleTracker, LiveView, can_redraw
from evo_hpo.tracking.core import Alarm, GenerationRecord, MemberGeneration
from evo_hpo.tracking.judged import judged
from evo_hpo.tracking.progress import Progress, clock, count, number, short_names
from tests.tracking.fake_run import play, run_info


def lines_of(run_folder: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    tracker, run = ConsoleTracker("lines"), run_info(run_folder)
    tracker.start(run)
    play(tracker, run)
    tracker.finish({})
    return capsys.readouterr().out.splitlines()


def test_lines_tell_a_run_in_one_line_per_event(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = lines_of(tmp_path, capsys)
    assert "8 members, rl (6 x 8 updates)" in lines[0] and str(tmp_path) in lines[0]
    closed = [line for line in lines if "generation 6 of 6 done: best are members" in line]
    assert len(closed) == 1 and "with fitness 0.9" in closed[0]
    assert any("Member 2 (0.00) is replaced by a copy of member" in line for line in lines)
    assert any(line.startswith("ALARM degenerate_text, generation 1, update 6: Member 2") for line in lines)


def test_fast_updates_do_not_flood_the_terminal(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert not any("update 7 of 48" in line for line in lines_of(tmp_path, capsys))


def test_slow_updates_are_shown_with_the_time_left(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(console_module, "SECONDS_BETWEEN_LINES", 0.0)
    line = next(line for line in lines_of(tmp_path, capsys) if "update 24 of 48" in line)
    assert line.startswith("1:00  generation 3 of 6") and "216k tokens, about 1:" in line


def test_lines_survive_a_terminal_that_only_knows_ascii(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    tracker = ConsoleTracker("auto")
    tracker.start(run_info(tmp_path))
    tracker.alarm(Alarm("no_signal", "Mitglied 2 – nichts gelernt", 0, 4, 2))
    stream.seek(0)
    assert "ALARM no_signal, generation 1, update 5: Mitglied 2 ? nichts gelernt" in stream.read()


def test_the_last_line_says_what_the_judge_of_the_whole_run_was_asked_and_what_it_cost(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = {"judge/groups": 2.0, "judge/calls": 3.0, "judge/prompt_tokens": 600.0, "judge/completion_tokens": 40.0}
    earlier = [{"kind": "update", "update": u, "member": m, **asked} for u in range(2) for m in range(3)]
    earlier.append({"kind": "generation", "member": 0, **asked})  # which sums up what the updates have said
    (tmp_path / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in earlier))
    assert lines_of(tmp_path, capsys)[-1] == (
        "The judge had 18 requests about 12 groups: 3.6k prompt and 240 completion tokens"
    )
    assert judged([{"kind": "update", **asked, "judge/cached": 1.0, "judge/failed": 1, "judge/cost": 0.0125}]) == (
        "The judge had 3 requests about 2 groups (1 from the cache, 1 without a usable answer): "
        "600 prompt and 40 completion tokens, at a cost of 0.0125"
    )
    assert judged([{"kind": "update", "reward": 1.0, "judge/groups": None}]) is None


def test_off_prints_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracker, run = ConsoleTracker("off"), run_info(tmp_path)
    tracker.start(run)
    play(tracker, run)
    tracker.abort("Ctrl-C")
    captured = capsys.readouterr()
    assert captured.out == "" and captured.err == ""


@pytest.mark.parametrize("width", [70, 80, 100, 140])
def test_the_live_table_fits_any_width(tmp_path: Path, width: int) -> None:
    screen = io.StringIO()
    run = run_info(tmp_path)
    view = LiveView(run, Console(file=screen, width=width, force_terminal=False))
    tracker = ConsoleTracker("off")
    tracker._view = view
    play(tracker, run, last=4)
    tracker.finish({})
    text = screen.getvalue()
    assert "generation 5 of 6" in text and "update 32 of 48" in text
    assert "0.81 (0.72–0.88)" in text and "cloned from 3" in text and "…" not in text
    assert ("temperature" in text) == (width >= 120)
    assert ("more hyperparameters in a wider terminal" in text) == (width < 120)
    assert max(len(line) for line in text.splitlines()) <= width


SCRIPT = """
    import pathlib, sys, time
    from evo_hpo.tracking.console import ConsoleTracker
    from tests.tracking.fake_run import play, run_info
    tracker, run = ConsoleTracker("auto"), run_info(pathlib.Path("."))
    tracker.start(run)
    play(tracker, run, last=2)
    time.sleep(0.3)
    {end}
"""


@pytest.mark.parametrize("end", ["tracker.abort('Ctrl-C')", "raise SystemExit(3)", "raise ValueError('crash')"])
def test_the_cursor_comes_back_however_a_live_run_ends(end: str) -> None:
    leader, follower = pty.openpty()
    environment = os.environ | {"TERM": "xterm-256color", "PYTHONIOENCODING": "utf-8", "COLUMNS": "120"}
    script = textwrap.dedent(SCRIPT).format(end=end)
    with subprocess.Popen([sys.executable, "-c", script], stdout=follower, stderr=follower, env=environment) as process:
        os.close(follower)
        screen = b""
        while chunk := _read(leader):
            screen += chunk
        process.wait(timeout=30)
    os.close(leader)
    hide, show = b"\x1b[?25l", b"\x1b[?25h"
    assert hide in screen and screen.rfind(show) > screen.rfind(hide)


def _read(leader: int) -> bytes:
    try:
        return os.read(leader, 65536)
    except OSError:  # the other end is closed
        return b""


def test_a_pipe_is_no_place_to_redraw() -> None:
    assert not can_redraw(io.TextIOWrapper(io.BytesIO(), encoding="utf-8"))


def test_a_resumed_run_counts_on_from_its_checkpoint(tmp_path: Path) -> None:
    progress = Progress(run_info(tmp_path, resumed_at=4))
    assert (progress.generation, progress.update, progress.remaining) == (4, 32, None)


def test_names_are_as_short_as_they_can_be_told_apart() -> None:
    names = short_names(["algorithm.optimizer.lr", "critic.optimizer.lr", "kl.coef", "rollout.temperature"])
    assert list(names.values()) == ["algorithm.optimizer.lr", "critic.optimizer.lr", "kl.coef", "temperature"]


def test_what_users_name_keeps_the_word_that_says_what_it_is() -> None:
    names = short_names(["reward.weights.short", "reward.parts.tone", "reward.parts.tone.limit"])
    assert list(names.values()) == ["weights.short", "parts.tone", "limit"]


def generation(*members: tuple[float, str]) -> GenerationRecord:
    """One in which nobody came into the place of another; of each member its fitness and event."""
    told = [
        MemberGeneration(m, fitness, 0.1, 0.9, {}, m, event, {}, f"member {m} {event}")
        for m, (fitness, event) in enumerate(members)
    ]
    return GenerationRecord("rl", 0, 8, told, 1.0, 10, 10)


def test_who_begins_anew_or_leaves_is_told_in_words(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracker = ConsoleTracker("lines")
    tracker.start(run_info(tmp_path, population=5))
    events = ("kept", "restarted", "retired", "elite", "rescued")
    tracker.generation(generation(*((0.5, event) for event in events)))
    told = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert told[2:] == ["member 1 restarted", "member 2 retired", "member 4 rescued"]


def test_who_is_as_good_as_the_best_is_named_with_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    tracker, nan = ConsoleTracker("lines"), float("nan")
    tracker.start(run_info(tmp_path, population=4))
    for *others, last in ((nan, nan, nan), (0.2, 0.2, 0.1), (0.2, nan, 0.1), (0.5, 0.5, 0.5)):
        tracker.generation(generation(*((fitness, "kept") for fitness in (*others, last))))
    told = [line.partition("done: ")[2] for line in capsys.readouterr().out.splitlines()[1:]]
    assert told == [
        "no member has a fitness",
        "best are members 0 and 1 with fitness 0.20 (0.10 to 0.90), mean 0.17",
        "best is member 0 with fitness 0.20 (0.10 to 0.90), mean 0.15",
        "best are members 0, 1 and 2 with fitness 0.50 (0.10 to 0.90), mean 0.50",
    ]


def test_who_has_left_is_not_the_best(tmp_path: Path) -> None:
    progress = Progress(run_info(tmp_path, population=2))
    progress.on_generation(generation((0.5, "kept"), (0.9, "retired")))
    progress.on_generation(generation((0.6, "kept")))
    assert [worth.member for worth in progress.best()] == [0]


@pytest.mark.parametrize(
    ("value", "text"),
    [(None, "-"), (float("nan"), "-"), (0.00123, "0.00123"), (1e-5, "1e-5"), (4, "4"), (0.5, "0.5"), (1234.5, "1234"),
     (2.5e6, "2.5e6"), (0.0, "0"), ("linear", "linear"), (True, "True")],
)  # fmt: skip
def test_numbers_are_short(value: object, text: str) -> None:
    assert number(value) == text


def test_times_and_counts_read_as_people_write_them() -> None:
    assert [clock(65), clock(7265), clock(59.7), clock(None)] == ["1:05", "2:01:05", "1:00", "-"]
    assert [count(950), count(12_345), count(4_560_000)] == ["950", "12.3k", "4.56M"]
