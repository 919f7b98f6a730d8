"""Potential-based shaping changes when a turn is rewarded, and never what is best."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from envs.core import Environment, Feature, StopReason
from envs.frozen_lake import FrozenLake
from envs.guess_number import GuessNumber
from rewards.state_progress import StateProgress
from tests.rewards.played import play, said


@dataclass(frozen=True)
class Mdp:
    """A small random decision process; states from `live` on are terminal."""

    onward: np.ndarray  # [live, actions, states] chances
    reward: np.ndarray  # [live, actions, states] of the step
    potential: np.ndarray  # [states], terminal ones included, whatever they say

    @property
    def live(self) -> int:
        return len(self.onward)

    def best(self, extra: np.ndarray, discount: float) -> np.ndarray:
        """[live, actions] optimal action values with `extra` [live, actions, states] added to the rewards."""
        value = np.zeros(len(self.potential))
        gain = (self.onward * (self.reward + extra)).sum(axis=2)
        for _ in range(2000):
            action_value = gain + discount * self.onward @ value
            value[: self.live] = action_value.max(axis=1)
        return action_value

    def shaping(self, discount: float) -> np.ndarray:
        """[live, actions, states] what the reward pays for each step."""
        pay = StateProgress(discount=discount)
        result = np.zeros_like(self.reward)
        for state in range(self.live):
            for after in range(len(self.potential)):
                over = after >= self.live
                before, then = float(self.potential[state]), float(self.potential[after])
                episode = said("a", potential=[before]) if over else said("a", "b", potential=[before, then])
                [score] = pay([episode])
                assert score.turn_rewards is not None
                result[state, :, after] = score.turn_rewards[0]
        return result


def random_mdp(seed: int, live: int, ends: int, actions: int) -> Mdp:
    stream = np.random.default_rng(seed)
    onward = stream.dirichlet(np.full(live + ends, 0.3), size=(live, actions))
    return Mdp(onward, stream.normal(size=onward.shape), stream.normal(scale=10, size=live + ends))


@settings(deadline=None, max_examples=40)
@given(
    seed=st.integers(0, 2**31),
    live=st.integers(1, 6),
    ends=st.integers(0, 3),
    actions=st.integers(2, 4),
    discount=st.floats(0.3, 0.95),
)
def test_shaping_leaves_the_optimal_policy_unchanged(
    seed: int, live: int, ends: int, actions: int, discount: float
) -> None:
    """Every action value moves by the potential of its state, so no action gains on another (Ng et al. 1999)."""
    mdp = random_mdp(seed, live, ends, actions)
    plain = mdp.best(np.zeros_like(mdp.reward), discount)
    shaped = mdp.best(mdp.shaping(discount), discount)
    np.testing.assert_allclose(shaped, plain - mdp.potential[:live, None], atol=1e-6)


def test_a_potential_at_the_end_would_change_the_optimal_policy() -> None:
    """Why it is 0 there: else an end far from the goal, which looks near to it, is worth walking to."""
    # From state 0: end 1 pays 1, end 2 pays nothing and has a potential of 5.
    onward = np.array([[[0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]])
    mdp = Mdp(onward, np.array([[[0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]]), np.array([0.0, 0.0, 5.0]))
    naive = np.broadcast_to(mdp.potential - mdp.potential[:1, None], mdp.reward.shape)
    assert mdp.best(naive, 1.0).argmax() == 1
    assert mdp.best(mdp.shaping(1.0), 1.0).argmax() == 0


@pytest.mark.parametrize("discount", [1.0, 0.9])
@pytest.mark.parametrize("env", [FrozenLake(), FrozenLake(slippery=True), GuessNumber()])
def test_what_real_episodes_get_in_all_depends_on_their_start_only(env: Environment, discount: float) -> None:
    episodes = [play(env, task, player) for task in range(8) for player in range(12)]
    stops = {(one.stop, one.success) for one in episodes}
    assert (StopReason.TURN_LIMIT, False) in stops and len(stops) > 1, "they should end for several reasons"
    lengths = set()
    for episode, score in zip(episodes, StateProgress(discount=discount)(episodes), strict=True):
        assert score.turn_rewards is not None and score.outcome == 0.0
        total = sum(discount**k * reward for k, reward in enumerate(score.turn_rewards))
        assert total == pytest.approx(-episode.turns[0].potential)  # type: ignore[operator]
        lengths.add(len(episode.turns))
    assert len(lengths) > 3


def test_a_step_towards_the_goal_is_paid_and_a_step_back_is_charged() -> None:
    [score] = StateProgress(discount=1.0)([said("a", "b", "c", potential=[-1.0, -0.5, -0.75])])
    assert score.turn_rewards == (0.5, -0.25, 0.75)
    assert score.components == {"shaping": 1.0}


def test_a_turn_without_a_potential_is_told() -> None:
    assert StateProgress(discount=1.0).needs == {Feature.POTENTIAL}
    with pytest.raises(ValueError, match="turn 1 of task 7 has no potential"):
        StateProgress(discount=1.0)([said("a", "b", potential=[0.0, None])])
