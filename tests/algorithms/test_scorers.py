"""Reward and progress models: the losses of the specification, and who is compared with whom."""

from __future__ import annotations

import pytest
import torch

from algorithms.core import AdamW
from algorithms.scorers import ProgressModel, RewardModel
from tests.algorithms.tables import assert_close, turn_table

ADAM = AdamW(learning_rate=0.1, beta1=0.9, beta2=0.99, epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0)
# three pairs, the better one first; the worse of the second pair has two turns, of which the last counts
PAIRS = turn_table([[1.0], [0.0], [1.0], [0.0, 0.0], [1.0], [0.0]], groups=[0, 0, 1, 1, 2, 2])
SCORES = torch.tensor([1.2, 0.2, 0.3, 9.0, 0.8, -0.5, -1.0])


def model(margin: float = 0.0, center: float = 0.0) -> RewardModel:
    return RewardModel(optimizer=ADAM, data="", batch=4, margin=margin, center=center)


def test_the_loss_of_a_pair_is_that_of_bradley_and_terry() -> None:
    loss_Q, member_Q = model().losses(SCORES, PAIRS)
    assert_close(loss_Q, [0.313262, 0.974077, 0.474077])  # EX:reward_model_bt
    assert_close(loss_Q.mean(), 0.587139)
    assert member_Q.tolist() == [0, 0, 0]


def test_a_margin_asks_for_more_and_centering_for_scores_near_zero() -> None:
    assert_close(model(margin=0.5).losses(SCORES, PAIRS)[0].mean(), 0.826829)
    assert_close(model(center=0.01).losses(SCORES, PAIRS)[0].mean(), 0.605205)


def test_each_member_has_its_own_margin_and_centering() -> None:
    turns = turn_table([[1.0], [0.0], [1.0], [0.0]], groups=[0, 0, 1, 1], members=[0, 0, 1, 1])
    score_K = torch.tensor([1.2, 0.2, 1.2, 0.2])
    margin_N, center_N = torch.tensor([0.0, 0.5]), torch.tensor([0.3, 0.1])
    both = RewardModel(optimizer=ADAM, data="", batch=4, margin=margin_N, center=center_N)  # type: ignore[arg-type]
    alone = turn_table([[1.0], [0.0]], groups=[0, 0])
    apart = [model(*own).losses(score_K[:2], alone)[0] for own in ((0.0, 0.3), (0.5, 0.1))]
    assert_close(both.losses(score_K, turns)[0], torch.cat(apart))


def test_contributions_sum_to_the_outcome() -> None:
    turns = turn_table([[0.0, 0.0, 0.0], [0.0]], groups=[0, 0], outcomes=[1.0, 0.0])
    loss_E, _ = ProgressModel(optimizer=ADAM).losses(torch.tensor([0.1, 0.5, 0.3, 0.5]), turns)
    assert_close(loss_E, [0.01, 0.25])  # EX:spa_rl


def test_a_progress_model_is_asked_about_episodes_of_one_member_with_different_outcomes() -> None:
    turns = turn_table([[0.0, 0.0], [0.0], [0.0], [0.0]], [0, 1, 2, 3], members=[0, 0, 1, 1], outcomes=[1, 0, 0.5, 0.5])
    better_Q, worse_Q, member_Q = ProgressModel(optimizer=ADAM).ranked(torch.tensor([0.2, 0.4, 0.3, 0.1, 0.1]), turns)
    assert_close(better_Q, [0.6])
    assert_close(worse_Q, [0.3])
    assert member_Q.tolist() == [0]


@pytest.mark.parametrize("algorithm", [model(), ProgressModel(optimizer=ADAM)])
def test_a_scorer_leaves_the_policy_alone(algorithm: RewardModel | ProgressModel) -> None:
    assert algorithm.trains_scorer and algorithm.min_group == 1
