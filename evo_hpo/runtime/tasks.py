"""Which tasks are for training, which for fitness, which for the result; they never overlap.

A task belongs to a part by its identity (`Environment.task_key`, say the map, else its seed), so that two seeds that
make the same map cannot put it into training and into the test. Held-out tasks are distinct, or a frequent easy one
would decide the measurement; training tasks come as often as the environment makes them.
"""

from __future__ import annotations

from typing import Literal

from envs.core import Environment
from evo_hpo.config.errors import UserError
from evo_hpo.policy.noise import generator, key
from evo_hpo.rollout.pool import EnvironmentPool

Part = Literal["train", "fitness", "final"]
PARTS = {"train": "training", "fitness": "measuring fitness", "final": "the result"}
PATIENCE = 200  # candidates that bring no task of a part, in units of what one takes on average: a chance of e^-200
TRIES = 16  # resets of which at least one must work before more are tried


class Tasks:
    """Draws task seeds of each part.

    Args:
        held_out: share of tasks kept from training; half of it is for fitness, half for the result.
        seed: of the run; it decides the order of training tasks. Held-out tasks are the same in every run.
    """

    def __init__(self, environment: Environment, held_out: float, seed: int, pool: EnvironmentPool) -> None:
        self.environment, self.held_out, self.seed, self.pool = environment, held_out, seed, pool
        self._resets_work = False

    @property
    def held_out_by(self) -> str:
        """What the final set shares with no other: `tasks`, or only `seeds`, which may make the same task twice."""
        return "seeds" if type(self.environment).task_key is Environment.task_key else "tasks"

    def training(self, update: int, count: int, again: int = 0) -> list[int]:
        """The tasks of one update, the same for every member; `again` counts further draws for the same update."""
        return self._draw("train", count, ("train", self.seed, update, *([again] if again else [])))

    def of(self, part: Literal["fitness", "final"], count: int) -> list[int]:
        return self._draw(part, count, (part,))

    def _draw(self, part: Part, count: int, purpose: tuple[object, ...]) -> list[int]:
        rng = generator("tasks", *purpose)
        found: list[int] = []
        taken: set[str] = set()
        tried = fruitless = 0
        while len(found) < count:
            missing = count - len(found)
            candidates = [
                int(seed) for seed in rng.integers(2**31, size=max(8, int(missing / self._share(part) * 1.2)))
            ]
            for seed, identity in zip(candidates, self._identities(candidates), strict=True):
                if len(found) == count:
                    break
                fruitless += 1
                if self._part(identity) == part and (part == "train" or identity not in taken):
                    taken.add(identity)
                    found.append(seed)
                    fruitless = 0
            tried += len(candidates)
            if len(found) < count and fruitless > PATIENCE / self._share(part):
                raise UserError(
                    f"only {len(found)} of {count} tasks for {PARTS[part]} were found among {tried} seeds, because "
                    f"{type(self.environment).__name__} has too few distinct tasks to keep some from training; "
                    "use an environment whose tasks vary more, raise evaluation.held_out, or ask for fewer tasks"
                )
        return found

    def _identities(self, seeds: list[int]) -> list[str]:
        if self.held_out_by == "seeds":
            return [_by_seed(seed) for seed in seeds]
        identities: list[str] = []
        for start in range(0, len(seeds), TRIES):
            part = seeds[start : start + TRIES]
            outcomes = self.pool.run([lambda seed=seed: _identity(self.environment, seed) for seed in part])  # type: ignore[misc]
            self._resets_work = self._resets_work or any(outcome.value for outcome in outcomes)
            if not self._resets_work and len(part) == TRIES:
                name = type(self.environment).__name__
                raise UserError(f"not one of {TRIES} resets of {name} worked: {outcomes[0].complaint}")
            # a task whose reset fails is still a task: the episode that plays it will be counted as failed
            identities += [outcome.value or _by_seed(seed) for seed, outcome in zip(part, outcomes, strict=True)]
        return identities

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
    return fresh.task_key() or _by_seed(seed)


def _by_seed(seed: int) -> str:
    return f"seed {seed}"
