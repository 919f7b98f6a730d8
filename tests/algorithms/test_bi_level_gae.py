"""GAE over turns first, inside each turn second."""

from __future__ import annotations

from typing import Any

import torch

from algorithms.advantages import BiLevelGAE
from tests.algorithms.tables import assert_close, token_table, turn_table

NAN = float("nan")
VALUES = [[0.1, 0.3, 0.5, 0.6]]


def bi_level(**changes: Any) -> BiLevelGAE:
    """RAGEN's values, not whitened, except for `changes`."""
    return BiLevelGAE(**{"gamma": 1.0, "turn_gamma": 0.95, "lam": 1.0, "whiten": False, **changes})


def test_targets_at_turn_ends_come_from_turns_and_the_tokens_before_from_them() -> None:
    turns = turn_table([[0.2, 1.0]], groups=[0])
    tokens = token_table(turns, observation=0, value=VALUES)
    assert_close(bi_level()(turns, tokens), [[1.05, 0.85, 0.5, 0.4]])
    target, asked = bi_level().targets(turns, tokens)
    assert asked.all()
    assert_close(target[:, [1, 3]], [[1.15, 1.0]])


def test_observations_between_turns_change_nothing() -> None:
    turns = turn_table([[0.2, 1.0]], groups=[0])
    tokens = token_table(turns, observation=2, value=[[NAN, NAN, 0.1, 0.3, NAN, 9.0, 0.5, 0.6]])
    assert_close(bi_level()(turns, tokens), [[0, 0, 1.05, 0.85, 0, 0, 0.5, 0.4]])
    target, asked = bi_level().targets(turns, tokens)
    assert torch.equal(asked, tokens.mask_RT) and target[~asked].abs().max() == 0


def test_a_turn_without_reward_is_a_turn() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0])
    tokens = token_table(turns, observation=0, value=VALUES)
    across = 0.95 * 0.6 - 0.3 + 0.95 * 0.4  # as one turn of four tokens the first two would be 0.9 and 0.7
    assert_close(bi_level()(turns, tokens), [[across + 0.3 - 0.1, across, 0.5, 0.4]])


def test_the_discount_of_tokens_stays_inside_a_turn() -> None:
    turns = turn_table([[0.0, 1.0]], groups=[0])
    tokens = token_table(turns, observation=0, value=[[0.0] * 4])
    assert_close(bi_level(gamma=0.5)(turns, tokens), [[0.475, 0.95, 0.5, 1.0]])
    assert_close(bi_level(turn_gamma=0.5)(turns, tokens), [[0.5, 0.5, 1.0, 1.0]])


def test_whitening_is_over_the_members_tokens() -> None:
    turns = turn_table([[1.0], [3.0], [8.0]], groups=[0, 0, 1], members=[0, 0, 1], lengths=[[1], [1], [2]])
    tokens = token_table(turns, observation=1, value=[[0.0] * 3] * 3)
    assert_close(bi_level(whiten=True)(turns, tokens), [[0, -0.707107, 0], [0, 0.707107, 0], [0, 0, 0]])
