"""A mutated value that does not reach the update is impossible: every key that can evolve changes what is learned."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
import torch

from evo_hpo.config.alternatives import components
from evo_hpo.evolution import hyperparameters
from tests.building import config, shake, training_of

# What a key needs to count, beside the first preset that has it. Everything else counts as it is.
NEEDS: dict[str, list[str]] = {
    "algorithm.objective.low": ["algorithm.epochs=2"],
    "algorithm.objective.cap": ["algorithm.epochs=2"],
    "rollout.top_k": ["rollout.top_k=3"],
    "algorithm.advantage.alpha": ["rollout.tasks=8", "rollout.group_size=2"],  # groups with equally many turns
    # rows that drift a little, so that they are left out by the mask and not clipped anyway
    "algorithm.sequence_mask.delta": ["algorithm.epochs=3", "algorithm.optimizer.learning_rate=1e-5"],
}
# Values to compare, where doubling the own one would be out of range or change too little.
VALUES: dict[str, tuple[Any, Any]] = {
    "clip_low": (0.0001, 0.2),
    "clip_high": (0.0001, 0.2),
    "gamma": (1.0, 0.5),
    "turn_gamma": (1.0, 0.5),
    "lam": (1.0, 0.3),
    "top_p": (1.0, 0.6),
    "top_k": (0, 2),
    "epochs": (1, 3),
    "group_size": (2, 4),
    "turn_decay": (1.0, 0.5),
    "weight_decay": (0.0, 0.9),
    "max_grad_norm": (1e-4, 1.0),
    "value_clip": (1e-6, 0.2),
    "ratio_low": (0.9999, 0.5),
    "ratio_high": (1.0001, 3.0),
    "threshold": (1e-9, 0.5),
    "low": (0.99999, 0.2),
    "high": (1.00001, 5.0),
    "cap": (0.5, 5.0),
    "delta": (0.0, 10.0),
}


@cache
def cases() -> dict[str, list[str]]:
    """Key -> overrides of the first preset that has it."""
    found: dict[str, list[str]] = {}
    for name, algorithm in components("algorithm").items():
        if algorithm.learns_from == "rollout" and not algorithm.trains_scorer:
            for key in hyperparameters.of_algorithm(algorithm):
                found.setdefault(f"{key} ({type(_owner(algorithm, key)).__name__})", [f"algorithm={name}"])
    for key in hyperparameters.of_stage(components("algorithm")["grpo"], config("evolution=none")):
        if not key.startswith("algorithm."):
            found[key] = ["algorithm=ppo"]
    composite = ["reward=composite", "+reward@reward.parts.near=turn_limit", "+reward.weights.near=0.1"]
    return found | {"reward.weights.near": [*composite, "reward.parts.near.free_turns=0"]}


def _owner(part: Any, key: str) -> Any:
    for step in key.split(".")[1:-1]:
        part = getattr(part, step)
    return part


@pytest.mark.parametrize("case", cases())
def test_a_mutated_value_changes_what_is_learned(case: str) -> None:
    """Two members in the same slot, so with the same weights and noise, differ in one value; three updates."""
    key = case.partition(" ")[0]
    settings = config("evolution=none", "env.max_turns=6", *cases()[case], *NEEDS.get(key, []))
    training = training_of(settings, slots=[0, 0])
    shake(training.policy)
    training.prepare()
    own = hyperparameters.of_stage(training.stage.algorithm, training.config)[key]
    values = {key: list(VALUES.get(key.rpartition(".")[2], (own, 2 * own + 0.1)))}
    training.progress.values = values
    training.take(values)
    for _ in range(3):
        training.update()
    blocks = [block for block in (training.policy.block, training.policy.critic) if block is not None]
    assert any(not torch.equal(block.data[0], block.data[1]) for block in blocks)


def test_members_with_the_same_values_learn_the_same() -> None:
    """Else the test above would prove nothing."""
    training = training_of(config("evolution=none", "algorithm=ppo"), slots=[0, 0])
    shake(training.policy)
    training.prepare()
    for _ in range(3):
        training.update()
    for block in (training.policy.block, training.policy.critic):
        assert block is not None and torch.equal(block.data[0], block.data[1])
