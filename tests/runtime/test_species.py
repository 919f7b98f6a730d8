"""A population of several algorithms: its members learn as among their own kind, and selection works across them."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import optuna
import pytest
import torch

from evo_hpo.config.build import build
from evo_hpo.config.errors import UserError
from evo_hpo.config.species import recorded_spaces
from evo_hpo.policy.sampling import Sampling
from evo_hpo.runtime.controls import asked_for as controls_of
from evo_hpo.runtime.controls import run_controls
from evo_hpo.runtime.evaluate import Success
from evo_hpo.runtime.members import stored_member
from evo_hpo.runtime.replaying import asked_for as replay_of
from evo_hpo.runtime.resuming import asked_for as resume_of
from evo_hpo.runtime.training import Training
from evo_hpo.tracking.core import Trackers
from evo_hpo.tracking.optuna import best_values, export_study
from tests.building import config, training_of
from tests.runtime.support import Left, Recorder, resumed, started, stored

TWO = "evolution.species.algorithm=[grpo,ppo]"
RATE = "algorithm.optimizer.learning_rate"
CRITIC, OF_PPO = "algorithm.critic.optimizer.learning_rate", "when: {algorithm: [ppo]}"
STRATEGIES = ["none", "random", "truncation", "tournament", "gated", "pb2", "mf_pbt", "asha", "tpe"]


def rates(*values: float) -> list[Success]:
    return [Success(value, value, value, 8, (value,) * 6) for value in values]


def two(*overrides: str) -> Training:
    return training_of(config(TWO, "evolution.population=4", "env.max_turns=6", *overrides))


def members_of(training: Training) -> dict[str, list[int]]:
    return {team.species.name: team.members for team in training.teams}


def test_species_take_turns_and_the_first_of_each_has_its_own_values() -> None:
    training = two("evolution=gated")
    training.prepare()
    assert training.progress.values["algorithm"] == ["grpo", "ppo", "grpo", "ppo"]
    own = {one.name: one.config.algorithm.optimizer.learning_rate for one in training.species}
    column = training.progress.values[RATE]
    assert column[:2] == [own["grpo"], own["ppo"]] and column[2] != own["grpo"] and column[3] != own["ppo"]
    assert members_of(training) == {"grpo": [0, 2], "ppo": [1, 3]}


@pytest.mark.parametrize("ahead", [1, 2])
def test_a_member_learns_as_in_a_population_of_its_own_kind(ahead: int) -> None:
    size = ["evolution=none", f"rollout.ahead={ahead}", "pipeline.stages.train.updates=2"]
    size += ["pipeline.stages.train.generations=1", "granularity=mixed"]
    mixed, recorder = two(*size), Recorder()
    mixed.trackers = Trackers([recorder])
    mixed.run()
    for name, members in members_of(mixed).items():
        alone, apart = (
            training_of(config(f"algorithm={name}", "evolution.population=4", "env.max_turns=6", *size)),
            Recorder(),
        )
        alone.trackers = Trackers([apart])
        alone.run()
        for m in members:
            torch.testing.assert_close(mixed.policy.block.data[m], alone.policy.block.data[m], atol=1e-5, rtol=1e-4)
            ours, theirs = (one.updates[1].members[m].metrics for one in (recorder, apart))
            assert ours.keys() == theirs.keys()
            assert ours["grad_norm"] > 0 and ours["grad_norm"] == pytest.approx(theirs["grad_norm"], rel=1e-3)
            assert recorder.generations[0].members[m].fitness == apart.generations[0].members[m].fitness
    assert [m.member for m in recorder.updates[0].members] == [0, 1, 2, 3]
    ppo, grpo = (recorder.updates[0].members[m].metrics for m in (1, 0))
    assert any(key not in grpo for key in ppo), "a critic has metrics that others have not"


def test_each_species_is_paid_by_its_own_reward_and_granularity() -> None:
    training = training_of(
        config(
            "evolution.species.granularity=[sparse,dense]",
            "evolution=none",
            "evolution.population=2",
            "env.max_turns=6",
        )
    )
    training.prepare()
    paid = {team.species.name: team.granularity.reward for team in training.teams}
    assert paid == {"sparse": "sparse", "dense": "dense"}
    collected = training._material(Sampling.same(2, 1.0))
    for team, one in zip(training.teams, collected, strict=True):
        outcomes = [sum(rewards) for rewards in one.scored.turn_rewards]
        expected = [
            s.outcome if team.species.name == "sparse" else sum(s.turn_rewards or []) for s in one.scored.scores
        ]
        assert outcomes == pytest.approx(expected)


def test_a_clone_of_another_species_learns_on_as_its_parent() -> None:
    training = two("evolution=truncation")
    training.prepare()
    training.take(training.progress.values)
    training.update()
    grpo, ppo = training.teams
    moments = ppo.learner.optimizer.first.clone()
    critic = ppo.policy.critic.data.clone()  # type: ignore[union-attr]
    training._evolve(rates(0.1, 0.9, 0.5, 0.6))
    assert training.progress.history[-1]["parents"] == [1, 1, 2, 3]
    assert training.progress.values["algorithm"] == ["ppo", "ppo", "grpo", "ppo"]
    assert members_of(training) == {"grpo": [2], "ppo": [0, 1, 3]}
    assert torch.equal(training.policy.block.data[0], training.policy.block.data[1])
    assert torch.equal(ppo.learner.optimizer.first, moments[[0, 0, 1]])
    assert torch.equal(ppo.policy.critic.data, critic[[0, 0, 1]])  # type: ignore[union-attr]
    assert ppo.policy.slots == [0, 1, 3]
    training.take(training.progress.values)
    training.update()
    assert not torch.equal(training.policy.block.data[0], training.policy.block.data[1]), "it explores"


def test_a_species_dies_out_when_its_last_member_loses_its_place() -> None:
    training = two("evolution=truncation", "evolution.strategy.quantile=0.5")
    training.prepare()
    training._evolve(rates(0.1, 0.9, 0.2, 0.8))
    assert members_of(training) == {"ppo": [0, 1, 2, 3]}
    assert set(training.progress.values["algorithm"]) == {"ppo"}
    training.take(training.progress.values)
    training.update()


def test_the_lineage_says_that_a_slot_has_changed_its_species() -> None:
    training, recorder = two("evolution=truncation"), Recorder()
    training.trackers = Trackers([recorder])
    training.prepare()
    training._evolve(rates(0.1, 0.9, 0.5, 0.6))
    lost = recorder.generations[0].members[0]
    assert (
        lost.text.startswith("member 0 (fitness 0.100) becomes a copy of member 1") and "ppo from now on" in lost.text
    )
    assert (lost.hyperparameters["algorithm"], lost.next_hyperparameters["algorithm"]) == ("grpo", "ppo")
    bare, recorder = two("evolution=truncation", "evolution/space=none"), Recorder()
    bare.trackers = Trackers([recorder])
    bare.prepare()
    bare._evolve(rates(0.1, 0.9, 0.5, 0.6))
    assert recorder.generations[0].members[0].text.endswith("; ppo from now on")


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_selects_across_species(strategy: str) -> None:
    size = [f"evolution={strategy}", "evolution.population=8", "pipeline.stages.train.generations=8"]
    range_ = "{type: float, low: 0.1, high: 10, relative: true, when: {algorithm: [ppo]}}"
    key = "+evolution.space.algorithm.critic.optimizer.learning_rate"
    training = two(*size, *([f"{key}={range_}"] if strategy != "none" else []))
    training.prepare()
    spaces = {one.name: one.space for one in training.species}
    for generation in range(5):
        members = training.policy.members
        good = [0.9 - 0.1 * abs((generation + m) % 5 - 2) + 0.001 * m for m in range(members)]
        if generation == 2:
            good[0] = math.nan
        training._evolve(rates(*good))
        values = training.progress.values
        for m, name in enumerate(values["algorithm"]):
            assert m in members_of(training)[name]
            own = {key: column[m] for key, column in values.items() if column[m] is not None}
            assert set(own) - {"algorithm"} == set(spaces[name])
            for key, value in own.items():
                if key != "algorithm":
                    assert spaces[name][key].low <= value <= spaces[name][key].high


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("species") / "run"
    lists = [TWO, f"+evolution.space.{CRITIC}={{type: float, low: 0.1, high: 10, relative: true, {OF_PPO}}}"]
    size = ["granularity=sparse", "evolution=truncation", "evolution.population=4", "tracker.report=true"]
    started(folder, *lists, *size)
    return folder


def lineage(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "lineage.jsonl").read_text().splitlines()]


def test_a_run_with_species_goes_on_as_if_it_had_never_stopped(run: Path, tmp_path: Path) -> None:
    species = [[line["before"]["algorithm"] for line in lineage(run) if line["generation"] == g] for g in range(3)]
    assert species[0] != species[2], "a member is meant to have crossed over"
    for generation in (1, 2):
        copy = Path(shutil.copytree(run, tmp_path / str(generation)))
        resumed(copy, f"generation={generation}")
        Left.by(copy).assert_same(Left.by(run))


def test_a_member_of_a_run_with_species_can_be_loaded(run: Path) -> None:
    for member in ("0", "3", "best"):
        assert stored_member(run, member).policy.members == 1


def test_the_winner_of_a_run_with_species_is_replayed_as_what_it_was(run: Path) -> None:
    asked = replay_of(run, ["replicas=1"])
    best = json.loads((run / "result.json").read_text())["best"]["hyperparameters"]["algorithm"]
    assert asked.config.evolution.species.parts == {}
    assert (asked.config.algorithm.critic is not None) == (best == "ppo")
    assert all("algorithm" not in step for step in asked.config.evolution.strategy.schedule["train"])
    assert all(
        set(step) == set(asked.config.evolution.space) for step in asked.config.evolution.strategy.schedule["train"]
    )


def test_controls_have_the_species_of_the_run_and_the_single_one_the_first(run: Path, tmp_path: Path) -> None:
    copy = Path(shutil.copytree(run, tmp_path / "run"))
    run_controls(controls_of(copy, ["arms=independent,single"]))
    of_independent = {line["before"]["algorithm"] for line in lineage(copy / "controls" / "independent")}
    assert of_independent == {"grpo", "ppo"}
    assert not any("algorithm" in line["before"] for line in lineage(copy / "controls" / "single"))


def test_a_study_of_species_seeds_a_run_of_one_of_them(run: Path) -> None:
    space = config("algorithm=ppo", "evolution=truncation", "granularity=sparse").evolution.space
    assert all(set(values) == set(space) for values in best_values(str(run), space))


def test_the_study_of_a_run_has_of_every_member_what_its_species_has(run: Path, tmp_path: Path) -> None:
    spaces = recorded_spaces(build(stored(run)))
    export_study(run, tmp_path / "study.db", spaces, "study")
    trials = optuna.load_study(study_name="study", storage=f"sqlite:///{tmp_path / 'study.db'}").trials
    assert {trial.params["algorithm"] for trial in trials} == {"grpo", "ppo"}
    assert all(set(trial.params) == set(spaces[trial.params["algorithm"]]) for trial in trials)


def test_the_report_shows_the_species_of_a_member(run: Path) -> None:
    page = (run / "report.html").read_text()
    assert "ppo from now on" in page or "grpo from now on" in page


@pytest.mark.parametrize("asked_for", [resume_of, replay_of])
def test_the_species_of_a_stored_run_are_not_exchanged(asked_for: Callable[..., Any], run: Path) -> None:
    with pytest.raises(UserError, match="would exchange a whole part of a run that has begun"):
        asked_for(run, ["evolution.species.algorithm=[grpo,gspo]"])


def test_an_override_of_a_stored_run_reaches_every_species_that_has_the_key(run: Path) -> None:
    parts = resume_of(run, ["algorithm.epochs=7", "reward.turn_penalty=0.5"]).config.evolution.species.parts
    assert [(one.algorithm.epochs, one.reward.turn_penalty) for one in parts.values()] == [(7, 0.5), (7, 0.5)]
    rate = "algorithm.critic.optimizer.learning_rate"
    parts = resume_of(run, [f"{rate}=0.5"]).config.evolution.species.parts
    assert parts["ppo"].algorithm.critic.optimizer.learning_rate == 0.5 and parts["grpo"].algorithm.critic is None
