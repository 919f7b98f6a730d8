"""The run folder: who owns it, and whether it can be written."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from pathlib import Path
from typing import IO, Any

from evo_hpo.config.errors import UserError


class FolderError(UserError):
    """The run folder cannot be used; the message says why and what to do."""


class RunFolder:
    """A run's folder, locked for this process until `release`.

    Raises:
        FolderError: another process holds it, it cannot be written, or the disk is nearly full.
    """

    def __init__(self, path: Path, free_mb: int) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._lock: IO[str] = open(path / "run.lock", "a+")  # noqa: SIM115 - held for the life of the run
        except OSError as error:
            raise FolderError(
                f"the run folder {path} cannot be written ({error.strerror}); choose another one with run_dir=…"
            ) from error
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self._lock.seek(0)
            owner = self._lock.read().strip() or "unknown"
            self._lock.close()
            raise FolderError(
                f"the run folder {path} is in use by process {owner}; wait for it, or stop it first"
            ) from error
        self._lock.truncate(0)
        self._lock.write(str(os.getpid()))
        self._lock.flush()
        try:
            probe = path / ".probe"
            probe.write_bytes(b"\0" * 65536)
            probe.unlink()
        except OSError as error:
            self.release()
            raise FolderError(
                f"the run folder {path} cannot be written ({error.strerror}); free some space, or choose another one "
                "with run_dir=…"
            ) from error
        free = shutil.disk_usage(path).free / 2**20
        if free < free_mb:
            self.release()
            raise FolderError(
                f"only {free:.0f} MB are free where the run folder {path} lies, and checkpoint.free_mb asks for "
                f"{free_mb}; free some space, choose another folder with run_dir=…, or lower checkpoint.free_mb"
            )

    def release(self) -> None:
        self._lock.close()


def write_json(path: Path, value: Any) -> None:
    """Write a JSON file so that a reader sees the old one or the whole new one."""
    write_text(path, json.dumps(value, indent=1, allow_nan=False))


def write_text(path: Path, text: str) -> None:
    """Write a file so that a reader sees the old one or the whole new one."""
    scratch = path.with_name(f".{path.name}.tmp")
    with open(scratch, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())
    os.replace(scratch, path)
