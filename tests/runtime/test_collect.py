"""Where the episodes of an update come from: played ahead, or played again in place of groups that teach nothing."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from envs.core import Episode
from evo_hpo.config.errors import ConfigError
from evo_hpo.evolution import hyperparameters
from evo_hpo.runtime.training import Training
from rewards.core import Reward, Score
from tests.building import config, training_of

STAGE = "pipeline.stages.train"


def collected(training: Training, update: int = 0) -> Any:
    settings = training.config
    sampling = hyperparameters.sampling(settings.rollout, {}, training.policy.members)
    training.prepare()
    [found] = training.collector.collect(training.teams, sampling, update)
    return found


def test_episodes_of_one_group_begin_with_the_same_observation_and_go_their_own_ways() -> None:
    training = training_of(config("evolution.population=2", "rollout.tasks=3"))
    groups: dict[tuple[int, int], list[Episode]] = {}
    for one in collected(training).episodes:
        groups.setdefault((one.member, one.group), []).append(one)
    assert [len(group) for group in groups.values()] == [4] * 6
    starts = {place: {one.turns[0].observation for one in group} for place, group in groups.items()}
    assert all(len(seen) == 1 for seen in starts.values())
    assert len({seen.pop() for seen in starts.values()}) == 3, "both members play the same three tasks"
    said = [tuple(tuple(turn.action_ids) for turn in one.turns) for group in groups.values() for one in group]
    assert len(set(said)) > 12


def test_episodes_played_ahead_are_of_the_policy_before_the_first_of_their_updates() -> None:
    training = training_of(config("evolution=none", "rollout.ahead=2", f"{STAGE}.updates=2"))
    versions = [{turn.version for one in collected(training, u).episodes for turn in one.turns} for u in range(4)]
    assert versions == [{0}, {0}, {2}, {2}]


def test_a_batch_played_ahead_is_the_batch_of_its_own_update_with_the_policy_of_then() -> None:
    ahead = training_of(config("evolution=none", "rollout.ahead=2", f"{STAGE}.updates=2"))
    now = training_of(config("evolution=none", f"{STAGE}.updates=2"))
    for update in range(2):  # nothing learns in between, so that then is now
        texts = [
            [(one.task, [turn.action for turn in one.turns]) for one in collected(training, update).episodes]
            for training in (ahead, now)
        ]
        assert texts[0] == texts[1]


def test_the_age_of_a_turn_reaches_the_filters() -> None:
    filters = "algorithm.filters=[{_target_:algorithms.filters.MaxAge,updates:0}]"
    training = training_of(config("evolution=none", "rollout.ahead=2", f"{STAGE}.updates=2", filters))
    metrics = []
    training.trackers.update = lambda record: metrics.append(record.members[0].metrics)  # type: ignore[method-assign]
    training.run()
    assert [one["dropped"] for one in metrics] == [0.0, 1.0, 0.0, 1.0]
    assert metrics[1]["grad_norm"] == 0


def test_a_generation_that_ends_inside_a_block_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"write pipeline\.stages\.train\.updates=6"):
        config("rollout.ahead=3", f"{STAGE}.updates=5")


@dataclass(frozen=True)
class ByTask(Reward):
    """Groups of the first task tie; in all others the first episode is better."""

    first_task: int

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        tie = group[0].task == self.first_task
        return [Score(1.0 if i == 0 and not tie else 0.0) for i in range(len(group))]


def with_reward(training: Training, reward: Reward) -> Training:
    object.__setattr__(training.config, "reward", reward)
    training.prepare()
    training.take({})
    return training


DYNAMIC = ["evolution=none", "granularity=sparse", "algorithm=dapo"]


def test_a_group_that_ties_is_replaced_by_one_of_another_task() -> None:
    training = training_of(config(*DYNAMIC))
    tie = training.tasks.training(0, 2)[0]
    got = collected(with_reward(training, ByTask(tie)))
    outcomes: dict[int, list[float]] = {}
    for one, given in zip(got.scored.episodes, got.scored.scores, strict=True):
        outcomes.setdefault(one.group, []).append(given.outcome)
    teaching = [group for group, values in outcomes.items() if len(set(values)) > 1]
    assert len(teaching) == 2 and len({one.task for one in got.scored.episodes if one.group in teaching}) == 2
    assert len(got.episodes) == 16  # both batches are counted, and what was too much of the second is not learned from
    assert Counter(one.group for one in got.scored.episodes) == {0: 4, 1: 4, 2: 4}


def test_a_policy_that_always_ties_stops_at_the_cap() -> None:
    training = training_of(config(*DYNAMIC, "rollout.group_size=2"))
    got = collected(with_reward(training, Flat()))
    assert len(got.episodes) == 3 * 2 * 2 and len({one.group for one in got.episodes}) == 6


@dataclass(frozen=True)
class Flat(Reward):
    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [Score(1.0) for _ in group]


def test_only_members_that_lack_groups_play_again() -> None:
    settings = config("algorithm=dapo", "granularity=sparse", "evolution.population=2")
    training = training_of(settings)
    got = collected(with_reward(training, FirstMemberTies()))
    played = Counter(one.member for one in got.episodes)
    assert played == {0: 24, 1: 8}
    assert torch.tensor([one.group for one in got.episodes if one.member == 1]).max() == 1


def test_of_a_species_too_only_members_that_lack_groups_play_again() -> None:
    settings = config("evolution.species.algorithm=[ppo,dapo]", "granularity=sparse", "evolution.population=4")
    training = training_of(settings)
    for one in training.species:
        object.__setattr__(one.config, "reward", FirstMemberTies())
    training.prepare()
    sampling = hyperparameters.sampling(settings.rollout, {}, 4)
    of_ppo, of_dapo = (
        Counter(one.member for one in found.episodes)
        for found in training.collector.collect(training.teams, sampling, 0)
    )
    assert of_dapo == {0: 24, 1: 8} and of_ppo == {0: 8, 1: 8}


@dataclass(frozen=True)
class FirstMemberTies(Reward):
    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [Score(float(i == 0 and one.member == 1)) for i, one in enumerate(group)]
