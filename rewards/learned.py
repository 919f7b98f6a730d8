"""What rewards that were trained share: a stored scorer, and where it comes from."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

from envs.core import Episode
from rewards.core import Models, Reward, Score, Scorer, Verdict


@dataclass(frozen=True)
class LearnedReward(Reward):
    """Base: scores all episodes of an update in one batched pass of a scorer that lies at `path`."""

    kind: ClassVar[str]  # algorithm that trains the scorer

    path: str
    _scorer: list[Scorer] = field(default_factory=list, init=False, repr=False, compare=False)  # none before `attach`

    def check(self) -> None:
        if not (Path(self.path).expanduser() / "scorer.json").is_file():
            raise ValueError(
                f"reward.path={self.path or repr('')} is no trained scorer; write the folder `best` of a run with "
                f"algorithm={self.kind}"
            )

    def attach(self, models: Models) -> None:
        self._scorer[:] = [models.scorer(self.path, self.kind)]

    @property
    def scorer(self) -> Scorer:
        if not self._scorer:
            raise RuntimeError(f"{type(self).__name__} has no model yet: call attach first")
        return self._scorer[0]

    @abstractmethod
    def score(self, episode: Episode, told: Sequence[float]) -> Score:
        """The score of an episode, from the number that the scorer gave each of its turns."""

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        return [self.score(episode, told) for episode, told in zip(group, self.scorer(group), strict=True)]

    def judge(self, groups: Sequence[Sequence[Episode]]) -> list[Verdict]:
        told = iter(self.scorer([episode for group in groups for episode in group]))
        return [Verdict([self.score(episode, next(told)) for episode in group]) for group in groups]
