"""Behaviour cloning: the number of the specification, and what weighs how much."""

from __future__ import annotations

import torch

from algorithms.aggregation import token_weights
from algorithms.supervised import Supervised, example_weights
from tests.algorithms.parts import ADAMW
from tests.algorithms.tables import assert_close, token_table, turn_table


def sft(weighting: str) -> Supervised:
    return Supervised(
        optimizer=ADAMW,
        aggregation="token_mean",
        aggregation_constant=8.0,
        weighting=weighting,  # type: ignore[arg-type]
        noise=0.0,
        warmup=0,
    )


def test_the_loss_is_the_mean_over_trained_tokens_alone() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0], [0.0, 1.0, 2.0], [1.0, 1.0, 1.0], [3.0, 0.0, 0.0]])
    labels, mask = torch.tensor([0, 2, 0, 1]), torch.tensor([[True, True, False, True]])
    nll = -logits.log_softmax(1).gather(1, labels.unsqueeze(1)).T
    weight = token_weights("token_mean", mask, torch.tensor([0]), 1, 1.0)
    assert_close(nll[mask], [0.407606, 0.407606, 3.094923])
    assert_close((nll * weight).sum(), 1.303378)
    assert_close((nll * weight).sum().exp(), 3.681714)


def test_unweighted_demonstrations_all_count_one() -> None:
    turns = turn_table([[1.0], [0.0, 0.0]], groups=[0, 0])
    tokens = token_table(turns)
    assert_close(example_weights(sft("none"), turns, tokens), tokens.mask_RT.double())


def test_a_demonstration_that_failed_teaches_nothing() -> None:
    turns = turn_table([[0.0, 2.0], [0.0], [-1.0]], groups=[0, 0, 0], lengths=[[1, 2], [2], [1]])
    weight = example_weights(sft("outcome"), turns, token_table(turns))
    assert_close(weight, [[0, 2, 0, 2, 2], [0, 0, 0, 0, 0], [0, 0, 0, 0, 0]])
