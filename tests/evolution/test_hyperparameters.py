"""What can evolve, and how members' values get into an algorithm."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from algorithms.supervised import Supervised
from evo_hpo.evolution.hyperparameters import bind, of_algorithm
from tests.algorithms.parts import ADAMW, policy_gradient, ppo, reinforce
from tests.algorithms.tables import assert_close

CPU = torch.device("cpu")


def test_evolvable_fields_are_found_through_nested_parts() -> None:
    assert of_algorithm(policy_gradient()) == {
        "algorithm.optimizer.learning_rate": 1e-3,
        "algorithm.optimizer.weight_decay": 0.0,
        "algorithm.optimizer.max_grad_norm": 1.0,
        "algorithm.objective.clip_low": 0.2,
        "algorithm.objective.clip_high": 0.2,
        "algorithm.kl.coef": 0.0,
        "algorithm.entropy.coef": 0.0,
        "algorithm.epochs": 1,
    }


def test_the_critic_and_the_estimator_evolve_where_there_are_any() -> None:
    of_critic = {key for key in of_algorithm(ppo()) if key.startswith("algorithm.critic.")}
    assert of_critic == {
        "algorithm.critic.value_clip",
        "algorithm.critic.optimizer.learning_rate",
        "algorithm.critic.optimizer.weight_decay",
        "algorithm.critic.optimizer.max_grad_norm",
    }
    assert of_algorithm(ppo())["algorithm.advantage.lam"] == 0.95
    assert of_algorithm(reinforce())["algorithm.advantage.gamma"] == 0.9
    assert "algorithm.objective.clip_low" not in of_algorithm(reinforce())


def test_binding_replaces_exactly_the_evolving_fields() -> None:
    algorithm = ppo()
    values = {
        "algorithm.critic.optimizer.learning_rate": [1e-3, 2e-3],
        "algorithm.kl.coef": [0.0, 0.5],
        "rollout.temperature": [0.7, 1.3],
    }
    bound: Any = bind(algorithm, values, CPU)
    assert_close(bound.critic.optimizer.learning_rate, [1e-3, 2e-3], 1e-9)
    assert_close(bound.kl.coef, [0.0, 0.5])

    critic_optimizer = dataclasses.replace(bound.critic.optimizer, learning_rate=1e-3)
    critic = dataclasses.replace(bound.critic, optimizer=critic_optimizer)
    kl = dataclasses.replace(bound.kl, coef=0.0)
    assert dataclasses.replace(bound, critic=critic, kl=kl) == algorithm


def test_binding_leaves_the_algorithm_it_was_given_alone() -> None:
    algorithm = policy_gradient()
    bind(algorithm, {"algorithm.entropy.coef": [0.1, 0.2]}, CPU)
    assert algorithm == policy_gradient()


def test_every_key_that_is_found_can_be_bound() -> None:
    for algorithm in (policy_gradient(), ppo(), reinforce()):
        values = {key: [value, value] for key, value in of_algorithm(algorithm).items()}
        for key, bound in of_algorithm(bind(algorithm, values, CPU)).items():
            assert bound.shape == (2,), key
            assert_close(bound, values[key], 1e-6)


def test_a_stage_passes_over_keys_of_another_stages_algorithm() -> None:
    cloning = Supervised(
        optimizer=ADAMW, aggregation="token_mean", aggregation_constant=8.0, weighting="none", noise=0.0, warmup=0
    )
    values = {"algorithm.optimizer.learning_rate": [1e-3, 1e-2], "algorithm.kl.coef": [0.1, 0.2]}
    bound: Any = bind(cloning, values, CPU)
    assert_close(bound.optimizer.learning_rate, [1e-3, 1e-2], 1e-9)
