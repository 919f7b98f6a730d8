"""DPO on a batch: whose scores are compared with what, and what a step does to them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from evo_hpo.learner.batch import Batch
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from tests.learner.test_from_rewards import learner_of, update
from tests.learner.test_learner import batch_of, with_real_logprobs

BEST, WORST, BETA = [0, 4], [3, 7], 0.5  # rows of the two members: rewards are 1, 0, 0.5 and -0.5, times their number


def margins(policy: Policy, batch: Batch) -> Tensor:
    """[N] beta times how much more the policy than the base prefers each member's best episode to its worst."""
    scores = []
    for role in ("policy", "reference"):
        with torch.no_grad(), policy.acting(role):
            rows = Sampling.same(batch.ids_RT.shape[0], 1.0)
            scores.append(policy.logprobs(batch.ids_RT, batch.tokens.mask_RT, rows)[0].sum(1))
    difference_R = scores[0] - scores[1]
    return BETA * (difference_R[BEST] - difference_R[WORST])


def test_the_margin_is_that_of_the_best_over_the_worst_against_the_reference_and_a_step_widens_it() -> None:
    policy, learner = learner_of(
        "algorithm=dpo", f"algorithm.beta={BETA}", "algorithm.optimizer.learning_rate=1e-3", "algorithm.epochs=1"
    )
    batch = with_real_logprobs(policy, batch_of([0, 1]))
    before = margins(policy, batch)
    assert before.abs().min() > 1e-3, "the policy is not the reference"
    metrics = update(learner, batch)
    torch.testing.assert_close(metrics["margin"], before, rtol=1e-3, atol=1e-5)
    torch.testing.assert_close(metrics["loss"], -logsigmoid(before), rtol=1e-3, atol=1e-5)
    assert metrics["preference_accuracy"].tolist() == (before > 0).float().tolist()
    assert metrics["pairs"].tolist() == [1, 1]
    assert (margins(policy, batch) > before).all()


def test_the_gradient_is_that_of_the_loss_of_the_pairs() -> None:
    policy, learner = learner_of("algorithm=dpo", f"algorithm.beta={BETA}", "algorithm.epochs=1")
    batch = with_real_logprobs(policy, batch_of([0, 1]))
    with torch.no_grad(), policy.acting("reference"):
        reference_RT, _ = policy.logprobs(batch.ids_RT, batch.tokens.mask_RT, Sampling.same(8, 1.0))
    with policy.acting("policy"):
        logprob_RT, _ = policy.logprobs(batch.ids_RT, batch.tokens.mask_RT, Sampling.same(8, 1.0))
        score_R = (logprob_RT - reference_RT).sum(1)
        (-logsigmoid(BETA * (score_R[BEST] - score_R[WORST]))).sum().backward()
    expected = policy.block.grad.norm(dim=1)
    policy.block.grad.zero_()
    torch.testing.assert_close(update(learner, batch)["grad_norm"], expected, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("loss", ["sigmoid", "ipo"])
def test_groups_of_equals_teach_nothing(loss: str) -> None:
    policy, learner = learner_of("algorithm=dpo", f"algorithm.loss={loss}")
    batch = with_real_logprobs(policy, batch_of([0, 1]))
    batch.turns.reward_K.zero_()
    before = policy.block.data.clone()
    metrics = update(learner, batch)
    assert metrics["pairs"].tolist() == [0, 0] and metrics["finite"].tolist() == [1, 1]
    assert torch.equal(policy.block.data, before)
