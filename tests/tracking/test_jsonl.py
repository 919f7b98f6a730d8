import json
import math
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from envs.core import Episode, StopReason, Turn
from evo_hpo.tracking.core import Alarm, MemberUpdate, UpdateRecord
from evo_hpo.tracking.jsonl import FILES, JsonlTracker, plain, read_jsonl, rewind
from evo_hpo.tracking.transcripts import choose, transcript
from tests.tracking.fake_run import play, run_info


def contents(folder: Path) -> dict[str, bytes]:
    return {name: (folder / name).read_bytes() for name in FILES}


def test_a_run_leaves_a_line_per_member_and_event(tmp_path: Path) -> None:
    tracker, run = JsonlTracker(kept=2), run_info(tmp_path, population=3, generations=2, updates=4)
    tracker.start(run)
    play(tracker, run)
    tracker.alarm(Alarm("no_signal", "Nothing learned.", 1, 7, 2))
    tracker.finish({})
    metrics, lineage = read_jsonl(tmp_path / "metrics.jsonl"), read_jsonl(tmp_path / "lineage.jsonl")
    assert Counter(line["kind"] for line in metrics)["update"] == 2 * 4 * 3
    assert Counter(line["kind"] for line in metrics)["generation"] == 2 * 3
    assert metrics[-1] == {
        "kind": "alarm", "generation": 1, "update": 7, "member": 2, "alarm": "no_signal", "text": "Nothing learned.",
    }  # fmt: skip
    assert [(line["generation"], line["member"]) for line in lineage] == [(g, m) for g in range(2) for m in range(3)]
    clone = next(line for line in lineage if line["event"] == "cloned")
    assert clone["parent"] != clone["member"] and clone["before"] != clone["after"] and len(clone["checksum"]) == 16
    episodes = read_jsonl(tmp_path / "episodes.jsonl")
    assert Counter((line["generation"], line["member"]) for line in episodes) == {
        (g, m): 2 for g in range(2) for m in range(3)
    }


def test_the_quota_of_transcripts_holds_over_several_calls(tmp_path: Path) -> None:
    tracker = JsonlTracker(kept=3)
    tracker.start(run_info(tmp_path))
    for task in range(5):
        tracker.episodes(0, "train", [{"member": 1, "task": task, "success": False, "turns": []}])
    tracker.episodes(0, "eval", [{"member": 1, "task": 9, "success": False, "turns": []}])
    assert [line["task"] for line in read_jsonl(tmp_path / "episodes.jsonl")] == [0, 1, 2, 9]


def test_every_line_is_on_its_way_before_the_call_returns(tmp_path: Path) -> None:
    tracker = JsonlTracker()
    tracker.start(run_info(tmp_path))
    tracker.update(UpdateRecord("rl", 0, 0, [MemberUpdate(0, {"loss": 1.0})], 0.5, 10, 2))
    assert read_jsonl(tmp_path / "metrics.jsonl")[0]["loss"] == 1.0  # read while the file is still open for writing


def test_numbers_that_are_not_finite_become_null(tmp_path: Path) -> None:
    tracker = JsonlTracker()
    tracker.start(run_info(tmp_path))
    metrics = {"loss": math.nan, "grad_norm": math.inf, "member": 7.0, "kl": 0.1}
    tracker.update(UpdateRecord("rl", 0, 0, [MemberUpdate(3, metrics)], 0.0, 0, 0))
    text = (tmp_path / "metrics.jsonl").read_text()
    line = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} is no JSON"))
    assert line["loss"] is None and line["grad_norm"] is None and line["kl"] == 0.1
    assert line["member"] == 3  # a metric does not replace a counter


