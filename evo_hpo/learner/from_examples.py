"""An update from demonstrations: supervised fine-tuning."""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.aggregation import token_weights
from algorithms.supervised import Supervised, example_weights
from evo_hpo.learner.batch import Batch
from evo_hpo.learner.diagnostics import Trace
from evo_hpo.learner.optimizer import PopulationAdamW
from evo_hpo.learner.passes import Passes, cut
from evo_hpo.policy.sampling import Sampling


def learn(
    passes: Passes,
    optimizer: PopulationAdamW,
    batch: Batch,
    algorithm: Supervised,
    sampling: Sampling,
    update: int,
) -> dict[str, Tensor]:
    """One step on all rows; name -> [N] metrics."""
    trace = Trace(batch, batch.members, passes.processes, critic=False)
    weight_RT = example_weights(algorithm, batch.turns, batch.tokens) * token_weights(
        algorithm.aggregation,
        batch.tokens.mask_RT,
        batch.tokens.member_R,
        batch.members,
        algorithm.aggregation_constant,
        turn_RT=batch.tokens.turn_RT,
        group_R=batch.group_R,
    )
    rows = next(passes.minibatches(batch, 1, (update, 0)))

    def loss_of(part: Tensor, width: int) -> Tensor:
        tokens = cut(batch.tokens, part, width)
        logprob_RT, entropy_RT = passes.policy.logprobs(
            batch.ids_RT[part, :width], tokens.mask_RT, sampling.rows(tokens.member_R)
        )
        loss_R = (-torch.where(tokens.mask_RT, logprob_RT, 0.0) * weight_RT[part, :width]).sum(1)
        trace.supervised(part, width, loss_R, logprob_RT, entropy_RT)
        return loss_R

    finite_N = passes.gradient("policy", rows, batch, loss_of, passes.all_finite())
    rate = min(1.0, (update + 1) / algorithm.warmup) if algorithm.warmup else 1.0
    trace.step("policy", *passes.step(optimizer, algorithm.optimizer, rows, batch, finite_N, rate))
    return trace.metrics()
