"""What `benchmarks/algorithms.py` compares: presets, and pairs of runs that published orderings are about."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass

from evo_hpo.config import paths
from evo_hpo.config.compose import compose

ENVIRONMENTS = ("frozen_lake", "guess_number")
MAIN = (
    "reinforce_pp",
    "loop_token",
    "loop_turn",
    "grpo",
    "dr_grpo",
    "gspo",
    "cispo",
    "ppo",
    "turn_ppo",
    "mt_ppo",
    "gigpo",
    "sampo",
)
# An expert plays the turns of sft, and scorers are no agents: equal turns would mean nothing.
NOT_FROM_ROLLOUTS = ("sft", "reward_model", "progress_model")
STALE = "rollout.ahead=5"  # the episodes of five updates are sampled at once: ages 0 to 4


@dataclass(frozen=True)
class Run:
    """One population that is trained until its members have played `turns` turns each, on average."""

    env: str
    overrides: tuple[str, ...]  # what makes it itself
    seeds: int  # members of the population
    turns: int  # 0: the base is measured
    final_tasks: int

    @property
    def settings(self) -> list[str]:
        """All overrides: no selection, no mutation, one thread, nothing recorded."""
        return [
            "evolution=none",
            f"evolution.population={self.seeds}",
            f"evaluation.final_tasks={self.final_tasks}",
            "device=cpu",
            "threads=1",
            "tracker=off",
            f"env={self.env}",
            *self.overrides,
        ]

    @property
    def file_name(self) -> str:
        """Alike for runs that are composed to the same values, however their overrides say it.

        Raises:
            ConfigError: an override names something that does not exist.
        """
        composed = compose(self.settings)
        content = json.dumps([composed.values, self.turns], sort_keys=True, default=str)
        digest = hashlib.sha256(content.encode()).hexdigest()[:16]
        return f"{self.env}-{composed.choices['algorithm']}-{digest}.json"


@dataclass(frozen=True)
class Ordering:
    """A published claim that one choice beats another, and two runs that differ in nothing else."""

    title: str
    better: tuple[str, ...]  # overrides of what is said to be better
    worse: tuple[str, ...]
    published: str  # who says so, and what others say
    environments: tuple[str, ...] = ENVIRONMENTS


ORDERINGS = (
    Ordering(
        "GRPO without division by the group's spread > with it",
        ("algorithm=grpo", "algorithm.advantage.normalisation.spread=none"),
        ("algorithm=grpo", "algorithm.advantage.normalisation.spread=group"),
        "LOOP (arXiv:2502.01600): 71.3 % of AppWorld's tasks without, 61.9 % with, one run each; Dr. GRPO "
        "(arXiv:2503.20783): the division makes easy and hard tasks weigh more",
    ),
    Ordering(
        "stale rollouts, ratio per turn (geometric) > per token",
        ("algorithm=grpo", STALE, "algorithm.ratio=turn_geometric"),
        ("algorithm=grpo", STALE, "algorithm.ratio=token"),
        "SORL (arXiv:2511.20718) names ratios per token as a cause of collapse with off-policy data; LOOP "
        "(arXiv:2502.01600), with products instead of geometric means, puts the token first: 66.4 ± 4.8 % against "
        "61.7 % over 3 runs",
    ),
    Ordering(
        "stale rollouts, sequence clip (GSPO) > CISPO",
        ("algorithm=gspo", STALE),
        ("algorithm=cispo", STALE, "algorithm.aggregation=sequence_mean_token_mean"),  # aggregated as GSPO is
        "ARLArena (arXiv:2602.21534): CISPO collapses near step 130, a sequence clip does not",
    ),
    Ordering(
        "GiGPO > GRPO where states repeat",
        ("algorithm=gigpo",),
        # GiGPO's aggregation and its unit of the advantage, so that only the comparison of turns is missing
        ("algorithm=grpo", "algorithm.advantage.normalisation.spread=none", "algorithm.aggregation=token_mean"),
        "GiGPO (arXiv:2505.10978): more than 12 points ahead on ALFWorld, more than 9 on WebShop",
        ("frozen_lake",),
    ),
    Ordering(
        "PPO with turn rewards (mixed) > with the outcome alone (sparse)",
        ("algorithm=ppo", "granularity=mixed"),
        ("algorithm=ppo", "granularity=sparse"),
        "A practitioner's guide (arXiv:2510.01132): PPO gains most from dense rewards; MT-PPO (arXiv:2505.11821): "
        "exact match 0.447 with turn rewards, 0.432 without",
    ),
)


@dataclass(frozen=True)
class Plan:
    """Which runs there are. The other presets run in the first environment only."""

    main: tuple[str, ...]
    short: tuple[str, ...]
    orderings: tuple[Ordering, ...]
    environments: tuple[str, ...]
    turns: int
    seeds: int
    short_seeds: int
    final_tasks: int

    def base(self, env: str) -> Run:
        """The untrained base plays every final task as often as the members of a run do together."""
        return Run(env, (f"evaluation.repeats={self.seeds}",), 1, 0, self.final_tasks)

    def preset(self, name: str, env: str) -> Run:
        return self._run(env, f"algorithm={name}")

    def in_short(self, name: str) -> Run:
        return Run(self.environments[0], (f"algorithm={name}",), self.short_seeds, self.turns, self.final_tasks)

    def pairs(self) -> list[tuple[Ordering, str, Run, Run]]:
        """(ordering, environment, the run said to be better, the other)."""
        return [
            (ordering, env, self._run(env, *ordering.better), self._run(env, *ordering.worse))
            for ordering in self.orderings
            for env in ordering.environments
            if env in self.environments
        ]

    def runs(self) -> list[Run]:
        """Everything, large runs of both environments first: the time that is left is told from the time they took."""
        main = [self.preset(name, env) for name in self.main for env in self.environments]
        pairs = [run for _, _, better, worse in self.pairs() for run in (better, worse)]
        short = [self.in_short(name) for name in self.short]
        return main + pairs + short + [self.base(env) for env in self.environments]

    def _run(self, env: str, *overrides: str) -> Run:
        return Run(env, overrides, self.seeds, self.turns, self.final_tasks)


def full(turns: int | None) -> Plan:
    """The benchmark: about half an hour on two idle cores with 6,000 turns a member."""
    presets = sorted(path.stem for path in (paths.conf() / "algorithm").glob("*.yaml"))
    short = tuple(name for name in presets if name not in (*MAIN, *NOT_FROM_ROLLOUTS))
    return Plan(MAIN, short, ORDERINGS, ENVIRONMENTS, turns or 6000, seeds=5, short_seeds=2, final_tasks=128)


def quick(turns: int | None) -> Plan:
    """Three presets and one ordering, so small that nothing can be concluded."""
    return Plan(
        ("grpo", "ppo"), ("gspo",), ORDERINGS[:1], ENVIRONMENTS[:1], turns or 20, seeds=2, short_seeds=1, final_tasks=8
    )
