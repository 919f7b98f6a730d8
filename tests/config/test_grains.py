"""A granularity that lays down grains means one thing for every algorithm, or is refused with what to write."""

from __future__ import annotations

from typing import Any, get_args, get_type_hints

import pytest

from algorithms.advantages import GAE, GroupRelative, Returns
from algorithms.aggregation import Mode
from algorithms.core import Credit
from algorithms.kl import KL
from algorithms.ratios import GRAINS
from evo_hpo.config.errors import ConfigError
from rewards.granularity import Granularity
from tests.building import config

LAID_DOWN: dict[str, tuple[str, str, str, str, str]] = {
    "trajectory": ("sparse", "trajectory", "sequence_geometric", "sequence", "sequence_mean_token_mean"),
    "turn": ("mixed", "turn", "turn_geometric", "turn", "turn_mean"),
    "token": ("mixed", "token", "token", "token", "token_mean"),
}


def grains(*overrides: str) -> tuple[str, str, str, str, str]:
    settings = config("evolution=none", *overrides)
    algorithm: Any = settings.pipeline.stages["train"].algorithm
    assert algorithm == settings.algorithm
    reward = settings.granularity.reward
    return reward, algorithm.advantage.credit, algorithm.ratio, algorithm.kl.grain, algorithm.aggregation


@pytest.mark.parametrize("granularity", LAID_DOWN)
@pytest.mark.parametrize("algorithm", ["ppo", "turn_ppo", "reinforce_pp", "starpo_s"])
def test_all_five_grains_are_laid_down_together(algorithm: str, granularity: str) -> None:
    assert grains(f"algorithm={algorithm}", f"granularity={granularity}") == LAID_DOWN[granularity]


@pytest.mark.parametrize("algorithm", ["grpo", "rloo", "dr_grpo", "dapo", "gspo", "cispo"])
def test_group_relative_algorithms_have_two_of_them(algorithm: str) -> None:
    for granularity in ("trajectory", "turn"):
        assert grains(f"algorithm={algorithm}", f"granularity={granularity}") == LAID_DOWN[granularity]
    with pytest.raises(ConfigError, match="GroupRelative gives credit by trajectory or turn, not by token.*=turn"):
        config(f"algorithm={algorithm}", "granularity=token")


@pytest.mark.parametrize("granularity", ["sparse", "dense", "mixed"])
def test_a_granularity_of_the_reward_leaves_the_rest_to_the_algorithm(granularity: str) -> None:
    reward, *rest = grains("algorithm=turn_ppo", f"granularity={granularity}")
    assert reward == granularity
    assert rest == ["turn", "turn_geometric", "token", "token_mean"]


def test_a_single_grain_can_be_laid_down_or_left_alone() -> None:
    assert grains("granularity.ratio=turn_product", "granularity.reward=sparse")[2] == "turn_product"
    assert grains("algorithm=loop_turn", "granularity=turn", "granularity.ratio=null")[2] == "turn_product"


def test_settings_of_the_estimator_survive_its_change_of_grain() -> None:
    turn: Any = config("algorithm=ppo", "granularity=turn", "algorithm.advantage.lam=0.7").algorithm
    assert isinstance(turn.advantage, GAE) and turn.advantage.lam == 0.7 and turn.advantage.credit == "turn"
    loop: Any = config("algorithm=loop_token", "granularity=turn").algorithm
    assert isinstance(loop.advantage, GroupRelative) and loop.advantage.normalisation.centre == "leave_one_out"
    returns: Any = config("algorithm=reinforce", "granularity=trajectory").algorithm
    assert isinstance(returns.advantage, Returns) and returns.advantage.credit == "trajectory"


def test_an_objective_without_that_ratio_is_refused_and_told_the_way_out() -> None:
    with pytest.raises(ConfigError, match=r"DPPO is defined for ratio=token.*granularity\.ratio=null"):
        config("algorithm=dppo", "granularity=turn")


def test_a_grain_written_on_the_command_line_is_not_silently_overruled() -> None:
    with pytest.raises(ConfigError, match=r"algorithm.ratio=token does nothing.*lays down turn_geometric"):
        config("granularity=turn", "algorithm.ratio=token")
    assert grains("granularity=turn", "algorithm.ratio=turn_geometric")[2] == "turn_geometric"
    assert grains("granularity=turn", "algorithm.ratio=token", "granularity.ratio=null")[2] == "token"


def test_only_the_grain_that_does_not_fit_is_named() -> None:
    with pytest.raises(ConfigError, match=r"use granularity=turn, or write granularity\.credit=null$"):
        config("algorithm=grpo", "granularity=token")


def test_every_stage_of_a_pipeline_gets_the_grains() -> None:
    settings = config("pipeline=sft_then_grpo", "granularity=turn")
    stages = {name: stage.algorithm for name, stage in settings.pipeline.stages.items()}
    assert [getattr(algorithm, "ratio", None) for algorithm in stages.values()] == [None, "turn_geometric"]


def test_an_unknown_grain_is_refused_by_name() -> None:
    with pytest.raises(ConfigError, match="granularity.ratio"):
        config("granularity.ratio=word")


def test_a_granularity_may_name_every_grain_that_the_algorithms_have() -> None:
    """The rewards may not import the algorithms, so the names stand twice."""
    hints = get_type_hints(Granularity)
    named = {name: set(get_args(get_args(hints[name])[0])) for name in ("credit", "ratio", "aggregation", "kl")}
    of_kl = get_args(get_type_hints(KL)["grain"])
    assert named == {"credit": set(get_args(Credit)), "ratio": set(GRAINS), "aggregation": set(get_args(Mode))} | {
        "kl": set(of_kl)
    }
