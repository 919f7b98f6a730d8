"""`prefs`: pairs of real runs, that come back as the very tokens that were sampled."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml
from transformers import AutoTokenizer

from evo_hpo.cli.main import main
from evo_hpo.config.errors import UserError
from evo_hpo.learner.pairs import Message, episodes_of, read_pairs, split
from evo_hpo.policy.base import TINY
from evo_hpo.policy.chat import ChatFormat
from evo_hpo.runtime.prefs import build_pairs
from evo_hpo.tracking.jsonl import read_jsonl
from tests.runtime.support import started, stored
from tests.runtime.worlds import Listening

Line = dict[str, Any]
TELLING = "env._target_=tests.runtime.worlds.Telling"
HELD_OUT = 0.6
LISTENING = "+reward={_target_: tests.runtime.worlds.Listening}"


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, set[tuple[int, int, tuple[tuple[int, ...], ...]]]]:
    """A run of 2 members and 2 updates in one generation that kept every transcript, and (member, task, action ids)."""
    folder = tmp_path_factory.mktemp("played") / "run"
    Listening.heard.clear()
    settings = ["evolution.population=2", "rollout.tasks=4", "pipeline.stages.train.updates=2", "evaluation.repeats=4"]
    settings += ["pipeline.stages.train.generations=1", f"evaluation.held_out={HELD_OUT}"]
    started(folder, "~reward", LISTENING, TELLING, "model.instructions=true", "tracker.episodes=1000", *settings)
    return folder, set(Listening.heard)


@pytest.fixture
def run(played: tuple[Path, object], tmp_path: Path) -> Path:
    """A copy of the run."""
    return Path(shutil.copytree(played[0], tmp_path / "run"))


def change(run: Path, changed: Callable[[Line], Line | None]) -> None:
    """Replace every transcript of training; None leaves it out."""
    path = run / "episodes.jsonl"
    lines = [changed(line) if line["split"] == "train" else line for line in read_jsonl(path)]
    path.write_text("".join(json.dumps(line) + "\n" for line in lines if line is not None))


def first_group(run: Path, outcomes: list[float]) -> None:
    """Leave the first group of training, with these outcomes and with actions that tell who is who."""
    found: list[Line] = []

    def changed(line: Line) -> Line | None:
        if len(found) == len(outcomes) or found and line["task"] != found[0]["task"]:
            return None
        found.append(line)
        return line | {
            "member": 0, "outcome": outcomes[len(found) - 1],
            "turns": [line["turns"][0] | {"action": f"{len(found) - 1}"}],
        }  # fmt: skip

    change(run, changed)
    assert len(found) == len(outcomes)


def who(run: Path, **options: Any) -> list[tuple[str, str]]:
    """(better, worse) by their actions."""
    target = run / "pairs.jsonl"
    target.unlink(missing_ok=True)
    build_pairs([run], target, "train", options.get("margin", 0.0), options.get("per_group", 1))
    return [(pair.chosen[0].content, pair.rejected[0].content) for pair in read_pairs(str(target))]


def test_pairs_come_back_as_the_tokens_that_were_sampled(
    played: tuple[Path, set[Any]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, heard = played
    target = tmp_path / "pairs.jsonl"
    assert main(["prefs", str(run), "--to", str(target), "--per-group", "3"]) == 0
    pairs = read_pairs(str(target))
    assert f"wrote {len(pairs)} pairs to {target}\n" in capsys.readouterr().out
    chat = ChatFormat(AutoTokenizer.from_pretrained(TINY))
    same = 0
    for pair in pairs:
        assert pair.task is not None
        task = int(pair.task.removeprefix("task "))
        for side in episodes_of(pair, chat, 0, 512):
            ids = tuple(tuple(turn.action_ids) for turn in side.turns)
            texts = [turn.action for turn in side.turns]
            sampled = [one for member, number, one in heard if number == task]
            of_text = [one for one in sampled if [chat.decode(list(action)) for action in one] == texts]
            assert of_text, "the texts are those of an episode of the task"
            same += ids in of_text
    assert same > len(pairs), "most texts have one spelling in tokens"


def test_the_better_episode_of_a_group_is_chosen(played: tuple[Path, object], tmp_path: Path) -> None:
    run, _ = played
    count = build_pairs([run], tmp_path / "pairs.jsonl", "all", 0.0, 100)
    succeeded = {
        (f"task {line['task']}", *(turn["action"] for turn in line["turns"])): line["success"]
        for line in read_jsonl(run / "episodes.jsonl")
    }
    pairs = read_pairs(str(tmp_path / "pairs.jsonl"))
    for pair in pairs:
        chosen, rejected = (
            succeeded[(str(pair.task), *(message.content for message in side if message.role == "assistant"))]
            for side in (pair.chosen, pair.rejected)
        )
        assert chosen and not rejected
    assert len(pairs) == count > 4


def test_the_result_stays_out(played: tuple[Path, object], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run, _ = played
    by_split = {
        name: {f"task {line['task']}" for line in lines}
        for name, lines in groupby(read_jsonl(run / "episodes.jsonl"), key=lambda line: line["split"])
    }
    for name, allowed in (("train", {"train"}), ("fitness", {"fitness"}), ("all", {"train", "fitness"})):
        target = tmp_path / f"{name}.jsonl"
        assert main(["prefs", str(run), "--to", str(target), "--split", name]) == 0
        tasks = {pair.task for pair in read_pairs(str(target))}
        assert all(tasks & by_split[one] for one in allowed) and tasks <= set().union(*(by_split[o] for o in allowed))
    with pytest.raises(SystemExit):
        main(["prefs", str(run), "--to", str(tmp_path / "x.jsonl"), "--split", "final"])
    assert "invalid choice: 'final'" in capsys.readouterr().err


def test_transcripts_of_the_result_alone_give_nothing(run: Path) -> None:
    first_group(run, [0.5, 0.0])
    change(run, lambda line: line | {"split": "final"})
    only_final = [line for line in read_jsonl(run / "episodes.jsonl") if line["split"] == "final"]
    (run / "episodes.jsonl").write_text("".join(json.dumps(line) + "\n" for line in only_final))
    with pytest.raises(UserError, match="kept no transcripts of split all"):
        build_pairs([run], run / "pairs.jsonl", "all", 0.0, 1)


def test_instructions_are_the_system_message_where_the_run_gave_them(run: Path) -> None:
    build_pairs([run], run / "told.jsonl", "train", 0.0, 1)
    for pair in read_pairs(str(run / "told.jsonl")):
        assert pair.task is not None
        assert pair.prompt[0] == Message("system", f"You play {pair.task.removeprefix('task ')}.")
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("instructions: true", "instructions: false"))
    build_pairs([run], run / "untold.jsonl", "train", 0.0, 1)
    assert {len(pair.prompt) for pair in read_pairs(str(run / "untold.jsonl"))} == {1}


def test_tasks_without_a_name_of_their_own_go_by_their_seed(run: Path) -> None:
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("worlds.Telling", "worlds.Stopping"))
    build_pairs([run], run / "pairs.jsonl", "train", 0.0, 1)
    seeds = {f"seed {line['task']}" for line in read_jsonl(run / "episodes.jsonl") if line["split"] == "train"}
    assert {pair.task for pair in read_pairs(str(run / "pairs.jsonl"))} <= seeds


def test_an_environment_that_cannot_start_its_task_any_more_is_named(run: Path) -> None:
    broken = stored(run) | {"env": {"_target_": "tests.runtime.worlds.FewTasks", "broken": True}}
    broken["granularity"]["reward"] = "sparse"
    (run / "config.yaml").write_text(yaml.safe_dump(broken))
    with pytest.raises(UserError, match=r"FewTasks cannot start task \d+ .*\(OSError: the server is down\)"):
        who(run)


def test_best_against_worst_comes_first_then_who_was_not_used(run: Path) -> None:
    first_group(run, [0.5, 0.0, 1.0, 0.25])
    assert who(run) == [("2", "1")]
    assert who(run, per_group=3) == [("2", "1"), ("2", "3"), ("0", "1")]
    first_group(run, [0.0, 1.0, 1.0, 0.0])
    assert who(run, per_group=2) == [("1", "3"), ("2", "0")]


def test_episodes_that_differ_by_no_more_than_the_margin_give_no_pair(run: Path) -> None:
    first_group(run, [0.5, 0.0, 1.0])
    assert who(run, margin=0.5, per_group=9) == [("2", "1")]
    with pytest.raises(UserError, match="in none of 1 groups does one episode score more than 1 above another"):
        who(run, margin=1.0)
    first_group(run, [0.5, 0.5, 0.5])
    with pytest.raises(UserError, match="run longer or with a larger rollout.group_size, or lower --margin"):
        who(run)


def test_success_counts_where_an_episode_has_no_score(run: Path) -> None:
    first_group(run, [0.5, 0.0, 1.0])
    change(run, lambda line: line | {"outcome": None, "success": line["outcome"] == 0.0})
    assert who(run) == [("1", "2")]


def test_broken_episodes_and_equal_texts_are_not_paired(run: Path) -> None:
    first_group(run, [0.5, 0.0, 1.0])
    change(run, lambda line: line | {"stop": "env_error" if line["outcome"] == 1.0 else "terminated"})
    assert who(run, per_group=9) == [("0", "1")]
    change(run, lambda line: line | {"turns": [line["turns"][0] | {"action": "same"}]})
    with pytest.raises(UserError, match="that says something else"):
        who(run)


def test_a_pair_of_texts_is_written_once_for_a_group(run: Path) -> None:
    first_group(run, [0.5, 0.0, 0.5])
    change(run, lambda line: line | {"turns": [line["turns"][0] | {"action": f"{line['outcome']}"}]})
    assert who(run, per_group=9) == [("0.5", "0.0")]


def test_episodes_that_were_shown_different_beginnings_are_not_paired(run: Path) -> None:
    first_group(run, [0.5, 0.0, 1.0])
    change(run, lambda one: one | {"turns": [one["turns"][0] | {"observation": f"{one['outcome'] > 0}"}]})
    assert who(run, per_group=9) == [("2", "0")]


@pytest.mark.parametrize("name", ["generation", "update", "member", "group", "task"])
def test_only_what_one_member_did_with_one_task_of_one_update_is_compared(run: Path, name: str) -> None:
    first_group(run, [0.5, 0.0, 1.0])
    change(run, lambda line: line | {name: 77 if line["outcome"] == 1.0 else 0})
    assert who(run, per_group=9) == [("0", "1")]


def test_runs_are_put_together_and_one_that_is_named_twice_counts_once(played: tuple[Path, object], run: Path) -> None:
    one = build_pairs([run, run.parent / "run"], run / "one.jsonl", "train", 0.0, 1)
    assert build_pairs([run, played[0]], run / "two.jsonl", "train", 0.0, 1) == 2 * one


def test_pairs_of_training_tasks_fall_into_every_part(played: tuple[Path, object], tmp_path: Path) -> None:
    build_pairs([played[0]], tmp_path / "pairs.jsonl", "train", 0.0, 1)
    assert all(split(read_pairs(str(tmp_path / "pairs.jsonl")), HELD_OUT).values())


def test_too_few_transcripts_are_refused_with_what_keeps_them(run: Path) -> None:
    first_group(run, [0.5])
    with pytest.raises(UserError, match="no group has two episodes .* plays groups .* tracker.episodes=1000"):
        who(run)
    (run / "episodes.jsonl").unlink()
    with pytest.raises(UserError, match="no transcripts of split train; take a run that plays .*episodes=1000"):
        who(run)


def test_nothing_is_left_and_nothing_is_overwritten_where_it_goes_wrong(
    run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "pairs.jsonl"
    target.write_text("mine")
    assert main(["prefs", str(run), "--to", str(target)]) == 2
    assert "exists already; name a file that does not" in capsys.readouterr().err and target.read_text() == "mine"
    with open(run / "episodes.jsonl", "a") as file:
        file.write('nonsense\n{"split": "train"}\n')
    before = sorted(tmp_path.iterdir())
    assert main(["prefs", str(run), "--to", str(tmp_path / "new.jsonl")]) == 2
    assert "episodes.jsonl is no JSON object; the file was altered" in capsys.readouterr().err
    assert sorted(tmp_path.iterdir()) == before
    assert main(["prefs", str(run), "--to", str(target / "below.jsonl")]) == 2
    assert "below.jsonl cannot be written" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--margin", "-1"], "--margin is -1; write a number from 0"),
        (["--margin", "nan"], "--margin is nan; write a number from 0"),
        (["--per-group", "0"], "--per-group is 0; write 1 or more"),
    ],
)
def test_options_out_of_range_are_refused(
    arguments: list[str], sentence: str, run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["prefs", str(run), "--to", str(tmp_path / "pairs.jsonl"), *arguments]) == 2
    assert sentence in capsys.readouterr().err


def test_what_is_no_run_folder_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["prefs", str(tmp_path), "--to", str(tmp_path / "pairs.jsonl")]) == 2
    assert "is no run folder (no config.yaml in it)" in capsys.readouterr().err
