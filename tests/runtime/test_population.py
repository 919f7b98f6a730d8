"""Through the whole loop: a population is its members side by side, clones are exact, and a broken one hurts nobody."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from evo_hpo.runtime.evaluate import Success
from evo_hpo.runtime.training import Training
from evo_hpo.tracking.core import Trackers
from tests.building import config, training_of
from tests.runtime.support import Recorder
from tests.runtime.worlds import Listening

FOUR = [
    "plugins=[tests]",
    "reward._target_=tests.runtime.worlds.Listening",
    "evolution.population=4",
    "pipeline.stages.train.generations=1",  # nobody is replaced at the end of the last generation
    "pipeline.stages.train.updates=3",
    "env.max_turns=6",
    "evaluation.tasks=2",
    "evaluation.final_tasks=1",
]


def recorded(training: Training) -> Recorder:
    recorder = Recorder()
    training.trackers = Trackers([recorder])
    return recorder


def optimizer_of(training: Training) -> dict[str, Tensor]:
    assert training.learner is not None
    return training.learner.optimizer.state()


def heard(members: int) -> list[list[Any]]:
    """What each member was heard to say, in order; forgotten then."""
    said = [[entry[1:] for entry in Listening.heard if entry[0] == member] for member in range(members)]
    Listening.heard.clear()
    return said


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_a_population_of_four_equals_four_runs_of_one(algorithm: str) -> None:
    settings = config(*FOUR, f"algorithm={algorithm}")
    together = training_of(settings)
    records = recorded(together)
    together.run()
    said = heard(4)
    values = together.progress.values
    assert len(set(values["algorithm.optimizer.learning_rate"])) == 4, "the members are meant to differ"
    for slot in range(4):
        alone = training_of(settings, slots=[slot])
        own = recorded(alone)
        alone.run()
        assert alone.progress.values == {name: [column[slot]] for name, column in values.items()}
        assert heard(1)[0] == said[slot], "the sampled tokens differ"
        torch.testing.assert_close(alone.policy.block.data[0], together.policy.block.data[slot], rtol=1e-4, atol=1e-5)
        for name, state in optimizer_of(alone).items():
            torch.testing.assert_close(state[0], optimizer_of(together)[name][slot], rtol=1e-3, atol=1e-5)
        for mine, all_ in zip(own.updates, records.updates, strict=True):
            norm = mine.members[0].metrics["grad_norm"]
            assert norm > 0 and math.isclose(norm, all_.members[slot].metrics["grad_norm"], rel_tol=1e-3)
        assert own.generations[0].members[0].fitness == records.generations[0].members[slot].fitness
    fresh = training_of(settings).policy.block.data
    assert all(not torch.allclose(fresh[m], together.policy.block.data[m], atol=1e-5) for m in range(4))


def rates(*values: float) -> list[Success]:
    return [Success(value, value, value, 8) for value in values]


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_the_elite_is_untouched_and_a_clone_is_exact_moments_included(algorithm: str) -> None:
    training = training_of(config("evolution.population=4", f"algorithm={algorithm}"))
    training.prepare()
    training.update()
    before = {name: tensor.clone() for name, tensor in training.tensors().items()}
    values = {name: list(column) for name, column in training.progress.values.items()}
    assert ("critic" in before) == (algorithm == "ppo")
    training._evolve(rates(0.2, 0.9, 0.5, 0.1))
    assert training.progress.history[-1]["parents"] == [0, 1, 2, 1], "the worst takes the place of the best"
    for name, tensor in training.tensors().items():
        assert not torch.equal(before[name][3], before[name][1]) or name.endswith("count")
        assert torch.equal(tensor, before[name][[0, 1, 2, 1]]), name
    assert all(training.progress.values[name][:3] == column[:3] for name, column in values.items())
    changed = [name for name, column in training.progress.values.items() if column[3] != values[name][1]]
    assert changed, "a clone is meant to explore"
    assert training.policy.block.checksum(3) == training.policy.block.checksum(1)


def test_a_clone_goes_its_own_way() -> None:
    training = training_of(config("evolution.population=2"))
    training.prepare()
    training._evolve(rates(0.1, 0.9))
    assert torch.equal(training.policy.block.data[0], training.policy.block.data[1])
    training.update()
    assert not torch.equal(training.policy.block.data[0], training.policy.block.data[1])


def test_a_new_learning_rate_leaves_the_moments_as_they_are() -> None:
    training = training_of(config("evolution.population=2"))
    training.prepare()
    training._generation()
    for name in ("first", "second"):
        optimizer_of(training)[name].fill_(1e3)
    training.progress.values["algorithm.optimizer.learning_rate"] = [1e-4, 5e-3]
    training._generation()
    after = optimizer_of(training)
    assert after["count"].tolist() == [4, 4], "two steps an update"
    assert after["first"].min() > 800 and after["second"].min() > 970  # a step keeps 0.9 and 0.99 of them


def test_equal_fitness_leaves_everybody_in_place() -> None:
    training = training_of(config("evolution.population=4"))
    training.prepare()
    training._evolve(rates(0.5, 0.5, 0.5, 0.5))
    assert training.progress.history[-1]["parents"] == [0, 1, 2, 3]


def poisoned(after: int, generations: int, poison: Sequence[int] = (1,)) -> tuple[Training, Recorder, dict[str, Any]]:
    """Three members; the weights of some become NaN after generation `after`."""

    def save(training: Training) -> None:
        if training.progress.generation == after:
            for member in poison:
                training.policy.block.data[member, :7] = math.nan

    settings = config("evolution.population=3", f"pipeline.stages.train.generations={generations}", "env.max_turns=6")
    training = training_of(settings, save=save)
    recorder = recorded(training)
    return training, recorder, training.run()


def test_a_member_that_became_nan_is_reported_and_rescued_and_the_others_do_not_notice() -> None:
    training, records, _ = poisoned(after=1, generations=3)
    _, healthy, _ = poisoned(after=1, generations=3, poison=())
    second, same = records.updates[1], healthy.updates[1]
    assert second.members[1].metrics["finite"] == 0 and same.members[1].metrics["finite"] == 1
    for other in (0, 2):
        # a broken member says other things, so the batch has another shape; in one shape the others are bit-identical
        # (tests/learner)
        assert second.members[other].metrics == pytest.approx(same.members[other].metrics, rel=1e-3, abs=1e-5)
        assert records.generations[1].members[other].fitness == healthy.generations[1].members[other].fitness
    event = records.generations[1].members[1]
    assert event.event == "rescued" and event.parent in (0, 2)
    assert math.isnan(event.fitness) and ": one of its updates was not finite; " in event.text
    assert [alarm.member for alarm in records.alarms if alarm.kind == "not_finite"] == [1]
    assert records.updates[2].members[1].metrics["finite"] == 1
    assert bool(training.policy.block.data.isfinite().all())


def test_a_member_that_became_nan_is_never_the_best() -> None:
    _, records, result = poisoned(after=1, generations=2)
    assert math.isnan(records.generations[1].members[1].fitness)
    assert result["best"]["member"] != 1
    assert result["best"]["success"] is not None


def test_a_run_whose_members_all_became_nan_still_ends_and_says_so() -> None:
    _, records, result = poisoned(after=1, generations=3, poison=(0, 1, 2))
    assert sorted(alarm.member or 0 for alarm in records.alarms if alarm.kind == "not_finite") == [0, 1, 2]
    assert result["best"]["member"] in (0, 1, 2)


@pytest.mark.parametrize(
    ("on_alarm", "fate"),
    [
        (
            "replace",
            "member 1 (fitness 0.900) becomes a copy of member 2 (fitness 0.500): it set off the alarm degenerate_text "
            "(on_alarm=replace)",
        ),
        ("warn", "member 1 (fitness 0.900) stays: among the best, untouched"),
    ],
)
def test_who_set_off_an_alarm_loses_the_next_selection_where_that_is_asked_for(on_alarm: str, fate: str) -> None:
    world = ["plugins=[tests]", "~env", "+env={_target_: tests.runtime.worlds.Unwinnable}", "granularity=sparse"]
    training = training_of(
        config(*world, "evolution.population=3", f"on_alarm={on_alarm}", "pipeline.stages.train.generations=3")
    )
    recorder = recorded(training)
    training.prepare()
    training.progress.values["rollout.temperature"] = [1.3, 1e-3, 1.3]  # member 1 always says the same
    training.update()
    assert [(alarm.member, alarm.kind) for alarm in recorder.alarms] == [(1, "degenerate_text")]
    training._evolve(rates(0.1, 0.9, 0.5))
    assert recorder.generations[0].members[1].text.startswith(fate)
    training._evolve(rates(0.1, 0.9, 0.5))
    assert recorder.generations[1].members[1].event == "elite", "it has lost once, and is no longer in the way"
