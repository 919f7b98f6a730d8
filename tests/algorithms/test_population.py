"""One value per member gives every member what it gets alone, for every preset and everything that evolves in it."""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import Any

import pytest
import torch
from torch import Tensor

from algorithms.core import Algorithm, TokenTable, TurnTable, gathered
from algorithms.critic import value_loss
from algorithms.policy_gradient import PolicyGradient, policy_loss
from algorithms.preference import Preference, pairs
from evo_hpo.config.alternatives import components
from evo_hpo.evolution.hyperparameters import of_algorithm
from tests.algorithms.tables import assert_close, token_table, turn_table

MEMBERS = 3
REWARDS = [[0.0, 1.0], [0.5, 0.0, 0.25], [0.4, 1.0], [0.0, 0.0], [0.3, 0.2], [0.9, 0.1]]
GROUPS, OWNERS = [0, 0, 1, 1, 2, 2], [0, 0, 1, 1, 2, 2]
OF_THE_OPTIMIZER = ("learning_rate", "weight_decay", "max_grad_norm", "epochs")  # never in a loss
# Last names of keys -> values, one for each member; a key that is not here moves around its own value.
VALUES: dict[str, list[float]] = {
    "clip_low": [0.01, 0.1, 0.2],
    "clip_high": [0.01, 0.1, 0.3],
    "ratio_low": [0.0, 0.9, 1.0],
    "ratio_high": [1.01, 1.1, 1.3],
    "threshold": [0.001, 0.02, 0.1],
    "coef": [0.02, 0.1, 0.5],
    "gamma": [1.0, 0.9, 0.5],
    "turn_gamma": [1.0, 0.9, 0.5],
    "lam": [1.0, 0.9, 0.0],
    "value_clip": [0.05, 0.2, 0.5],
    "delta": [0.0, 0.01, 0.3],
    "high": [1.01, 1.1, 2.0],
    "low": [0.99, 0.9, 0.5],
}


@cache
def presets() -> dict[str, Algorithm]:
    return {
        name: algorithm
        for name, algorithm in components("algorithm").items()
        if algorithm.learns_from == "rollout" and not algorithm.trains_scorer
    }


CASES = [
    (name, key)
    for name, algorithm in presets().items()
    for key in of_algorithm(algorithm)
    if key.rpartition(".")[2] not in OF_THE_OPTIMIZER
]


def column(name: str, key: str) -> list[float]:
    last = key.rpartition(".")[2]
    if last in VALUES:
        return VALUES[last]
    own = of_algorithm(presets()[name])[key]
    return [0.5 * own + 0.1, own, 2 * own + 0.1]


def rolled() -> tuple[TurnTable, TokenTable, dict[str, Tensor]]:
    turns = turn_table(REWARDS, GROUPS, OWNERS)
    shape = token_table(turns).mask_RT.shape
    generator = torch.Generator().manual_seed(0)

    def random() -> Tensor:
        return torch.randn(shape, dtype=torch.float64, generator=generator)

    count = turns.index_K.shape[0]
    turns = dataclasses.replace(
        turns,
        state_K=turns.member_K * 10 + turns.index_K,  # turns of a group with equal numbers are in equal states
        valid_K=torch.ones(count, dtype=torch.bool),
        truncated_K=torch.zeros(count, dtype=torch.bool),
        text_K=tuple(f"state {index}" for index in turns.index_K.tolist()),
        components={"success": turns.outcome_E, "progress": turns.return_E},
    )
    old = -random().abs()
    sampler = old + 0.1 * random()
    tensors = {"old": old, "new": old + 0.15 * random(), "reference": old + 0.3 * random(), "entropy": random().abs()}
    tokens = token_table(turns, value=random().tolist())
    return turns, dataclasses.replace(tokens, logprob_RT=sampler, entropy_RT=random().abs()), tensors


