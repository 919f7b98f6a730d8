"""Another estimator, modulated by the entropy of each turn: EMPG."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from algorithms.advantages import EntropyModulated, Returns
from tests.algorithms.estimators import GIGPO, GRPO, RLOO, TURN_PPO
from tests.algorithms.tables import assert_close, token_table, turn_table

NAN = float("nan")
RAW = Returns(credit="trajectory", gamma=1.0, baseline="none", decay=0.0)
TWO = turn_table([[0.0, 1.0], [0.0, -1.0]], groups=[0, 0])
ENTROPY = [[NAN, 0.1, 0.3, 9.0, 0.5, 0.5], [-9.0, 0.8, 0.8, NAN, 0.2, 0.6]]  # means by turn: .2, .5, .8, .4


def empg(**changes: Any) -> EntropyModulated:
    """Around raw returns, the paper's values, except for `changes`."""
    return EntropyModulated(**{"of": RAW, "k": 1.0, "k_future": 1.0, "zeta": 0.1, **changes})


def test_sure_turns_weigh_more_and_a_sure_next_turn_is_rewarded() -> None:
    advantage = empg()(TWO, token_table(TWO, observation=1, entropy=ENTROPY))
    first = [0, 1.320016, 1.320016, 0, 0.674484, 0.674484]
    second = [0, -0.702293, -0.702293, 0, -1.292207, -1.292207]
    assert_close(advantage, [first, second])


def test_without_its_three_strengths_it_is_the_other_estimator_centred() -> None:
    turns = turn_table([[2.0], [-1.0, 0.0]], groups=[0, 0], lengths=[[2], [1, 1]])
    tokens = token_table(turns, observation=0, entropy=[[0.1, 0.2], [0.3, 0.9]])
    assert_close(empg(k=0.0, zeta=0.0)(turns, tokens), [[2.0, 2.0], [-1.0, -1.0]])  # mean over turns 0


def test_a_last_turn_has_no_next_turn_to_be_sure_of() -> None:
    turns = turn_table([[0.0, 0.0], [0.0]], groups=[0, 0], lengths=[[1, 1], [1]])
    tokens = token_table(turns, observation=0, entropy=[[0.5, 0.5], [0.5, NAN]])
    assert_close(empg(zeta=0.3)(turns, tokens), [[0.2, -0.1], [-0.1, 0.0]])  # all alike: exp(0), one bonus in three


def test_equal_entropies_change_no_weight() -> None:
    tokens = token_table(TWO, observation=0, entropy=[[0.7] * 4] * 2)
    assert_close(empg(zeta=0.0)(TWO, tokens), [[1.0] * 4, [-1.0] * 4])


def test_scale_and_means_are_the_members_own() -> None:
    one = empg()(TWO, token_table(TWO, observation=1, entropy=ENTROPY))
    rewards = [[0.0, 1.0], [0.0, -1.0], [5.0], [3.0]]
    turns = turn_table(rewards, groups=[0, 0, 1, 1], members=[0, 0, 1, 1])
    entropy = [*ENTROPY, [0, 50.0, 50.0, 0, 0, 0], [0, 90.0, 90.0, 0, 0, 0]]
    assert_close(empg()(turns, token_table(turns, observation=1, entropy=entropy))[:2], one)


def test_what_it_needs_is_what_the_other_estimator_needs_and_entropies() -> None:
    assert empg().needs_entropy and empg(of=GRPO).needs_entropy
    assert (empg().min_group, empg(of=GRPO).min_group) == (1, 2)
    assert empg(of=GIGPO).needs == {"state_key"}
    assert empg(of=TURN_PPO).needs_values and not empg(of=RLOO).needs_values
    moving = Returns(credit="turn", gamma=1.0, baseline="moving", decay=0.9)
    assert empg(of=moving).baseline_decay == 0.9


def test_a_critic_is_asked_what_the_other_estimator_asks() -> None:
    tokens = token_table(TWO, observation=0, value=[[0.1, 0.2, 0.3, 0.4]] * 2, entropy=[[0.1] * 4] * 2)
    asked, expected = empg(of=TURN_PPO).targets(TWO, tokens), TURN_PPO.targets(TWO, tokens)
    assert asked is not None and all(torch.equal(a, b) for a, b in zip(asked, expected, strict=True))
    assert empg(of=RLOO).targets(TWO, tokens) is None


def test_it_gives_credit_by_turn_whatever_the_other_does() -> None:
    assert empg(of=GRPO).at("turn") == empg(of=GRPO)
    with pytest.raises(ValueError, match="EntropyModulated gives credit by turn, not by trajectory"):
        empg(of=GRPO).at("trajectory")


def test_missing_entropies_are_refused() -> None:
    with pytest.raises(ValueError, match="needs the entropy of each token"):
        empg()(TWO, token_table(TWO))
