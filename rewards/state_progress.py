"""Progress by the environment's own measure, paid so that the best policy stays the best."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt, Le

from envs.core import Episode, Feature
from rewards.core import Reward, Score


@dataclass(frozen=True, kw_only=True)
class StateProgress(Reward):
    """turn reward = discount * potential of the next state - potential of the state, in units of the potential.

    Potential-based shaping (Ng, Harada & Russell 1999). The potential of an ended episode is 0 whatever ended it, so
    the discounted sum is minus the potential of the start, whatever was done: no policy gains on another by it, only
    the credit of single turns is told sooner (test_shaping_leaves_the_optimal_policy_unchanged). That holds where the
    returns are discounted alike. Component: `shaping`, the undiscounted sum.

    Raises:
        ValueError: a turn has no potential.
    """

    discount: Annotated[float, Gt(0), Le(1)]

    @property
    def needs(self) -> frozenset[Feature]:
        return frozenset({Feature.POTENTIAL})

    @property
    def gives_turn_rewards(self) -> bool:
        return True

    @property
    def paid_by_turn(self) -> frozenset[str]:
        return frozenset({""})

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"shaping"})

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [self._score(episode) for episode in group]

    def _score(self, episode: Episode) -> Score:
        potentials = [_potential(episode, k) for k in range(len(episode.turns))]
        onward = [*potentials[1:], 0.0]
        rewards = [self.discount * after - before for before, after in zip(potentials, onward, strict=False)]
        return Score(0.0, tuple(rewards), {"shaping": sum(rewards, 0.0)})


def _potential(episode: Episode, turn: int) -> float:
    potential = episode.turns[turn].potential
    if potential is None:
        raise ValueError(
            f"turn {turn} of task {episode.task} has no potential; an environment that declares Feature.POTENTIAL "
            "returns one from potential() in every state"
        )
    return potential
