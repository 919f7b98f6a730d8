"""What `benchmarks/rewards.py` compares: rewards, each with four algorithms, and the scorers that two of them need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.algorithms_plan import ENVIRONMENTS, Run

ALGORITHMS = ("ppo", "grpo", "cispo", "gigpo")
POINTS = 4  # of a learning curve, after the one at the start
SCORERS = ("progress_model", "reward_model")


@dataclass(frozen=True)
class Choice:
    """A reward as it is compared, with the granularity that goes with it."""

    name: str
    overrides: tuple[str, ...]
    about: str
    scorer: str | None = None  # algorithm that trains what it scores with
    proxy: bool = False  # it stands for success and is not success: its over-optimisation is looked for
    environments: tuple[str, ...] = ENVIRONMENTS

    def of(self, scorers: Path, env: str) -> tuple[str, ...]:
        """All overrides; `scorers` holds a folder per environment and scorer."""
        path = () if self.scorer is None else (f"reward.path={scorers / env / self.scorer}",)
        return (*self.overrides, *path)


CHOICES = (
    Choice("outcome", ("granularity=sparse",), "success, paid at the end: `granularity=sparse`"),
    Choice("turn rewards", ("granularity=mixed",), "the environment's turn rewards and success: `granularity=mixed`"),
    Choice(
        "composite",
        (
            "granularity=sparse",
            "reward=composite",
            "+reward@reward.parts.efficiency=efficiency",
            "+reward.weights.efficiency=0.2",
            "+reward@reward.parts.format=format",
            "+reward.weights.format=0.1",
        ),
        "success + 0.2 × efficiency + 0.1 × format, paid at the end: `reward=composite granularity=sparse`",
    ),
    Choice(
        "reward model",
        ("granularity=sparse", "reward=reward_model"),
        "what a reward model thinks of the episode, paid at the end: `reward=reward_model granularity=sparse`",
        scorer="reward_model",
        proxy=True,
    ),
    Choice(
        "SPA",
        ("granularity=dense", "reward=spa"),
        "the contributions that a progress model sees, and 0.5 for each turn that could be done, as in the paper; "
        "without the outcome: `reward=spa granularity=dense`",
        scorer="progress_model",
        proxy=True,
    ),
    Choice(
        "SPA, no bonus",
        ("granularity=dense", "reward=spa", "reward.valid_bonus=0"),
        "the contributions alone: `reward=spa reward.valid_bonus=0 granularity=dense`",
        scorer="progress_model",
        proxy=True,
    ),
    Choice(
        "information gain",
        ("granularity=mixed", "reward=information_gain"),
        "how much likelier each turn made the right answer, and success: `reward=information_gain granularity=mixed`; "
        "only where the environment has an answer",
        proxy=True,
        environments=("guess_number",),
    ),
)


@dataclass(frozen=True)
class ScorerPlan:
    """How the scorers are trained, once per environment, before anything that uses them."""

    groups: int  # of 8 episodes of the base, from which preference pairs are made
    generations: int
    members: int

    @property
    def shared(self) -> list[str]:
        return ["device=cpu", "threads=1", "tracker=off"]

    def base(self, env: str) -> list[str]:
        """A run that plays the base, learns next to nothing, and keeps all transcripts."""
        return [
            *self.shared,
            f"env={env}",
            "granularity=sparse",
            "evolution=none",
            "algorithm=grpo",
            "algorithm.optimizer.learning_rate=1e-9",
            "rollout.group_size=8",
            "rollout.tasks=8",
            "evaluation.tasks=1",
            "evaluation.final_tasks=1",
            "pipeline.stages.train.generations=1",
            f"pipeline.stages.train.updates={max(1, self.groups // 8)}",
            f"tracker.episodes={self.groups * 8}",
        ]

    def training(self, env: str, scorer: str, pairs: Path) -> list[str]:
        """A run that trains a scorer: a population, whose best member on held-out data is kept."""
        data = [f"algorithm.data={pairs}"] if scorer == "reward_model" else ["granularity=sparse"]
        return [
            *self.shared,
            f"env={env}",
            f"algorithm={scorer}",
            f"evolution.population={self.members}",
            f"pipeline.stages.train.generations={self.generations}",
            *data,
        ]


@dataclass(frozen=True)
class Plan:
    """Which runs there are."""

    algorithms: tuple[str, ...]
    choices: tuple[Choice, ...]
    environments: tuple[str, ...]
    scorers: ScorerPlan
    turns: int
    seeds: int
    final_tasks: int

    def base(self, env: str) -> Run:
        """The untrained base plays every final task as often as the members of a run do together."""
        return Run(env, (f"evaluation.repeats={self.seeds}",), 1, 0, self.final_tasks)

    def run(self, choice: Choice, algorithm: str, env: str, scorers: Path) -> Run:
        overrides = (f"algorithm={algorithm}", *choice.of(scorers, env))
        return Run(env, overrides, self.seeds, self.turns, self.final_tasks)

    def cells(self) -> list[tuple[str, Choice, str]]:
        """(environment, choice, algorithm) of every run that trains."""
        return [
            (env, choice, algorithm)
            for env in self.environments
            for choice in self.choices
            if env in choice.environments
            for algorithm in self.algorithms
        ]

    def needed(self) -> list[tuple[str, str]]:
        """(environment, scorer) of every scorer that a choice asks for."""
        kinds = [kind for kind in SCORERS if any(choice.scorer == kind for choice in self.choices)]
        return [(env, kind) for env in self.environments for kind in kinds]


def full(turns: int | None, environments: Sequence[str] = ()) -> Plan:
    """The benchmark, in all environments or in some."""
    scorers = ScorerPlan(groups=160, generations=6, members=4)
    return Plan(
        ALGORITHMS, CHOICES, tuple(environments) or ENVIRONMENTS, scorers, turns or 3000, seeds=5, final_tasks=128
    )


def quick(turns: int | None, environments: Sequence[str] = ()) -> Plan:
    """Two rewards and one algorithm, so small that nothing can be concluded."""
    scorers = ScorerPlan(groups=24, generations=1, members=1)
    chosen = tuple(choice for choice in CHOICES if choice.name in ("outcome", "reward model"))
    chosen_environments = tuple(environments) or ("guess_number",)
    return Plan(("grpo",), chosen, chosen_environments, scorers, turns or 60, seeds=2, final_tasks=8)
