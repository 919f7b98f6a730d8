"""What the YAML files say about themselves in their comments."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

from evo_hpo.config import paths
from evo_hpo.config.provenance import source_of


def about(file: Path) -> str:
    """What a YAML file says first about itself, in its first comment: up to the line that ends with a full stop."""
    told: list[str] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        if line.startswith("# @"):
            continue
        if not line.startswith("#"):
            break
        told.append(line.lstrip("# ").strip())
        if told[-1].endswith((".", ":")):
            break
    return " ".join(told)


def comment_above(file: Path, name: str) -> str:
    """The last comment line above the first key `name` of a YAML file; empty where there is none."""
    before = ""
    for line in file.read_text(encoding="utf-8").splitlines():
        if re.match(rf"\s*{re.escape(name)}:", line):
            return before.strip().lstrip("# ") if before.strip().startswith("#") else ""
        before = line
    return ""


def hint_for(key: str, provenance: Mapping[str, str]) -> str:
    """What to write for `key`, in the words of the file that leaves it open."""
    source = source_of(provenance, key)
    if source is None:
        return "value"
    folder, _, rest = source.partition("/")
    roots = {"conf": paths.conf, "sweeps": paths.sweeps}
    file = roots[folder]() / rest if folder in roots else Path(source)
    return (comment_above(file, key.rpartition(".")[2]) if file.is_file() else "") or "value"
