"""Every algorithm x granularity x environment, and every reward x granularity: an update, or a named refusal."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import pytest
import torch

from algorithms.supervised import Supervised
from envs.core import Episode
from evo_hpo.cli.listing import groups
from evo_hpo.config.alternatives import components
from evo_hpo.config.build import build
from evo_hpo.config.compose import compose
from evo_hpo.config.errors import ConfigError
from evo_hpo.config.schema import Config
from evo_hpo.evolution.hyperparameters import sampling
from evo_hpo.learner.batch import build_batch
from evo_hpo.learner.learner import Learner
from evo_hpo.learner.scoring import score
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.scorers import BaseModels
from evo_hpo.rollout.expert import demonstrate
from evo_hpo.runtime.processes import Processes
from tests.building import policy_of, shake, small, training_of

GROUPS = groups()
GRANULARITIES, REWARDS, ENVIRONMENTS = (list(GROUPS[name]) for name in ("granularity", "reward", "env"))
SCORERS = ("progress_model", "reward_model")  # what they train is no policy: tests/learner/test_from_scores.py
ALGORITHMS = [name for name in GROUPS["algorithm"] if name not in SCORERS]
# Rewards that ask a server or a model that was trained first: tests/e2e/test_rewards_and_algorithms.py
ELSEWHERE = ("customer_service", "judge", "pairwise", "reward_model", "ruler", "spa")
BY_EPISODE_OR_TURN = "GroupRelative gives credit by trajectory or turn, not by token"
# Algorithm -> granularity -> what the refusal says. Whatever is not here must train.
REFUSED: dict[str, dict[str, str]] = {
    name: {"token": BY_EPISODE_OR_TURN}
    for name in (
        *("cispo", "dapo", "decoupled_ppo", "dr_grpo", "grpo", "gspo", "gspo_token", "loop_token", "loop_trajectory"),
        *("loop_turn", "reinforce_pp_baseline", "rloo", "sapo", "simpletir", "sorl", "starpo"),
    )
}
REFUSED |= {
    name: {grain: f"AnchorState gives credit by turn, not by {grain}" for grain in ("trajectory", "token")}
    for name in ("gigpo", "gigpo_similarity", "sampo")
}
REFUSED |= {
    "bilevel_ppo": {grain: f"BiLevelGAE gives credit by token, not by {grain}" for grain in ("trajectory", "turn")},
    "dppo": {
        "token": BY_EPISODE_OR_TURN,
        "turn": "DPPO is defined for ratio=token, not for ratio=turn_geometric",
        "trajectory": "DPPO is defined for ratio=token, not for ratio=sequence_geometric",
    },
    "empg": {grain: f"EntropyModulated gives credit by turn, not by {grain}" for grain in ("trajectory", "token")},
    "gdpo": {grain: f"Decoupled gives credit by trajectory, not by {grain}" for grain in ("turn", "token")},
    "mt_grpo": {
        "sparse": "TurnRelative, which weighs turn rewards against the outcome, and granularity=sparse",
        "trajectory": "TurnRelative gives credit by turn, not by trajectory",
        "token": "TurnRelative gives credit by turn, not by token",
    },
}


@cache
def option(group: str, name: str) -> Any:
    """The values of one option, as Hydra composes them."""
    return compose(small(f"{group}={name}", "evolution=none", "rollout.group_size=3")).values


@cache
def component(group: str, name: str) -> Any:
    return components(group)[name]


def begun(played: list[Episode]) -> list[Episode]:
    """The first turns of each episode are enough to learn something from, and fast."""
    return [replace(one, turns=one.turns[:3]) for one in played]


def config(algorithm: str, granularity: str, reward: str, environment: str) -> Config:
    """The default config with one option of each group; put together by hand, which is faster than composing anew."""
    values = copy.deepcopy(option("algorithm", algorithm))
    values["granularity"] = option("granularity", granularity)["granularity"]
    values["reward"] = option("reward", reward)["reward"]
    values["env"] = option("env", environment)["env"]
    chosen = {"algorithm": algorithm, "granularity": granularity, "reward": reward, "env": environment}
    return build(values, choices=chosen)


@cache
def episodes(environment: str) -> list[Episode]:
    """Two groups of three."""
    made = training_of(config("grpo", "mixed", "environment", environment))
    shake(made.policy)
    settings = made.config
    return begun(made.player.training(made.tasks.training(0, 2), sampling(settings.rollout, {}, 1), 0, version=0))


@cache
def demonstrations(environment: str) -> list[Episode]:
    made = training_of(config("sft", "mixed", "environment", environment))
    settings = made.config
    chat, tasks = made.policy.base.chat, made.tasks.training(0, 2)
    return begun(demonstrate(settings.env, chat, tasks, 1, 0.0, (0, 0), made.pool, settings.rollout.max_context, False))


@cache
def start() -> tuple[Policy, torch.Tensor]:
    policy = policy_of(config("grpo", "mixed", "environment", "frozen_lake"), 1)
    shake(policy)
    return policy, policy.block.data.clone()


def trained(settings: Config, environment: str) -> tuple[dict[str, torch.Tensor], bool]:
    """Metrics of one update from the same start and the same episodes, and whether the policy moved."""
    policy, before = start()
    policy.block.load(before)
    policy.critic = None
    algorithm = settings.algorithm
    learner = Learner(policy, algorithm, Processes(cpu=True), settings.learner.micro_tokens)
    played = demonstrations(environment) if isinstance(algorithm, Supervised) else episodes(environment)
    settings.reward.attach(BaseModels(policy, settings.learner.micro_tokens))
    scored = score(played, settings.reward, settings.granularity)
    outcomes, parts = [one.outcome for one in scored.scores], [one.components for one in scored.scores]
    cpu = torch.device("cpu")
    batch = build_batch(scored.episodes, scored.turn_rewards, outcomes, 1, 0, cpu, components=parts)
    metrics = learner.update(batch, algorithm, sampling(settings.rollout, {}, 1), 0)
    return metrics, not torch.equal(policy.block.data, before)


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_every_combination_trains_or_is_refused_as_written(algorithm: str) -> None:
    moved = 0
    for granularity, environment in product(GRANULARITIES, ENVIRONMENTS):
        refusal = REFUSED.get(algorithm, {}).get(granularity)
        if refusal is not None:
            with pytest.raises(ConfigError) as refused:
                config(algorithm, granularity, "environment", environment)
            assert refusal in str(refused.value)
            assert "use granularity=" in str(refused.value) or "granularity.ratio=null" in str(refused.value)
            continue
        moved += updated(config(algorithm, granularity, "environment", environment), environment)
    assert moved, "not one combination taught anything"


@pytest.mark.parametrize("reward", [name for name in REWARDS if name not in ELSEWHERE])
def test_every_reward_goes_with_every_granularity_and_algorithm_or_is_refused(reward: str) -> None:
    trained_with = set()
    for algorithm, granularity in product(("grpo", "ppo"), ("sparse", "dense", "mixed")):
        given = component("reward", reward)
        if granularity == "sparse" and "" in given.paid_by_turn:
            with pytest.raises(ConfigError, match="pays turns and no outcome, and granularity=sparse pays"):
                config(algorithm, granularity, reward, "guess_number")
            continue
        if granularity != "sparse" and not given.gives_turn_rewards:
            with pytest.raises(ConfigError, match=f"granularity={granularity} needs turn rewards, and .* gives none"):
                config(algorithm, granularity, reward, "guess_number")
            continue
        try:
            updated(config(algorithm, granularity, reward, "guess_number"), "guess_number")
        except ConfigError as refused:
            assert "lets a failed episode earn as much" in str(refused)
        else:
            trained_with.add(granularity)
    assert trained_with & {"sparse", "dense"}


def updated(settings: Config, environment: str) -> bool:
    """Learn once; whether the policy moved."""
    metrics, moves = trained(settings, environment)
    assert metrics["loss"].isfinite().all() and metrics["grad_norm"].isfinite().all(), settings.granularity
    assert not any(column.isinf().any() for column in metrics.values())  # NaN: there was nothing to measure
    assert metrics["finite"].eq(1).all()
    return moves


def test_what_is_refused_here_exists() -> None:
    assert set(REFUSED) <= set(GROUPS["algorithm"])
    assert set(SCORERS) <= set(GROUPS["algorithm"]) and set(ELSEWHERE) <= set(REWARDS)
    assert {grain for refusals in REFUSED.values() for grain in refusals} <= set(GRANULARITIES)
