"""From the turn rewards of components to what a group learns: PITFALLS 24 and 32, with real tables and estimators."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from algorithms.advantages import GroupRelative, Normalisation
from algorithms.core import TokenTable, TurnTable
from envs.core import Episode
from envs.frozen_lake import FrozenLake
from evo_hpo.learner.batch import build_batch
from evo_hpo.learner.scoring import score
from rewards.composite import Composite
from rewards.core import Reward
from rewards.efficiency import Efficiency
from rewards.environment import EnvironmentReward
from rewards.format import Format
from rewards.granularity import Granularity
from rewards.novelty import Novelty
from rewards.state_progress import StateProgress
from tests.rewards.played import play

FROM_0_TO_1: dict[str, Reward] = {
    "novelty": Novelty(scope="episode", paid="turns"),
    "format": Format(pattern=None, count="share", paid="turns"),
    "efficiency": Efficiency(paid="turns"),
}
ALL_OF_THEM = Composite(parts=FROM_0_TO_1, weights={"novelty": 0.4, "format": 0.3, "efficiency": 0.3})


def episodes(groups: int = 4, size: int = 6) -> list[Episode]:
    return [play(FrozenLake(), task, 100 * task + player, task) for task in range(groups) for player in range(size)]


def tables(played: list[Episode], reward: Reward, grain: str = "dense") -> tuple[TurnTable, TokenTable]:
    scored = score(played, reward, Granularity(grain))  # type: ignore[arg-type]
    outcomes = [one.outcome for one in scored.scores]
    batch = build_batch(scored.episodes, scored.turn_rewards, outcomes, 1, 0, torch.device("cpu"))
    return batch.turns, batch.tokens


def estimator(credit: str, spread: str = "group", floor: float = 1e-4) -> GroupRelative:
    compared = Normalisation(centre="group", spread=spread, unbiased=True, epsilon=1e-6, floor=floor)  # type: ignore[arg-type]
    return GroupRelative(credit=credit, normalisation=compared, whiten=False)  # type: ignore[arg-type]


@pytest.mark.parametrize("spread", ["group", "none"])
@pytest.mark.parametrize("name", [*FROM_0_TO_1, "all"])
def test_turn_rewards_that_are_never_negative_teach_both_ways_in_every_group(name: str, spread: str) -> None:
    """PITFALLS 24: nobody is pushed up for being there; the advantages of a group's episodes have mean 0."""
    reward = ALL_OF_THEM if name == "all" else FROM_0_TO_1[name]
    turns, tokens = tables(episodes(), reward)
    assert 0 <= turns.reward_K.min() and turns.reward_K.max() <= 1
    advantage_K = tokens.of_turns(estimator("trajectory", spread)(turns, tokens), len(turns.reward_K))
    first_K = turns.index_K == 0
    for group in turns.group_E.unique():
        of_group = advantage_K[first_K][turns.group_E == group]
        assert of_group.mean().abs() < 1e-5
        assert of_group.min() < 0 < of_group.max()


def test_by_turn_too_the_turns_that_are_compared_have_mean_0() -> None:
    turns, tokens = tables(episodes(), ALL_OF_THEM)
    advantage_K = tokens.of_turns(estimator("turn")(turns, tokens), len(turns.reward_K))
    compared = 0
    for group in turns.group_E.unique():
        for index in turns.index_K.unique():
            same_K = (turns.group_E[turns.episode_K] == group) & (turns.index_K == index)
            if same_K.sum() > 1:
                assert advantage_K[same_K].mean().abs() < 1e-5
                compared += 1
    assert compared > 20


@pytest.mark.parametrize("credit", ["trajectory", "turn"])
def test_returns_and_advantages_do_not_depend_on_how_many_tokens_an_action_took(credit: str) -> None:
    """PITFALLS 32: a turn reward counts once, not once a token."""
    reward = Composite(
        parts={"env": EnvironmentReward(), **FROM_0_TO_1},
        weights={"env": 1.0, "novelty": 0.1, "format": 0.1, "efficiency": 0.1},
    )
    short = episodes()
    long = [
        replace(one, turns=[replace(t, action_ids=t.action_ids * 9, logprobs=t.logprobs * 9) for t in one.turns])
        for one in short
    ]
    found = []
    for played in (short, long):
        turns, tokens = tables(played, reward, "mixed")
        paid_RT = tokens.turn_reward_on_last_token(turns)
        torch.testing.assert_close(paid_RT.sum(dim=1), turns.return_E)
        assert (paid_RT != 0).sum() == (turns.reward_K != 0).sum(), "written on one token of each turn"
        found.append((turns.return_E, tokens.of_turns(estimator(credit)(turns, tokens), len(turns.reward_K))))
    torch.testing.assert_close(*found)


def test_shaping_moves_no_return_within_a_group_and_its_rounding_teaches_nothing() -> None:
    """All start in the same state, so all get the same in total, whatever they did and wherever they ended."""
    turns, tokens = tables(episodes(), StateProgress(discount=1.0))
    assert turns.return_E.std() < 1e-5 and turns.reward_K.std() > 0.1
    assert estimator("trajectory")(turns, tokens).abs().max() == 0
    assert estimator("turn")(turns, tokens).abs().max() > 0.5, "credit by turn is what it is for"
