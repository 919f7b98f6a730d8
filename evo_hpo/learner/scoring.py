"""From episodes to turn rewards: the reward scores each group, the granularity says where the score goes."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

from envs.core import Episode
from rewards.core import Reward, Score
from rewards.granularity import Granularity


@dataclass(frozen=True)
class Scored:
    """Episodes that can be learned from, with their scores and turn rewards, in one order."""

    episodes: list[Episode]
    scores: list[Score]
    turn_rewards: list[list[float]]

    def __add__(self, more: Scored) -> Scored:
        return Scored(self.episodes + more.episodes, self.scores + more.scores, self.turn_rewards + more.turn_rewards)

    def only(self, keep: Sequence[bool]) -> Scored:
        """Those whose place in `keep` is true."""
        columns = (self.episodes, self.scores, self.turn_rewards)
        return Scored(*(list(compress(column, keep)) for column in columns))  # type: ignore[arg-type]


def score(episodes: Sequence[Episode], reward: Reward, granularity: Granularity) -> Scored:
    """Score what did not fail. Failed and empty episodes leave baseline and loss alike.

    Raises:
        ValueError: the reward returned the wrong number of scores, or one that is not finite.
    """
    groups: dict[tuple[int, int], list[Episode]] = {}
    for episode in episodes:
        if not episode.failed and episode.turns:
            groups.setdefault((episode.member, episode.group), []).append(episode)
    kept: list[Episode] = []
    scores: list[Score] = []
    for group in groups.values():
        given = reward(group)
        if len(given) != len(group):
            raise ValueError(f"{type(reward).__name__} gave {len(given)} scores for a group of {len(group)} episodes")
        kept += group
        scores += given
    turn_rewards = [granularity(s, len(e.turns)) for s, e in zip(scores, kept, strict=True)]
    for episode, numbers in zip(kept, turn_rewards, strict=True):
        if len(numbers) != len(episode.turns) or not all(math.isfinite(number) for number in numbers):
            raise ValueError(
                f"{type(reward).__name__} gave {numbers} for the {len(episode.turns)} turns of task {episode.task}; "
                "a reward is one finite number per turn"
            )
    return Scored(kept, scores, turn_rewards)
