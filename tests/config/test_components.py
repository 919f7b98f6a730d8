"""A `_target_` builds a component of an allowed package, of the right kind, from checked keys; no other is imported."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest

from envs.mixture import Mixture
from tests.config.support import coin, loaded, plugins_on_path, refusals


@pytest.fixture
def _plugins() -> Iterator[None]:
    with plugins_on_path():
        yield


@pytest.mark.parametrize(
    "target",
    ["os.system", "builtins.eval", "functools.partial", "subprocess.Popen", "left_alone.Coin", "toy_parts.Coin"],
)
@pytest.mark.usefixtures("_plugins")
def test_a_target_outside_the_allowed_packages_is_refused_before_it_is_imported(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "toy_parts", raising=False)
    [sentence] = refusals(f"env._target_={target}")
    assert sentence.startswith(
        f"env._target_: {target} is not in the allowed packages (algorithms, envs, evo_hpo, rewards)"
    )
    assert {"left_alone", "toy_parts"}.isdisjoint(sys.modules)


@pytest.mark.usefixtures("_plugins")
def test_a_nested_target_outside_the_allowed_packages_is_refused() -> None:
    [sentence] = refusals("env=mixture", "env.environments.frozen_lake._target_=left_alone.Coin")
    assert sentence.startswith("env.environments.frozen_lake._target_: left_alone.Coin is not in the allowed packages")
    [sentence] = refusals("algorithm.filters=[{_target_: left_alone.Coin}]")
    assert sentence.startswith("algorithm.filters.0._target_: left_alone.Coin is not in the allowed packages")


@pytest.mark.usefixtures("_plugins")
def test_a_plugin_package_is_allowed_once_it_is_named() -> None:
    config, _ = loaded(*coin(bias=0.25))
    assert type(config.env).__name__ == "Coin" and config.env.bias == 0.25


@pytest.mark.parametrize(
    ("target", "reason"),
    [
        ("rewards.core.Score", "is no envs.core.Environment, which is what belongs here"),
        ("envs.core.Environment", "is no dataclass"),
        ("envs.core.dataclass", "is no dataclass"),
        ("envs.frozen_lake", "is no dataclass"),
        ("envs.frozen_lake.FrozenLak", "did you mean envs.frozen_lake.FrozenLake?"),
        ("envs.frozen_like.FrozenLake", "there is no module envs.frozen_like"),
        ("FrozenLake", "is no dotted name of a class"),
        ("5", "is no dotted name of a class"),
    ],
)
def test_a_target_of_the_wrong_kind_is_refused(target: str, reason: str) -> None:
    [sentence] = refusals(f"env._target_={target}")
    assert sentence.startswith("env._target_: ") and reason in sentence


@pytest.mark.usefixtures("_plugins")
def test_a_function_of_a_plugin_is_no_component() -> None:
    [sentence] = refusals("plugins=[toy_parts]", "~env", "+env={_target_: toy_parts.make}")
    assert "toy_parts.make is no dataclass" in sentence


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"biass": 1}, "there is no key 'env.biass'"),
        ({"bias": "high"}, "env.bias must be a number, not 'high'"),
        ({"bias": "true"}, "env.bias must be a number, not True"),
        ({"bias": "nan"}, "env.bias must be a finite number"),
        ({"fair": 1}, "env.fair must be true or false, not 1"),
        ({"sides": 2.5}, "env.sides must be a whole number, not 2.5"),
        ({"sides": 0}, "env: sides is 0; write 1 or more"),
        ({"metal": "golt"}, "env.metal must be one of gold, tin, not 'golt'; did you mean gold?"),
        ({"limits": "{lo: 1}"}, "env.limits.low is needed"),
        ({"limits": "{low: 1, hihg: 2}"}, "there is no key 'env.limits.hihg'"),
        ({"limits": "{low: true}"}, "env.limits.low must be a number, not True"),
        ({"limits": "{_target_: toy_parts.Coin}"}, "env.limits must be a mapping with the keys of Range"),
        ({"others": "{a: {_target_: toy_parts.Range, low: 1}}"}, "env.others.a must be built from the `_target_` of a"),
        ({"others": "{a: {_target_: toy_parts.Coin, bias: x}}"}, "env.others.a.bias must be a number, not 'x'"),
        ({"_target_": "toy_parts.Coin", "features": "[]"}, "there is no key 'env.features'"),
    ],
)
@pytest.mark.usefixtures("_plugins")
def test_the_keys_of_a_component_are_checked_by_the_types_of_its_fields(
    settings: dict[str, Any], sentence: str
) -> None:
    assert any(found.startswith(sentence) for found in refusals(*coin(**settings)))


@pytest.mark.usefixtures("_plugins")
def test_nested_components_are_built_inside_mappings_and_plain_parts_from_their_keys() -> None:
    config, _ = loaded(*coin(others="{a: {_target_: toy_parts.Coin, sides: 6}}", limits="{low: 1}"))
    assert config.env.others["a"].sides == 6
    assert config.env.limits.low == 1.0 and config.env.limits.high is None


def test_a_mixture_builds_the_environments_it_names() -> None:
    config, _ = loaded("env=mixture", "env.environments.guess_number.high=8")
    assert isinstance(config.env, Mixture)
    assert config.env.environments["guess_number"].high == 8  # type: ignore[attr-defined]


@pytest.mark.usefixtures("_plugins")
def test_a_secret_setting_of_a_component_is_not_printed() -> None:
    sentences = refusals(*coin(token="[abcdefgh]"))
    assert sentences[0].startswith("env.token must be text, not a hidden value")
    assert not any("abcdefgh" in sentence for sentence in sentences)


@pytest.mark.parametrize(("pipeline", "stage"), [("single", "train"), ("sft_then_grpo", "grpo")])
def test_the_stage_learns_with_the_very_algorithm_that_was_chosen(pipeline: str, stage: str) -> None:
    config, _ = loaded(f"pipeline={pipeline}", "algorithm=gigpo", "algorithm.kl.coef=0.03")
    assert config.pipeline.stages[stage].algorithm is config.algorithm
    assert config.algorithm.kl.coef == 0.03
    assert type(config.algorithm.advantage).__name__ == "AnchorState"
