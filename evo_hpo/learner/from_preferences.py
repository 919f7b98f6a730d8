"""An update from pairs of episodes: DPO.

The two episodes of a pair may fall into different micro-batches. So the scores of all episodes are computed first; the
loss of the pairs then gives each score a coefficient, and the gradient of coefficient times score is that of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.preference import Preference, pairs
from evo_hpo.learner.batch import Batch
from evo_hpo.learner.diagnostics import Trace
from evo_hpo.learner.optimizer import PopulationAdamW
from evo_hpo.learner.passes import Passes, cut
from evo_hpo.policy.sampling import Sampling


def learn(
    passes: Passes,
    optimizer: PopulationAdamW,
    batch: Batch,
    algorithm: Preference,
    sampling: Sampling,
    update: int,
) -> dict[str, Tensor]:
    """`epochs` steps on the pairs that the groups give; name -> [N] metrics.

    Episodes outside every pair have no gradient. `pairs` is how many there were, `preference_accuracy` the share in
    which the better episode had the higher implicit reward, `margin` the mean difference of implicit rewards and
    `chosen_logprob` the mean log-ratio of the better episode to the reference (it may fall while the margin grows).
    """
    tokens, members = batch.tokens, batch.members
    trace = Trace(batch, members, passes.processes, critic=False)
    reference_RT = passes.logprobs("reference", batch, sampling)[0]
    chosen_Q, rejected_Q = (batch.row_E[episode_Q] for episode_Q in pairs(batch.turns))
    member_Q = tokens.member_R[chosen_Q]
    beta = algorithm.beta
    beta_Q = beta[member_Q] if isinstance(beta, Tensor) and beta.ndim else beta
    zeros = torch.zeros(members, device=batch.ids_RT.device)
    count_N = zeros.index_add(0, member_Q, torch.ones_like(member_Q, dtype=zeros.dtype))
    for epoch in range(algorithm.epochs):
        present_RT = passes.logprobs("policy", batch, sampling)[0]
        score_R = algorithm.score(present_RT, reference_RT, tokens.mask_RT).requires_grad_()
        with torch.enable_grad():
            loss_Q = algorithm.pair_loss(score_R[chosen_Q], score_R[rejected_Q], beta_Q) / count_N[member_Q]
            coefficient_R = torch.autograd.grad(loss_Q.sum(), score_R)[0]
        if epoch == 0:
            scores = score_R.detach()
        reported_R = torch.zeros_like(score_R).index_add(0, chosen_Q, loss_Q.detach())
        rows = next(passes.minibatches(batch, 1, (update, epoch)))

        def loss_of(
            part: Tensor, width: int, coefficient_R: Tensor = coefficient_R, reported_R: Tensor = reported_R
        ) -> Tensor:
            mine = cut(tokens, part, width)
            logprob_RT, entropy_RT = passes.policy.logprobs(
                batch.ids_RT[part, :width], mine.mask_RT, sampling.rows(mine.member_R)
            )
            trace.supervised(part, width, reported_R[part], logprob_RT, entropy_RT)
            return coefficient_R[part] * algorithm.score(logprob_RT, reference_RT[part, :width], mine.mask_RT)

        finite_N = passes.gradient("policy", rows, batch, loss_of, passes.all_finite())
        finite_N &= count_N > 0
        norm_N, stepped_N = passes.step(optimizer, algorithm.optimizer, rows, batch, finite_N)
        trace.step("policy", norm_N, stepped_N | (count_N == 0))
    margin_Q = (scores[chosen_Q] - scores[rejected_Q]) * beta_Q

    def mean(value_Q: Tensor) -> Tensor:
        return zeros.index_add(0, member_Q, value_Q) / count_N.clamp(min=1)

    return trace.metrics() | {
        "pairs": count_N,
        "preference_accuracy": mean((margin_Q > 0).to(zeros.dtype)),
        "margin": mean(margin_Q),
        "chosen_logprob": mean(scores[chosen_Q]),
    }
