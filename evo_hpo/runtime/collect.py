"""The scored episodes of one update: played now or ahead, and more of them where a filter wants others."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from algorithms.policy_gradient import PolicyGradient
from envs.core import Episode
from evo_hpo.config.schema import Config
from evo_hpo.evolution.hyperparameters import group_sizes
from evo_hpo.learner.batch import turn_table
from evo_hpo.learner.scoring import Scored, score
from evo_hpo.policy.sampling import Sampling
from evo_hpo.runtime.evaluate import Player
from evo_hpo.runtime.tasks import Tasks
from evo_hpo.runtime.teams import Team


@dataclass(frozen=True)
class Collected:
    """All episodes that a team played, and those that are learned from; members are counted within the team."""

    episodes: list[Episode]
    scored: Scored


class Unscored(Exception):
    """A reward failed on episodes that a team played; the message is its complaint."""

    def __init__(self, team: Team, episodes: list[Episode], complaint: str) -> None:
        super().__init__(complaint)
        self.team, self.episodes = team, episodes


class Collector:
    """Plays training episodes.

    With `rollout.ahead` above 1 the episodes of several updates are played before the first of them, as an
    asynchronous run would have them; a generation holds whole numbers of such blocks, so nothing is left at its end.
    """

    def __init__(self, config: Config, player: Player, tasks: Tasks) -> None:
        self.config, self.player, self.tasks = config, player, tasks
        self.take({})
        self._waiting: list[list[Episode]] = []

    def take(self, values: Mapping[str, list[Any]]) -> None:
        """Play with these hyperparameters of the members from now on."""
        self.group_sizes = group_sizes(self.config.rollout, values, self.player.policy.members)

    def collect(self, teams: Sequence[Team], sampling: Sampling, update: int) -> list[Collected]:
        """The episodes of update number `update` for each team; failed ones are among the first only."""
        rollout = self.config.rollout
        if not self._waiting:
            for number in range(update, update + rollout.ahead):
                tasks = self.tasks.training(number, rollout.tasks)
                self._waiting.append(self.player.training(tasks, sampling, number, update, self.group_sizes))
        episodes = self._waiting.pop(0)
        return [self._of(team, team.own(episodes), sampling, update) for team in teams]

    def _of(self, team: Team, episodes: list[Episode], sampling: Sampling, update: int) -> Collected:
        """The episodes of a team, and more of them where a filter wants others."""
        algorithm, wanted = team.algorithm, self.config.rollout.tasks
        scored = self._score(team, episodes, update)
        if not isinstance(algorithm, PolicyGradient):
            return Collected(episodes, scored)
        resamples = max((filter_.resamples for filter_ in algorithm.filters), default=0)
        for again in range(1, resamples + 1):
            taught = self._teaching_groups(algorithm, scored)
            lacking = [m for number, m in enumerate(team.members) if len(taught[number]) < wanted]
            if not lacking:
                break
            tasks = self.tasks.training(update, wanted, again)
            more = team.own(self.player.training(tasks, sampling, update, update, self.group_sizes, lacking, again))
            episodes = episodes + more
            scored = scored + self._score(team, more, update)
        if resamples:
            scored = self._trimmed(algorithm, scored)
        return Collected(episodes, scored)

    def _score(self, team: Team, episodes: list[Episode], update: int) -> Scored:
        try:
            return score(episodes, team.reward, team.granularity, update, self.player.processes)
        except Exception as error:  # a reward may be anybody's code
            complaint = str(error) or type(error).__name__
            if not isinstance(error, ValueError):
                complaint = f"{type(team.reward).__name__} raised {type(error).__name__}: {complaint}"
            raise Unscored(team, episodes, complaint) from error

    def _teaching_groups(self, algorithm: PolicyGradient, scored: Scored) -> dict[int, list[int]]:
        """Member -> its groups that a resampling filter keeps, in the order they were played."""
        found: dict[int, list[int]] = defaultdict(list)
        if not scored.episodes:
            return found
        turns = turn_table(scored.episodes, scored.turn_rewards, [one.outcome for one in scored.scores])
        keeps = [filter_(turns).tolist() for filter_ in algorithm.filters if filter_.resamples]
        for episode, *kept in zip(scored.episodes, *keeps, strict=True):
            if all(kept) and episode.group not in found[episode.member]:
                found[episode.member].append(episode.group)
        return found

    def _trimmed(self, algorithm: PolicyGradient, scored: Scored) -> Scored:
        """Without the groups that a member has beyond `rollout.tasks` that teach."""
        wanted = self.config.rollout.tasks
        extra = {(m, g) for m, groups in self._teaching_groups(algorithm, scored).items() for g in groups[wanted:]}
        return scored.only([(one.member, one.group) not in extra for one in scored.episodes])
