"""The machine: stages of generations of updates, an evolution step after each, and a checkpoint after that."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from algorithms.core import Algorithm
from algorithms.scorers import RewardModel, ScorerAlgorithm
from algorithms.supervised import Supervised
from envs.core import Episode
from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Config, StageConfig
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
from evo_hpo.runtime.collect import Collector, Unscored
from evo_hpo.runtime.evaluate import Player, Success
from evo_hpo.runtime.measures import Measure, Ordered, Played, batch_of
from evo_hpo.runtime.metrics import contradictions, episode_metrics, turn_outcome_correlation
from evo_hpo.runtime.plan import estimated
from evo_hpo.runtime.processes import Processes
from evo_hpo.runtime.progress import Progress
from evo_hpo.runtime.selection import evolve, finite_or_none, first_values
from evo_hpo.runtime.tasks import Tasks
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
        models = BaseModels(policy, config.learner.micro_tokens)
        try:
            config.reward.attach(models)
        except ValueError as error:
            raise UserError(str(error)) from error
        self.tasks = Tasks(config.env, config.evaluation.held_out, config.seed, self.pool)
        self.collector = Collector(config, self.player, self.tasks)
        self.learner: Learner | None = None
        self._champion: dict[str, Tensor] = {}  # name of a block -> the row of the best member of any generation
        self._paid: list[list[tuple[float, float]]] = [[] for _ in range(policy.members)]
        self._clock = time.monotonic()

    # ---- tensors ----

    def tensors(self) -> dict[str, Tensor]:
        """Everything on the device that a resume needs."""
        assert self.learner is not None
        result = {"policy": self.policy.block.data}
        for name, block in (("reference", self.policy.reference), ("critic", self.policy.critic)):
            if block is not None:
                result[name] = block.data
        result |= {f"champion.{name}": row for name, row in self._champion.items()}
        return result | self.learner.tensors()

    def restore(self, progress: Progress, watch: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go back to a checkpoint."""
        self.progress = progress
        self.watch.load_state_dict(watch)
        self.config.reward.load_state(progress.reward)
        if progress.slots:
            self.policy.gather(torch.arange(len(progress.slots), device=self.policy.base.device), progress.slots)
        self._paid = [[] for _ in range(self.policy.members)]
        self.policy.block.load(tensors["policy"])
        if "reference" in tensors:
            self.policy.freeze_reference()
            assert self.policy.reference is not None
            self.policy.reference.load(tensors["reference"])
        if "critic" in tensors:
            self.policy.add_critic()
            assert self.policy.critic is not None
            self.policy.critic.load(tensors["critic"])
        rows = {name.removeprefix("champion."): row for name, row in tensors.items() if name.startswith("champion.")}
        self._champion = {name: row.to(self.policy.base.device) for name, row in rows.items()}
        self.learner = self._learner()
        self.learner.load(tensors)

    # ---- the loop ----

    def run(self) -> dict[str, Any]:
        """Train to the end and measure what came of it."""
        progress, order = self.progress, self.config.pipeline.order
        if not progress.base:
            began = time.monotonic()
            base, start, episodes = self.measure.start()
            if estimate := estimated(self.config, episodes, time.monotonic() - began):
                self.trackers.note(estimate)
            progress.base = _interval(base) | {"fitness": _interval(start)}
        while True:
            self.prepare()
            while progress.stage_generation < self.stage.generations and not self.exhausted:
                self._generation()
                self.save(self)
            if progress.stage + 1 == len(order) or self.exhausted:
                return self._result()

    def prepare(self) -> None:
        """Make learner and hyperparameters of the next generation's stage; does nothing where they are there."""
        progress = self.progress
        complete = progress.stage_generation >= self.stage.generations
        if self.learner is not None and complete and progress.stage + 1 < len(self.config.pipeline.order):
            progress.stage, progress.stage_generation = progress.stage + 1, 0
            self.learner = None
        if self.learner is None:
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

    def _learner(self) -> Learner:
        limited = self.config.reward.kl_budget is not None
        micro_tokens = self.config.learner.micro_tokens
        return Learner(self.policy, self.stage.algorithm, self.processes, micro_tokens, watch_kl=limited)

    def _begin_stage(self) -> None:
        if self.progress.stage > 0:
            self.policy.freeze_reference()  # what the stage before made is what this one may not drift from
            self.policy.critic = None
        algorithm: Algorithm = self.stage.algorithm
        self.learner = self._learner()
        own = hyperparameters.of_stage(algorithm, self.config)
        self.progress.values = first_values(self, own) if self.stage.evolve else {}

    def _generation(self) -> None:
        progress = self.progress
        assert self.learner is not None
        _, before = self.seconds, progress.spent or progress.costs()
        algorithm = hyperparameters.bind(self.stage.algorithm, progress.values, self.policy.base.device)
        self.collector.take(progress.values)
        for _ in range(self.stage.updates):
            self.update(algorithm)
        fitness, episodes = self.measure.fitness(self.learner, progress.generation)
        self._count(episodes)
        self._send_episodes("fitness", episodes)
        _, progress.spent = self.seconds, progress.costs()
        progress.latest = {name: spent - before[name] for name, spent in progress.spent.items()}
        self._evolve(fitness)

    def update(self, algorithm: Algorithm) -> None:
        """Play, score and learn once; `prepare` comes before the first.

        Args:
            algorithm: of the present stage, with the members' values bound to it.
        """
        progress, config = self.progress, self.config
        assert self.learner is not None
        sampling = hyperparameters.sampling(config.rollout, progress.values, self.policy.members)
        episodes, scored = self._material(algorithm, sampling)
        played = algorithm.learns_from == "rollout"
        if algorithm.learns_from != "pairs":
            self._count(episodes, sampled=played)
        if not scored.episodes:
            raise self._nothing_left(episodes)
        outcomes = [s.outcome for s in scored.scores]
        tokenizer = self.policy.base.tokenizer
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        batch = batch_of(scored, self.policy.members, self.policy.base.device, int(pad or 0), progress.update)
        metrics = self.learner.update(batch, algorithm, sampling, progress.update)
        of_episodes = episode_metrics(episodes, scored, self.policy.members, algorithm.min_group > 1)
        if not played:  # an expert always earns the same, and nothing is learned from rewards
            for one in of_episodes:
                one.pop("reward_std", None)
        if algorithm.learns_from == "pairs":  # nothing was played, so nothing succeeded
            of_episodes = [{} for _ in of_episodes]
        slots = self.policy.slots
        members = [MemberUpdate(slots[m], measured | of_episodes[m]) for m, measured in enumerate(by_member(metrics))]
        self._remember(scored)
        for part in members:
            if config.reward.kl_budget is not None:
                part.metrics["kl_limit"] = config.reward.kl_budget
            if part.metrics["finite"] == 0:
                progress.condemn(part.member, "one of its updates was not finite")
        record = UpdateRecord(
            self.stage_name,
            progress.generation,
            progress.update,
            members,
            self.seconds,
            progress.policy_tokens,
            progress.environment_turns,
        )
        self.trackers.update(record)
        if algorithm.learns_from != "pairs":
            outcome_of = {id(episode): outcome for episode, outcome in zip(scored.episodes, outcomes, strict=True)}
            self._send_episodes("train", episodes, [outcome_of.get(id(episode)) for episode in episodes])
        progress.update += 1
        for alarm in self.watch.update(record):
            if alarm.kind in EXPLAINED and alarm.member is not None:
                alarm = self._with_examples(alarm, scored)
            progress.alarms.append(asdict(alarm))
            self.trackers.alarm(alarm)
            if config.on_alarm == "stop":
                raise UserError(f"stopped by an alarm (on_alarm=stop): {alarm.text}")
            if config.on_alarm == "replace" and alarm.member is not None and alarm.kind in REPLACEABLE:
                progress.condemn(alarm.member, f"it set off the alarm {alarm.kind} (on_alarm=replace)")

    def _nothing_left(self, episodes: list[Episode]) -> UserError:
        """Why nothing can be learned from the episodes of an update; those that could have been scored are kept."""
        update = self.progress.update
        if any(episode.turns and not episode.failed for episode in episodes):
            self._send_episodes(UNSCORED, episodes)
            return UserError(
                f"{type(self.config.reward).__name__} scored no group of update {update}: mend what it depends on, or "
                f"give a judge a fallback. The {len(episodes)} episodes are in episodes.jsonl (split {UNSCORED}); the "
                "last checkpoint is intact"
            )
        errors = sorted({e.error for e in episodes if e.error}) or [
            "the first observation and one action are longer than rollout.max_context"
        ]
        return UserError(f"not one of {len(episodes)} episodes of update {update} could be used: {errors[0]}")

    def _remember(self, scored: Scored) -> None:
        """Keep what this generation's episodes were paid for their turns, and what came of them."""
        for episode, one in zip(scored.episodes, scored.scores, strict=True):
            if one.turn_rewards is not None:
                self._paid[episode.member].append((math.fsum(one.turn_rewards), one.outcome))

    def _with_examples(self, alarm: Alarm, scored: Scored) -> Alarm:
        """The alarm with the episodes in which reward and outcome disagree most; their transcripts are kept."""
        assert alarm.member is not None
        places = contradictions(scored, self.policy.slots.index(alarm.member))
        episodes = [scored.episodes[i] for i in places]
        self._send_episodes("alarm", episodes, [scored.scores[i].outcome for i in places])
        tasks = ", ".join(dict.fromkeys(str(episode.task) for episode in episodes))
        return replace(alarm, text=f"{alarm.text} For example in tasks {tasks} (split `alarm` of the transcripts).")

    def _material(self, algorithm: Algorithm, sampling: Sampling) -> tuple[list[Episode], Scored]:
        """All episodes of the next update, and those that are learned from, scored."""
        progress, config = self.progress, self.config
        if isinstance(algorithm, RewardModel):
            assert isinstance(self.measure, Ordered) and self.measure.pairs is not None
            scored = self.measure.pairs.training(progress.update)
            return scored.episodes, scored
        if not isinstance(algorithm, Supervised):
            try:
                collected = self.collector.collect(algorithm, sampling, progress.update)
            except Unscored as error:
                self._send_episodes(UNSCORED, error.episodes)
                raise UserError(
                    f"{error}. The {len(error.episodes)} episodes of update {progress.update} are in episodes.jsonl "
                    f"(split {UNSCORED}); the last checkpoint is intact"
                ) from error
            return collected.episodes, collected.scored
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
        return episodes, score(episodes, config.reward, config.granularity, progress.update, self.processes)

    def _blocks(self) -> dict[str, Block]:
        blocks = {"policy": self.policy.block, "critic": self.policy.critic}
        return {name: block for name, block in blocks.items() if block is not None}

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
                "values": {name: column[best] for name, column in progress.values.items()},
            }
            self._champion = {name: block.data[best].clone() for name, block in self._blocks().items()}

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
        progress.reward = self.config.reward.state()
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
        assert self.learner is not None
        index = torch.tensor(parents, device=self.policy.base.device)
        self.policy.gather(index, slots)
        self.learner.gather(index)

    def restart(self, member: int) -> None:
        """Put a member back to where the run began, with an optimiser that knows nothing."""
        assert self.learner is not None
        self.policy.restart(member, self.progress.generation)
        self.learner.restart(member)

    def checksums(self) -> list[str]:
        """Of what is trained of every member."""
        trained = self.policy.critic if self.stage.algorithm.trains_scorer else self.policy.block
        assert trained is not None
        return [trained.checksum(m) for m in range(self.policy.members)]

    # ---- the end ----

    def _result(self) -> dict[str, Any]:
        progress = self.progress
        best = progress.best()  # never chosen on the final tasks
        values = {name: column[best] for name, column in progress.values.items()}
        if progress.crowned is not None:
            best, values = self.policy.slots.index(progress.crowned["slot"]), progress.crowned["values"]
            for name, block in self._blocks().items():
                block.data[best] = self._champion[name]
        others = [m for m in range(self.policy.members) if m != best] if self.config.evaluation.everyone else []
        of_member = {m: self._final(m) for m in [*others, best]}  # the best last: details are of the last
        final, episodes = of_member[best]
        self._send_episodes("final", episodes)
        return {
            "name": self.config.name,
            "seed": self.config.seed,
            "base": progress.base,
            "best": _interval(final) | {"member": self.policy.slots[best], "hyperparameters": values},
            "members": [
                _interval(of_member[m][0]) | {"member": self.policy.slots[m]} for m in sorted(of_member) if others
            ],
            "gain": finite_or_none(
                final.rate - (progress.base["success"] if progress.base["success"] is not None else math.nan)
            ),
            "final_tasks": self.measure.final_size,
            "held_out": self.measure.of,
            "measured": self.measure.about,
            "details": self.measure.details(),
            "seconds": round(self.seconds, 1),
            "policy_tokens": progress.policy_tokens,
            "environment_turns": progress.environment_turns,
            "generations": progress.generation,
            "updates": progress.update,
            "population": self.config.evolution.population,
            "alarms": progress.alarms,
        }

    def _final(self, member: int) -> tuple[Success, list[Episode]]:
        """What a member is worth on the final tasks, which all members play with its weights."""
        blocks = list(self._blocks().values())
        kept = [block.data.clone() for block in blocks]
        for block, data in zip(blocks, kept, strict=True):
            block.load(data[member].expand_as(data))
        measured = self.measure.final(self.learner)
        for block, data in zip(blocks, kept, strict=True):
            block.load(data)
        return measured

    def _count(self, episodes: list[Episode], sampled: bool = True) -> None:
        if sampled:
            self.progress.policy_tokens += sum(episode.policy_tokens for episode in episodes)
        self.progress.environment_turns += sum(len(episode.turns) for episode in episodes)

    def _send_episodes(self, split: str, episodes: list[Episode], outcomes: Sequence[float | None] = ()) -> None:
        if self.processes.main and self.config.tracker.episodes:
            given = outcomes or [None] * len(episodes)
            update = self.progress.update if split in ("train", UNSCORED, "alarm") else None
            slots = self.policy.slots
            transcripts = [
                transcript(e, outcome, update) | {"member": slots[e.member]}
                for e, outcome in zip(episodes, given, strict=True)
            ]
            self.trackers.episodes(self.progress.generation, split, transcripts)


def _interval(success: Success) -> dict[str, Any]:
    return {
        "success": finite_or_none(success.rate),
        "low": finite_or_none(success.low),
        "high": finite_or_none(success.high),
        "episodes": success.episodes,
    }
