"""Scorers learn: from pairs and from outcomes, each member for itself, whatever the micro-batches."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor

from algorithms.core import AdamW
from algorithms.scorers import ProgressModel, RewardModel, ScorerAlgorithm
from envs.core import Episode
from evo_hpo.learner.from_scores import right_order, scores
from evo_hpo.learner.learner import Learner
from evo_hpo.learner.scoring import Scored
from evo_hpo.policy.sampling import Sampling
from evo_hpo.runtime.measures import batch_of, calibration
from evo_hpo.runtime.processes import Processes
from rewards.core import Score
from tests.building import config, episode, policy_of

CPU = torch.device("cpu")
ADAM = AdamW(learning_rate=0.01, beta1=0.9, beta2=0.99, epsilon=1e-8, weight_decay=0.0, max_grad_norm=1.0)
MODELS: list[ScorerAlgorithm] = [
    RewardModel(optimizer=ADAM, data="", batch=4, margin=0.1, center=0.01),
    ProgressModel(optimizer=ADAM),
]


def material(*members: int) -> Scored:
    """Two pairs for each member, of one to three turns; which one is better shows in the ids of its actions."""
    episodes: list[Episode] = []
    for member in range(len(members)):
        for group, turns in enumerate((1, 3)):
            for better in (True, False):
                said = [7 + group, 9] if better else [8 + group, 9]
                episodes.append(episode(member, group, [([2, 3 + k, 4 + members[member]], said) for k in range(turns)]))
    outcomes = [1.0, 0.0] * (len(episodes) // 2)
    paid = [[0.0] * (len(e.turns) - 1) + [outcome] for e, outcome in zip(episodes, outcomes, strict=True)]
    return Scored(episodes, [Score(outcome) for outcome in outcomes], paid)


def trained(algorithm: ScorerAlgorithm, slots: list[int], micro_tokens: int = 4096, updates: int = 3) -> Learner:
    policy = policy_of(config("evolution=none"), len(slots), slots)
    learner = Learner(policy, algorithm, Processes(cpu=True), micro_tokens)
    batch = batch_of(material(*slots), len(slots), CPU)
    for update in range(updates):
        metrics = learner.update(batch, algorithm, Sampling.same(len(slots), 1.0), update)
        assert metrics["finite"].eq(1).all() and metrics["loss"].isfinite().all()
    return learner


def block(learner: Learner) -> Tensor:
    assert learner.policy.critic is not None
    return learner.policy.critic.data


@pytest.mark.parametrize("algorithm", MODELS, ids=lambda a: a.kind)
def test_a_population_of_scorers_equals_separate_ones(algorithm: ScorerAlgorithm) -> None:
    together = block(trained(algorithm, [0, 1, 2]))
    for slot in range(3):
        alone = block(trained(algorithm, [slot]))
        torch.testing.assert_close(together[slot : slot + 1], alone, atol=2e-5, rtol=1e-4)


@pytest.mark.parametrize("algorithm", MODELS, ids=lambda a: a.kind)
def test_the_gradient_does_not_depend_on_micro_batches(algorithm: ScorerAlgorithm) -> None:
    whole, pieces = (block(trained(algorithm, [0], micro_tokens, updates=1)) for micro_tokens in (4096, 1))
    torch.testing.assert_close(whole, pieces, atol=1e-6, rtol=1e-4)


@pytest.mark.parametrize("algorithm", MODELS, ids=lambda a: a.kind)
def test_a_scorer_learns_which_is_better_and_the_policy_stays(algorithm: ScorerAlgorithm) -> None:
    before = policy_of(config("evolution=none"), 1).block.data
    learner = trained(algorithm, [0], updates=40)
    batch = batch_of(material(0), 1, CPU)
    better_Q, worse_Q, _ = algorithm.ranked(scores(learner.passes, batch), batch.turns)
    assert (better_Q > worse_Q).all()
    assert torch.equal(learner.policy.block.data, before)


@pytest.mark.parametrize("algorithm", MODELS, ids=lambda a: a.kind)
def test_an_update_says_how_good_the_scorer_was_before_its_step(algorithm: ScorerAlgorithm) -> None:
    learner, batch = trained(algorithm, [0, 1], updates=20), batch_of(material(0, 1), 2, CPU)
    score_K = scores(learner.passes, batch)
    better_Q, worse_Q, member_Q = algorithm.ranked(score_K, batch.turns)
    metrics = learner.update(batch, algorithm, Sampling.same(2, 1.0), 20)
    for member in range(2):
        mine_Q = member_Q == member
        assert metrics["compared"][member] == mine_Q.sum()
        torch.testing.assert_close(metrics["accuracy"][member], (better_Q > worse_Q)[mine_Q].float().mean())
        torch.testing.assert_close(metrics["margin"][member], (better_Q - worse_Q)[mine_Q].mean())
        torch.testing.assert_close(metrics["score"][member], score_K[batch.turns.member_K == member].mean())
    assert metrics["accuracy"].min() > 0.5


@pytest.mark.parametrize("algorithm", MODELS, ids=lambda a: a.kind)
def test_a_member_with_nothing_to_compare_stays_as_it_is_and_is_not_called_broken(algorithm: ScorerAlgorithm) -> None:
    learner = trained(algorithm, [0, 1])
    before = block(learner).clone()
    metrics = learner.update(batch_of(material(0), 2, CPU), algorithm, Sampling.same(2, 1.0), 3)
    assert metrics["finite"].tolist() == [1.0, 1.0] and metrics["compared"][1] == 0
    assert torch.equal(block(learner)[1], before[1]) and not torch.equal(block(learner)[0], before[0])


def test_the_first_step_has_the_gradient_of_the_loss() -> None:
    """With a head of 0 only the head has a gradient: the mean over pairs of (P(c > r) - 1) * (h_c - h_r)."""
    unclipped = replace(ADAM, max_grad_norm=1e9)
    algorithm = RewardModel(optimizer=unclipped, data="", batch=4, margin=0.0, center=0.0)
    policy = policy_of(config("evolution=none"), 1)
    learner = Learner(policy, algorithm, Processes(cpu=True), 4096)
    batch = batch_of(material(0), 1, CPU)
    assert policy.critic is not None
    with torch.no_grad(), policy.acting("critic"):
        hidden = policy.base.hidden(batch.ids_RT)
    ends = [int(row.nonzero()[-1]) for row in batch.tokens.last_RT]
    last = torch.stack([hidden[r, end] for r, end in enumerate(ends)])
    expected = (-0.5 * (last[0::2] - last[1::2])).mean(0)
    learner.update(batch, algorithm, Sampling.same(1, 1.0), 0)
    assert learner.critic_optimizer is not None
    head = sum(1 for _ in expected)  # the last numbers of the block are the head's weight and bias
    found = learner.critic_optimizer.first[0, -head - 1 : -1] / (1 - ADAM.beta1)
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-3)


def test_equals_count_half() -> None:
    assert right_order(torch.tensor([1.0, 0.0, 2.0]), torch.tensor([0.0, 0.0, 3.0])).tolist() == [1.0, 0.5, 0.0]


def test_calibration_of_a_model_that_is_right_as_often_as_it_says() -> None:
    """Four in five at a probability of 0.8: nothing is off; at 0.95 it is off by 0.15."""
    sure = torch.logit(torch.tensor(0.8, dtype=torch.float64))
    honest = torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0]) * sure
    assert calibration(honest)["expected_error"] == pytest.approx(0.0, abs=1e-6)
    assert calibration(honest)["brier"] == pytest.approx((4 * 0.04 + 0.64) / 5, abs=1e-6)
    boastful = torch.tensor([1.0, 1.0, 1.0, 1.0, -1.0]) * torch.logit(torch.tensor(0.95, dtype=torch.float64))
    assert calibration(boastful)["expected_error"] == pytest.approx(0.15, abs=1e-6)
