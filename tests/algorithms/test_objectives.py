"""Surrogates with their ratios and aggregations: named losses, their values and their gradients."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from algorithms.aggregation import Mode, token_weights
from algorithms.objectives import CISPO, DPPO, SAPO, Clipped, ClippingNormalised, Objective, Surrogate, Unclipped
from algorithms.objectives.clipping_normalised import clip_terms, clipping_bias, gradient_scale, moving_bound
from algorithms.ratios import Grain, log_ratio_at
from tests.algorithms.tables import assert_close

OLD = torch.tensor([[-1.0, -2.0, -0.5, -1.5], [-0.7, -1.2, 0.0, 0.0]], dtype=torch.float64)
LOG_RATIO = torch.tensor([[0.3, -0.1, 0.05, -0.4], [0.25, -0.5, 0.0, 0.0]], dtype=torch.float64)
ADVANTAGE = torch.tensor([[1.0, 1, 1, 1], [-1, -1, 0, 0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
TURN = torch.tensor([[0, 0, 1, 1], [2, 2, -1, -1]])
PPO = Clipped(clip_low=0.2, clip_high=0.2, dual_clip=None)
SORL = ClippingNormalised(clip_low=0.2, clip_high=0.2, bound=None, decay=0.9, exact=False)


def weights(mode: Mode) -> Tensor:
    return token_weights(mode, MASK, torch.tensor([0, 0]), 1, 8.0, turn_RT=TURN).double()


def loss_and_gradient(objective: Objective, grain: Grain, mode: Mode) -> tuple[Tensor, Tensor, Surrogate]:
    logprob = (OLD + LOG_RATIO).requires_grad_()
    surrogate = objective(log_ratio_at(grain, logprob - OLD, MASK, TURN), ADVANTAGE, logprob, OLD)
    loss = (surrogate.loss_RT * weights(mode)).sum()
    loss.backward()
    assert logprob.grad is not None
    return loss.detach(), logprob.grad, surrogate


def clipped_tokens(surrogate: Surrogate) -> list[list[int]]:
    return (surrogate.clipped_low_RT | surrogate.clipped_high_RT).int().tolist()


PPO_GRADIENT = [[0.0, -0.150806, -0.175212, -0.11172], [0.214004, 0.0, 0.0, 0.0]]
SAPO_WEIGHT = [[0.970013, 0.997739, 0.999343, 0.973313], [0.978091, 0.958513, 0.0, 0.0]]
GSPO_ROW = [-0.120399] * 4
GSPO_WIDE = [GSPO_ROW, [0.220624, 0.220624, 0.0, 0.0]]
NAMED = {
    "ppo": (PPO, "token", "token_mean", -0.290401, PPO_GRADIENT),
    "sorl": (SORL, "token", "token_mean", -0.290401, PPO_GRADIENT),
    "dapo_clip_higher": (
        Clipped(clip_low=0.2, clip_high=0.28, dual_clip=None),
        "token",
        "token_mean",
        -0.303734,
        PPO_GRADIENT,
    ),
    "loop_token": (
        PPO,
        "token",
        "sequence_mean_token_mean",
        0.042703,
        [[0.0, -0.113105, -0.131409, -0.08379], [0.321006, 0.0, 0.0, 0.0]],
    ),
    "loop_turn": (PPO, "turn_product", "turn_mean", -0.076172, [[0.0, 0.0, -0.176172, -0.176172], [0.0] * 4]),
    "loop_bandit": (PPO, "sequence_product", "sequence_mean_token_mean", -0.030354, [[-0.430354] * 4, [0.0] * 4]),
    "gspo_paper_eps": (
        Clipped(clip_low=3e-4, clip_high=4e-4, dual_clip=None),
        "sequence_geometric",
        "sequence_mean_token_mean",
        0.018253,
        [GSPO_ROW, [0.0] * 4],
    ),
    "gspo_wide_eps": (PPO, "sequence_geometric", "sequence_mean_token_mean", -0.040349, GSPO_WIDE),
    "gspo_token_wide_eps": (PPO, "sequence_token", "sequence_mean_token_mean", -0.040349, GSPO_WIDE),
    "cispo_upper_only": (
        CISPO(ratio_low=0.0, ratio_high=1.2),
        "token",
        "token_mean",
        0.485956,
        [[-0.2, -0.150806, -0.175212, -0.11172], [0.2, 0.101088, 0.0, 0.0]],
    ),
    "cispo_two_sided": (
        CISPO(ratio_low=0.8, ratio_high=1.2),
        "token",
        "sequence_mean_token_mean",
        0.116654,
        [[-0.15, -0.113105, -0.131409, -0.1], [0.3, 0.2, 0.0, 0.0]],
    ),
    "sapo": (
        SAPO(tau_positive=1.0, tau_negative=1.05),
        "token",
        "sequence_mean_token_mean",
        -0.071098,
        [[-0.163673, -0.112849, -0.131323, -0.081554], [0.313973, 0.145342, 0.0, 0.0]],
    ),
    "dppo_binary_tv": (
        DPPO(threshold=0.1, divergence="tv"),
        "token",
        "token_mean",
        0.511505,
        [[0.0, -0.904837 / 6, -1.051271 / 6, -0.67032 / 6], [1.284025 / 6, 0.0, 0.0, 0.0]],
    ),
}


@pytest.mark.parametrize(("objective", "grain", "mode", "loss", "gradient"), NAMED.values(), ids=NAMED)
def test_value_and_gradient_of(
    objective: Objective, grain: Grain, mode: Mode, loss: float, gradient: list[list[float]]
) -> None:
    value, grad, _ = loss_and_gradient(objective, grain, mode)
    assert_close(value, loss)
    assert_close(grad, gradient)


@pytest.mark.parametrize("objective", [PPO, SORL])
def test_each_token_of_the_clipped_surrogate(objective: Objective) -> None:
    _, _, surrogate = loss_and_gradient(objective, "token", "token_mean")
    assert_close(surrogate.loss_RT, [[-1.2, -0.904837, -1.051271, -0.67032], [1.284025, 0.8, 0.0, 0.0]])


@pytest.mark.parametrize("objective", [PPO, SORL])
def test_what_was_clipped_is_told_apart_by_side(objective: Objective) -> None:
    _, _, surrogate = loss_and_gradient(objective, "token", "token_mean")
    assert surrogate.clipped_high_RT.int().tolist() == [[1, 0, 0, 0], [0] * 4]
    assert surrogate.clipped_low_RT.int().tolist() == [[0] * 4, [0, 1, 0, 0]]


def test_turn_products_clip_whole_turns() -> None:
    _, _, surrogate = loss_and_gradient(PPO, "turn_product", "turn_mean")
    assert surrogate.clipped_high_RT.int().tolist() == [[1, 1, 0, 0], [0] * 4]
    assert surrogate.clipped_low_RT.int().tolist() == [[0] * 4, [1, 1, 0, 0]]


def test_clipping_never_helps_against_a_ratio_that_already_went_the_wrong_way() -> None:
    log_ratio = torch.tensor([[-1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    surrogate = PPO(log_ratio, advantage, torch.zeros(1, 2), torch.zeros(1, 2))
    surrogate.loss_RT.sum().backward()
    assert log_ratio.grad is not None
    assert_close(log_ratio.grad, [[-0.367879, 2.718282]])
    assert clipped_tokens(surrogate) == [[0, 0]]


@pytest.mark.parametrize("dual_clip", [3.0, 1.1])
def test_dual_clip_bounds_the_loss_where_the_advantage_is_negative_and_there_alone(dual_clip: float) -> None:
    log_ratio = torch.tensor([[5.0, 5.0, 0.5, 1.0]], dtype=torch.float64).log().requires_grad_()
    advantage = torch.tensor([[-1.0, 1.0, -1.0, -1.0]], dtype=torch.float64)
    dual = Clipped(clip_low=0.2, clip_high=0.2, dual_clip=dual_clip)(log_ratio, advantage, log_ratio, log_ratio)
    dual.loss_RT.sum().backward()
    assert_close(dual.loss_RT, [[dual_clip, -1.2, 0.8, 1.0]])
    assert log_ratio.grad is not None
    assert_close(log_ratio.grad, [[0.0, 0.0, 0.0, 1.0]])
    assert dual.clipped_high_RT.int().tolist() == [[1, 1, 0, 0]]
    assert dual.clipped_low_RT.int().tolist() == [[0, 0, 1, 0]]
    plain = PPO(log_ratio, advantage, log_ratio, log_ratio)
    assert_close(plain.loss_RT, [[5.0, -1.2, 0.8, 1.0]])


def test_cispo_bounds_the_ratio_itself_and_flags_it_whatever_the_advantage() -> None:
    _, _, surrogate = loss_and_gradient(CISPO(ratio_low=0.8, ratio_high=1.2), "token", "token_mean")
    assert surrogate.clipped_high_RT.int().tolist() == [[1, 0, 0, 0], [1, 0, 0, 0]]
    assert surrogate.clipped_low_RT.int().tolist() == [[0, 0, 0, 1], [0, 1, 0, 0]]
    _, _, one_sided = loss_and_gradient(CISPO(ratio_low=0.0, ratio_high=1.2), "token", "token_mean")
    assert not one_sided.clipped_low_RT.any()
    assert_close(one_sided.loss_RT, [[0.84, 1.900159, 0.473072, 1.273608], [-0.54, -1.031102, 0.0, 0.0]])


def test_the_gate_of_sapo_has_the_slope_of_the_ratio_on_policy_and_about_twice_its_value() -> None:
    _, _, surrogate = loss_and_gradient(SAPO(tau_positive=1.0, tau_negative=1.05), "token", "token_mean")
    assert_close(surrogate.loss_RT, [[-2.346333, -1.904909, -2.05126, -1.673274], [2.186701, 1.516795, 0.0, 0.0]])
    weight = surrogate.loss_RT.new_tensor(SAPO_WEIGHT)
    moved = LOG_RATIO.clone().requires_grad_()
    SAPO(tau_positive=1.0, tau_negative=1.05)(moved, ADVANTAGE, moved, moved).loss_RT.sum().backward()
    assert moved.grad is not None
    assert_close(moved.grad, -weight * LOG_RATIO.exp() * ADVANTAGE)
    log_ratio = torch.zeros(1, 2, dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    gate = SAPO(tau_positive=1.0, tau_negative=1.05)(log_ratio, advantage, log_ratio, log_ratio)
    gate.loss_RT.sum().backward()
    assert_close(gate.loss_RT, [[-2.0, 2 / 1.05]])
    assert log_ratio.grad is not None
    assert_close(log_ratio.grad, [[-1.0, 1.0]])


def test_dppo_leaves_out_what_moves_further_away() -> None:
    _, _, surrogate = loss_and_gradient(DPPO(threshold=0.1, divergence="tv"), "token", "token_mean")
    assert surrogate.clipped_high_RT.int().tolist() == [[1, 0, 0, 0], [0] * 4]
    assert surrogate.clipped_low_RT.int().tolist() == [[0] * 4, [0, 1, 0, 0]]


@pytest.mark.parametrize(("threshold", "gradient"), [(0.0335, 0.0), (0.0336, -1.349866)])
def test_the_binary_kl_of_dppo_is_that_of_the_old_policy_from_the_present_one(
    threshold: float, gradient: float
) -> None:
    old = torch.tensor([[0.36788]], dtype=torch.float64).log()
    now = torch.tensor([[0.49659]], dtype=torch.float64).log().requires_grad_()
    # .36788 log(.36788 / .49659) + .63212 log(.63212 / .50341) = .033551; the other direction is .034367
    surrogate = DPPO(threshold=threshold, divergence="kl")(now - old, torch.ones(1, 1).double(), now, old)
    surrogate.loss_RT.sum().backward()
    assert now.grad is not None
    assert_close(now.grad, [[gradient]])


def test_dppo_masks_a_token_that_was_certain_and_loses_probability() -> None:
    old = torch.zeros(1, 1, dtype=torch.float64)
    now = torch.tensor([[0.5]], dtype=torch.float64).log()
    surrogate = DPPO(threshold=0.05, divergence="kl")(now - old, -torch.ones(1, 1).double(), now, old)
    assert surrogate.clipped_low_RT.all() and surrogate.loss_RT == 0


def test_dppo_does_not_mask_rare_tokens_for_their_ratio_and_bounds_their_weight() -> None:
    old = torch.tensor([[1e-4, 1e-4]], dtype=torch.float64).log()
    now = torch.tensor([[5e-4, 5e-3]], dtype=torch.float64).log().requires_grad_()
    surrogate = DPPO(threshold=0.1, divergence="tv")(now - old, torch.ones(1, 2).double(), now, old)
    surrogate.loss_RT.sum().backward()
    assert now.grad is not None
    assert_close(now.grad, [[-5.0, -20.0]])
    assert DPPO.grains == ("token",)


def test_the_gradient_of_an_unclipped_token_is_its_negative_advantage() -> None:
    _, gradient, surrogate = loss_and_gradient(Unclipped(), "token", "sequence_mean_token_sum")
    assert_close(gradient, -ADVANTAGE / 2)
    assert not any(map(any, clipped_tokens(surrogate)))


def test_reinforce_without_and_with_a_baseline() -> None:
    logprob = torch.tensor([[-1.0, -2.0], [-0.5, -1.5]], dtype=torch.float64)
    everything = torch.ones(2, 2, dtype=torch.bool)
    weight = token_weights("sequence_mean_token_sum", everything, torch.tensor([0, 0]), 1, 8.0)
    zero = torch.zeros_like(logprob)
    raw = Unclipped()(zero, torch.tensor([[1.0], [0.0]]), logprob, logprob).loss_RT
    centred = Unclipped()(zero, torch.tensor([[0.5], [-0.5]]), logprob, logprob).loss_RT
    assert_close((raw * weight).sum(), 1.5)
    assert_close((centred * weight).sum(), 0.25)


def sorl_terms(grain: Grain = "token") -> Tensor:
    _, _, surrogate = loss_and_gradient(SORL, grain, "token_mean")
    return clip_terms(surrogate, log_ratio_at(grain, LOG_RATIO, MASK, TURN).exp(), ADVANTAGE, weights("token_mean"))


def test_what_clipping_took_from_the_gradient() -> None:
    _, _, surrogate = loss_and_gradient(SORL, "token", "token_mean")
    assert clipped_tokens(surrogate) == [[1, 0, 0, 0], [0, 1, 0, 0]]
    assert_close(sorl_terms(), [[1.349859 / 6, 0, 0, 0], [0, -0.606531 / 6, 0, 0]])
    assert_close(sorl_terms().norm(), 0.246644)


def test_with_turn_ratios_whole_turns_are_clipped_or_none() -> None:
    """Turn ratios 1.105171, 0.839457 | 0.882497 all lie inside the clip range."""
    assert sorl_terms("turn_geometric").norm() == 0


def shared_gradient(loss_of: Callable[[Tensor], Tensor]) -> Tensor:
    """Gradient of the summed loss with respect to two parameters that move every token's log-probability."""
    slope = torch.tensor([[0.3, -0.2, 0.1, 0.7], [-0.4, 0.9, 0.0, 0.0]], dtype=torch.float64)
    parameter = torch.zeros(2, dtype=torch.float64, requires_grad=True)
    loss_of(OLD + LOG_RATIO + parameter[0] * slope + parameter[1] * slope**2).sum().backward()
    assert parameter.grad is not None
    return parameter.grad


