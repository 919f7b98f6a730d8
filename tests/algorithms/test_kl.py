"""Estimates of the divergence from the reference, and their gradients."""

from __future__ import annotations

from typing import Literal

import pytest
import torch

from algorithms.kl import KL, Estimator, kl_estimate
from tests.algorithms.tables import assert_close

LOGPROB = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64)
REFERENCE = torch.tensor([-1.2, -1.5, -0.5], dtype=torch.float64)
LOGITS = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64)
REFERENCE_PROBS = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
EVERY_ESTIMATOR = pytest.mark.parametrize("estimator", ["k1", "k2", "k3"])


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [
        ("k1", [0.2, -0.5, 0.0], [1.0, 1.0, 1.0]),
        ("k2", [0.02, 0.125, 0.0], [0.2, -0.5, 0.0]),
        ("k3", [0.018731, 0.148721, 0.0], [0.181269, -0.648721, 0.0]),
    ],
)
def test_value_and_gradient_of_each_estimator(estimator: Estimator, value: list[float], gradient: list[float]) -> None:
    logprob = LOGPROB.clone().requires_grad_()
    estimate = kl_estimate(estimator, logprob, REFERENCE)
    assert_close(estimate, value)
    estimate.sum().backward()
    assert logprob.grad is not None
    assert_close(logprob.grad, gradient)


def test_k3_in_the_other_direction_is_another_number() -> None:
    assert_close(kl_estimate("k3", REFERENCE, LOGPROB), [0.021403, 0.106531, 0.0])


@pytest.mark.parametrize(
    ("estimator", "gradient"),
    [
        ("k1", [0.0, 0.0, 0.0]),
        ("k2", [0.321719, -0.083023, -0.238697]),  # of KL(policy || reference)
        ("k3", [0.30648, 0.007196, -0.313676]),  # of KL(reference || policy)
    ],
)
def test_expected_gradient_over_tokens_sampled_from_the_policy(estimator: Estimator, gradient: list[float]) -> None:
    logits = LOGITS.clone().requires_grad_()
    logprobs = logits.log_softmax(0)
    (logprobs.exp().detach() * kl_estimate(estimator, logprobs, REFERENCE_PROBS.log())).sum().backward()
    assert logits.grad is not None
    assert_close(logits.grad, gradient)


def test_k1_and_k3_are_unbiased() -> None:
    logprobs = LOGITS.log_softmax(0)
    for estimator in ("k1", "k3"):
        expectation = (logprobs.exp() * kl_estimate(estimator, logprobs, REFERENCE_PROBS.log())).sum()
        assert_close(expectation, 0.293963)


@EVERY_ESTIMATOR
@pytest.mark.parametrize("difference", [20.0, -20.0, 1e4, -1e4, float("inf"), float("-inf")])
def test_estimates_and_gradients_are_finite_however_far_apart(estimator: Estimator, difference: float) -> None:
    logprob = torch.tensor([-1.0], requires_grad=True)
    estimate = kl_estimate(estimator, logprob, torch.tensor([-1.0 + difference]))
    estimate.sum().backward()
    assert estimate.isfinite().all()
    assert logprob.grad is not None and logprob.grad.isfinite().all()


@EVERY_ESTIMATOR
def test_the_reference_itself_has_no_divergence(estimator: Estimator) -> None:
    assert kl_estimate(estimator, LOGPROB, LOGPROB).abs().max() == 0


def test_k1_in_the_loss_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match="gradient 0 in expectation; use kl.estimator=k2"):
        KL(coef=0.1, estimator="k1", place="loss")


@pytest.mark.parametrize("estimator", ["k2", "k3"])
def test_biased_estimators_in_the_reward_are_refused(estimator: Literal["k2", "k3"]) -> None:
    with pytest.raises(ValueError, match="biased; use kl.estimator=k1"):
        KL(coef=0.1, estimator=estimator, place="reward")
