"""The members of a species beside those of others: what is theirs is not mixed up, whatever their places are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch

from envs.core import Episode
from evo_hpo.config.schema import Config
from evo_hpo.evolution import hyperparameters
from evo_hpo.evolution.strategies import Fate
from evo_hpo.runtime.evaluate import Success
from evo_hpo.runtime.outcome import _final
from evo_hpo.runtime.plan import told
from evo_hpo.runtime.selection import _taken
from evo_hpo.runtime.training import Training
from evo_hpo.tracking.core import Alarm, Trackers
from rewards.core import Reward, Score
from rewards.environment import EnvironmentReward
from tests.building import config, policy_of, shake, training_of
from tests.runtime.support import Recorder
from tests.runtime.worlds import Refusing

TWO = ["evolution.species.algorithm=[grpo,ppo]", "env.max_turns=6"]
FOUR = [*TWO, "evolution.population=4"]
RATE, TEMPERATURE = "algorithm.optimizer.learning_rate", "rollout.temperature"
CRITIC, CLIP = "algorithm.critic.optimizer.learning_rate", "algorithm.objective.clip_low"
OF_PPO = f"+evolution.space.{CRITIC}={{type: float, low: 0.1, high: 10, relative: true, when: {{algorithm: [ppo]}}}}"


@dataclass
class Kept(Recorder):
    """Transcripts, too."""

    transcripts: list[dict[str, Any]] = field(default_factory=list)

    def episodes(self, generation: int, split: str, episodes: list[dict[str, Any]]) -> None:
        self.transcripts += episodes


def recorded(settings: Config, rewards: Sequence[Reward] = ()) -> tuple[Training, Kept]:
    """A prepared run whose species have these rewards, and what it tells."""
    training, kept = training_of(settings), Kept()
    training.trackers = Trackers([kept])
    for one, reward in zip(training.species, rewards, strict=False):
        object.__setattr__(one.config, "reward", reward)
    training.prepare()
    return training, kept


@dataclass(frozen=True)
class FirstIsBetter(Reward):
    """So that every group teaches."""

    @property
    def gives_turn_rewards(self) -> bool:
        return True

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [Score(float(i == 0), (0.1 * i,) * len(one.turns)) for i, one in enumerate(group)]


@dataclass(frozen=True)
class Limited(EnvironmentReward):
    """A reward that is good near the reference only."""

    @property
    def kl_budget(self) -> float | None:
        return 0.5


def test_a_member_learns_with_its_own_hyperparameters_as_in_a_population_of_its_own_kind() -> None:
    size = ["evolution=gated", "evolution.population=4", "granularity=mixed"]
    own: dict[str, list[Any]] = {RATE: [1e-3, 2e-3, 4e-3, 8e-3], TEMPERATURE: [1.0, 0.7, 1.3, 0.9]}
    of_ppo: dict[str, list[Any]] = {CRITIC: [1e-3, 3e-3, 2e-3, 5e-3], CLIP: [0.1, 0.3, 0.2, 0.4]}
    mixed, told_of_all = recorded(config(*size, *TWO), [FirstIsBetter()] * 2)
    partly = {key: [None, column[1], None, column[3]] for key, column in of_ppo.items()}
    mixed.progress.values = own | partly | {"algorithm": ["grpo", "ppo"] * 2}
    mixed.take(mixed.progress.values)
    shake(mixed.policy)
    mixed.update()
    for team in mixed.teams:
        lone = [f"algorithm={team.species.name}", "env.max_turns=6"]
        alone, told_of_one = recorded(config(*size, *lone), [FirstIsBetter()])
        alone.progress.values = own | (of_ppo if team.species.name == "ppo" else {})
        alone.take(alone.progress.values)
        shake(alone.policy)
        alone.update()
        for m in team.members:
            torch.testing.assert_close(mixed.policy.block.data[m], alone.policy.block.data[m], atol=1e-5, rtol=1e-4)
            ours, theirs = ([t for t in of.transcripts if t["member"] == m] for of in (told_of_all, told_of_one))
            assert ours == theirs and len(ours) == 8
            assert mixed._paid[m] == alone._paid[m] and len(ours) == len(mixed._paid[m])


def test_other_species_learn_on_where_nothing_of_one_could_be_scored() -> None:
    training, kept = recorded(config(*FOUR, "granularity=sparse"), [EnvironmentReward(), Refusing()])
    training.update()
    grpo, ppo = (kept.updates[0].members[m].metrics for m in (0, 1))
    assert "grad_norm" in grpo and "grad_norm" not in ppo and ppo.keys() == {"failed"}


def test_the_reward_of_every_species_has_the_models_that_it_asks() -> None:
    lists = ["evolution.species.reward=[environment,information_gain]", "evolution.population=2"]
    training, kept = recorded(config(*lists, "env=guess_number", "granularity=sparse"))
    training.update()
    assert ["reward/gain" in part.metrics for part in kept.updates[0].members] == [False, True]


def test_a_limit_of_the_kl_is_that_of_the_species_whose_reward_has_it() -> None:
    training, kept = recorded(config(*FOUR, "granularity=sparse", "algorithm.kl.coef=0"), [FirstIsBetter(), Limited()])
    training.update()
    assert [part.metrics.get("kl_limit") for part in kept.updates[0].members] == [None, 0.5, None, 0.5]
    assert ["kl" in part.metrics for part in kept.updates[0].members] == [False, True, False, True]


def test_examples_of_an_alarm_are_episodes_of_its_member() -> None:
    training, kept = recorded(config(*FOUR, "granularity=sparse"), [FirstIsBetter()] * 2)
    sampling = hyperparameters.sampling(training.config.rollout, {}, 4)
    material = list(zip(training.teams, training._material(sampling), strict=True))
    text = training._with_examples(Alarm("reward_hacking", "odd.", 0, 0, member=3), material).text
    assert [one["member"] for one in kept.transcripts] == [3, 3, 3] and "For example in tasks" in text


def test_a_member_that_begins_anew_has_a_critic_and_an_optimiser_that_know_nothing() -> None:
    training, _ = recorded(config(*FOUR, "granularity=sparse"), [FirstIsBetter()] * 2)
    training.update()
    _, ppo = training.teams
    before = {name: tensor.clone() for name, tensor in ppo.tensors().items()}
    training.restart(3)
    after = ppo.tensors()
    changed = {name: [not torch.equal(a, b) for a, b in zip(before[name], after[name], strict=True)] for name in before}
    assert changed["species.ppo.critic"] == [False, True]
    assert not ppo.learner.optimizer.first[1].any() and ppo.learner.optimizer.first[0].any()
    assert all(not first for first, _ in changed.values()), "the other member of the species goes on"


def test_species_may_have_unequal_numbers_of_members() -> None:
    training, _ = recorded(config(*TWO, "evolution=gated", "evolution.population=3"))
    assert training.progress.values["algorithm"] == ["grpo", "ppo", "grpo"]
    first, _, second = training.progress.values[RATE]
    assert first != second, "only the first of a species has the config's own values"


def test_a_species_evolves_what_only_its_own_granularity_has() -> None:
    weight = "granularity.turn_weight"
    space = f"+evolution.space.{weight}={{type: float, low: 0.5, high: 2, when: {{granularity: [mixed]}}}}"
    lists = ["evolution.species.granularity=[sparse,mixed]", "evolution.population=4"]
    training, _ = recorded(config(*lists, space))
    none, own, none_either, drawn = training.progress.values[weight]
    assert (none, own, none_either) == (None, 1.0, None) and 0.5 <= drawn <= 2


def test_a_species_that_died_out_has_no_team_in_a_resumed_run() -> None:
    training, _ = recorded(config(*FOUR))
    training.progress.values["algorithm"] = ["ppo"] * 4
    training._form_teams()
    assert [(team.species.name, team.members) for team in training.teams] == [("ppo", [0, 1, 2, 3])]


def test_the_best_of_all_generations_is_kept_with_the_keys_that_its_species_has() -> None:
    training, _ = recorded(config(*FOUR, "evolution=tpe", "pipeline.stages.train.generations=8", OF_PPO))
    training._evolve([Success(rate, rate, rate, 8, (rate,) * 6) for rate in (0.9, 0.1, 0.2, 0.3)])
    best = training.progress.champion["values"]
    assert best["algorithm"] == "grpo" and CRITIC not in best and RATE in best


def test_values_of_a_species_are_not_taken_over_without_its_weights() -> None:
    own, foreign = {"algorithm": "ppo", RATE: 0.1}, {"algorithm": "grpo", RATE: 0.2}
    assert _taken(Fate(1, "kept", False, "", values=foreign), own) == own
    assert _taken(Fate(1, "kept", False, "", values=own | {RATE: 0.3}), own) == own | {RATE: 0.3}


def test_the_result_is_what_one_member_plays_and_leaves_all_as_they_are() -> None:
    training, _ = recorded(config("evolution.population=2"))
    shake(training.policy, 3.0)
    before = training.policy.block.data.clone()

    def said(episodes: Sequence[Episode]) -> list[list[str]]:
        return [[turn.action for turn in one.turns] for one in episodes]

    mixed = said(training.measure.final(training.learner)[1])
    played = said(_final(training, 1)[1])
    assert torch.equal(training.policy.block.data, before)
    training.policy.block.load(before[1].expand_as(before))
    assert played == said(training.measure.final(training.learner)[1]) != mixed


def test_what_a_key_without_a_value_leaves_to_the_config() -> None:
    rollout = config("rollout.temperature=0.8").rollout
    values: dict[str, list[Any]] = {"rollout.temperature": [None, 1.5], "rollout.group_size": [6, None]}
    assert hyperparameters.sampling(rollout, values, 2).temperature.tolist() == pytest.approx([0.8, 1.5])
    assert hyperparameters.group_sizes(rollout, values, 2) == [6, rollout.group_size]


def test_a_part_of_a_population_holds_copies_of_its_members() -> None:
    policy = policy_of(config("evolution.population=3"), 3, slots=[2, 5, 7])
    policy.freeze_reference()
    policy.add_critic()
    policy.block.data[2] += 1
    part = policy.part([0, 2])
    assert part.slots == [2, 7] and part.critic is None and part.members == 2
    assert part.reference is not None and policy.reference is not None
    assert torch.equal(part.block.data, policy.block.data[[0, 2]])
    assert torch.equal(part.reference.data, policy.reference.data[[0, 2]])
    assert not any(view.requires_grad for view in part.reference.views.values())
    part.block.data += 1
    assert not torch.equal(part.block.data, policy.block.data[[0, 2]])
    assert policy.slots == [2, 5, 7] and policy.members == 3


def test_the_plan_names_the_species_and_those_that_are_left_out() -> None:
    lists = ["evolution.species.algorithm=[grpo,mt_grpo]", "evolution.species.granularity=[sparse,mixed]"]
    settings = config(*lists, "evolution.population=4")
    population = policy_of(settings, 4)
    line = told(settings, [population])
    assert "(grpo+sparse, grpo+mixed, mt_grpo+mixed, without mt_grpo+sparse, which would be refused)" in line
    assert "without" not in told(config(*FOUR), [population])
    assert told(settings, [population, population]) == line, "what a team shares is there once"
    assert told(settings, [population, population.part([0, 1])]) != line
