"""Simulated populations: learners without a language model whose best learning rate changes while they learn.

Each member has a skill. A generation adds `gain` less the squared distance of its log learning rate from the present
optimum, and training noise. On task t it succeeds with probability sigmoid(skill - difficulty of t); the noise is
common to all members. The strategies are the real ones, called as the runtime calls them.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from evo_hpo.config.schema import Dimension
from evo_hpo.evolution.space import spread
from evo_hpo.evolution.strategies import Past, Standing, Strategy, Values

RATE, INERT = "rate", "inert"
SPACE = {  # as wide as the default space: from a tenth to ten times the config's own value
    RATE: Dimension("float", low=1e-5, high=1e-3, log=True),
    INERT: Dimension("float", low=0.7, high=1.3),  # a hyperparameter that does nothing, as many do
}
OWN: Values = {RATE: 1e-4, INERT: 1.0}


@dataclass(frozen=True)
class Problem:
    """A kind of training. Distances are in the logarithm of the learning rate, skills in log odds."""

    members: int = 8
    generations: int = 12
    tasks: int = 64  # episodes of evaluation per member and generation, those played again included
    noisy: bool = True  # whether an episode succeeds or fails; else every result is its probability
    gain: float = 0.35  # skill that the best learning rate adds in a generation
    width: float = 1.5  # distance from the optimum at which nothing is learned
    first: tuple[float, float] = (0.5, 1.8)  # range of the distance of the first optimum from the middle of the space
    drift: float = 2.6  # how far the optimum moves until the end, towards the other side
    jitter: float = 0.1  # standard deviation of what a generation of training adds by chance
    uneven: float = 0.0  # how much noisier the training of one member is than that of another (in the logarithm)
    settling: float = 0.0  # what a low learning rate adds to the skill that shows, at once and only while it is low


@dataclass(frozen=True)
class Outcome:
    """What one population came to."""

    chosen: float  # true skill of the member that did best in the last evaluation
    best: float  # true skill of the best member
    episodes: int  # of evaluation, over all generations
    replaced: int  # slots that changed hands


class Evaluation:
    """Plays the common tasks of one generation; every call has new noise, which is common to the members."""

    def __init__(self, chance: NDArray[np.float64], noisy: bool, seed: list[int]) -> None:
        self.chance, self.noisy, self.seed = chance, noisy, seed
        self.calls = self.episodes = 0

    def __call__(self, members: Sequence[int]) -> list[list[float]]:
        chance = self.chance[list(members)]
        self.calls += 1
        self.episodes += chance.size
        if not self.noisy:
            return chance.tolist()
        noise = np.random.default_rng([*self.seed, self.calls]).random(chance.shape[1])
        return (noise < chance).astype(float).tolist()


def play(problem: Problem, strategy: Strategy, seed: int, extra: float = 0.0) -> Outcome:
    """One population, from the first generation to the choice of a member.

    Args:
        seed: of everything but the strategy's own draws, so that strategies compare pairwise: first values,
            difficulties, optimum, the noise of training and evaluation.
        extra: evaluation that the strategy may spend on top, as a multiple of one evaluation of all; the common tasks
            are so many fewer that the total never exceeds the problem's.
    """
    members, world = problem.members, np.random.default_rng([seed, 1])
    own = np.random.default_rng([seed, 2])
    tasks = int(problem.tasks / (1 + extra))
    difficulty = world.normal(0.0, 1.5, problem.tasks)[:tasks]
    side = world.choice([-1, 1])
    start = math.log(OWN[RATE]) + side * world.uniform(*problem.first)
    roughness = problem.jitter * np.exp(problem.uneven * world.normal(size=members))
    accidents = world.normal(size=(problem.generations, members)) * roughness
    skill = np.full(members, -1.5)
    columns = spread(SPACE, OWN, members, seed)
    values: list[Values] = [{name: column[m] for name, column in columns.items()} for m in range(members)]
    past: list[Past] = []
    episodes = replaced = 0
    for generation in range(problem.generations):
        optimum = start - side * problem.drift * generation / max(problem.generations - 1, 1)
        distance = np.array([math.log(one[RATE]) for one in values]) - optimum
        growth = problem.gain * np.maximum(1 - (distance / problem.width) ** 2, -2.0)
        skill = skill + growth + accidents[generation]
        shown = skill - problem.settling * np.array([math.log(one[RATE] / OWN[RATE]) for one in values])
        chance = 1 / (1 + np.exp(difficulty - shown[:, None]))
        evaluate = Evaluation(chance, problem.noisy, [seed, 3, generation])
        results = evaluate(range(members))
        fitness = [float(np.mean(one)) for one in results]
        last = generation == problem.generations - 1
        if not last:
            standing = Standing.of(
                fitness,
                generation=generation,
                generations=problem.generations,
                results=results,
                values=values,
                space=SPACE,
                past=past,
                evaluate=evaluate,
            )
            fates = strategy.select(standing, own)
            taken = [dict(values[fate.parent] if fate.values is None else fate.values) for fate in fates]
            explored = strategy.explore(
                {m: taken[m] for m, fate in enumerate(fates) if fate.explore}, standing, lambda m: own
            )
            if past:
                past[-1] = Past(past[-1].fitness, past[-1].values, past[-1].parents, past[-1].events)
            past.append(Past(fitness, values, [f.parent for f in fates], [f.event for f in fates], results))
            values = [explored.get(m, one) for m, one in enumerate(taken)]
            skill = skill[[fate.parent for fate in fates]]
            replaced += sum(fate.parent != m for m, fate in enumerate(fates))
        episodes += evaluate.episodes
    best = np.flatnonzero(np.array(fitness) == max(fitness))
    return Outcome(float(shown[own.choice(best)]), float(shown.max()), episodes, replaced)