def losses(algorithm: Algorithm) -> dict[str, Tensor]:
    """Every per-row quantity of an update, the way the learner asks for it."""
    turns, tokens, given = rolled()
    if isinstance(algorithm, Preference):
        return preference_losses(algorithm, turns, tokens, given)
    assert isinstance(algorithm, PolicyGradient)
    settings = gathered(algorithm, tokens.member_R, column=True)
    advantage, asked = algorithm.credited(turns, tokens, given["old"], given["reference"])
    weight = algorithm.surrogate_weights(tokens, given["old"], MEMBERS)
    logprob, entropy = given["new"].clone().requires_grad_(), given["entropy"].clone().requires_grad_()
    sampled = (tokens.mask_RT, tokens.turn_RT, weight)
    result = policy_loss(settings, logprob, given["old"], given["reference"], entropy, advantage, *sampled)
    result.loss_RT.sum().backward()
    assert logprob.grad is not None and entropy.grad is not None
    found = {"advantage": advantage, "loss": result.loss_RT, "gradient": logprob.grad, "entropy": entropy.grad}
    if asked is not None:
        assert settings.critic is not None and tokens.value_RT is not None
        found["target"] = asked[0]
        found["critic"] = value_loss(tokens.value_RT + 0.3, tokens.value_RT, asked[0], settings.critic.value_clip)
    return {name: tensor.detach() for name, tensor in found.items()}


def preference_losses(
    algorithm: Preference, turns: TurnTable, tokens: TokenTable, given: dict[str, Tensor]
) -> dict[str, Tensor]:
    chosen, rejected = pairs(turns)
    score = algorithm.score(given["new"], given["reference"], tokens.mask_RT)
    beta = algorithm.beta
    by_pair = beta[tokens.member_R[chosen]] if isinstance(beta, Tensor) else beta
    loss = torch.zeros_like(score)
    loss[chosen] = algorithm.pair_loss(score[chosen], score[rejected], by_pair)
    return {"loss": loss}


def with_value(part: Any, path: list[str], value: float | Tensor) -> Any:
    inner = with_value(getattr(part, path[0]), path[1:], value) if len(path) > 1 else value
    return dataclasses.replace(part, **{path[0]: inner})


@pytest.mark.parametrize(("name", "key"), CASES)
def test_a_value_per_member_equals_every_member_alone(name: str, key: str) -> None:
    path, values = key.split(".")[1:], column(name, key)
    together = losses(with_value(presets()[name], path, torch.tensor(values, dtype=torch.float64)))
    differs = False
    for member in range(MEMBERS):
        alone = losses(with_value(presets()[name], path, values[member]))
        mine, other = torch.tensor(OWNERS) == member, torch.tensor(OWNERS) != member
        for quantity, tensor in together.items():
            assert_close(tensor[mine], alone[quantity][mine], 1e-12)
            differs |= bool((tensor[other] - alone[quantity][other]).abs().max() > 1e-9)
    assert differs, f"{key} changes nothing, so nothing is shown"


@pytest.mark.parametrize("name", presets())
def test_all_fields_at_once_equal_every_member_alone(name: str) -> None:
    keys = [key for case, key in CASES if case == name]
    vector = presets()[name]
    for key in keys:
        vector = with_value(vector, key.split(".")[1:], torch.tensor(column(name, key), dtype=torch.float64))
    together = losses(vector)
    for member in range(MEMBERS):
        single = presets()[name]
        for key in keys:
            single = with_value(single, key.split(".")[1:], column(name, key)[member])
        mine = torch.tensor(OWNERS) == member
        for quantity, tensor in losses(single).items():
            assert_close(together[quantity][mine], tensor[mine], 1e-12)


def test_gathering_reaches_nested_parts_and_leaves_plain_numbers() -> None:
    grpo = presets()["grpo"]
    algorithm = with_value(grpo, ["objective", "clip_low"], torch.tensor([0.1, 0.2, 0.3]))
    index = torch.tensor([2, 0, 0, 1])
    column = gathered(algorithm, index, column=True)
    assert_close(column.objective.clip_low, [[0.3], [0.1], [0.1], [0.2]], 1e-6)
    assert_close(gathered(algorithm, index).objective.clip_low, [0.3, 0.1, 0.1, 0.2], 1e-6)
    assert isinstance(grpo, PolicyGradient)
    assert column.objective.clip_high == 0.2 and column.kl == grpo.kl