@pytest.mark.parametrize("killed_after", [1, 2, 3])
def test_a_resumed_record_equals_one_that_was_never_stopped(tmp_path: Path, killed_after: int) -> None:
    straight, stopped = tmp_path / "straight", tmp_path / "stopped"
    tracker = JsonlTracker()
    tracker.start(run_info(straight, generations=4))
    play(tracker, run_info(straight, generations=4))
    tracker.finish({})

    tracker = JsonlTracker()
    tracker.start(run_info(stopped, generations=4))
    play(tracker, run_info(stopped, generations=4), last=killed_after)
    checkpoint = json.loads(json.dumps(tracker.offsets()))
    play(tracker, run_info(stopped, generations=4), first=killed_after, last=killed_after + 1)  # not in any checkpoint
    tracker.alarm(Alarm("no_signal", "Lost with the process.", killed_after, 0))
    with open(stopped / "metrics.jsonl", "a") as file:
        file.write('{"kind": "upd')  # the kill came in the middle of a line

    rewind(stopped, checkpoint)
    resumed = JsonlTracker()
    resumed.start(run_info(stopped, generations=4, resumed_at=killed_after))
    play(resumed, run_info(stopped, generations=4), first=killed_after)
    resumed.finish({})
    assert contents(stopped) == contents(straight)


def test_without_a_checkpoint_nothing_is_left_of_what_was_written(tmp_path: Path) -> None:
    tracker = JsonlTracker()
    tracker.start(run_info(tmp_path))
    play(tracker, run_info(tmp_path), last=1)
    tracker.abort("killed")
    rewind(tmp_path, {})
    assert contents(tmp_path) == dict.fromkeys(FILES, b"")


def test_offsets_are_those_of_the_files_on_disk(tmp_path: Path) -> None:
    tracker = JsonlTracker()
    assert tracker.offsets() == dict.fromkeys(FILES, 0)
    tracker.start(run_info(tmp_path))
    play(tracker, run_info(tmp_path), last=1)
    assert tracker.offsets() == {name: len(content) for name, content in contents(tmp_path).items()}
    assert min(tracker.offsets().values()) > 0


def test_a_half_written_last_line_is_left_out_and_never_glued_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_bytes(b'{"a": 1}\n{"a": "\xc3')
    assert read_jsonl(path) == [{"a": 1}]
    tracker = JsonlTracker()
    tracker.start(run_info(tmp_path))
    tracker.alarm(Alarm("x", "y", 0, 0))
    assert [line.get("a", line.get("text")) for line in read_jsonl(path)] == [1, "y"]


def test_an_altered_line_is_named(tmp_path: Path) -> None:
    path = tmp_path / "metrics.jsonl"
    path.write_text('{"a": 1}\nnonsense\n{"a": 2}\n')
    with pytest.raises(ValueError, match="line 2 of metrics.jsonl"):
        read_jsonl(path)


def test_a_missing_file_reads_as_empty(tmp_path: Path) -> None:
    assert read_jsonl(tmp_path / "nothing.jsonl") == []


@given(st.recursive(st.none() | st.booleans() | st.floats() | st.integers() | st.text() | st.binary(), st.lists))
def test_anything_can_be_written_as_json(value: object) -> None:
    json.loads(json.dumps(plain(value), allow_nan=False))


def test_a_transcript_holds_what_was_said_and_what_came_of_it() -> None:
    turn = Turn("Where?", "left", [1, 2], [3, 4, 5], [-0.1, -0.2, -0.3], reward=0.5, valid=False, truncated=True)
    episode = Episode(7, 2, 1, [turn], StopReason.TURN_LIMIT, True, "Done.")
    assert transcript(episode, outcome=1.5, update=4) == {
        "task": 7, "member": 2, "group": 1, "update": 4, "success": True, "stop": "turn_limit", "outcome": 1.5,
        "turns": [
            {"observation": "Where?", "action": "left", "reward": 0.5, "valid": False, "truncated": True, "tokens": 3}
        ],
        "final_observation": "Done.", "error": "",
    }  # fmt: skip


def test_transcripts_are_chosen_from_failures_and_successes_in_turn() -> None:
    episodes = [{"task": task, "success": task >= 6} for task in range(8)]
    assert [each["task"] for each in choose(episodes, 3)] == [0, 6, 7]
    assert [each["task"] for each in choose(episodes, 6)] == [0, 1, 2, 3, 6, 7]
    assert choose(episodes, 0) == []
