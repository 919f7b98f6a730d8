"""One value per member gives every member what it gets alone, for everything that evolves."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest
import torch
from torch import Tensor

from algorithms.advantages import TokenGAE
from algorithms.core import TokenTable, TurnTable, gathered
from algorithms.critic import value_loss
from algorithms.kl import KL
from algorithms.objectives import Clipped
from algorithms.policy_gradient import PolicyGradient, policy_loss
from evo_hpo.evolution.hyperparameters import of_algorithm
from tests.algorithms.parts import policy_gradient, ppo, reinforce
from tests.algorithms.tables import assert_close, token_table, turn_table

MEMBERS = 3
REWARDS = [[0.0, 1.0], [0.5, 0.0, 0.25], [1.0], [0.0, 0.0], [0.3, 0.2], [0.0, 0.9, 0.1]]
GROUPS, OWNERS = [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2]

IN_LOSS = KL(coef=0.1, estimator="k2", place="loss")
ALGORITHMS = {
    "grpo": policy_gradient(kl=IN_LOSS, objective=Clipped(clip_low=0.05, clip_high=0.05), entropy_coef=0.02),
    "ppo": ppo(kl=IN_LOSS, advantage=TokenGAE(gamma=0.9, lam=0.8, whiten=False)),
    "reinforce": reinforce(),
}
VALUES: dict[str, list[float]] = {
    "algorithm.objective.clip_low": [0.01, 0.1, 0.2],
    "algorithm.objective.clip_high": [0.01, 0.1, 0.3],
    "algorithm.kl.coef": [0.0, 0.1, 0.5],
    "algorithm.entropy_coef": [0.0, 0.01, 0.1],
    "algorithm.advantage.gamma": [1.0, 0.9, 0.5],
    "algorithm.advantage.lam": [1.0, 0.9, 0.0],
    "algorithm.critic.value_clip": [0.05, 0.2, 0.5],
}
OF_THE_OPTIMIZER = ("learning_rate", "weight_decay", "max_grad_norm")  # never in a loss
CASES = [
    (name, key)
    for name, algorithm in ALGORITHMS.items()
    for key in of_algorithm(algorithm)
    if key.rpartition(".")[2] not in OF_THE_OPTIMIZER
]


def rolled() -> tuple[TurnTable, TokenTable, dict[str, Tensor]]:
    turns = turn_table(REWARDS, GROUPS, OWNERS)
    shape = token_table(turns).mask_RT.shape
    generator = torch.Generator().manual_seed(0)

    def random() -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    old = -random().abs()
    tensors = {"old": old, "new": old + 0.15 * random(), "reference": old + 0.3 * random(), "entropy": random().abs()}
    return turns, token_table(turns, value=random().tolist()), tensors


def losses(algorithm: PolicyGradient) -> dict[str, Tensor]:
    """Every [R, T] quantity of an update, the way the learner asks for it."""
    turns, tokens, given = rolled()
    settings = gathered(algorithm, tokens.member_R, column=True)
    advantage = algorithm.advantages(turns, tokens)
    logprob, entropy = given["new"].clone().requires_grad_(), given["entropy"].clone().requires_grad_()
    result = policy_loss(
        settings, logprob, given["old"], given["reference"], entropy, advantage, tokens.mask_RT, tokens.turn_RT
    )
    result.loss_RT.sum().backward()
    assert logprob.grad is not None and entropy.grad is not None
    found = {"advantage": advantage, "loss": result.loss_RT, "gradient": logprob.grad, "entropy": entropy.grad}
    if settings.critic is not None and tokens.value_RT is not None:
        target = algorithm.value_targets(turns, tokens)
        found["critic"] = value_loss(tokens.value_RT + 0.3, tokens.value_RT, target, settings.critic.value_clip)
    return {name: tensor.detach() for name, tensor in found.items()}


def with_value(part: Any, path: list[str], value: float | Tensor) -> Any:
    inner = with_value(getattr(part, path[0]), path[1:], value) if len(path) > 1 else value
    return dataclasses.replace(part, **{path[0]: inner})


def test_every_field_that_evolves_has_values_here() -> None:
    assert {key for _, key in CASES} == set(VALUES)


@pytest.mark.parametrize(("name", "key"), CASES)
def test_a_value_per_member_equals_every_member_alone(name: str, key: str) -> None:
    path = key.split(".")[1:]
    column = torch.tensor(VALUES[key], dtype=torch.float64)
    together = losses(with_value(ALGORITHMS[name], path, column))
    differs = False
    for member in range(MEMBERS):
        alone = losses(with_value(ALGORITHMS[name], path, VALUES[key][member]))
        mine, other = torch.tensor(OWNERS) == member, torch.tensor(OWNERS) != member
        for quantity, tensor in together.items():
            assert_close(tensor[mine], alone[quantity][mine], 1e-12)
            differs |= bool((tensor[other] - alone[quantity][other]).abs().max() > 1e-6)
    assert differs, f"{key} changes nothing, so nothing is shown"


@pytest.mark.parametrize("name", list(ALGORITHMS))
def test_all_fields_at_once_equal_every_member_alone(name: str) -> None:
    keys = [key for case, key in CASES if case == name]
    vector = ALGORITHMS[name]
    for key in keys:
        vector = with_value(vector, key.split(".")[1:], torch.tensor(VALUES[key], dtype=torch.float64))
    together = losses(vector)
    for member in range(MEMBERS):
        single = ALGORITHMS[name]
        for key in keys:
            single = with_value(single, key.split(".")[1:], VALUES[key][member])
        mine = torch.tensor(OWNERS) == member
        for quantity, tensor in losses(single).items():
            assert_close(together[quantity][mine], tensor[mine], 1e-12)


def test_gathering_reaches_nested_parts_and_leaves_plain_numbers() -> None:
    algorithm = with_value(ALGORITHMS["grpo"], ["objective", "clip_low"], torch.tensor([0.1, 0.2, 0.3]))
    index = torch.tensor([2, 0, 0, 1])
    column = gathered(algorithm, index, column=True)
    assert_close(column.objective.clip_low, [[0.3], [0.1], [0.1], [0.2]], 1e-6)
    assert_close(gathered(algorithm, index).objective.clip_low, [0.3, 0.1, 0.1, 0.2], 1e-6)
    assert column.objective.clip_high == 0.05 and column.kl == IN_LOSS
