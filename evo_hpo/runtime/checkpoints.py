"""Checkpoints: one immutable folder per generation, with a checksum for every file.

A checkpoint is written beside its place, synced, and renamed into it, and renamed away before it is removed, so that it
is there whole or not at all. Tensors are safetensors, everything else JSON; loading executes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from evo_hpo.config.errors import UserError

TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"
NAME = re.compile(r"generation_(\d+)")
SCRATCH, DOOMED = ".writing_", ".removing_"  # what a kill leaves of these is cleared by the next save


class CheckpointError(UserError):
    """A checkpoint cannot be written or read; the message says which file and what to do."""


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after `generation` generations."""

    generation: int
    tensors: dict[str, Tensor]
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, run: Path, keep: int) -> None:
        self.run, self.folder, self.keep = run, run / "checkpoints", keep

    def generations(self) -> list[int]:
        """Numbers of completed generations on disk, oldest first."""
        names = [path.name for path in self.folder.iterdir()] if self.folder.is_dir() else []
        return sorted(int(match[1]) for match in map(NAME.fullmatch, names) if match)

    def intact(self) -> list[int]:
        """Those of `generations` that can be read and are what was written."""
        return [generation for generation in self.generations() if not self._damage(generation)]

    def path(self, generation: int) -> Path:
        return self.folder / f"generation_{generation:05d}"

    def save(self, generation: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> Path:
        """Write the state after `generation` generations; older ones beyond `keep` are removed afterwards.

        Raises:
            CheckpointError: the disk is full or the folder cannot be written; what was there before is untouched.
        """
        target = self.path(generation)
        if target.exists():
            raise CheckpointError(
                f"{target} exists already, and a checkpoint is never overwritten; move it away to write it anew"
            )
        scratch = self.folder / f"{SCRATCH}{generation:05d}"
        try:
            self._clear()
            scratch.mkdir(parents=True)
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, scratch / TENSORS)
            (scratch / STATE).write_text(json.dumps(state, indent=1))
            (scratch / MANIFEST).write_text(
                json.dumps({name: _digest(scratch / name) for name in (TENSORS, STATE)}, indent=1)
            )
            for name in (TENSORS, STATE, MANIFEST):
                _sync(scratch / name)
            _sync(scratch)
            os.rename(scratch, target)
            _sync(self.folder)
        except Exception as error:  # safetensors reports a full disk as its own exception
            self._clear()
            raise CheckpointError(
                f"the checkpoint of generation {generation} could not be written to {self.folder} ({error}); earlier "
                f"ones are intact: free some space and continue with `python launch.py resume={self.run}`"
            ) from error
        for old in self.generations()[: -self.keep]:
            self._remove(old)
        return target

    def load(self, generation: int | None = None) -> Checkpoint:
        """The newest (or the named) checkpoint, verified.

        Raises:
            CheckpointError: there is none, or a file is missing, truncated or altered; the message offers the one
                before.
        """
        there = self.generations()
        if not there:
            raise CheckpointError(f"{self.run} has no checkpoint, as no generation was completed; start it again")
        chosen = there[-1] if generation is None else generation
        if chosen not in there:
            raise CheckpointError(
                f"{self.run} has no checkpoint of generation {chosen}; there are {', '.join(map(str, there))}"
            )
        path, damage = self.path(chosen), self._damage(chosen)
        if not damage:
            try:
                return Checkpoint(chosen, load_file(path / TENSORS), _mapping(path / STATE))
            except (OSError, ValueError, SafetensorError) as error:  # somebody made its checksums fit
                damage = f"{path} does not hold what a run writes ({error})"
        older = [g for g in self.intact() if g < chosen]
        offer = "no older one is intact, so start the run again"
        if older:
            resume = f"python launch.py resume={self.run} generation={older[-1]}"
            offer = f"to continue from generation {older[-1]}, write `{resume}`"
        raise CheckpointError(f"the checkpoint of generation {chosen} is damaged: {damage}; {offer}")

    def drop_after(self, generation: int) -> None:
        """Remove checkpoints newer than `generation`, which a run continued from it makes anew."""
        for newer in [g for g in self.generations() if g > generation]:
            self._remove(newer)

    def _remove(self, generation: int) -> None:
        doomed = self.folder / f"{DOOMED}{generation:05d}"
        shutil.rmtree(doomed, ignore_errors=True)
        os.rename(self.path(generation), doomed)
        shutil.rmtree(doomed, ignore_errors=True)

    def _clear(self) -> None:
        for leftover in [*self.folder.glob(f"{SCRATCH}*"), *self.folder.glob(f"{DOOMED}*")]:
            shutil.rmtree(leftover, ignore_errors=True)

    def _damage(self, generation: int) -> str:
        """What is wrong with a checkpoint; empty where nothing is."""
        path = self.path(generation)
        try:
            manifest = json.loads((path / MANIFEST).read_text())
            written = {name: str(manifest[name]) for name in (TENSORS, STATE)}
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{path / MANIFEST} cannot be read ({type(error).__name__})"
        for name, digest in written.items():
            try:
                if _digest(path / name) != digest:
                    return f"{path / name} is not what was written (its checksum differs)"
            except OSError as error:
                return f"{path / name} cannot be read ({error.strerror})"
        return ""


def _mapping(path: Path) -> dict[str, Any]:
    content = json.loads(path.read_text())
    if not isinstance(content, dict):
        raise ValueError(f"{path.name} is no mapping")
    return content


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
