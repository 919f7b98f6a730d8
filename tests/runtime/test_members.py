"""Members of stored runs: `export` gives peft the same agent, `play` shows what it does."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import PeftModel
from transformers import AutoModelForCausalLM

from evo_hpo.cli.main import main
from evo_hpo.config.errors import UserError
from evo_hpo.policy.base import TINY
from evo_hpo.runtime.checkpoints import Checkpoints
from evo_hpo.runtime.export import export_member
from evo_hpo.runtime.play import visible
from tests.building import config, policy_of
from tests.runtime.support import started


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("finished") / "run"
    started(folder, "algorithm.optimizer.learning_rate=1e-2", "pipeline.stages.train.updates=2")  # far from the base
    return folder


@pytest.fixture
def unfinished(finished: Path, tmp_path: Path) -> Path:
    """The same run, as it was before its result was written."""
    copy = Path(shutil.copytree(finished, tmp_path / "unfinished"))
    (copy / "result.json").unlink()
    shutil.rmtree(copy / "best")
    return copy


def logits(run: Path, generation: int, member: int, ids: torch.Tensor) -> torch.Tensor:
    """Of a member as the checkpoint has it."""
    policy = policy_of(config(), 1)
    tensors = Checkpoints(run, 3).load(generation).tensors
    policy.block.load(tensors["policy"][member : member + 1])
    with torch.no_grad(), policy.acting("policy"):
        return torch.as_tensor(policy.base.model(ids).logits)


def peft_logits(folder: Path, ids: torch.Tensor) -> torch.Tensor:
    with torch.no_grad():
        model = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(TINY), folder).eval()
        return torch.as_tensor(model(ids).logits)


IDS = torch.arange(6, 30).reshape(2, 12)


def test_the_exported_best_gives_the_same_logits_in_peft(
    finished: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "adapter"
    assert main(["export", str(finished), "--member", "best", "--to", str(target)]) == 0
    assert capsys.readouterr().out == f"wrote {target}\n"
    best = json.loads((finished / "result.json").read_text())["best"]["member"]
    theirs = peft_logits(target, IDS)
    torch.testing.assert_close(theirs, logits(finished, 3, best, IDS), rtol=1e-5, atol=1e-5)
    others = [logits(finished, 3, member, IDS) for member in range(3) if member != best]
    assert all(not torch.allclose(theirs, other, atol=1e-3) for other in others)


@pytest.mark.parametrize("member", ["0", "1", "2"])
def test_every_member_of_an_unfinished_run_can_be_exported(unfinished: Path, tmp_path: Path, member: str) -> None:
    export_member(unfinished, member, tmp_path / "adapter")
    ours = logits(unfinished, 3, int(member), IDS)
    torch.testing.assert_close(peft_logits(tmp_path / "adapter", IDS), ours, rtol=1e-5, atol=1e-5)


def test_a_damaged_checkpoint_is_passed_over(unfinished: Path, tmp_path: Path) -> None:
    (Checkpoints(unfinished, 3).path(3) / "state.json").write_text("{}")
    export_member(unfinished, "1", tmp_path / "adapter")
    ours = logits(unfinished, 2, 1, IDS)
    torch.testing.assert_close(peft_logits(tmp_path / "adapter", IDS), ours, rtol=1e-5, atol=1e-5)


def test_the_best_of_an_unfinished_run_is_that_of_its_last_generation(
    finished: Path, unfinished: Path, tmp_path: Path
) -> None:
    export_member(unfinished, "best", tmp_path / "early")
    export_member(finished, "best", tmp_path / "late")
    for name in ("adapter_config.json", "adapter_model.safetensors"):
        assert (tmp_path / "early" / name).read_bytes() == (tmp_path / "late" / name).read_bytes()


def test_an_exported_adapter_names_the_base_without_a_path_of_this_machine(finished: Path, tmp_path: Path) -> None:
    export_member(finished, "best", tmp_path / "adapter")
    written = (tmp_path / "adapter" / "adapter_config.json").read_text()
    assert json.loads(written)["base_model_name_or_path"] == "builtin:tiny"
    assert str(TINY) not in written and str(finished) not in written


def test_a_folder_that_holds_something_is_not_written_to(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine.txt").write_text("mine")
    (tmp_path / "empty").mkdir()
    with pytest.raises(UserError, match="holds something already"):
        export_member(finished, "best", tmp_path / "full")
    export_member(finished, "best", tmp_path / "empty")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["mine.txt"]


def test_a_target_that_cannot_be_made_is_a_sentence(finished: Path, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="could not be written"):
        export_member(finished, "best", tmp_path / "file" / "adapter")


def test_members_that_are_not_there_are_named(unfinished: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has no member 3; its members are 0, 1, 2"):
        export_member(unfinished, "3", tmp_path / "adapter")
    shutil.rmtree(unfinished / "checkpoints")
    with pytest.raises(UserError, match="has no intact checkpoint, so none of its members can be loaded"):
        export_member(unfinished, "best", tmp_path / "adapter")
    assert not (tmp_path / "adapter").exists()


def test_play_shows_every_turn_and_what_came_of_it(finished: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", str(finished), "--member", "2", "--task", "41", "--episodes", "2"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("member 2 after 3 generations in Stopping\n")
    assert "\ntask 41\n    41?\n 1  " in out and "\ntask 42\n    42?\n 1  " in out
    assert out.count("\n 3  ") == 2, "three turns each"
    assert out.count(" after 3 turns (terminated)") == 2
    assert out.rstrip().endswith(
        f"{out.count('success after') - out.count('no success after')} of 2 episodes succeeded"
    )


def test_play_of_the_best_shows_episodes_that_the_result_was_measured_on(
    finished: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["play", str(finished), "--episodes", "6"]) == 0
    out = capsys.readouterr().out
    result = json.loads((finished / "result.json").read_text())
    assert f"{round(result['best']['success'] * 6)} of 6 episodes succeeded" in out
    lines = [json.loads(line) for line in (finished / "episodes.jsonl").read_text().splitlines()]
    final = [line for line in lines if line["split"] == "final"]
    assert final and all(f"task {line['task']}\n" in out for line in final)


def test_play_of_the_base_needs_no_run(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["play", "base", "env=guess_number", "--task", "5", "--temperature", "0.1"]) == 0
    out = capsys.readouterr().out
    assert out.startswith("the base in GuessNumber\n") and "\ntask 5\n    1..32?\n 1  " in out


def test_what_an_agent_says_cannot_steer_the_terminal() -> None:
    assert visible("\x1b[2Jä\n\ttwo\x00") == "\\x1b[2Jä\n\\ttwo\\x00"
