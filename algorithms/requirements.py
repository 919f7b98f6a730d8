"""What must hold between the axes of a policy-gradient algorithm. A new requirement is one function and one row."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from algorithms.corrections import DecoupledPPO
from algorithms.objectives import SAPO, Unclipped

if TYPE_CHECKING:
    from algorithms.policy_gradient import PolicyGradient


def _values_have_a_critic(algorithm: PolicyGradient) -> str | None:
    if not algorithm.advantage.needs_values or algorithm.critic is not None:
        return None
    name = type(algorithm.advantage).__name__
    return f"{name} compares with the values of a critic, and there is none; write algorithm/critic=adapter"


def _a_critic_is_read(algorithm: PolicyGradient) -> str | None:
    if algorithm.critic is None or algorithm.advantage.needs_values:
        return None
    name = type(algorithm.advantage).__name__
    return f"{name} reads no values, so the critic would train for nothing; write ~algorithm/critic"


def _a_second_step_has_a_ratio(algorithm: PolicyGradient) -> str | None:
    if algorithm.objective.off_policy or float(torch.as_tensor(algorithm.epochs).max()) * algorithm.minibatches == 1:
        return None
    name = type(algorithm.objective).__name__
    return (
        f"{name} uses no ratio, so a step after the first is off-policy; write algorithm.epochs=1 and "
        "algorithm.minibatches=1, or algorithm/objective=clipped"
    )


def _the_objective_knows_the_ratio(algorithm: PolicyGradient) -> str | None:
    if algorithm.ratio in algorithm.objective.grains:
        return None
    grains = " or ".join(algorithm.objective.grains)
    return (
        f"{type(algorithm.objective).__name__} is defined for ratio={grains}, not for ratio={algorithm.ratio}; "
        f"write algorithm.ratio={algorithm.objective.grains[0]}, or algorithm/objective=clipped"
    )


def _a_sequence_ratio_is_not_summed_over_tokens(algorithm: PolicyGradient) -> str | None:
    sums = ("sequence_mean_token_sum", "constant")
    ignored = isinstance(algorithm.objective, Unclipped)
    if ignored or not algorithm.ratio.startswith("sequence") or algorithm.aggregation not in sums:
        return None
    return (
        f"aggregation={algorithm.aggregation} counts the one ratio of a sequence (ratio={algorithm.ratio}) once per "
        "token, which is not GSPO; write algorithm.aggregation=sequence_mean_token_mean, or algorithm.ratio=token"
    )


def _a_correction_has_something_to_correct(algorithm: PolicyGradient) -> str | None:
    if algorithm.correction is None or algorithm.old_logprobs == "recompute":
        return None
    return (
        f"old_logprobs=sampler takes the ratio against the sampler itself, so {type(algorithm.correction).__name__} "
        "would correct twice; write algorithm.old_logprobs=recompute, or leave algorithm/correction out"
    )


def _sapo_is_not_decoupled(algorithm: PolicyGradient) -> str | None:
    if not (isinstance(algorithm.objective, SAPO) and isinstance(algorithm.correction, DecoupledPPO)):
        return None
    return (
        "SAPO bounds nothing that a decoupled weight could multiply safely; leave algorithm/correction out, or write "
        "algorithm/objective=clipped"
    )


def _stale_data_is_reweighed(algorithm: PolicyGradient) -> str | None:
    if algorithm.sequence_mask is None or algorithm.objective.off_policy:
        return None
    name = type(algorithm.objective).__name__
    return (
        f"{name} makes one step from fresh episodes, so sequence_mask has no drift to look at; write "
        "algorithm.sequence_mask=null, or algorithm/objective=clipped"
    )


def _penalties_have_a_reader(algorithm: PolicyGradient) -> str | None:
    if algorithm.advantage.reads_rewards or (algorithm.kl.place != "reward" and algorithm.overlong is None):
        return None
    name = type(algorithm.advantage).__name__
    return (
        f"{name} reads the components of the score and not the reward, from which kl.place=reward and overlong take "
        "their penalties; write algorithm.kl.place=loss and algorithm.overlong=null"
    )


# What must hold -> the sentence where it does not.
REQUIREMENTS: dict[str, Callable[[PolicyGradient], str | None]] = {
    "an estimator that reads values has a critic": _values_have_a_critic,
    "a critic has a reader": _a_critic_is_read,
    "a second step from the same episodes has a ratio": _a_second_step_has_a_ratio,
    "the objective is defined for the grain of the ratio": _the_objective_knows_the_ratio,
    "the ratio of a sequence is not summed over its tokens": _a_sequence_ratio_is_not_summed_over_tokens,
    "a correction has a difference to correct": _a_correction_has_something_to_correct,
    "SAPO is not decoupled": _sapo_is_not_decoupled,
    "a sequence mask has a drift to look at": _stale_data_is_reweighed,
    "what is taken from the reward has a reader": _penalties_have_a_reader,
}
