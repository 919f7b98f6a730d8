"""Every YAML file composes and builds, explains each of its keys, and holds nothing that no one reads."""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from envs.frozen_lake import FrozenLake
from evo_hpo.cli.listing import groups
from evo_hpo.config import paths, schema
from evo_hpo.config.alternatives import components
from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.config.hints import about
from evo_hpo.config.provenance import leaves
from evo_hpo.config.schema import Config
from tests.config.support import loaded

FILES = sorted([*paths.conf().rglob("*.yaml"), *paths.sweeps().glob("*.yaml")])
OPTIONS = [(group, option) for group, options in groups().items() for option in options]
# Options that only make sense with something else, and what that is.
NEEDS = {
    ("model", "hf"): ["model.path=some/model"],
    ("algorithm/advantage", "gae"): ["algorithm/critic=adapter"],
    ("algorithm/advantage", "bi_level_gae"): ["algorithm/critic=adapter"],
    ("algorithm/critic", "adapter"): ["algorithm/advantage=gae"],
    ("algorithm/correction", "decoupled_ppo"): ["algorithm.old_logprobs=recompute"],
    ("algorithm/correction", "icepop"): ["algorithm.old_logprobs=recompute"],
    ("algorithm/correction", "rejection"): ["algorithm.old_logprobs=recompute"],
    ("algorithm/correction", "truncated_is"): ["algorithm.old_logprobs=recompute"],
    ("model", "tiny_scratch"): ["algorithm.kl.coef=0"],
    ("granularity", "token"): ["algorithm=ppo"],
    ("algorithm/objective", "unclipped"): ["algorithm.minibatches=1"],
    ("algorithm", "reward_model"): ["algorithm.data=pairs.jsonl"],
    ("reward", "reward_model"): ["reward.path=some/folder"],
    ("reward", "spa"): ["reward.path=some/folder"],
    ("reward/client", "openai"): ["reward=ruler", "granularity=sparse"],
}
UNEXPLAINED = ("_target_", "defaults")


def name(file: Path) -> str:
    return file.relative_to(paths.conf().parent).as_posix()


def needs_of_reward(option: str) -> list[str]:
    """An environment that has what the reward needs, and a granularity that asks for what it gives."""
    reward = components("reward")[option]
    needs = [] if reward.gives_turn_rewards else ["granularity=sparse"]
    if not reward.needs <= FrozenLake.features:
        needs.append(f"env={next(name for name, env in components('env').items() if reward.needs <= env.features)}")
    return needs


@pytest.mark.parametrize(("group", "option"), OPTIONS)
def test_every_option_of_every_group_composes_and_builds(group: str, option: str) -> None:
    needs = NEEDS.get((group, option), []) + (needs_of_reward(option) if group == "reward" else [])
    config, _ = loaded(f"{group}={option}", *needs)
    assert isinstance(config, Config)


def test_every_algorithm_goes_with_the_default_search_space() -> None:
    for option in groups()["algorithm"]:
        loaded("evolution=truncation", f"algorithm={option}", *NEEDS.get(("algorithm", option), []))


def test_the_default_run_composes_and_builds() -> None:
    composed = compose()
    config = build(composed.values, composed.provenance, composed.choices)
    assert composed.choices["evolution"] == "gated"
    assert config.evolution.population > 1 and config.evolution.space


@pytest.mark.parametrize("file", FILES, ids=name)
def test_every_file_says_what_it_is(file: Path) -> None:
    assert len(about(file).split()) > 2


@pytest.mark.parametrize("file", FILES, ids=name)
def test_every_key_has_a_comment_above_it(file: Path) -> None:
    """Of a file that only overrules others, every key that has a value."""
    lines = file.read_text(encoding="utf-8").splitlines()
    overrules = lines[0] == "# @package _global_"
    bare = [
        f"line {number + 1}: {line.strip()}"
        for number, line in enumerate(lines)
        if (key := re.match(r"\s*([\w.]+):(\s.+)?$", line))
        and key[1] not in UNEXPLAINED
        and not (overrules and key[2] is None)
        and not (number and lines[number - 1].strip().startswith("#"))
    ]
    assert not bare


@pytest.mark.parametrize("file", FILES, ids=name)
def test_no_line_is_longer_than_the_code_allows(file: Path) -> None:
    assert max(map(len, file.read_text(encoding="utf-8").splitlines())) <= 120


def test_every_key_of_the_schema_has_its_value_in_a_yaml_file() -> None:
    _, composed = loaded()
    known = {key for key, _ in leaves(composed.values)}
    for key in schema_keys(Config):
        assert key in known or any(leaf.startswith(f"{key}.") for leaf in known), f"{key} has no value in conf/"


def test_no_default_is_written_twice() -> None:
    """The schema has none; a search space is the exception, where absence means something."""
    for cls in vars(schema).values():
        if dataclasses.is_dataclass(cls) and cls is not schema.Dimension:
            assert all(f.default is dataclasses.MISSING for f in dataclasses.fields(cls)), cls


def test_a_missing_value_is_marked_and_nothing_else_is() -> None:
    missing = [
        (name(file), key) for file in FILES for key, value in leaves(yaml.safe_load(file.read_text())) if value == "???"
    ]
    assert missing == [
        ("conf/algorithm/reward_model.yaml", "data"),
        ("conf/model/hf.yaml", "path"),
        ("conf/reward/reward_model.yaml", "path"),
        ("conf/reward/spa.yaml", "path"),
    ]


def schema_keys(cls: Any, above: str = "") -> Iterator[str]:
    """Dotted key of every field of the schema, components and free mappings as one."""
    for f in dataclasses.fields(cls):
        hint = getattr(schema, str(f.type), None)
        if dataclasses.is_dataclass(hint):
            yield from schema_keys(hint, f"{above}{f.name}.")
        else:
            yield f"{above}{f.name}"


def test_the_walk_over_the_schema_reaches_nested_fields() -> None:
    assert {"seed", "model.lora.rank", "env", "evolution.space"} <= set(schema_keys(Config))
    assert get_args(schema.Positive)
