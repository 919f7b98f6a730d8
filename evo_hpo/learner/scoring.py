"""From episodes to turn rewards: the reward scores each group, the granularity says where the score goes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import compress

from envs.core import Episode
from evo_hpo.runtime.processes import Processes
from rewards.core import Reward, Score, Verdict, fault
from rewards.granularity import Granularity


@dataclass(frozen=True)
class Scored:
    """Episodes that can be learned from, with their scores and turn rewards, in one order."""

    episodes: list[Episode]
    scores: list[Score]
    turn_rewards: list[list[float]]
    metrics: dict[int, dict[str, float]] = field(default_factory=dict)  # member -> what scoring took and met, added up
    mixed: bool = False  # turn rewards and outcome are both paid

    def __add__(self, more: Scored) -> Scored:
        metrics: dict[int, dict[str, float]] = {}
        for part in (self, more):
            for member, counted in part.metrics.items():
                _count(metrics.setdefault(member, {}), counted)
        episodes, scores = self.episodes + more.episodes, self.scores + more.scores
        return Scored(episodes, scores, self.turn_rewards + more.turn_rewards, metrics, self.mixed)

    def only(self, keep: Sequence[bool]) -> Scored:
        """Those whose place in `keep` is true."""
        return Scored(
            list(compress(self.episodes, keep)),
            list(compress(self.scores, keep)),
            list(compress(self.turn_rewards, keep)),
            self.metrics,
            self.mixed,
        )


def score(
    episodes: Sequence[Episode],
    reward: Reward,
    granularity: Granularity,
    update: int = 0,
    processes: Processes | None = None,
) -> Scored:
    """Score what did not fail. Failed and empty episodes leave baseline and loss alike, and so do unscored groups.

    Args:
        episodes: the same ones on every process.
        update: number of the update, for turn rewards that fade.
        processes: of the run; a reward that wants to be asked once is asked by the main one.
    Raises:
        ValueError: the reward returned the wrong number of scores, or one that is not finite.
    """
    groups: dict[tuple[int, int], list[Episode]] = {}
    for episode in episodes:
        if not episode.failed and episode.turns:
            groups.setdefault((episode.member, episode.group), []).append(episode)
    asked = list(groups.values())
    if processes is not None and processes.count > 1 and reward.once:
        verdicts = processes.same(reward.judge(asked) if processes.main else None)
    else:
        verdicts = reward.judge(asked)
    return _paid_out(asked, verdicts, reward, granularity, update)


def _paid_out(
    groups: Sequence[Sequence[Episode]],
    verdicts: Sequence[Verdict],
    reward: Reward,
    granularity: Granularity,
    update: int = 0,
) -> Scored:
    """Checked verdicts, with the reward of every turn; arguments and errors as in `score`."""
    name = type(reward).__name__
    if len(verdicts) != len(groups):
        raise ValueError(f"{name} gave {len(verdicts)} verdicts for {len(groups)} groups; give exactly one per group")
    kept: list[Episode] = []
    scores: list[Score] = []
    metrics: dict[int, dict[str, float]] = defaultdict(dict)
    for group, verdict in zip(groups, verdicts, strict=True):
        _count(metrics[group[0].member], verdict.metrics)
        if verdict.scores is None:
            continue
        if len(verdict.scores) != len(group):
            raise ValueError(f"{name} gave {len(verdict.scores)} scores for a group of {len(group)} episodes")
        kept += group
        scores += [_finite(given, episode, name) for episode, given in zip(group, verdict.scores, strict=True)]
    turn_rewards = [granularity(s, len(e.turns), update, e.member) for s, e in zip(scores, kept, strict=True)]
    return Scored(kept, scores, turn_rewards, dict(metrics), granularity.reward == "mixed")


def _finite(score: Score, episode: Episode, name: str) -> Score:
    """The score in plain numbers (rewards may compute with tensors); one with a hole in it is refused by its part."""
    if wrong := fault(score, episode):
        raise ValueError(f"{name} gave task {episode.task} {wrong}")
    turns = score.turn_rewards
    components = {part: float(value) for part, value in score.components.items()}
    return Score(float(score.outcome), None if turns is None else tuple(map(float, turns)), components)


def _count(total: dict[str, float], more: dict[str, float] | None) -> None:
    for name, number in (more or {}).items():
        total[name] = total.get(name, 0.0) + number
