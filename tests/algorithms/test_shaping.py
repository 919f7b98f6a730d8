"""What is taken from rewards before advantages are computed."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from algorithms.shaping import Overlong
from tests.algorithms.tables import assert_close, turn_table


def test_the_penalty_grows_over_the_cache() -> None:
    lengths = [16000, 16384, 18432, 20480, 30000]
    turns = turn_table([[0.0]] * 5, groups=list(range(5)), lengths=[[n] for n in lengths])
    shaped = Overlong(limit=20480, cache=4096, factor=1.0)(turns)
    assert_close(shaped.reward_K, [0.0, 0.0, -0.5, -1.0, -1.0])


def test_the_tokens_of_the_whole_episode_count_and_its_last_turn_pays() -> None:
    turns = turn_table([[0.1, 0.2, 1.0], [0.3]], groups=[0, 0], lengths=[[4, 1, 4], [8]])
    shaped = Overlong(limit=10, cache=4, factor=2.0)(turns)
    assert_close(shaped.reward_K, [0.1, 0.2, 1.0 - 1.5, 0.3 - 1.0])


def test_outcomes_and_everything_else_stay_as_they_were() -> None:
    turns = turn_table([[1.0], [0.0]], groups=[0, 0], lengths=[[10], [10]])
    shaped = Overlong(limit=10, cache=10, factor=1.0)(turns)
    assert_close(shaped.reward_K, [0.0, -1.0])
    for f in dataclasses.fields(turns):
        if isinstance(before := getattr(turns, f.name), torch.Tensor) and f.name != "reward_K":
            assert torch.equal(before, getattr(shaped, f.name))


def test_a_cache_longer_than_the_limit_is_refused() -> None:
    with pytest.raises(ValueError, match=r"overlong\.cache=20 is more than overlong\.limit=10"):
        Overlong(limit=10, cache=20, factor=1.0)
