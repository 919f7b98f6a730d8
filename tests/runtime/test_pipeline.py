"""Stages: each begins with what the one before left, and what that one left is the reference."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from evo_hpo.runtime.training import Training
from tests.building import config, training_of
from tests.runtime.support import BASE, GENERATION, Left, resumed, started
from tests.runtime.test_population import recorded
from tests.runtime.worlds import SIGNAL, SIGNAL_AT

SFT_THEN_GRPO = [
    "pipeline=sft_then_grpo",
    "pipeline.stages.sft.updates=2",
    "pipeline.stages.grpo.generations=2",
    "pipeline.stages.grpo.updates=1",
    "algorithm.minibatches=1",
    "evolution.population=2",
]


def test_reinforcement_starts_from_the_clone_and_the_clone_is_its_reference() -> None:
    after_sft: dict[str, torch.Tensor] = {}

    def save(training: Training) -> None:
        if training.progress.generation == 1:
            after_sft["policy"] = training.policy.block.data.clone()
            assert training.policy.reference is None

    training = training_of(config(*SFT_THEN_GRPO), save=save)
    fresh = training.policy.block.data.clone()
    recorder = recorded(training)
    result = training.run()
    assert [(record.stage, record.generation) for record in recorder.updates] == [
        ("sft", 0),
        ("sft", 0),
        ("grpo", 1),
        ("grpo", 2),
    ]
    assert result["generations"] == 3 and result["updates"] == 4
    assert not torch.equal(after_sft["policy"], fresh)
    assert training.policy.reference is not None
    first, second = recorder.updates[2], recorder.updates[3]
    assert [part.metrics["kl"] for part in first.members] == [0.0, 0.0]
    assert all(part.metrics["kl"] > 0 for part in second.members)
    assert [record.members[0].event for record in recorder.generations][0] == "kept"


def test_the_reference_follows_its_member_through_evolution() -> None:
    training = training_of(config(*SFT_THEN_GRPO))
    training.run()
    assert training.policy.reference is not None
    # all members clone the same expert on the same episodes from different starts, so their references differ
    parents = training.progress.history[1]["parents"]
    rows = training.policy.reference.data
    assert torch.equal(rows[0], rows[1]) == (parents[0] == parents[1])


def test_hyperparameters_are_known_before_the_first_update() -> None:
    training = training_of(config("evolution.population=3"))
    assert training.progress.values == {}
    training.prepare()
    values = training.progress.values
    assert set(values) == set(training.config.evolution.space)
    assert values["algorithm.optimizer.learning_rate"][0] == 1e-3, "member 0 keeps the config's own"
    training.prepare()
    assert training.progress.values is values


STAGES = [
    "pipeline=sft_then_grpo",
    "pipeline.stages.sft.updates=2",
    "pipeline.stages.grpo.generations=2",
    "pipeline.stages.grpo.updates=1",
]


ADAPTIVE = ["algorithm.kl.target=0.001", "algorithm.entropy.target=0.5"]


@pytest.mark.parametrize(
    ("overrides", "at"),
    [
        (["algorithm=ppo", *ADAPTIVE, "algorithm.minibatches=2"], BASE + GENERATION + 20),
        (["algorithm=sorl", *ADAPTIVE, "algorithm.minibatches=2"], BASE + GENERATION + 20),
        (STAGES, BASE + 20),  # in the first stage, whose generation takes 42 steps: the expert plays once for all
        (STAGES, BASE + 42 + 20),  # in the first generation of the second
        (STAGES, BASE + 42 + GENERATION + 20),  # in the last
    ],
)
def test_critics_memory_and_stages_survive_a_stop(
    overrides: list[str], at: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started(tmp_path / "unbroken", *overrides)
    monkeypatch.setenv(SIGNAL_AT, str(at))
    monkeypatch.setenv(SIGNAL, "SIGTERM")
    with pytest.raises(KeyboardInterrupt):
        started(tmp_path / "stopped", *overrides)
    monkeypatch.setenv(SIGNAL_AT, "0")
    resumed(tmp_path / "stopped")
    Left.by(tmp_path / "stopped").assert_same(Left.by(tmp_path / "unbroken"))
