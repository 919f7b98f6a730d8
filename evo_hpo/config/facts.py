"""A checked config with what was chosen to get it, and what is wrong with it as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evo_hpo.config.schema import Config
from evo_hpo.config.validate import Provenance


@dataclass(frozen=True)
class Facts:
    """A config whose keys and types are right, and what was chosen to get it."""

    config: Config
    provenance: Provenance
    choices: Mapping[str, str]  # config group -> option; empty where only the values are known

    def named(self, group: str) -> str:
        """`env=frozen_lake`, or `env=FrozenLake` where the option is not known."""
        return f"{group}={self.choices.get(group) or type(getattr(self.config, group)).__name__}"

    @property
    def algorithms(self) -> dict[str, Any]:
        """Stage -> its algorithm, in the order of the pipeline."""
        pipeline = self.config.pipeline
        return {name: pipeline.stages[name].algorithm for name in pipeline.order if name in pipeline.stages}


@dataclass(frozen=True)
class Violation:
    reason: str  # what does not go together, and why
    remedy: str  # the nearest legal choice

    def __str__(self) -> str:
        return f"{self.reason}; {self.remedy}"
