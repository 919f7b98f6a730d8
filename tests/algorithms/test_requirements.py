"""Each requirement between the axes: what breaks it is refused with the reason and what to write instead."""

from __future__ import annotations

from typing import Any

import pytest

from algorithms.advantages import Decoupled
from algorithms.corrections import DecoupledPPO, SequenceMask, TruncatedIS
from algorithms.critic import Critic
from algorithms.objectives import DPPO, SAPO, Unclipped
from algorithms.requirements import REQUIREMENTS
from tests.algorithms.estimators import TOKEN_PPO, Z_SCORE
from tests.algorithms.parts import ADAMW, kl, policy_gradient

CRITIC = Critic(value_clip=0.2, optimizer=ADAMW)
DECOUPLED = DecoupledPPO(cap=5.0, action="mask")
BROKEN: dict[str, tuple[dict[str, Any], str]] = {
    "an estimator that reads values has a critic": (
        {"advantage": TOKEN_PPO},
        "GAE compares with the values of a critic.*write algorithm/critic=adapter",
    ),
    "a critic has a reader": ({"critic": CRITIC}, "GroupRelative reads no values.*write ~algorithm/critic"),
    "a second step from the same episodes has a ratio": (
        {"objective": Unclipped(), "minibatches": 2},
        "Unclipped uses no ratio.*write algorithm.epochs=1 and algorithm.minibatches=1",
    ),
    "the objective is defined for the grain of the ratio": (
        {"objective": DPPO(threshold=0.2, divergence="tv"), "ratio": "turn_geometric"},
        "DPPO is defined for ratio=token, not for ratio=turn_geometric",
    ),
    "the ratio of a sequence is not summed over its tokens": (
        {"ratio": "sequence_geometric", "aggregation": "constant"},
        "not GSPO; write algorithm.aggregation=sequence_mean_token_mean",
    ),
    "a correction has a difference to correct": (
        {"correction": TruncatedIS(cap=2.0, level="token")},
        "TruncatedIS would correct twice; write algorithm.old_logprobs=recompute",
    ),
    "SAPO is not decoupled": (
        {
            "objective": SAPO(tau_positive=1.0, tau_negative=1.05),
            "correction": DECOUPLED,
            "old_logprobs": "recompute",
        },
        "leave algorithm/correction out, or write algorithm/objective=clipped",
    ),
    "a sequence mask has a drift to look at": (
        {"objective": Unclipped(), "sequence_mask": SequenceMask(delta=0.2)},
        "no drift to look at; write algorithm.sequence_mask=null",
    ),
    "what is taken from the reward has a reader": (
        {
            "advantage": Decoupled(weights={"success": 1.0}, normalisation=Z_SCORE),
            "kl": kl(estimator="k1", place="reward"),
        },
        "Decoupled reads the components.*write algorithm.kl.place=loss",
    ),
}


def test_every_requirement_is_broken_here() -> None:
    assert set(BROKEN) == set(REQUIREMENTS)


@pytest.mark.parametrize("requirement", list(BROKEN))
def test_what_breaks_a_requirement_is_refused(requirement: str) -> None:
    changes, sentence = BROKEN[requirement]
    with pytest.raises(ValueError, match=sentence):
        policy_gradient(**changes)


@pytest.mark.parametrize("ratio", ["sequence_geometric", "sequence_product", "sequence_token"])
@pytest.mark.parametrize("aggregation", ["constant", "sequence_mean_token_sum"])
def test_no_sequence_ratio_goes_with_a_sum_over_tokens(ratio: str, aggregation: str) -> None:
    with pytest.raises(ValueError, match="not GSPO"):
        policy_gradient(ratio=ratio, aggregation=aggregation)


def test_a_legal_choice_on_every_axis_is_accepted() -> None:
    policy_gradient(advantage=TOKEN_PPO, critic=CRITIC, correction=DECOUPLED, old_logprobs="recompute", minibatches=4)
