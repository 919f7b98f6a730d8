"""Information gain: how much likelier the right answer became through what a turn brought to light."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal

from envs.core import Episode, Feature
from rewards.core import Models, Reward, Score, Verdict


@dataclass(frozen=True)
class InformationGain(Reward):
    """Turn reward = how much the base believes more in the reference answer after the turn (IGPO, arXiv:2510.14967).

    - scale=probability: difference of probabilities (the geometric mean over the answer's tokens); sums to at most 1
    - scale=nats: difference of log-probabilities a token, which also sees steps from unlikely to less unlikely

    The last turn, which gives the answer, is paid by the outcome alone. Belief is that of the frozen base, so that it
    cannot be trained to flatter itself; IGPO asks the policy. Components: `gain` (their sum), `success`.
    """

    scale: Literal["probability", "nats"]
    success_reward: float
    _models: list[Models] = field(default_factory=list, init=False, repr=False, compare=False)  # none before `attach`

    @property
    def needs(self) -> frozenset[Feature]:
        return frozenset({Feature.ANSWER})

    @property
    def gives_turn_rewards(self) -> bool:
        return True

    @property
    def component_names(self) -> frozenset[str]:
        return frozenset({"gain", "success"})

    def attach(self, models: Models) -> None:
        self._models[:] = [models]

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        (verdict,) = self.judge([group])
        assert verdict.scores is not None
        return verdict.scores

    def judge(self, groups: Sequence[Sequence[Episode]]) -> list[Verdict]:
        if not self._models:
            raise RuntimeError("InformationGain has no model yet: call attach first")
        told = iter(self._models[0].answer_logprobs([episode for group in groups for episode in group]))
        return [Verdict([self._score(episode, next(told)) for episode in group]) for group in groups]

    def _score(self, episode: Episode, logprobs: Sequence[float]) -> Score:
        belief = list(logprobs) if self.scale == "nats" else [math.exp(value) for value in logprobs]
        gains = (*(after - before for before, after in zip(belief, belief[1:], strict=False)), 0.0)
        components = {"gain": sum(gains), "success": float(episode.success)}
        return Score(self.success_reward * episode.success, gains, components)
