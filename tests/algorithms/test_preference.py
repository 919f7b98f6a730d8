"""Direct preference optimisation: the numbers of the specification, and which episodes are paired."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from algorithms.preference import Preference, pairs
from tests.algorithms.parts import ADAMW
from tests.algorithms.tables import assert_close, turn_table


def dpo(**changes: Any) -> Preference:
    parts: dict[str, Any] = {"beta": 0.1, "loss": "sigmoid", "label_smoothing": 0.0, "epochs": 1, "optimizer": ADAMW}
    return Preference(**{**parts, **changes})


def log_ratio(policy: float, reference: float) -> torch.Tensor:
    return torch.tensor([policy - reference], dtype=torch.float64)


def test_the_loss_is_that_of_the_specification() -> None:
    chosen, rejected = log_ratio(-10.0, -11.0).requires_grad_(), log_ratio(-12.0, -11.5)
    loss = dpo().pair_loss(chosen, rejected, 0.1)
    assert_close(loss, [0.620957])
    loss.sum().backward()
    assert chosen.grad is not None
    assert_close(chosen.grad, [-0.046257])


def test_label_smoothing_is_that_of_the_specification() -> None:
    loss = dpo(label_smoothing=0.1).pair_loss(log_ratio(-10.0, -11.0), log_ratio(-12.0, -11.5), 0.1)
    assert_close(loss, [0.635957])


def test_ipo_is_that_of_the_specification_with_ratios_by_token() -> None:
    ipo = dpo(loss="ipo")
    logprob = torch.zeros(2, 6, dtype=torch.float64)
    logprob[0, 0], logprob[1, 0] = 1.0, -0.5  # of 5 and 6 tokens: means 0.2 and -1/12
    mask = torch.tensor([[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]]).bool()
    score = ipo.score(logprob, torch.zeros_like(logprob), mask)
    assert_close(score, [0.2, -0.5 / 6])
    assert_close(ipo.pair_loss(score[:1], score[1:], 0.1), [22.246944])


def test_observations_are_masked_in_both_sums() -> None:
    mask = torch.tensor([[False, True, True, False]])
    logprob = torch.tensor([[9.0, -1.0, -2.0, float("nan")]])
    assert_close(dpo().score(logprob, torch.zeros_like(logprob), mask), [-3.0])


def test_implicit_rewards_are_those_of_the_specification() -> None:
    assert_close(0.1 * log_ratio(-10.0, -11.0), [0.1])
    assert_close(0.1 * log_ratio(-12.0, -11.5), [-0.05])


def test_the_best_is_paired_with_the_worst_of_its_own_group() -> None:
    turns = turn_table([[0.2], [0.9], [0.5], [0.3], [0.1]], groups=[0, 0, 0, 1, 1])
    chosen, rejected = pairs(turns)
    assert chosen.tolist() == [1, 3] and rejected.tolist() == [0, 4]


def test_equal_returns_make_no_pair_and_the_first_of_equals_is_taken() -> None:
    turns = turn_table([[0.5], [0.5], [1.0], [1.0], [0.0], [0.0], [1.0]], groups=[0, 0, 1, 1, 1, 1, 2])
    chosen, rejected = pairs(turns)
    assert chosen.tolist() == [2] and rejected.tolist() == [4]


def test_returns_decide_and_not_single_turns() -> None:
    turns = turn_table([[0.0, 0.6], [0.5, 0.0], [0.4, 0.3]], groups=[3, 3, 3])
    chosen, rejected = pairs(turns)
    assert chosen.tolist() == [2] and rejected.tolist() == [1]


def test_no_episodes_make_no_pairs() -> None:
    chosen, rejected = pairs(turn_table([], groups=[]))
    assert chosen.numel() == rejected.numel() == 0


def test_ipo_with_label_smoothing_is_refused() -> None:
    with pytest.raises(ValueError, match="loss=ipo reads no label_smoothing; write label_smoothing=0"):
        dpo(loss="ipo", label_smoothing=0.1)
