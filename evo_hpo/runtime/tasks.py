"""Which tasks are for training, which for fitness, which for the result; they never overlap.

A task belongs to a part by its identity (`Environment.task_key`, say the map, else its seed), so that two seeds that make
the same map cannot put it into training and into the test.
"""

from __future__ import annotations

from typing import Literal

from envs.core import Environment
from evo_hpo.policy.noise import generator, key
from evo_hpo.rollout.pool import EnvironmentPool

Part = Literal["train", "fitness", "final"]
ATTEMPTS = 200  # candidates per wanted task


class Tasks:
    """Draws task seeds of each part.

    Args:
        held_out: share of tasks kept from training; half of it is for fitness, half for the result.
        seed: of the run; it decides the order of training tasks. Held-out tasks are the same in every run.
    """

    def __init__(self, environment: Environment, held_out: float, seed: int, pool: EnvironmentPool) -> None:
        self.environment, self.held_out, self.seed, self.pool = environment, held_out, seed, pool

    def training(self, update: int, count: int) -> list[int]:
        """The tasks of one update, the same for every member."""
        return self._draw("train", count, ("train", self.seed, update))

    def of(self, part: Literal["fitness", "final"], count: int) -> list[int]:
        return self._draw(part, count, (part,))

    def _draw(self, part: Part, count: int, purpose: tuple[object, ...]) -> list[int]:
        rng = generator("tasks", *purpose)
        found: list[int] = []
        tried = 0
        while len(found) < count:
            missing = count - len(found)
            candidates = [int(seed) for seed in rng.integers(2**31, size=max(8, int(missing / self._share(part) * 1.2)))]
            tried += len(candidates)
            for seed, identity in zip(candidates, self._identities(candidates), strict=True):
                if identity is not None and self._part(identity) == part and len(found) < count:
                    found.append(seed)
            if tried > ATTEMPTS * count / self._share(part) and len(found) < count:
                raise ValueError(
                    f"only {len(found)} of {count} tasks for {part} were found among {tried} seeds; the environment has too few "
                    "distinct tasks (or its reset fails): raise evaluation.held_out, or make the environment more varied"
                )
        return found

    def _identities(self, seeds: list[int]) -> list[str | None]:
        outcomes = self.pool.run([lambda seed=seed: _identity(self.environment, seed) for seed in seeds])  # type: ignore[misc]
        # a task whose reset fails is still a task: the episode that plays it will be counted as failed
        return [outcome.value if outcome.value is not None else f"seed {seed}" for seed, outcome in zip(seeds, outcomes, strict=True)]

    def _share(self, part: Part) -> float:
        return 1 - self.held_out if part == "train" else self.held_out / 2

    def _part(self, identity: str) -> Part:
        place = key("part", identity) / 2**64
        if place < self.held_out / 2:
            return "fitness"
        return "final" if place < self.held_out else "train"


def _identity(environment: Environment, seed: int) -> str:
    fresh = environment.fresh()
    fresh.reset(seed)
    return fresh.task_key() or f"seed {seed}"
