"""The machine: stages of generations of updates, an evolution step after each, and a checkpoint after that."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from algorithms.scorers import RewardModel, ScorerAlgorithm
from algorithms.supervised import Supervised
from envs.core import Episode
from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Config, StageConfig
from evo_hpo.config.species import species_of
from evo_hpo.evolution import hyperparameters
from evo_hpo.learner.diagnostics import by_member
from evo_hpo.learner.learner import Learner
from evo_hpo.learner.scoring import Scored, score
from evo_hpo.policy.blocks import Block
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.policy.scorers import BaseModels
from evo_hpo.rollout.expert import demonstrate
from evo_hpo.rollout.pool import EnvironmentPool
from evo_hpo.runtime.collect import Collected, Collector, Unscored
from evo_hpo.runtime.evaluate import Player, Success
from evo_hpo.runtime.measures import Measure, Ordered, Played, batch_of
from evo_hpo.runtime.metrics import contradictions, episode_metrics, turn_outcome_correlation
from evo_hpo.runtime.outcome import interval, result_of
from evo_hpo.runtime.plan import estimated
from evo_hpo.runtime.processes import Processes
from evo_hpo.runtime.progress import Progress
from evo_hpo.runtime.selection import evolve, first_values
from evo_hpo.runtime.tasks import Tasks
from evo_hpo.runtime.teams import Team, teams_of
from evo_hpo.tracking.alarms import REPLACEABLE, Watch
from evo_hpo.tracking.core import Alarm, GenerationRecord, MemberUpdate, Trackers, UpdateRecord
from evo_hpo.tracking.hacking import EXPLAINED
from evo_hpo.tracking.transcripts import UNSCORED, transcript


class Training:
    """One run from wherever `progress` says it is to the end of its pipeline.

    Args:
        save: called after every generation, when everything that a resume needs is in place.
    """

    def __init__(
        self,
        config: Config,
        policy: Policy,
        processes: Processes,
        trackers: Trackers,
        save: Callable[[Training], None],
    ) -> None:
        self.config, self.policy, self.processes, self.trackers, self.save = config, policy, processes, trackers, save
        self.progress = Progress()
        self.watch = Watch()
        self.pool = EnvironmentPool(config.rollout.threads, config.rollout.step_timeout)
        self.player = Player(config, policy, self.pool, processes)
        self.species = species_of(config)
        models = BaseModels(policy, config.learner.micro_tokens)
        try:
            for one in self.species:
                one.config.reward.attach(models)
        except ValueError as error:
            raise UserError(str(error)) from error
        self.tasks = Tasks(config.env, config.evaluation.held_out, config.seed, self.pool)
        self.collector = Collector(config, self.player, self.tasks)
        self.teams: list[Team] = []
        self.champion: dict[str, Tensor] = {}  # name of a block -> the row of the best member of any generation
        self._paid: list[list[tuple[float, float]]] = [[] for _ in range(policy.members)]
        self._clock = time.monotonic()

    # ---- tensors ----

    def tensors(self) -> dict[str, Tensor]:
        """Everything on the device that a resume needs."""
        result = {"policy": self.policy.block.data}
        if self.policy.reference is not None:
            result["reference"] = self.policy.reference.data
        result |= {f"champion.{name}": row for name, row in self.champion.items()}
        for team in self.teams:
            result |= team.tensors()
        return result

    def restore(self, progress: Progress, watch: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go back to a checkpoint."""
        self.progress = progress
        self.watch.load_state_dict(watch)
        for one in self.species:
            one.config.reward.load_state(progress.reward.get(one.name, {}))
        if progress.slots:
            self.policy.gather(torch.arange(len(progress.slots), device=self.policy.base.device), progress.slots)
        self._paid = [[] for _ in range(self.policy.members)]
        self.policy.block.load(tensors["policy"])
        if "reference" in tensors:
            self.policy.freeze_reference()
            assert self.policy.reference is not None
            self.policy.reference.load(tensors["reference"])
        rows = {name.removeprefix("champion."): row for name, row in tensors.items() if name.startswith("champion.")}
        self.champion = {name: row.to(self.policy.base.device) for name, row in rows.items()}
        self._form_teams()
        for team in self.teams:
            team.load(tensors)

    # ---- the loop ----

    def run(self) -> dict[str, Any]:
        """Train to the end and measure what came of it."""
        progress, order = self.progress, self.config.pipeline.order
        if not progress.base:
            began = time.monotonic()
            base, start, episodes = self.measure.start()
            if estimate := estimated(self.config, episodes, time.monotonic() - began):
                self.trackers.note(estimate)
            progress.base = interval(base) | {"fitness": interval(start)}
        while True:
            self.prepare()
            while progress.stage_generation < self.stage.generations and not self.exhausted:
                self._generation()
                self.save(self)
            if progress.stage + 1 == len(order) or self.exhausted:
                if progress.stage_generation < self.stage.generations:
                    self.trackers.note(f"the budget ends the run after generation {progress.generation}")
                return result_of(self)

    def prepare(self) -> None:
        """Make learner and hyperparameters of the next generation's stage; does nothing where they are there."""
        progress = self.progress
        complete = progress.stage_generation >= self.stage.generations
        if self.teams and complete and progress.stage + 1 < len(self.config.pipeline.order):
            progress.stage, progress.stage_generation = progress.stage + 1, 0
            self.teams = []
        if not self.teams:
            self._begin_stage()

    @cached_property
    def measure(self) -> Measure:
        """How members are compared; a stage that trains scorers is the only one of its run."""
        if isinstance(self.stage.algorithm, ScorerAlgorithm):
            return Ordered(self.config, self.stage.algorithm, self.player, self.tasks)
        return Played(self.config, self.player, self.tasks)

    @property
    def exhausted(self) -> bool:
        """Whether another generation that costs what the latest did would end further from the budget than this one."""
        limits, spent, latest = vars(self.config.budget), self.progress.spent, self.progress.latest
        return any(
            limit is not None and name in latest and spent[name] + latest[name] / 2 > limit
            for name, limit in limits.items()
        )

    @property
    def stage(self) -> StageConfig:
        """What is being trained now."""
        return self.config.pipeline.stages[self.config.pipeline.order[self.progress.stage]]

    @property
    def stage_name(self) -> str:
        """Its name in the pipeline."""
        return self.config.pipeline.order[self.progress.stage]

    @property
    def seconds(self) -> float:
        """Seconds of work, over all processes that worked on this run one after another."""
        now = time.monotonic()
        self.progress.seconds += now - self._clock
        self._clock = now
        return self.progress.seconds

    @property
    def learner(self) -> Learner:
        """Of the first team: of all members, where they are alike."""
        return self.teams[0].learner

    def _form_teams(self) -> None:
        self.teams = teams_of(self.species, self.stage_name, self.progress.values, self.policy, self.processes)

    def _begin_stage(self) -> None:
        if self.progress.stage > 0:
            self.policy.freeze_reference()  # what the stage before made is what this one may not drift from
            self.policy.critic = None
        self.progress.values = first_values(self) if self.stage.evolve else {}
        self._form_teams()

    def _generation(self) -> None:
        progress = self.progress
        _, before = self.seconds, progress.spent or progress.costs()
        self.take(progress.values)
        for _ in range(self.stage.updates):
            self.update()
        fitness, episodes = self.measure.fitness(self.learner, progress.generation)
        self._count(episodes)
        self.send_episodes("fitness", episodes)
        _, progress.spent = self.seconds, progress.costs()
        progress.latest = {name: spent - before[name] for name, spent in progress.spent.items()}
        self._evolve(fitness)

    def take(self, values: Mapping[str, list[Any]]) -> None:
        """Play, score and learn with these hyperparameters of the members from now on; None: has no such key."""
        self.collector.take(values)
        for team in self.teams:
            team.take(values)

    def update(self) -> None:
        """Play, score and learn once; `prepare` and `take` come before the first."""
        progress, config = self.progress, self.config
        sampling = hyperparameters.sampling(config.rollout, progress.values, self.policy.members)
        material = list(zip(self.teams, self._material(sampling), strict=True))
        if self.stage.algorithm.learns_from != "pairs":
            played = self.stage.algorithm.learns_from == "rollout"
            self._count([e for _, collected in material for e in collected.episodes], sampled=played)
        if not any(collected.scored.episodes for _, collected in material):
            raise self._nothing_left(material)
        members = [part for team, collected in material for part in self._learn(team, collected, sampling)]
        record = UpdateRecord(
            self.stage_name,
            progress.generation,
            progress.update,
            sorted(members, key=lambda part: self.policy.slots.index(part.member)),
            self.seconds,
            progress.policy_tokens,
            progress.environment_turns,
        )
        self.trackers.update(record)
        if self.stage.algorithm.learns_from != "pairs":
            for team, collected in material:
                scored = zip(collected.scored.episodes, collected.scored.scores, strict=True)
                outcome_of = {id(episode): one.outcome for episode, one in scored}
                outcomes = [outcome_of.get(id(episode)) for episode in collected.episodes]
                self.send_episodes("train", collected.episodes, outcomes, team)
        progress.update += 1
        for alarm in self.watch.update(record):
            if alarm.kind in EXPLAINED and alarm.member is not None:
                alarm = self._with_examples(alarm, material)
            progress.alarms.append(asdict(alarm))
            self.trackers.alarm(alarm)
            if config.on_alarm == "stop":
                raise UserError(f"stopped by an alarm (on_alarm=stop): {alarm.text}")
            if config.on_alarm == "replace" and alarm.member is not None and alarm.kind in REPLACEABLE:
                progress.condemn(alarm.member, f"it set off the alarm {alarm.kind} (on_alarm=replace)")

    def _learn(self, team: Team, collected: Collected, sampling: Sampling) -> list[MemberUpdate]:
        """One update of a team."""
        progress, algorithm, scored = self.progress, team.algorithm, collected.scored
        metrics: list[dict[str, float]] = [{} for _ in team.members]
        if scored.episodes:  # else all of them failed, and other teams go on
            tokenizer = self.policy.base.tokenizer
            pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
            batch = batch_of(scored, len(team.members), self.policy.base.device, int(pad or 0), progress.update)
            metrics = by_member(team.update(batch, sampling, progress.update))
        if algorithm.learns_from != "pairs":  # else nothing was played, so nothing succeeded
            played = episode_metrics(collected.episodes, scored, len(team.members), algorithm.min_group > 1)
            metrics = [own | of_episodes for own, of_episodes in zip(metrics, played, strict=True)]
        if algorithm.learns_from != "rollout":  # an expert always earns the same; rewards teach nothing
            for own in metrics:
                own.pop("reward_std", None)
        self._remember(team, scored)
        parts = [MemberUpdate(self.policy.slots[m], own) for m, own in zip(team.members, metrics, strict=True)]
        for part in parts:
            if team.reward.kl_budget is not None:
                part.metrics["kl_limit"] = team.reward.kl_budget
            if part.metrics.get("finite") == 0:
                progress.condemn(part.member, "one of its updates was not finite")
        return parts

    def _nothing_left(self, material: Sequence[tuple[Team, Collected]]) -> UserError:
        """Why nothing can be learned from the episodes of an update; those that could have been scored are kept."""
        update = self.progress.update
        episodes = [episode for _, collected in material for episode in collected.episodes]
        if any(episode.turns and not episode.failed for episode in episodes):
            for team, collected in material:
                self.send_episodes(UNSCORED, collected.episodes, team=team)
            rewards = " and ".join(dict.fromkeys(type(team.reward).__name__ for team, _ in material))
            return UserError(
                f"{rewards} scored no group of update {update}: mend what it depends on, or "
                f"give a judge a fallback. The {len(episodes)} episodes are in episodes.jsonl (split {UNSCORED}); the "
                "last checkpoint is intact"
            )
        errors = sorted({e.error for e in episodes if e.error}) or [
            "the first observation and one action are longer than rollout.max_context"
        ]
        return UserError(f"not one of {len(episodes)} episodes of update {update} could be used: {errors[0]}")

    def _remember(self, team: Team, scored: Scored) -> None:
        """Keep what this generation's episodes were paid for their turns, and what came of them."""
        for episode, one in zip(scored.episodes, scored.scores, strict=True):
            if one.turn_rewards is not None:
                self._paid[team.members[episode.member]].append((math.fsum(one.turn_rewards), one.outcome))

    def _with_examples(self, alarm: Alarm, material: Sequence[tuple[Team, Collected]]) -> Alarm:
        """The alarm with the episodes in which reward and outcome disagree most; their transcripts are kept."""
        assert alarm.member is not None
        place = self.policy.slots.index(alarm.member)
        team, collected = next((team, collected) for team, collected in material if place in team.members)
        scored = collected.scored
        places = contradictions(scored, team.members.index(place))
        episodes = [scored.episodes[i] for i in places]
        self.send_episodes("alarm", episodes, [scored.scores[i].outcome for i in places], team)
        tasks = ", ".join(dict.fromkeys(str(episode.task) for episode in episodes))
        return replace(alarm, text=f"{alarm.text} For example in tasks {tasks} (split `alarm` of the transcripts).")

    def _material(self, sampling: Sampling) -> list[Collected]:
        """For each team all episodes of the next update, and those that are learned from, scored."""
        progress, config, algorithm = self.progress, self.config, self.teams[0].algorithm
        if isinstance(algorithm, RewardModel):
            assert isinstance(self.measure, Ordered) and self.measure.pairs is not None
            scored = self.measure.pairs.training(progress.update)
            return [Collected(scored.episodes, scored)]
        if not isinstance(algorithm, Supervised):
            try:
                return self.collector.collect(self.teams, sampling, progress.update)
            except Unscored as error:
                self.send_episodes(UNSCORED, error.episodes, team=error.team)
                raise UserError(
                    f"{error}. The {len(error.episodes)} episodes of update {progress.update} are in episodes.jsonl "
                    f"(split {UNSCORED}); the last checkpoint is intact"
                ) from error
        episodes = demonstrate(
            config.env,
            self.policy.base.chat,
            self.tasks.training(progress.update, config.rollout.tasks),
            self.policy.members,
            algorithm.noise,
            (config.seed, progress.update),
            self.pool,
            config.rollout.max_context,
            config.model.instructions,
        )
        scored = score(episodes, config.reward, config.granularity, progress.update, self.processes)
        return [Collected(episodes, scored)]

    def blocks(self) -> dict[str, Block]:
        """What makes a member what it is worth."""
        scorer = self.policy.critic if self.stage.algorithm.trains_scorer else None
        return {"policy": self.policy.block} | ({"critic": scorer} if scorer is not None else {})

    def _crown(self, fitness: list[Success]) -> None:
        """Keep the best member, if it is better than any before it."""
        progress = self.progress
        able = [m for m in range(len(fitness)) if str(self.policy.slots[m]) not in progress.condemned]
        best = max(able, key=lambda m: -1.0 if math.isnan(fitness[m].rate) else fitness[m].rate, default=None)
        if best is None or math.isnan(fitness[best].rate):
            return
        if fitness[best].rate > progress.champion.get("fitness", -1.0):
            progress.champion = {
                "fitness": fitness[best].rate,
                "generation": progress.generation,
                "place": best,
                "slot": self.policy.slots[best],
                "values": hyperparameters.rows(progress.values, len(fitness))[best],
            }
            self.champion = {name: block.data[best].clone() for name, block in self.blocks().items()}

    def _evolve(self, fitness: list[Success]) -> None:
        progress = self.progress
        if self.stage.evolve and self.config.evolution.strategy.restarts:
            self._crown(fitness)
        correlations = [turn_outcome_correlation(pairs) for pairs in self._paid]
        members = [
            part if rho is None else replace(part, metrics={"turn_outcome_correlation": rho})
            for part, rho in zip(evolve(self, fitness), correlations, strict=True)
        ]
        self._paid = [[] for _ in range(self.policy.members)]
        progress.reward = {one.name: one.config.reward.state() for one in self.species}
        record = GenerationRecord(
            stage=self.stage_name,
            generation=progress.generation,
            update=progress.update,
            members=members,
            seconds=self.seconds,
            policy_tokens=progress.policy_tokens,
            environment_turns=progress.environment_turns,
        )
        progress.generation += 1
        progress.stage_generation += 1
        self.trackers.generation(record)
        self.watch.generation(record)

    # ---- what evolution asks for ----

    def evaluate_again(self, members: Sequence[int], again: int) -> list[list[float]]:
        """Results of some members on the common tasks, under noise that is common to them and new."""
        found, episodes = self.measure.fitness(self.learner, self.progress.generation, members, again)
        self._count(episodes)
        return [list(found[member].results) for member in members]

    def regroup(self, parents: Sequence[int], slots: Sequence[int]) -> None:
        """Member i becomes what member parents[i] was, in the slot slots[i]; there may be fewer than before."""
        of_place = {m: team for team in self.teams for m in team.members}
        self.policy.gather(torch.tensor(parents, device=self.policy.base.device), slots)
        left = []
        for team in self.teams:
            members = [m for m, parent in enumerate(parents) if of_place[parent] is team]
            if members:
                team.regroup(members, [parents[m] for m in members], [slots[m] for m in members])
                left.append(team)
        self.teams = left

    def restart(self, member: int) -> None:
        """Put a member back to where the run began, with an optimiser that knows nothing."""
        self.policy.restart(member, self.progress.generation)
        next(team for team in self.teams if member in team.members).restart(member, self.progress.generation)

    def checksums(self) -> list[str]:
        """Of what is trained of every member."""
        trained = self.policy.critic if self.stage.algorithm.trains_scorer else self.policy.block
        assert trained is not None
        return [trained.checksum(m) for m in range(self.policy.members)]

    def _count(self, episodes: list[Episode], sampled: bool = True) -> None:
        if sampled:
            self.progress.policy_tokens += sum(episode.policy_tokens for episode in episodes)
        self.progress.environment_turns += sum(len(episode.turns) for episode in episodes)

    def send_episodes(
        self, split: str, episodes: list[Episode], outcomes: Sequence[float | None] = (), team: Team | None = None
    ) -> None:
        """Keep transcripts; members are counted within `team`, or else in the population."""
        if self.processes.main and self.config.tracker.episodes:
            given = outcomes or [None] * len(episodes)
            update = self.progress.update if split in ("train", UNSCORED, "alarm") else None
            slots = self.policy.slots if team is None else [self.policy.slots[m] for m in team.members]
            transcripts = [
                transcript(e, outcome, update) | {"member": slots[e.member]}
                for e, outcome in zip(episodes, given, strict=True)
            ]
            self.trackers.episodes(self.progress.generation, split, transcripts)
