"""What an algorithm carries between updates: adaptive coefficients, a moving baseline, the bound of clipping."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch

from algorithms.advantages import Returns
from algorithms.memory import adapted, beginning, remembered
from algorithms.objectives import ClippingNormalised
from algorithms.policy_gradient import PolicyGradient
from tests.algorithms.parts import entropy, kl, policy_gradient, reinforce
from tests.algorithms.tables import assert_close

CPU = torch.device("cpu")
NAN = float("nan")


def seen(**changes: list[float]) -> dict[str, torch.Tensor]:
    values = {"kl": [0.1, 0.1], "entropy": [0.5, 0.5], "return": [1.0, 2.0], "episodes": [256.0, 256.0], **changes}
    return {name: torch.tensor(column, dtype=torch.float64) for name, column in values.items()}


def with_moving_baseline(**changes: Any) -> PolicyGradient:
    algorithm = reinforce(**changes)
    estimator = Returns(credit="turn", gamma=1.0, baseline="moving", decay=0.9)
    return dataclasses.replace(algorithm, advantage=estimator)


def test_an_algorithm_without_adaptive_parts_carries_nothing() -> None:
    assert beginning(policy_gradient(), 3, CPU) == {}


def test_the_kl_coefficient_moves_as_the_specification_says_by_member() -> None:
    algorithm = policy_gradient(kl=kl(coef=0.001, target=0.1, horizon=10000.0))
    memory = beginning(algorithm, 2, CPU)
    after = remembered(algorithm, memory, seen(kl=[0.2, NAN]))
    assert_close(adapted(algorithm, after).kl.coef, [0.001005, 0.001], 1e-6)  # type: ignore[arg-type]


def test_a_coefficient_that_evolves_keeps_its_adaptation() -> None:
    algorithm = policy_gradient(kl=kl(coef=torch.tensor([0.01, 0.1]), target=0.1, horizon=1000.0))
    after = remembered(algorithm, beginning(algorithm, 2, CPU), seen(kl=[0.2, 0.0]))
    assert_close(adapted(algorithm, after).kl.coef, [0.01 * 1.0512, 0.1 * 0.9488], 1e-6)  # type: ignore[arg-type]


def test_the_entropy_coefficient_steps_towards_its_target_and_stays_above_zero() -> None:
    algorithm = policy_gradient(entropy=entropy(coef=0.001, target=0.2, step=0.005))
    memory = beginning(algorithm, 2, CPU)
    for _ in range(2):
        memory = remembered(algorithm, memory, seen(entropy=[0.1, 0.3]))
    assert_close(adapted(algorithm, memory).entropy.coef, [0.011, 0.0], 1e-6)  # type: ignore[arg-type]


def test_the_moving_baseline_starts_at_the_first_mean_and_forgets_slowly() -> None:
    algorithm = with_moving_baseline()
    memory = beginning(algorithm, 2, CPU)
    assert memory["return_mean"].isnan().all()
    memory = remembered(algorithm, memory, seen())
    assert_close(memory["return_mean"], [1.0, 2.0])
    memory = remembered(algorithm, memory, seen(**{"return": [2.0, NAN]}))
    assert_close(memory["return_mean"], [1.1, 2.0])


def test_only_a_bound_that_is_not_given_is_carried() -> None:
    def sorl(bound: float | None) -> PolicyGradient:
        objective = ClippingNormalised(clip_low=0.2, clip_high=0.2, bound=bound, decay=0.9, exact=False)
        return policy_gradient(objective=objective)

    assert list(beginning(sorl(None), 2, CPU)) == ["clip_bound"]
    assert beginning(sorl(0.5), 2, CPU) == {}
