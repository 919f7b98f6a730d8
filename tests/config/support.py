"""Compose and build as launch.py does, with a population of one unless a test chooses another."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from evo_hpo.config.build import build
from evo_hpo.config.compose import Composed, compose
from evo_hpo.config.errors import ConfigError
from evo_hpo.config.schema import Config

PLUGINS = Path(__file__).parent / "plugins"


def loaded(*overrides: str, extra: Path | None = None) -> tuple[Config, Composed]:
    population = any(override.startswith(("evolution=", "evolution/", "sweep=")) for override in overrides)
    composed = compose([*([] if population else ["evolution=none"]), *overrides], extra)
    return build(composed.values, composed.provenance, composed.choices), composed


def refusals(*overrides: str, extra: Path | None = None) -> list[str]:
    """The sentences that these overrides are refused with."""
    with pytest.raises(ConfigError) as caught:
        loaded(*overrides, extra=extra)
    return caught.value.problems


@contextmanager
def plugins_on_path() -> Iterator[None]:
    sys.path.insert(0, str(PLUGINS))
    try:
        yield
    finally:
        sys.path.remove(str(PLUGINS))


def coin(**settings: Any) -> list[str]:
    """Overrides that make the environment a `toy_parts.Coin`; for use with `plugins_on_path`."""
    keys = [f"{name}: {value}" for name, value in {"_target_": "toy_parts.Coin", **settings}.items()]
    return ["plugins=[toy_parts]", "~env", f"+env={{{', '.join(keys)}}}", "granularity=sparse"]


def write_yaml(folder: Path, name: str, text: str) -> Path:
    """Write a file of a config group below `folder`; returns `folder`."""
    file = folder / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text, encoding="utf-8")
    return folder
