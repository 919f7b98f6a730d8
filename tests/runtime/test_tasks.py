"""Training, fitness and result never share a task, whatever the seed of the run."""

from __future__ import annotations

import pytest

from envs.core import Environment
from envs.frozen_lake import FrozenLake
from envs.guess_number import GuessNumber
from evo_hpo.config.errors import UserError
from evo_hpo.rollout.pool import EnvironmentPool
from evo_hpo.runtime.tasks import Tasks
from tests.envs.broken import RaisesOnReset
from tests.runtime.worlds import FewTasks


def tasks_of(environment: Environment, seed: int = 0, held_out: float = 0.2, limit: float = 5.0) -> Tasks:
    return Tasks(environment, held_out, seed, EnvironmentPool(2, limit))


def maps(seeds: list[int]) -> list[str]:
    lake = FrozenLake()
    found = []
    for seed in seeds:
        lake.reset(seed)
        found.append(lake.task_key())
    return found


def test_training_fitness_and_result_never_share_a_map() -> None:
    tasks = tasks_of(FrozenLake())
    train = {lake for update in range(30) for lake in maps(tasks.training(update, 8))}
    fitness, final = maps(tasks.of("fitness", 64)), maps(tasks.of("final", 128))
    assert not train & set(fitness) and not train & set(final) and not set(fitness) & set(final)
    assert len(set(fitness)) == 64 and len(set(final)) == 128


def test_two_seeds_that_make_the_same_map_belong_to_the_same_part() -> None:
    tasks = tasks_of(FewTasks(count=40))
    parts = {name: set() for name in ("train", "fitness", "final")}  # type: dict[str, set[int]]
    parts["train"] = {seed % 40 for update in range(20) for seed in tasks.training(update, 4)}
    parts["fitness"] = {seed % 40 for seed in tasks.of("fitness", 2)}
    parts["final"] = {seed % 40 for seed in tasks.of("final", 2)}
    assert not parts["train"] & (parts["fitness"] | parts["final"]) and not parts["fitness"] & parts["final"]


def test_every_update_has_tasks_of_its_own_and_a_resumed_run_draws_the_same() -> None:
    tasks = tasks_of(GuessNumber())
    drawn = [tasks.training(update, 4) for update in range(10)]
    assert len({task for update in drawn for task in update}) == 40
    again = tasks_of(GuessNumber())
    assert [again.training(update, 4) for update in (7, 3)] == [drawn[7], drawn[3]]


def test_runs_with_other_seeds_train_on_other_tasks_and_are_measured_on_the_same() -> None:
    one, two = tasks_of(FrozenLake(), seed=1), tasks_of(FrozenLake(), seed=2)
    assert one.training(0, 8) != two.training(0, 8)
    assert one.of("fitness", 16) == two.of("fitness", 16)
    assert one.of("final", 16) == two.of("final", 16)


@pytest.mark.parametrize("count", [1, 20])
def test_too_few_distinct_tasks_are_refused_in_a_sentence_after_a_few_thousand_resets(count: int) -> None:
    FewTasks.resets = 0
    tasks = tasks_of(FewTasks(count=count))
    with pytest.raises(UserError) as caught:
        tasks.of("fitness", 64)
        tasks.of("final", 64)
    sentence = str(caught.value)
    assert "of 64 tasks for" in sentence and "FewTasks has too few distinct tasks" in sentence
    assert "raise evaluation.held_out" in sentence
    assert FewTasks.resets < 10_000


def test_an_environment_whose_every_reset_fails_is_refused_with_its_own_words() -> None:
    with pytest.raises(UserError, match="not one of 16 resets of FewTasks worked: OSError: the server is down"):
        tasks_of(FewTasks(broken=True)).of("final", 64)


def test_tasks_that_only_a_seed_tells_apart_need_no_reset() -> None:
    assert len(set(tasks_of(RaisesOnReset()).of("fitness", 64))) == 64
