"""The loss of the critic."""

from __future__ import annotations

import torch

from algorithms.critic import value_loss
from tests.algorithms.tables import assert_close

VALUE = torch.tensor([[0.9, 0.1, 0.5]], dtype=torch.float64)
OLD = torch.tensor([[0.5, 0.2, 0.5]], dtype=torch.float64)
RETURN = torch.tensor([[1.0, 0.0, 0.2]], dtype=torch.float64)


def test_the_worse_of_the_value_and_the_clipped_value_counts() -> None:
    loss = value_loss(VALUE, OLD, RETURN, 0.2)
    assert_close(loss, [[0.09 / 2, 0.01 / 2, 0.09 / 2]])
    assert_close(loss.mean(), 0.031667)


def test_a_value_that_moved_too_far_towards_its_target_has_no_gradient() -> None:
    value = VALUE.clone().requires_grad_()
    value_loss(value, OLD, RETURN, 0.2).sum().backward()
    assert value.grad is not None
    assert_close(value.grad, [[0.0, 0.1, 0.3]])


def test_an_unmoved_value_has_its_whole_gradient() -> None:
    value = OLD.clone().requires_grad_()
    value_loss(value, OLD, RETURN, 0.2).sum().backward()
    assert value.grad is not None
    assert_close(value.grad, OLD - RETURN)


def test_the_clip_may_differ_between_rows() -> None:
    two = (VALUE.repeat(2, 1), OLD.repeat(2, 1), RETURN.repeat(2, 1))
    both = value_loss(*two, torch.tensor([[0.2], [0.05]]))
    assert_close(both[:1], value_loss(VALUE, OLD, RETURN, 0.2), 1e-7)
    assert_close(both[1:], value_loss(VALUE, OLD, RETURN, 0.05), 1e-7)
