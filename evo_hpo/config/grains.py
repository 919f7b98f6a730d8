"""The grains that the granularity lays down, put into the algorithms of the run."""

from __future__ import annotations

import dataclasses

from algorithms.core import Algorithm
from algorithms.policy_gradient import PolicyGradient
from evo_hpo.config.schema import Config
from rewards.granularity import Granularity


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
