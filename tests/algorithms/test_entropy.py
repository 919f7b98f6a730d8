"""The adaptive entropy coefficient, and which tokens are uncertain enough to be trained."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from torch import Tensor

from algorithms.entropy import stepped_coefficient, top_entropy
from tests.algorithms.batches import BATCHES, batch, seeds
from tests.algorithms.tables import assert_close


def test_the_coefficient_steps_towards_the_target_and_never_below_zero() -> None:
    coef = torch.tensor([0.01, 0.01, 0.01, 0.002, 0.01], dtype=torch.float64)
    entropy = torch.tensor([0.1, 0.5, 0.2, 0.5, math.nan], dtype=torch.float64)
    assert_close(stepped_coefficient(coef, entropy, target=0.2, step=0.005), [0.015, 0.005, 0.01, 0.0, 0.01], 1e-12)


ENTROPY = torch.tensor([[0.1, 0.9, 0.5, 0.3], [0.7, 0.2, 0.8, 0.6], [2.0, 3.0, 1.0, 9.0]])
MASK = torch.tensor([[1, 1, 1, 1], [1, 1, 1, 1], [1, 1, 1, 0]]).bool()
MEMBER = torch.tensor([0, 0, 1])


def chosen(share: float, entropy: Tensor = ENTROPY, mask: Tensor = MASK) -> list[list[int]]:
    return top_entropy(entropy, mask, MEMBER, 2, share).int().tolist()


@pytest.mark.parametrize(
    ("share", "expected"),
    [
        (0.25, [[0, 1, 0, 0], [0, 0, 1, 0], [0, 1, 0, 0]]),  # 2 of 8 and, at least one, 1 of 3
        (0.5, [[0, 1, 0, 0], [1, 0, 1, 1], [0, 1, 0, 0]]),
        (0.7, [[0, 1, 1, 0], [1, 0, 1, 1], [1, 1, 0, 0]]),
        (1.0, MASK.int().tolist()),
    ],
)
def test_each_member_keeps_its_most_uncertain_tokens(share: float, expected: list[list[int]]) -> None:
    assert chosen(share) == expected


def test_tokens_as_uncertain_as_the_last_one_are_kept_with_it() -> None:
    assert chosen(0.25, ENTROPY.clamp(max=0.6))[:2] == [[0, 1, 0, 0], [1, 0, 1, 1]]


def test_a_share_that_is_a_whole_number_of_tokens_is_that_number() -> None:
    entropy = torch.arange(100.0).unsqueeze(0)
    kept = top_entropy(entropy, torch.ones(1, 100).bool(), torch.tensor([0]), 1, share=0.29)
    assert kept.sum() == 29 and kept[0, 71:].all()


def test_untrained_tokens_are_neither_kept_nor_counted() -> None:
    absurd = torch.where(MASK, ENTROPY, math.nan)
    assert chosen(0.5, absurd) == chosen(0.5)


def test_a_member_without_a_trained_token_keeps_none() -> None:
    assert not top_entropy(ENTROPY, MASK & (MEMBER == 0).unsqueeze(1), MEMBER, 2, 0.5)[2].any()
    assert not top_entropy(ENTROPY, torch.zeros_like(MASK), MEMBER, 2, 0.5).any()


@given(seeds)
@BATCHES
def test_members_and_row_order_do_not_matter(seed: int) -> None:
    drawn = batch(seed, members=3)
    entropy = -drawn.old_RT
    together = top_entropy(entropy, drawn.mask_RT, drawn.member_R, 3, 0.4)
    for member in range(3):
        mine = torch.nonzero(drawn.member_R == member).squeeze(1).flip(0)
        alone = top_entropy(entropy[mine], drawn.mask_RT[mine], torch.zeros_like(mine), 1, 0.4)
        assert torch.equal(together[mine], alone)
        count = int(drawn.mask_RT[mine].sum())
        assert alone.sum() == (max(1, int(0.4 * count)) if count else 0)
