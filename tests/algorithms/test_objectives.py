"""Surrogates with their ratios and aggregations: named losses, their values and their gradients."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from algorithms.aggregation import Mode, token_weights
from algorithms.objectives import Clipped, Objective, Surrogate, Unclipped
from algorithms.ratios import Grain, log_ratio_at
from tests.algorithms.tables import assert_close

OLD = torch.tensor([[-1.0, -2.0, -0.5, -1.5], [-0.7, -1.2, 0.0, 0.0]], dtype=torch.float64)
LOG_RATIO = torch.tensor([[0.3, -0.1, 0.05, -0.4], [0.25, -0.5, 0.0, 0.0]], dtype=torch.float64)
ADVANTAGE = torch.tensor([[1.0, 1, 1, 1], [-1, -1, 0, 0]], dtype=torch.float64)
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 0, 0]]).bool()
TURN = torch.tensor([[0, 0, 1, 1], [2, 2, -1, -1]])
PPO = Clipped(clip_low=0.2, clip_high=0.2)


def loss_and_gradient(objective: Objective, grain: Grain, mode: Mode) -> tuple[Tensor, Tensor, Surrogate]:
    logprob = (OLD + LOG_RATIO).requires_grad_()
    surrogate = objective(log_ratio_at(grain, logprob - OLD, MASK, TURN), ADVANTAGE, logprob)
    loss = (surrogate.loss_RT * token_weights(mode, MASK, torch.tensor([0, 0]), 1, 8.0)).sum()
    loss.backward()
    assert logprob.grad is not None
    return loss.detach(), logprob.grad, surrogate


PPO_GRADIENT = [[0.0, -0.150806, -0.175212, -0.11172], [0.214004, 0.0, 0.0, 0.0]]
GSPO_ROW = [-0.120399] * 4


@pytest.mark.parametrize(
    ("objective", "grain", "mode", "loss", "gradient"),
    [
        (PPO, "token", "token_mean", -0.290401, PPO_GRADIENT),
        (Clipped(clip_low=0.2, clip_high=0.28), "token", "token_mean", -0.303734, PPO_GRADIENT),
        (
            PPO,
            "token",
            "sequence_mean_token_mean",
            0.042703,
            [[0.0, -0.113105, -0.131409, -0.08379], [0.321006, 0.0, 0.0, 0.0]],
        ),
        (PPO, "sequence_product", "sequence_mean_token_mean", -0.030354, [[-0.430354] * 4, [0.0] * 4]),
        (
            Clipped(clip_low=3e-4, clip_high=4e-4),
            "sequence_geometric",
            "sequence_mean_token_mean",
            0.018253,
            [GSPO_ROW, [0.0] * 4],
        ),
        (
            PPO,
            "sequence_geometric",
            "sequence_mean_token_mean",
            -0.040349,
            [GSPO_ROW, [0.220624, 0.220624, 0.0, 0.0]],
        ),
    ],
    ids=["ppo", "dapo_clip_higher", "loop_token", "loop_trajectory", "gspo", "gspo_wide"],
)
def test_value_and_gradient_of(
    objective: Objective, grain: Grain, mode: Mode, loss: float, gradient: list[list[float]]
) -> None:
    value, grad, _ = loss_and_gradient(objective, grain, mode)
    assert_close(value, loss)
    assert_close(grad, gradient)


def test_each_token_of_the_clipped_surrogate() -> None:
    _, _, surrogate = loss_and_gradient(PPO, "token", "token_mean")
    assert_close(surrogate.loss_RT, [[-1.2, -0.904837, -1.051271, -0.67032], [1.284025, 0.8, 0.0, 0.0]])


def test_what_was_clipped_is_told_apart_by_side() -> None:
    _, _, surrogate = loss_and_gradient(PPO, "token", "token_mean")
    assert surrogate.clipped_high_RT.tolist() == [[True, False, False, False], [False] * 4]
    assert surrogate.clipped_low_RT.tolist() == [[False] * 4, [False, True, False, False]]
    clipped = (surrogate.clipped_high_RT | surrogate.clipped_low_RT)[MASK].double().mean()
    assert_close(clipped, 1 / 3)


def test_turn_products_clip_whole_turns() -> None:
    _, gradient, surrogate = loss_and_gradient(PPO, "turn_product", "sequence_mean_token_mean")
    assert surrogate.clipped_high_RT.tolist() == [[True, True, False, False], [False] * 4]
    assert surrogate.clipped_low_RT.tolist() == [[False] * 4, [True, True, False, False]]
    # the one turn that moves: both tokens get its ratio 0.704688, weighted by their half of the row and by two rows
    assert_close(gradient, [[0.0, 0.0, -0.176172, -0.176172], [0.0, 0.0, 0.0, 0.0]])


@pytest.mark.parametrize("clip", [0.0, 0.2])
@pytest.mark.parametrize("grain", ["token", "turn_geometric", "sequence_geometric"])
def test_the_first_step_is_the_plain_policy_gradient_whatever_the_clip(clip: float, grain: Grain) -> None:
    logprob = OLD.clone().requires_grad_()
    log_ratio = log_ratio_at(grain, logprob - OLD, MASK, TURN)
    Clipped(clip_low=clip, clip_high=clip)(log_ratio, ADVANTAGE, logprob).loss_RT.sum().backward()
    plain = OLD.clone().requires_grad_()
    Unclipped()(log_ratio.detach(), ADVANTAGE, plain).loss_RT.sum().backward()
    assert logprob.grad is not None and plain.grad is not None
    assert_close(logprob.grad, plain.grad, 1e-12)


def test_the_gradient_of_an_unclipped_token_is_its_negative_advantage() -> None:
    _, gradient, surrogate = loss_and_gradient(Unclipped(), "token", "sequence_mean_token_sum")
    assert_close(gradient, -ADVANTAGE / 2)
    assert not surrogate.clipped_low_RT.any() and not surrogate.clipped_high_RT.any()


def test_clipping_never_helps_against_a_ratio_that_already_went_the_wrong_way() -> None:
    log_ratio = torch.tensor([[-1.0, 1.0]], dtype=torch.float64, requires_grad=True)
    advantage = torch.tensor([[1.0, -1.0]], dtype=torch.float64)
    surrogate = PPO(log_ratio, advantage, torch.zeros(1, 2))
    surrogate.loss_RT.sum().backward()
    assert log_ratio.grad is not None
    assert_close(log_ratio.grad, [[-0.367879, 2.718282]])
    assert not surrogate.clipped_low_RT.any() and not surrogate.clipped_high_RT.any()


def test_an_advantage_of_zero_has_no_loss_no_gradient_and_is_not_clipped() -> None:
    log_ratio = torch.tensor([[3.0, -3.0, 0.0]], requires_grad=True)
    surrogate = PPO(log_ratio, torch.zeros(1, 3), torch.zeros(1, 3))
    surrogate.loss_RT.sum().backward()
    assert log_ratio.grad is not None
    assert surrogate.loss_RT.abs().max() == 0 and log_ratio.grad.abs().max() == 0
    assert not surrogate.clipped_low_RT.any() and not surrogate.clipped_high_RT.any()


def test_reinforce_without_and_with_a_baseline() -> None:
    logprob = torch.tensor([[-1.0, -2.0], [-0.5, -1.5]], dtype=torch.float64)
    everything = torch.ones(2, 2, dtype=torch.bool)
    weight = token_weights("sequence_mean_token_sum", everything, torch.tensor([0, 0]), 1, 8.0)
    zero = torch.zeros_like(logprob)
    raw = Unclipped()(zero, torch.tensor([[1.0], [0.0]]), logprob).loss_RT
    centred = Unclipped()(zero, torch.tensor([[0.5], [-0.5]]), logprob).loss_RT
    assert_close((raw * weight).sum(), 1.5)
    assert_close((centred * weight).sum(), 0.25)
