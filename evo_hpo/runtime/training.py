"""The machine: stages of generations of updates, an evolution step after each, and a checkpoint after that."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import Any

import torch
from torch import Tensor

from algorithms.core import Algorithm
from algorithms.supervised import Supervised
from envs.core import Episode
from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Config, StageConfig
from evo_hpo.evolution import hyperparameters
from evo_hpo.evolution.space import spread
from evo_hpo.evolution.strategies import Fate
from evo_hpo.learner.batch import build_batch
from evo_hpo.learner.diagnostics import by_member
from evo_hpo.learner.learner import Learner
from evo_hpo.learner.scoring import score
from evo_hpo.policy.noise import generator, key
from evo_hpo.policy.policy import Policy
from evo_hpo.rollout.expert import demonstrate
from evo_hpo.rollout.pool import EnvironmentPool
from evo_hpo.runtime.collect import Collector
from evo_hpo.runtime.evaluate import Player, Success
from evo_hpo.runtime.metrics import episode_metrics
from evo_hpo.runtime.processes import Processes
from evo_hpo.runtime.progress import Progress
from evo_hpo.runtime.tasks import Tasks
from evo_hpo.tracking.alarms import REPLACEABLE, Watch
from evo_hpo.tracking.core import GenerationRecord, MemberGeneration, MemberUpdate, Trackers, UpdateRecord
from evo_hpo.tracking.progress import number, short_names
from evo_hpo.tracking.transcripts import transcript


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
        self.tasks = Tasks(config.env, config.evaluation.held_out, config.seed, self.pool)
        self.collector = Collector(config, self.player, self.tasks)
        self.learner: Learner | None = None
        self._fitness_tasks: list[int] = []
        self._final_tasks: list[int] = []
        self._clock = time.monotonic()

    # ---- tensors ----

    def tensors(self) -> dict[str, Tensor]:
        """Everything on the device that a resume needs."""
        assert self.learner is not None
        result = {"policy": self.policy.block.data}
        for name, block in (("reference", self.policy.reference), ("critic", self.policy.critic)):
            if block is not None:
                result[name] = block.data
        return result | self.learner.tensors()

    def restore(self, progress: Progress, watch: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        """Go back to a checkpoint."""
        self.progress = progress
        self.watch.load_state_dict(watch)
        self.policy.block.load(tensors["policy"])
        if "reference" in tensors:
            self.policy.freeze_reference()
            assert self.policy.reference is not None
            self.policy.reference.load(tensors["reference"])
        if "critic" in tensors:
            self.policy.add_critic()
            assert self.policy.critic is not None
            self.policy.critic.load(tensors["critic"])
        self.learner = Learner(self.policy, self.stage.algorithm, self.processes, self.config.learner.micro_tokens)
        self.learner.load(tensors)

    # ---- the loop ----

    def run(self) -> dict[str, Any]:
        """Train to the end and measure what came of it."""
        progress, order = self.progress, self.config.pipeline.order
        self._fitness_tasks = self.tasks.of("fitness", self.config.evaluation.tasks)
        self._final_tasks = self.tasks.of("final", self.config.evaluation.final_tasks)
        if not progress.base:
            base, _ = self.player.final(self._final_tasks)
            start, _ = self.player.final(self._fitness_tasks)
            progress.base = _interval(base) | {"fitness": _interval(start)}
        while True:
            self.prepare()
            while progress.stage_generation < self.stage.generations:
                self._generation()
                self.save(self)
            if progress.stage + 1 == len(order):
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

    @property
    def stage(self) -> StageConfig:
        """What is being trained now."""
        return self.config.pipeline.stages[self.config.pipeline.order[self.progress.stage]]

    @property
    def _stage_name(self) -> str:
        return self.config.pipeline.order[self.progress.stage]

    @property
    def seconds(self) -> float:
        """Seconds of work, over all processes that worked on this run one after another."""
        now = time.monotonic()
        self.progress.seconds += now - self._clock
        self._clock = now
        return self.progress.seconds

    def _begin_stage(self) -> None:
        if self.progress.stage > 0:
            self.policy.freeze_reference()  # what the stage before made is what this one may not drift from
            self.policy.critic = None
        algorithm: Algorithm = self.stage.algorithm
        self.learner = Learner(self.policy, algorithm, self.processes, self.config.learner.micro_tokens)
        own = hyperparameters.of_algorithm(algorithm) | {
            f"rollout.{name}": getattr(self.config.rollout, name) for name in hyperparameters.ROLLOUT_KEYS
        }
        space = {name: dimension for name, dimension in self.config.evolution.space.items() if name in own}
        members = self.policy.members
        if not self.stage.evolve:
            self.progress.values = {}
        elif self.config.evolution.spread:
            everybody = spread(space, own, self.config.evolution.population, key(self.config.seed, "spread") % 2**31)
            self.progress.values = {
                name: [column[slot] for slot in self.policy.slots] for name, column in everybody.items()
            }
        else:
            self.progress.values = {name: [own[name]] * members for name in sorted(space)}

    def _generation(self) -> None:
        progress = self.progress
        assert self.learner is not None
        algorithm = hyperparameters.bind(self.stage.algorithm, progress.values, self.policy.base.device)
        for _ in range(self.stage.updates):
            self.update(algorithm)
        fitness, episodes = self.player.fitness(self._fitness_tasks, progress.generation)
        self._count(episodes)
        self._send_episodes("fitness", episodes)
        self._evolve(fitness)

    def update(self, algorithm: Algorithm) -> None:
        """Play, score and learn once; `prepare` comes before the first.

        Args:
            algorithm: of the present stage, with the members' values bound to it.
        """
        progress, config = self.progress, self.config
        assert self.learner is not None
        sampling = hyperparameters.sampling(config.rollout, progress.values, self.policy.members)
        if isinstance(algorithm, Supervised):
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
        else:
            collected = self.collector.collect(algorithm, sampling, progress.update)
            episodes, scored = collected.episodes, collected.scored
        self._count(episodes, sampled=not isinstance(algorithm, Supervised))
        if not scored.episodes:
            errors = sorted({e.error for e in episodes if e.error}) or [
                "the first observation and one action are longer than rollout.max_context"
            ]
            raise UserError(
                f"not one of {len(episodes)} episodes of update {progress.update} could be used: {errors[0]}"
            )
        outcomes = [s.outcome for s in scored.scores]
        tokenizer = self.policy.base.tokenizer
        pad = tokenizer.pad_token_id if tokenizer.pad_token_id is not None else tokenizer.eos_token_id
        batch = build_batch(
            scored.episodes,
            scored.turn_rewards,
            outcomes,
            self.policy.members,
            int(pad or 0),
            self.policy.base.device,
            progress.update,
            [s.components for s in scored.scores],
        )
        metrics = self.learner.update(batch, algorithm, sampling, progress.update)
        of_episodes = episode_metrics(episodes, scored, self.policy.members, algorithm.min_group > 1)
        if isinstance(algorithm, Supervised):  # an expert always earns the same, and nothing is learned from rewards
            for one in of_episodes:
                one.pop("reward_std", None)
        members = [MemberUpdate(m, measured | of_episodes[m]) for m, measured in enumerate(by_member(metrics))]
        for part in members:
            if part.metrics["finite"] == 0:
                progress.condemn(part.member, "one of its updates was not finite")
        record = UpdateRecord(
            self._stage_name,
            progress.generation,
            progress.update,
            members,
            self.seconds,
            progress.policy_tokens,
            progress.environment_turns,
        )
        self.trackers.update(record)
        outcome_of = {id(episode): outcome for episode, outcome in zip(scored.episodes, outcomes, strict=True)}
        self._send_episodes("train", episodes, [outcome_of.get(id(episode)) for episode in episodes])
        progress.update += 1
        for alarm in self.watch.update(record):
            progress.alarms.append(asdict(alarm))
            self.trackers.alarm(alarm)
            if config.on_alarm == "stop":
                raise UserError(f"stopped by an alarm (on_alarm=stop): {alarm.text}")
            if config.on_alarm == "replace" and alarm.member is not None and alarm.kind in REPLACEABLE:
                progress.condemn(alarm.member, f"it set off the alarm {alarm.kind} (on_alarm=replace)")

    def _evolve(self, fitness: list[Success]) -> None:
        progress, config = self.progress, self.config
        assert self.learner is not None
        members = self.policy.members
        condemned = [progress.condemned.get(str(m)) for m in range(members)]
        rates = [math.nan if condemned[m] else fitness[m].rate for m in range(members)]
        last = progress.stage_generation + 1 == self.stage.generations
        if self.stage.evolve and not last:
            rng = generator(config.seed, "evolution", progress.generation)
            fates = config.evolution.strategy.select(rates, rng)
        else:
            reason = "the stage ends here" if self.stage.evolve else "this stage does not evolve"
            fates = [Fate(m, "kept", False, reason) for m in range(members)]
        before = [{name: column[m] for name, column in progress.values.items()} for m in range(members)]
        after = []
        for m, fate in enumerate(fates):
            values = dict(before[fate.parent])
            if fate.explore:
                rng = generator(config.seed, "mutation", progress.generation, self.policy.slots[m])
                values = config.evolution.strategy.explore(values, config.evolution.space, rng)
            after.append(values)
        parents = torch.tensor([fate.parent for fate in fates], device=self.policy.base.device)
        self.policy.gather(parents)
        self.learner.gather(parents)
        progress.history.append(
            {
                "stage": self._stage_name,
                "updates": self.stage.updates,
                "values": progress.values,
                "parents": [fate.parent for fate in fates],
                "fitness": [_number(rate) for rate in rates],
            }
        )
        progress.values = {name: [after[m][name] for m in range(members)] for name in progress.values}
        progress.fitness = [
            [_number(rates[m]), _number(fitness[m].low), _number(fitness[m].high)] for m in range(members)
        ]
        if self.stage.evolve and not last:
            progress.condemned = {}
        record = GenerationRecord(
            stage=self._stage_name,
            generation=progress.generation,
            update=progress.update,
            members=[
                MemberGeneration(
                    member=m,
                    fitness=rates[m],
                    low=fitness[m].low,
                    high=fitness[m].high,
                    hyperparameters=before[m],
                    parent=fates[m].parent,
                    event=fates[m].event,
                    next_hyperparameters=after[m],
                    text=_in_words(m, fates[m], [one.rate for one in fitness], condemned[m], before, after),
                    checksum=self.policy.block.checksum(m),
                )
                for m in range(members)
            ],
            seconds=self.seconds,
            policy_tokens=progress.policy_tokens,
            environment_turns=progress.environment_turns,
        )
        progress.generation += 1
        progress.stage_generation += 1
        self.trackers.generation(record)
        self.watch.generation(record)

    # ---- the end ----

    def _result(self) -> dict[str, Any]:
        progress = self.progress
        best = progress.best()  # never chosen on the final tasks
        kept = self.policy.block.data.clone()
        self.policy.block.load(kept[best].expand_as(kept))
        final, episodes = self.player.final(self._final_tasks)
        self.policy.block.load(kept)
        self._send_episodes("final", episodes)
        return {
            "name": self.config.name,
            "seed": self.config.seed,
            "base": progress.base,
            "best": _interval(final)
            | {"member": best, "hyperparameters": {k: v[best] for k, v in progress.values.items()}},
            "gain": _number(
                final.rate - (progress.base["success"] if progress.base["success"] is not None else math.nan)
            ),
            "final_tasks": len(self._final_tasks),
            "held_out": self.tasks.held_out_by,
            "seconds": round(self.seconds, 1),
            "policy_tokens": progress.policy_tokens,
            "environment_turns": progress.environment_turns,
            "generations": progress.generation,
            "updates": progress.update,
            "population": self.policy.members,
            "alarms": progress.alarms,
        }

    def _count(self, episodes: list[Episode], sampled: bool = True) -> None:
        if sampled:
            self.progress.policy_tokens += sum(episode.policy_tokens for episode in episodes)
        self.progress.environment_turns += sum(len(episode.turns) for episode in episodes)

    def _send_episodes(self, split: str, episodes: list[Episode], outcomes: Sequence[float | None] = ()) -> None:
        if self.processes.main and self.config.tracker.episodes:
            given = outcomes or [None] * len(episodes)
            transcripts = [transcript(e, outcome) for e, outcome in zip(episodes, given, strict=True)]
            self.trackers.episodes(self.progress.generation, split, transcripts)


def _interval(success: Success) -> dict[str, Any]:
    return {
        "success": _number(success.rate),
        "low": _number(success.low),
        "high": _number(success.high),
        "episodes": success.episodes,
    }


def _number(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _in_words(
    member: int,
    fate: Fate,
    rates: list[float],
    condemned: str | None,
    before: list[dict[str, Any]],
    after: list[dict[str, Any]],
) -> str:
    """The decision as a sentence; `condemned` is why the member's fitness did not count."""
    own = "no usable fitness" if math.isnan(rates[member]) else f"fitness {rates[member]:.3f}"
    if fate.parent == member:
        reason = f"{condemned}, and {fate.reason}" if condemned else fate.reason
        return f"member {member} ({own}) stays: {reason}"
    reason = condemned or fate.reason
    old, names = before[fate.parent], short_names(sorted(after[member]))
    changes = [
        f"{names[name]} {number(old[name])} to {number(new)}" for name, new in after[member].items() if new != old[name]
    ]
    moved = f"; {', '.join(changes)}" if changes else ""
    donor = f"member {fate.parent} (fitness {rates[fate.parent]:.3f})"
    return f"member {member} ({own}) becomes a copy of {donor}: {reason}{moved}"
