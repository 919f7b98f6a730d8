"""Small real runs for tests: the shipped base, real environments, everything on one thread."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import torch

from envs.core import Episode, StopReason, Turn
from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.config.schema import Config
from evo_hpo.policy.base import Base, load_base
from evo_hpo.policy.policy import Policy
from evo_hpo.runtime.processes import Processes
from evo_hpo.runtime.training import Training
from evo_hpo.tracking.core import Trackers

SMALL = [
    "device=cpu",
    "tracker=off",
    "rollout.tasks=2",
    "rollout.group_size=4",
    "rollout.slots=4",
    "evaluation.tasks=6",
    "evaluation.final_tasks=8",
    "pipeline.stages.train.generations=2",
    "pipeline.stages.train.updates=1",
]


def small(*overrides: str) -> list[str]:
    """`overrides` on top of those that make the default experiment small."""
    other_stages = any(line.startswith("pipeline=") for line in overrides)
    if not any(line.startswith(("evolution=", "sweep=")) for line in overrides):
        overrides = ("evolution=truncation", *overrides)  # it replaces somebody in every generation
    return [line for line in SMALL if not (other_stages and line.startswith("pipeline."))] + list(overrides)


def config(*overrides: str) -> Config:
    """The default config, small, with `overrides`."""
    composed = compose(small(*overrides))
    return build(composed.values, composed.provenance, composed.choices)


def base_of(settings: Config) -> Base:
    return load_base(settings.model, torch.device("cpu"), torch.float32, settings.seed)


def policy_of(settings: Config, members: int, slots: Sequence[int] | None = None) -> Policy:
    return Policy(base_of(settings), settings.model, members, settings.seed, slots)


def shake(policy: Policy, size: float = 0.3) -> None:
    """Move every member's adapters away from the base, each by its own noise."""
    for member, slot in enumerate(policy.slots):
        noise = torch.randn(policy.block.size, generator=torch.Generator().manual_seed(1000 + slot))
        policy.block.data[member] += size * noise * policy.block.data[member].abs().mean()


def training_of(settings: Config, slots: Sequence[int] | None = None, save: Any = None) -> Training:
    """A `Training` of the whole population, or of the members that fill `slots` of it."""
    members = settings.evolution.population if slots is None else len(slots)
    policy = policy_of(settings, members, slots)
    return Training(settings, policy, Processes(cpu=True), Trackers([]), save or (lambda training: None))


def episode(member: int, group: int, turns: Sequence[tuple[list[int], list[int]]], **changes: Any) -> Episode:
    """An episode of the given (observation ids, action ids), with log-probability -1 for every sampled id."""
    made = [Turn("", "", seen, said, [-1.0] * len(said)) for seen, said in turns]
    return dataclasses.replace(Episode(0, member, group, made, StopReason.TERMINATED), **changes)