def test_the_exact_bias_is_the_gradient_that_clipping_removed() -> None:
    weight = weights("token_mean")
    clipped = shared_gradient(lambda logprob: SORL(logprob - OLD, ADVANTAGE, logprob, OLD).loss_RT * weight)
    unclipped = shared_gradient(lambda logprob: -(logprob - OLD).exp() * ADVANTAGE * weight)
    bias = shared_gradient(lambda logprob: clipping_bias(sorl_terms(), logprob))
    assert_close(clipped - unclipped, bias, 1e-12)
    assert_close(bias, [1.349859 * 0.3 / 6 - 0.606531 * 0.9 / 6, 1.349859 * 0.09 / 6 - 0.606531 * 0.81 / 6])


def test_masked_tokens_took_nothing() -> None:
    nan = torch.full_like(OLD, math.nan)
    everywhere = Surrogate(nan, torch.ones_like(MASK), torch.ones_like(MASK))
    terms = clip_terms(everywhere, torch.where(MASK, 1.0, nan), ADVANTAGE, weights("token_mean"))
    assert_close(terms, ADVANTAGE / 6)
    assert clipping_bias(terms, torch.where(MASK, OLD, nan)).isfinite().all()


def test_a_step_shrinks_by_as_much_as_its_bias_is_above_the_bound() -> None:
    norm = torch.tensor([0.5, 0.1, 0.0, 0.3])
    assert_close(gradient_scale(norm, torch.tensor([0.25, 0.2, 0.2, 0.0])), [0.5, 1.0, 1.0, 1.0])
    assert_close(gradient_scale(norm, 0.25), [0.5, 1.0, 1.0, 0.25 / 0.3])


def test_the_moving_bound_starts_with_the_first_bias_and_skips_steps_without() -> None:
    bound = torch.tensor([0.0, 0.2, 0.2, 0.2])
    norm = torch.tensor([0.4, 0.4, 0.0, math.inf])
    assert_close(moving_bound(bound, norm, decay=0.75), [0.4, 0.25, 0.2, 0.2])
