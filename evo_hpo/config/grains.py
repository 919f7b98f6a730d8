"""The grains that the granularity lays down, put into the algorithms of the run."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator

from algorithms.core import Algorithm
from algorithms.policy_gradient import PolicyGradient
from evo_hpo.config.facts import Facts, Violation
from evo_hpo.config.schema import Config
from rewards.granularity import Granularity

GRAINS = ("credit", "ratio", "kl", "aggregation")


def with_grains(config: Config) -> Config:
    """`config` with the grains of its granularity in every algorithm.

    Raises:
        ValueError: an algorithm that means nothing at such a grain; the sentence says what to write instead.
    """
    pipeline = config.pipeline
    stages = {
        name: dataclasses.replace(stage, algorithm=at_grains(stage.algorithm, config.granularity))
        for name, stage in pipeline.stages.items()
    }
    return dataclasses.replace(
        config,
        algorithm=at_grains(config.algorithm, config.granularity),
        pipeline=dataclasses.replace(pipeline, stages=stages),
    )


def at_grains(algorithm: Algorithm, granularity: Granularity) -> Algorithm:
    """`algorithm` with the grains that `granularity` names; only policy gradients have grains."""
    if not isinstance(algorithm, PolicyGradient):
        return algorithm
    changes = {name: getattr(granularity, name) for name in ("ratio", "aggregation") if getattr(granularity, name)}
    if granularity.credit:
        changes["advantage"] = algorithm.advantage.at(granularity.credit)
    if granularity.kl:
        changes["kl"] = dataclasses.replace(algorithm.kl, grain=granularity.kl)
    return dataclasses.replace(algorithm, **changes) if changes else algorithm


def grain_violations(facts: Facts) -> list[str]:
    """One sentence for every stage whose algorithm means nothing at the grain that the granularity lays down."""
    found = []
    granularity = facts.config.granularity
    for stage, algorithm in facts.algorithms.items():
        try:
            at_grains(algorithm, granularity)
        except ValueError as error:
            reason, _, remedy = str(error).partition("; ")
            unfit = [grain for grain in GRAINS if _unfit(algorithm, granularity, grain)]
            free = " and ".join(f"granularity.{grain}=null" for grain in unfit)
            if free:  # what the algorithm itself would rather have cannot help: the granularity overrules it
                remedy = f"{remedy}, or write {free}" if remedy.startswith("use granularity=") else f"write {free}"
            named = facts.named("granularity")
            found.append(f"{named} does not fit the algorithm of stage {stage}: {reason}; {remedy}")
    return found + [str(violation) for violation in _grains_are_said_once(facts)]


def _unfit(algorithm: Algorithm, granularity: Granularity, grain: str) -> bool:
    """Whether the algorithm means nothing at this one of the grains."""
    others = {other: None for other in GRAINS if other != grain}
    try:
        at_grains(algorithm, dataclasses.replace(granularity, **others))  # type: ignore[arg-type]
    except ValueError:
        return True
    return False


def _grains_are_said_once(facts: Facts) -> Iterator[Violation]:
    keys = {"credit": "advantage.credit", "ratio": "ratio", "kl": "kl.grain", "aggregation": "aggregation"}
    for grain, key in keys.items():
        laid_down = getattr(facts.config.granularity, grain)
        written = facts.provenance.get(f"algorithm.{key}", "")
        if laid_down and written.startswith("override ") and not written.endswith(f"={laid_down}"):
            yield Violation(
                f"{written} does nothing, because {facts.named('granularity')} lays down {laid_down}",
                f"leave it out, or write granularity.{grain}=null",
            )
