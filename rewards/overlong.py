"""A charge that grows as the sampled tokens of an episode near a limit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated

from annotated_types import Gt

from envs.core import Environment, Episode
from rewards.core import Bounds, Reward, Score


@dataclass(frozen=True, kw_only=True)
class Overlong(Reward):
    """outcome = 0 up to `limit - buffer` sampled tokens, falling linearly to -1 at `limit`, and -1 beyond.

    Soft overlong punishment of DAPO (Yu et al. 2025, arXiv:2503.14476, eq. 13), over all actions of an episode.
    Component: `tokens`, how many were sampled.

    Raises:
        ValueError: the buffer is longer than the limit.
    """

    limit: Annotated[int, Gt(0)]
    buffer: Annotated[int, Gt(0)]

    def __post_init__(self) -> None:
        if self.buffer > self.limit:
            raise ValueError(f"buffer is {self.buffer} and limit {self.limit}; write a buffer of {self.limit} or less")

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"tokens"})

    def bounds(self, env: Environment) -> Bounds | None:
        return Bounds((-1.0, 0.0), (-1.0, 0.0), (0.0, 0.0), (0.0, 0.0))

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [self._score(episode.policy_tokens) for episode in group]

    def _score(self, tokens: int) -> Score:
        beyond = (tokens - (self.limit - self.buffer)) / self.buffer
        return Score(min(0.0, max(-1.0, -beyond)), None, {"tokens": float(tokens)})
