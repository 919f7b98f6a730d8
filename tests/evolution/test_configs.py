"""The strategies and spaces that come with the package."""

from __future__ import annotations

from typing import Any

import pytest

from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.config.errors import ConfigError
from evo_hpo.config.schema import Config
from evo_hpo.evolution.hyperparameters import evolvable
from evo_hpo.evolution.strategies import (
    PB2,
    Gated,
    MultiFrequency,
    NoEvolution,
    SuccessiveHalving,
    Tournament,
    Truncation,
)

OF_EIGHT = {
    "gated": Gated,
    "truncation": Truncation,
    "tournament": Tournament,
    "pb2": PB2,
    "mf_pbt": MultiFrequency,
    "asha": SuccessiveHalving,
    "random": NoEvolution,
}
SIX = {
    "algorithm.optimizer.learning_rate",
    "algorithm.kl.coef",
    "algorithm.objective.clip_low",
    "algorithm.objective.clip_high",
    "algorithm.entropy.coef",
    "rollout.temperature",
}


def built(*overrides: str) -> Config:
    composed = compose(["device=cpu", *overrides])
    return build(composed.values, composed.provenance, composed.choices)


@pytest.mark.parametrize("option", list(OF_EIGHT))
def test_eight_members_begin_with_six_hyperparameters_that_are_spread(option: str) -> None:
    config = built(f"evolution={option}")
    assert type(config.evolution.strategy) is OF_EIGHT[option]
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
    assert set(config.evolution.space) == SIX - missing


def test_ranges_follow_the_configs_own_values_and_what_is_off_stays_off() -> None:
    config = built("algorithm=gspo", "evolution=truncation", "algorithm.optimizer.learning_rate=2e-4")
    space = config.evolution.space
    assert "algorithm.kl.coef" not in space
    rate, clip = space["algorithm.optimizer.learning_rate"], space["algorithm.objective.clip_low"]
    assert (rate.low, rate.high) == pytest.approx((2e-5, 2e-3))
    assert (clip.low, clip.high) == pytest.approx((7.5e-5, 6e-4))


def test_a_relative_range_around_zero_is_refused_unless_it_is_optional() -> None:
    space = ["type:float", "low:0.1", "high:10", "relative:true"]
    with pytest.raises(ConfigError, match=r"relative to algorithm.kl.coef, which is 0.*write relative: false"):
        built("evolution=none", "algorithm=dapo", f"+evolution.space.algorithm.kl.coef={{{','.join(space)}}}")


def test_a_relative_range_stays_inside_what_the_key_may_be() -> None:
    space = built("evolution=truncation", "algorithm.objective.clip_low=0.6").evolution.space
    clip = space["algorithm.objective.clip_low"]
    assert clip.low == pytest.approx(0.15) and clip.high is not None and 0.99 < clip.high < 1


def test_the_space_can_be_emptied_and_hold_one_key_alone() -> None:
    assert built("evolution=truncation", "evolution/space=none").evolution.space == {}
    one = "+evolution.space.rollout.temperature={type:float,low:0.7,high:1.3}"
    assert list(built("evolution=truncation", "evolution/space=none", one).evolution.space) == ["rollout.temperature"]
    assert set(built("evolution=truncation", "evolution.space={}").evolution.space) == SIX  # mappings merge
