"""Checkpoints: whole or not at all, verified when read, never overwritten, and nothing earlier is lost."""

from __future__ import annotations

import resource
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch

from evo_hpo.config.errors import UserError
from evo_hpo.runtime.checkpoints import CheckpointError, Checkpoints
from evo_hpo.runtime.folder import FolderError, RunFolder
from tests.runtime.support import BASE, GENERATION, Left, resumed, started
from tests.runtime.worlds import FILE_LIMIT, SIGNAL_AT


def tensors(value: float = 1.0, size: int = 1000) -> dict[str, torch.Tensor]:
    return {"policy": torch.full((2, size), value), "optimizer.count": torch.tensor([value, 2.0])}


def three(run: Path) -> Checkpoints:
    checkpoints = Checkpoints(run, keep=3)
    for generation in (1, 2, 3):
        checkpoints.save(generation, tensors(float(generation)), {"number": generation})
    return checkpoints


@contextmanager
def small_files(most: int) -> Iterator[None]:
    """Within, no file can grow beyond `most` bytes: what a full disk looks like to a writer."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_what_is_loaded_is_what_was_saved(tmp_path: Path) -> None:
    state = {"progress": {"values": [0.1 + 0.2, 3], "name": "ä"}, "nothing": None}
    Checkpoints(tmp_path, 3).save(4, tensors(0.1), state)
    loaded = Checkpoints(tmp_path, 3).load()
    assert (loaded.generation, loaded.state) == (4, state)
    assert loaded.tensors.keys() == tensors().keys()
    assert all(torch.equal(loaded.tensors[name], tensor) for name, tensor in tensors(0.1).items())


def truncate(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(bytes(content))


@pytest.mark.parametrize("damage", [truncate, flip_a_bit, Path.unlink])
@pytest.mark.parametrize("name", ["tensors.safetensors", "state.json", "manifest.json"])
def test_a_damaged_file_is_named_and_the_generation_before_is_offered(
    tmp_path: Path, name: str, damage: Callable[[Path], Any]
) -> None:
    checkpoints = three(tmp_path)
    damaged = checkpoints.path(3) / name
    damage(damaged)
    with pytest.raises(CheckpointError) as caught:
        checkpoints.load()
    sentence = str(caught.value)
    assert sentence.startswith(f"the checkpoint of generation 3 is damaged: {checkpoints.path(3)}")
    assert str(damaged) in sentence or name == "manifest.json"
    assert sentence.endswith(f"write `python launch.py resume={tmp_path} generation=2`")
    assert checkpoints.load(2).state == {"number": 2}
    assert checkpoints.intact() == [1, 2]


def test_only_intact_generations_are_offered(tmp_path: Path) -> None:
    checkpoints = three(tmp_path)
    truncate(checkpoints.path(3) / "state.json")
    truncate(checkpoints.path(2) / "tensors.safetensors")
    with pytest.raises(CheckpointError, match="generation=1`"):
        checkpoints.load()
    truncate(checkpoints.path(1) / "state.json")
    with pytest.raises(CheckpointError, match="no older one is intact, so start the run again"):
        checkpoints.load()


def test_a_checkpoint_is_never_overwritten(tmp_path: Path) -> None:
    checkpoints = three(tmp_path)
    with pytest.raises(CheckpointError, match="exists already, and a checkpoint is never overwritten"):
        checkpoints.save(3, tensors(9.0), {})
    assert checkpoints.load().state == {"number": 3}


def test_the_newest_are_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep=2)
    for generation in range(1, 6):
        checkpoints.save(generation, tensors(), {})
    assert checkpoints.generations() == [4, 5]
    assert sorted(path.name for path in checkpoints.folder.iterdir()) == ["generation_00004", "generation_00005"]


def test_what_a_kill_left_half_written_or_half_removed_is_passed_over_and_cleared(tmp_path: Path) -> None:
    checkpoints = three(tmp_path)
    for leftover in (".writing_00004", ".removing_00001"):
        (checkpoints.folder / leftover).mkdir()
        (checkpoints.folder / leftover / "tensors.safetensors").write_bytes(b"half")
    (checkpoints.folder / "generation_00002 (copy)").mkdir()
    assert checkpoints.load().generation == 3
    checkpoints.save(4, tensors(), {"number": 4})
    assert checkpoints.load().state == {"number": 4}
    assert not list(checkpoints.folder.glob(".*"))


def test_a_full_disk_is_a_sentence_and_nothing_earlier_is_lost(tmp_path: Path) -> None:
    checkpoints = three(tmp_path)
    with small_files(100_000), pytest.raises(CheckpointError) as caught:
        checkpoints.save(4, tensors(size=1_000_000), {})
    sentence = str(caught.value)
    assert sentence.startswith("the checkpoint of generation 4 could not be written to ")
    assert sentence.endswith(f"free some space and continue with `python launch.py resume={tmp_path}`")
    assert checkpoints.intact() == [1, 2, 3]
    assert not list(checkpoints.folder.glob(".*"))


@pytest.fixture(scope="module")
def roomy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with all the space it needs."""
    folder = tmp_path_factory.mktemp("roomy") / "run"
    started(folder)
    return folder


