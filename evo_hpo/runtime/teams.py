"""The members of one species, side by side: what they learn with, and how they come and go."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from algorithms.core import Algorithm
from envs.core import Episode
from evo_hpo.config.schema import StageConfig
from evo_hpo.config.species import Species, name_of
from evo_hpo.evolution import hyperparameters
from evo_hpo.learner.batch import Batch
from evo_hpo.learner.learner import Learner
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.runtime.processes import Processes
from rewards.core import Reward
from rewards.granularity import Granularity


class Team:
    """All members of a species. In a population without species there is one team, which works on the population.

    Of several teams each has rows of its own, to which the members' adapters are copied for an update, and back.

    Attributes:
        members: their places in the population, ascending.
        policy: the members of the team; the population itself where it has no species.
        learner: with the state of optimisers and critics, which is not in the population.
        algorithm, reward, granularity: with the members' present hyperparameters.
    """

    def __init__(
        self,
        species: Species,
        stage: StageConfig,
        members: Sequence[int],
        population: Policy,
        processes: Processes,
    ) -> None:
        self.species, self.members, self.population = species, list(members), population
        self.stage = stage
        self.policy = population.part(self.members) if species.name else population
        limited = species.config.reward.kl_budget is not None
        micro_tokens = species.config.learner.micro_tokens
        self.learner = Learner(self.policy, stage.algorithm, processes, micro_tokens, watch_kl=limited)
        self.take({})

    def take(self, values: Mapping[str, list[Any]]) -> None:
        """Learn and score with these hyperparameters from now on.

        Args:
            values: key -> value of each member of the population; None where a member has no such key.
        """
        mine = {name: [column[m] for m in self.members] for name, column in values.items()}
        mine = {name: column for name, column in mine.items() if column and column[0] is not None}
        config, device = self.species.config, self.policy.base.device
        self.algorithm: Algorithm = hyperparameters.bind(self.stage.algorithm, mine, device)
        self.reward: Reward = hyperparameters.bind_scoring(config.reward, "reward", mine)
        self.granularity: Granularity = hyperparameters.bind_scoring(config.granularity, "granularity", mine)

    def own(self, episodes: Sequence[Episode]) -> list[Episode]:
        """Those of the team, with members counted within it."""
        if not self.species.name:
            return list(episodes)
        place = {m: number for number, m in enumerate(self.members)}
        return [dataclasses.replace(e, member=place[e.member]) for e in episodes if e.member in place]

    def update(self, batch: Batch, sampling: Sampling, update: int) -> dict[str, Tensor]:
        """As `Learner.update`; `sampling` is of the whole population."""
        if not self.species.name:
            return self.learner.update(batch, self.algorithm, sampling, update)
        index = torch.tensor(self.members)
        self.policy.block.load(self.population.block.data[index])
        metrics = self.learner.update(batch, self.algorithm, sampling.rows(index), update)
        self.population.block.data[index] = self.policy.block.data
        return metrics

    def regroup(self, members: Sequence[int], parents: Sequence[int], slots: Sequence[int]) -> None:
        """After the population itself has regrouped.

        Args:
            members: places of the team's members from now on; there is at least one.
            parents: place that the parent of each of them had before, in this team.
            slots: of the members.
        """
        index = torch.tensor([self.members.index(p) for p in parents], device=self.policy.base.device)
        self.members = list(members)
        self.learner.gather(index)
        if self.species.name:
            self.policy.gather(index, slots)

    def restart(self, member: int, purpose: int) -> None:
        """Forget what is carried of a member of the population."""
        place = self.members.index(member)
        self.learner.restart(place)
        if self.species.name:
            self.policy.restart(place, purpose)

    def tensors(self) -> dict[str, Tensor]:
        """All that a resume needs and that is not in the population, by name."""
        found = self.learner.tensors()
        if self.policy.critic is not None:
            found["critic"] = self.policy.critic.data
        return {f"{self._prefix}{name}": tensor for name, tensor in found.items()}

    def load(self, tensors: Mapping[str, Tensor]) -> None:
        """Go back to what `tensors` returned; further names are passed over."""
        mine = {name.removeprefix(self._prefix): t for name, t in tensors.items() if name.startswith(self._prefix)}
        self.learner.load(mine)
        if self.policy.critic is not None:
            self.policy.critic.load(mine["critic"])

    @property
    def _prefix(self) -> str:
        return f"species.{self.species.name}." if self.species.name else ""


def teams_of(
    species: Sequence[Species],
    stage: str,
    values: Mapping[str, list[Any]],
    population: Policy,
    processes: Processes,
) -> list[Team]:
    """One team for each species that has members."""
    of_member = [name_of(row) for row in hyperparameters.rows(values, population.members)]
    found = []
    for one in species:
        members = [m for m, name in enumerate(of_member) if name == one.name]
        if members:
            found.append(Team(one, one.config.pipeline.stages[stage], members, population, processes))
    return found
