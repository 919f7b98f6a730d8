"""What are the members worth? Success on common tasks with common sampling noise, at one temperature for all."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import fmean

from envs.core import Environment, Episode
from evo_hpo.config.schema import Config
from evo_hpo.policy.noise import key
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.rollout.fused import FusedSampler
from evo_hpo.rollout.pool import EnvironmentPool
from evo_hpo.rollout.runner import Assignment, play
from evo_hpo.runtime.processes import Processes
from evo_hpo.tracking.statistics import wilson


@dataclass(frozen=True)
class Success:
    """A success rate with its 95 % Wilson interval; NaN where no episode could be played."""

    rate: float
    low: float
    high: float
    episodes: int
    results: tuple[float, ...] = ()  # mean of each task, in the order of the tasks; NaN where it could not be played

    @classmethod
    def of(cls, episodes: list[Episode]) -> Success:
        played = [episode for episode in episodes if not episode.failed]
        by_task: dict[int, list[float]] = {episode.group: [] for episode in episodes}
        for episode in played:
            by_task[episode.group].append(float(episode.success))
        results = tuple(fmean(seen) if seen else math.nan for _, seen in sorted(by_task.items()))
        if not played:
            return cls(math.nan, math.nan, math.nan, 0, results)
        rate, low, high = wilson(sum(episode.success for episode in played), len(played))
        return cls(rate, low, high, len(played), results)


class Player:
    """Plays episodes with a policy under one config; each process plays its share, and all get all episodes."""

    def __init__(self, config: Config, policy: Policy, pool: EnvironmentPool, processes: Processes) -> None:
        self.config, self.policy, self.pool, self.processes = config, policy, pool, processes

    def play(self, assignments: list[Assignment], sampling: Sampling, version: int) -> list[Episode]:
        """All episodes, in the order of `assignments`."""
        rollout = self.config.rollout
        environment: Environment = self.config.env
        mine = self.processes.share(assignments)
        per_member = max((sum(a.member == m for a in mine) for m in range(self.policy.members)), default=1)
        sampler = FusedSampler(
            self.policy,
            sampling,
            max(1, min(rollout.slots, per_member)),
            rollout.max_action_tokens,
            rollout.max_context,
        )
        episodes = play(
            sampler,
            self.policy.base.chat,
            environment,
            mine,
            self.pool,
            rollout.max_action_tokens,
            rollout.max_context,
            self.config.model.instructions,
            version,
        )
        return self.processes.collect(episodes)

    def training(
        self,
        tasks: list[int],
        sampling: Sampling,
        update: int,
        version: int,
        group_sizes: Sequence[int] | None = None,
        members: Sequence[int] | None = None,
        again: int = 0,
    ) -> list[Episode]:
        """A group of episodes of every task by every member, or by `members`; the noise is each member's own.

        Args:
            update: that will learn from them.
            version: of the policy: the update before which they are played.
            group_sizes: episodes in a group of each member; None: the config's.
            again: how many times tasks were already drawn for this update; groups are numbered on.
        """
        first = again * len(tasks)
        sizes = [self.config.rollout.group_size] * self.policy.members if group_sizes is None else group_sizes
        assignments = [
            Assignment(m, g, task, key(self.config.seed, "train", slot, update, g, i))
            for g, task in enumerate(tasks, first)
            for i in range(max(sizes))
            for m, slot in enumerate(self.policy.slots)
            if i < sizes[m] and (members is None or m in members)
        ]
        return self.play(assignments, sampling, version)

    def fitness(
        self, tasks: list[int], generation: int, members: Sequence[int] | None = None, again: int = 0
    ) -> tuple[list[Success], list[Episode]]:
        """Success of every member on the same tasks; the noise depends on task and generation, not on the member.

        Args:
            members: those that play; None: all. Nothing is known of the others.
            again: how many times they were already asked in this generation; the noise is new each time.
        """
        more = [again] if again else []
        assignments = [
            Assignment(m, g, task, key(self.config.seed, "fitness", generation, task, i, *more))
            for g, task in enumerate(tasks)
            for i in range(self.config.evaluation.repeats)
            for m in range(self.policy.members)
            if members is None or m in members
        ]
        episodes = self.play(assignments, self._evaluation(), 0)
        return [Success.of([e for e in episodes if e.member == m]) for m in range(self.policy.members)], episodes

    def final(self, tasks: list[int]) -> tuple[Success, list[Episode]]:
        """Success of one agent that all members hold at the moment, the tasks split between them."""
        assignments = [Assignment(g % self.policy.members, g, task, key("final", task)) for g, task in enumerate(tasks)]
        episodes = self.play(assignments, self._evaluation(), 0)
        return Success.of(episodes), episodes

    def _evaluation(self) -> Sampling:
        return Sampling.same(self.policy.members, self.config.evaluation.temperature)
