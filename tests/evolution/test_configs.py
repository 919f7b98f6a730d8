"""The strategies and spaces that come with the package."""

from __future__ import annotations

from typing import Any

import pytest

from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.config.schema import Config
from evo_hpo.evolution.hyperparameters import evolvable
from evo_hpo.evolution.strategies import Tournament, Truncation

EVOLVING = {"truncation": Truncation, "tournament": Tournament}
SIX = {
    "algorithm.optimizer.learning_rate",
    "algorithm.kl.coef",
    "algorithm.objective.clip_low",
    "algorithm.objective.clip_high",
    "algorithm.entropy_coef",
    "rollout.temperature",
}


def built(*overrides: str) -> Config:
    composed = compose(["device=cpu", *overrides])
    return build(composed.values, composed.provenance, composed.choices)


@pytest.mark.parametrize("option", list(EVOLVING))
def test_a_strategy_evolves_eight_members_over_the_six_hyperparameters(option: str) -> None:
    config = built(f"evolution={option}")
    assert type(config.evolution.strategy) is EVOLVING[option]
    assert config.evolution.population == 8 and config.evolution.spread
    assert set(config.evolution.space) == SIX


@pytest.mark.parametrize("algorithm", ["grpo", "ppo"])
def test_the_configs_own_values_lie_inside_the_space(algorithm: str) -> None:
    config = built("evolution=truncation", f"algorithm={algorithm}")
    own: dict[str, Any] = evolvable(config)
    for key, dimension in config.evolution.space.items():
        assert dimension.low is not None and dimension.high is not None
        assert dimension.low < own[key] < dimension.high, key


@pytest.mark.parametrize("algorithm", ["reinforce", "rloo"])
def test_what_an_algorithm_does_not_have_is_optional_in_the_default_space(algorithm: str) -> None:
    config = built(f"algorithm={algorithm}", "evolution=truncation")
    missing = {key for key in SIX if key not in evolvable(config)}
    assert missing == {key for key in SIX if "clip" in key}
    assert all(config.evolution.space[key].optional for key in missing)
