"""Estimates of the divergence from the reference, and their gradients."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from hypothesis import given

from algorithms.kl import KL, Estimator, adapted_coefficient, kl_estimate, zero_mean_shaping
from tests.algorithms.batches import BATCHES, batch, seeds
from tests.algorithms.tables import assert_close

LOGPROB = torch.tensor([-1.0, -2.0, -0.5], dtype=torch.float64)
REFERENCE = torch.tensor([-1.2, -1.5, -0.5], dtype=torch.float64)
LOGITS = torch.tensor([0.5, 0.0, -0.5], dtype=torch.float64)
REFERENCE_PROBS = torch.tensor([0.2, 0.3, 0.5], dtype=torch.float64)
EVERY_ESTIMATOR = pytest.mark.parametrize("estimator", get_args(Estimator))


def kl(**changes: Any) -> KL:
    return KL(
        **{"coef": 0.1, "estimator": "k2", "place": "loss", "grain": "token", "target": None, "horizon": 1e4, **changes}
    )


@pytest.mark.parametrize(
    ("estimator", "value", "gradient"),
    [
        ("k1", [0.2, -0.5, 0.0], [1.0, 1.0, 1.0]),
        ("k2", [0.02, 0.125, 0.0], [0.2, -0.5, 0.0]),
        ("k3", [0.018731, 0.148721, 0.0], [0.181269, -0.648721, 0.0]),
        ("k1_straight", [0.2, -0.5, 0.0], [0.2, -0.5, 0.0]),
        ("k3_straight", [0.018731, 0.148721, 0.0], [0.2, -0.5, 0.0]),
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
        ("k1_straight", [0.321719, -0.083023, -0.238697]),
        ("k3_straight", [0.321719, -0.083023, -0.238697]),
    ],
)
def test_expected_gradient_over_tokens_sampled_from_the_policy(estimator: Estimator, gradient: list[float]) -> None:
    logits = LOGITS.clone().requires_grad_()
    logprobs = logits.log_softmax(0)
    (logprobs.exp().detach() * kl_estimate(estimator, logprobs, REFERENCE_PROBS.log())).sum().backward()
    assert logits.grad is not None
    assert_close(logits.grad, gradient)


@pytest.mark.parametrize("estimator", ["k1", "k3", "k1_straight", "k3_straight"])
def test_all_but_k2_are_unbiased(estimator: Estimator) -> None:
    logprobs = LOGITS.log_softmax(0)
    expectation = (logprobs.exp() * kl_estimate(estimator, logprobs, REFERENCE_PROBS.log())).sum()
    assert_close(expectation, 0.293963)


def test_k3_in_the_other_direction_estimates_chi_square_minus_the_divergence() -> None:
    logits = LOGITS.clone().requires_grad_()
    logprobs = logits.log_softmax(0)
    reversed_ = logprobs.exp().detach() * kl_estimate("k3", REFERENCE_PROBS.log(), logprobs)
    reversed_.sum().backward()
    assert_close(reversed_.sum(), 0.372647)
    assert logits.grad is not None
    assert_close(logits.grad, [0.438507, -0.197411, -0.241096])


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


@pytest.mark.parametrize(
    ("grain", "expected"),  # k2 of log-ratios (0.2, -0.4, 0.6 | 0.1): of each, of their mean by turn, and by row
    [
        ("token", [[0.02, 0.08, 0.18], [0.0, 0.005, 0.0]]),
        ("turn", [[0.005, 0.005, 0.18], [0.0, 0.005, 0.0]]),
        ("sequence", [[0.4**2 / 18] * 3, [0.0, 0.005, 0.0]]),
    ],
)
def test_a_coarser_grain_pools_the_log_ratio_first(grain: str, expected: list[list[float]]) -> None:
    mask = torch.tensor([[1, 1, 1], [0, 1, 0]]).bool()
    turn = torch.tensor([[0, 0, 1], [-1, 2, -1]])
    logprob = torch.tensor([[0.2, -0.4, 0.6], [9.0, 0.1, 9.0]], dtype=torch.float64)
    assert_close(kl(grain=grain)(logprob, torch.zeros_like(logprob), mask, turn), expected)


@pytest.mark.parametrize("estimator", ["k1", "k3"])
def test_the_component_measures_the_policy_from_the_reference(estimator: Estimator) -> None:
    component = kl(estimator=estimator, place="reward" if estimator == "k1" else "loss")
    mask, turn = torch.ones(1, 3).bool(), torch.tensor([[0, 0, 1]])
    estimate = component(LOGPROB.unsqueeze(0), REFERENCE.unsqueeze(0), mask, turn)
    assert_close(estimate, {"k1": [[0.2, -0.5, 0.0]], "k3": [[0.018731, 0.148721, 0.0]]}[estimator])


@given(seeds)
@BATCHES
@pytest.mark.parametrize("grain", ["token", "turn", "sequence"])
@EVERY_ESTIMATOR
def test_untrained_positions_may_hold_anything(estimator: Estimator, grain: str, seed: int) -> None:
    drawn = batch(seed)
    place = "reward" if estimator == "k1" else "loss"
    component = kl(estimator=estimator, place=place, grain=grain)
    results = []
    for garbage in (0.0, float("nan"), float("inf")):
        logprob = torch.where(drawn.mask_RT, drawn.old_RT, garbage).requires_grad_()
        estimate = component(logprob, drawn.old_RT - drawn.log_ratio_RT, drawn.mask_RT, drawn.turn_RT)
        estimate.sum().backward()
        assert logprob.grad is not None
        results.append(torch.stack([estimate.detach(), logprob.grad]))
        assert not results[-1][:, ~drawn.mask_RT].any()
    assert torch.equal(results[0], results[1]) and torch.equal(results[0], results[2])


def test_k1_in_the_loss_is_refused_with_what_to_write() -> None:
    with pytest.raises(ValueError, match="gradient 0 in expectation; use kl.estimator=k1_straight"):
        kl(estimator="k1", place="loss")


def test_a_coefficient_of_zero_that_is_to_adapt_is_refused() -> None:
    with pytest.raises(ValueError, match="kl.coef=0 stays 0; write a small algorithm.kl.coef"):
        kl(coef=0.0, target=0.01)
    kl(coef=torch.tensor([0.0, 0.1]), target=0.01)  # an adapted coefficient may become small
    kl(coef=0.0)


@pytest.mark.parametrize("place", ["reward", "advantage"])
@pytest.mark.parametrize(
    ("estimator", "reason"),
    [("k2", "biased"), ("k3", "biased"), ("k1_straight", "is about gradients"), ("k3_straight", "is about gradients")],
)
def test_only_k1_goes_into_the_reward_or_the_advantage(estimator: Estimator, place: str, reason: str) -> None:
    with pytest.raises(ValueError, match=rf"kl.estimator={estimator} .*use kl.estimator=k1") as refusal:
        kl(estimator=estimator, place=place)
    assert reason in str(refusal.value) and place in str(refusal.value)
    kl(estimator="k1", place=place)


def test_shaping_moves_no_advantage_on_average() -> None:
    divergence = torch.tensor([[0.1, 0.3, 0.2, 9.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1, 1, 0]]).bool()
    advantage = torch.tensor([[1.0, 0.0, -1.0, 0.0]], dtype=torch.float64)
    shaped = advantage + zero_mean_shaping(divergence, 0.5, mask, torch.tensor([0]))
    assert_close(shaped, [[1.05, -0.05, -1.0, 0.0]])


def test_shaping_compares_the_tokens_of_each_member_with_its_own_coefficient() -> None:
    divergence = torch.tensor([[0.1, 0.3], [4.0, 2.0], [0.2, 7.0]], dtype=torch.float64)
    mask = torch.tensor([[1, 1], [1, 1], [1, 0]]).bool()
    coef = torch.tensor([[0.5], [1.0], [0.5]])
    shaping = zero_mean_shaping(divergence, coef, mask, torch.tensor([0, 1, 0]))
    assert_close(shaping, [[0.05, -0.05], [-1.0, 1.0], [0.0, 0.0]])


def adapted(kl: float, samples: int = 256) -> float:
    now = torch.tensor([0.001], dtype=torch.float64)
    next_ = adapted_coefficient(now, torch.tensor([kl], dtype=torch.float64), 0.1, torch.tensor([samples]), 10000.0)
    return float(next_)


def test_the_coefficient_follows_the_divergence() -> None:
    assert adapted(0.2) == pytest.approx(0.001 * (1 + 0.2 * 256 / 10000), rel=1e-12)  # 0.001005: the error is clipped
    assert adapted(0.2) == pytest.approx(0.001005, abs=5e-7)
    assert adapted(0.11) == pytest.approx(0.001 * (1 + 0.1 * 256 / 10000), rel=1e-12)
    assert adapted(0.1) == 0.001
    assert adapted(0.0) == pytest.approx(0.001 * (1 - 0.2 * 256 / 10000), rel=1e-12)


def test_the_coefficient_stays_positive_and_ignores_what_is_not_finite() -> None:
    assert adapted(0.0, samples=10**6) == pytest.approx(0.0008)
    assert adapted(float("nan")) == adapted(float("inf")) == 0.001


def test_every_member_has_its_own_controller() -> None:
    coef, divergence = torch.tensor([0.001, 0.1]), torch.tensor([0.2, 0.0])
    together = adapted_coefficient(coef, divergence, 0.1, torch.tensor([256, 5000]), 10000.0)
    assert_close(together, [0.001 * (1 + 0.2 * 0.0256), 0.1 * 0.9], 1e-7)