@pytest.mark.parametrize(
    ("bytes_left", "sentence"),
    [
        (200_000, r"the checkpoint of generation 2 could not be written"),
        (1_000, r"the record of generation 2 could not be written"),
    ],
)
def test_a_run_whose_disk_fills_up_stops_at_the_checkpoint_and_can_go_on(
    roomy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, bytes_left: int, sentence: str
) -> None:
    folder = tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setenv(SIGNAL_AT, str(BASE + GENERATION + 20))
    monkeypatch.setenv(FILE_LIMIT, str(bytes_left))
    try:
        with pytest.raises(CheckpointError, match=rf"{sentence}.*resume={folder}"):
            started(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    monkeypatch.setenv(SIGNAL_AT, "0")
    assert Checkpoints(folder, 3).intact() == [1]
    resumed(folder)
    Left.by(folder).assert_same(Left.by(roomy))


def test_a_disk_that_is_full_at_the_end_costs_no_training(
    roomy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "run"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    monkeypatch.setenv(SIGNAL_AT, str(BASE + 3 * GENERATION + 5))  # while the result is measured
    monkeypatch.setenv(FILE_LIMIT, "60000")
    try:
        with pytest.raises(UserError, match="training is complete, but its result could not be written"):
            started(folder)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert Checkpoints(folder, 3).intact() == [1, 2, 3]
    monkeypatch.setenv(SIGNAL_AT, "0")
    resumed(folder)
    Left.by(folder).assert_same(Left.by(roomy))


def test_a_folder_that_cannot_be_made_is_refused_before_training(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(FolderError, match=r"cannot be written \(Not a directory\); choose another one with run_dir="):
        RunFolder(tmp_path / "file" / "run", free_mb=0)


def test_a_disk_that_is_full_is_refused_before_training(tmp_path: Path) -> None:
    with small_files(1000), pytest.raises(FolderError, match=r"cannot be written \(File too large\); free some space"):
        RunFolder(tmp_path, free_mb=0)
    with pytest.raises(FolderError, match=r"only \d+ MB are free .* lower checkpoint.free_mb"):
        RunFolder(tmp_path, free_mb=10**9)
    RunFolder(tmp_path, free_mb=1).release()  # a refusal lets the folder go


def test_a_folder_in_use_is_refused_and_free_again_afterwards(tmp_path: Path) -> None:
    first = RunFolder(tmp_path, free_mb=1)
    with pytest.raises(FolderError, match=r"is in use by process \d+; wait for it, or stop it first"):
        RunFolder(tmp_path, free_mb=1)
    first.release()
    RunFolder(tmp_path, free_mb=1).release()
