"""Checkpoints: one immutable folder per generation, with a checksum for every file.

A checkpoint is written beside its place, synced, and renamed into it, so that it is there whole or not at all. Tensors are
safetensors, everything else JSON; loading executes nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from pathlib import Path
from typing import Any

from safetensors.torch import load_file, save_file
from torch import Tensor

from evo_hpo.config.errors import UserError

TENSORS, STATE, MANIFEST = "tensors.safetensors", "state.json", "manifest.json"


class CheckpointError(UserError):
    """A checkpoint cannot be written or read; the message says which file and what to do."""


class Checkpoints:
    """The checkpoints of one run folder."""

    def __init__(self, run: Path, keep: int) -> None:
        self.run, self.folder, self.keep = run, run / "checkpoints", keep

    def generations(self) -> list[int]:
        """Numbers of completed generations on disk, oldest first."""
        found = self.folder.glob("generation_*") if self.folder.is_dir() else []
        return sorted(int(path.name.removeprefix("generation_")) for path in found)

    def path(self, generation: int) -> Path:
        return self.folder / f"generation_{generation:05d}"

    def save(self, generation: int, tensors: dict[str, Tensor], state: dict[str, Any]) -> Path:
        """Write the state after `generation` generations; older ones beyond `keep` are removed afterwards.

        Raises:
            CheckpointError: the disk is full or the folder cannot be written; what was there before is untouched.
        """
        target = self.path(generation)
        if target.exists():
            raise CheckpointError(f"{target} exists already, and a checkpoint is never overwritten; move it away to write it anew")
        scratch = self.folder / f".writing_{generation:05d}"
        try:
            shutil.rmtree(scratch, ignore_errors=True)
            scratch.mkdir(parents=True)
            save_file({name: tensor.detach().cpu().contiguous() for name, tensor in tensors.items()}, scratch / TENSORS)
            (scratch / STATE).write_text(json.dumps(state, indent=1))
            (scratch / MANIFEST).write_text(json.dumps({name: _digest(scratch / name) for name in (TENSORS, STATE)}, indent=1))
            for name in (TENSORS, STATE, MANIFEST):
                _sync(scratch / name)
            _sync(scratch)
            os.rename(scratch, target)
            _sync(self.folder)
        except Exception as error:  # safetensors reports a full disk as its own exception
            shutil.rmtree(scratch, ignore_errors=True)
            raise CheckpointError(
                f"the checkpoint of generation {generation} could not be written to {self.folder} ({error}); earlier ones are intact: "
                f"free some space and continue with `python launch.py resume={self.run}`"
            ) from error
        for old in self.generations()[: -self.keep]:
            shutil.rmtree(self.path(old))
        return target

    def load(self, generation: int | None = None) -> tuple[int, dict[str, Tensor], dict[str, Any]]:
        """Generation, tensors and state of the newest (or the named) checkpoint, verified.

        Raises:
            CheckpointError: there is none, or a file is missing, truncated or altered; the message offers the one before.
        """
        there = self.generations()
        if not there:
            raise CheckpointError(f"{self.run} has no checkpoint, as no generation was completed; start it again")
        chosen = there[-1] if generation is None else generation
        if chosen not in there:
            raise CheckpointError(f"{self.run} has no checkpoint of generation {chosen}; there are {', '.join(map(str, there))}")
        damage = self._damage(chosen)
        if damage:
            older = [g for g in there if g < chosen and not self._damage(g)]
            offer = (
                f"to continue from generation {older[-1]}, write `python launch.py resume={self.run} generation={older[-1]}`"
                if older
                else "no older one is intact, so start the run again"
            )
            raise CheckpointError(f"the checkpoint of generation {chosen} is damaged: {damage}; {offer}")
        path = self.path(chosen)
        return chosen, load_file(path / TENSORS), json.loads((path / STATE).read_text())

    def drop_after(self, generation: int) -> None:
        """Remove checkpoints newer than `generation`, which a run continued from it makes anew."""
        for newer in [g for g in self.generations() if g > generation]:
            shutil.rmtree(self.path(newer))

    def _damage(self, generation: int) -> str:
        path = self.path(generation)
        try:
            manifest = json.loads((path / MANIFEST).read_text())
            for name in (TENSORS, STATE):
                if _digest(path / name) != manifest[name]:
                    return f"{path / name} is not what was written (its checksum differs)"
        except (OSError, ValueError, KeyError, TypeError) as error:
            return f"{path / MANIFEST} or a file it names cannot be read ({error})"
        return ""


def _digest(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
