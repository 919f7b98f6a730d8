"""Answers on disk: one JSON file each, named by the content of the question."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any


def content_key(content: Any) -> str:
    """Name of a JSON value: equal values have equal names."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class Cache:
    folder: Path

    def read(self, key: str) -> str | None:
        """The stored text; None where there is none, or none that can be read."""
        try:
            entry = json.loads((self.folder / f"{key}.json").read_text(encoding="utf-8"))
        except (OSError, ValueError, RecursionError):
            return None
        text = entry.get("answer") if isinstance(entry, dict) else None
        return text if isinstance(text, str) else None

    def write(self, key: str, text: str) -> None:
        """Store `text` so that a reader sees all of it or nothing.

        Raises:
            OSError: the folder cannot be written.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, partial = tempfile.mkstemp(dir=self.folder, suffix=".part")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump({"answer": text}, file)
            os.replace(partial, self.folder / f"{key}.json")
        except BaseException:
            Path(partial).unlink(missing_ok=True)
            raise
