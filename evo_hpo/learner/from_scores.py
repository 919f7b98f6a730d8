"""An update of a scorer: adapters and a head that put a number on every turn.

The episodes that one loss compares may fall into different micro-batches. So the scores of all turns are computed
first; the loss then gives each score a coefficient, and the gradient of coefficient times score is that of the loss.
"""

from __future__ import annotations

import torch
from torch import Tensor

from algorithms.scorers import ScorerAlgorithm
from evo_hpo.learner.batch import Batch
from evo_hpo.learner.optimizer import PopulationAdamW
from evo_hpo.learner.passes import Passes


def learn(
    passes: Passes, optimizer: PopulationAdamW, batch: Batch, algorithm: ScorerAlgorithm, update: int
) -> dict[str, Tensor]:
    """One step on all rows; name -> [N] metrics.

    `compared` is the number of pairs, `accuracy` the share of them in the right order before the step (equals count
    half), `margin` the mean difference of their scores and `score` the mean score of a turn.
    """
    turns, members = batch.turns, batch.members
    score_K = scores(passes, batch).requires_grad_()
    zeros = torch.zeros(members, device=score_K.device)
    with torch.enable_grad():
        loss_Q, member_Q = algorithm.losses(score_K, turns)
        count_N = zeros.index_add(0, member_Q, torch.ones_like(loss_Q.detach()))
        coefficient_K = torch.autograd.grad((loss_Q / count_N[member_Q]).sum(), score_K)[0]
    loss_N = zeros.index_add(0, member_Q, loss_Q.detach() / count_N[member_Q])
    last_RT = batch.tokens.last_RT
    coefficient_RT = torch.where(last_RT, batch.tokens.spread(coefficient_K), 0.0)

    def loss_of(part: Tensor, width: int) -> Tensor:
        score_RT = passes.policy.scores(batch.ids_RT[part, :width], last_RT[part, :width])
        return (coefficient_RT[part, :width] * score_RT).sum(1)

    rows = next(passes.minibatches(batch, 1, (update, 0)))
    finite_N = passes.gradient("critic", rows, batch, loss_of, passes.all_finite() & loss_N.isfinite())
    norm_N, stepped_N = passes.step(optimizer, algorithm.optimizer, rows, batch, finite_N & (count_N > 0))
    better_Q, worse_Q, pair_member_Q = algorithm.ranked(score_K.detach(), turns)
    turn_N = zeros.index_add(0, turns.member_K, torch.ones_like(score_K.detach()))
    return {
        "loss": loss_N,
        "grad_norm": norm_N,
        "finite": (stepped_N | (count_N == 0)).to(zeros.dtype),
        "compared": zeros.index_add(0, pair_member_Q, torch.ones_like(better_Q)),
        "accuracy": _mean(right_order(better_Q, worse_Q), pair_member_Q, members),
        "margin": _mean(better_Q - worse_Q, pair_member_Q, members),
        "score": zeros.index_add(0, turns.member_K, score_K.detach()) / turn_N,
    }


@torch.no_grad()
def scores(passes: Passes, batch: Batch) -> Tensor:
    """[K] the score of every turn, by its member's scorer."""
    last_RT = batch.tokens.last_RT

    def of(part: Tensor, width: int) -> tuple[Tensor]:
        return (passes.policy.scores(batch.ids_RT[part, :width], last_RT[part, :width]),)

    score_RT = (passes.everywhere("critic", batch, of) or [torch.zeros(last_RT.shape, device=last_RT.device)])[0]
    line = batch.tokens.turn_RT[last_RT]
    return score_RT.new_zeros(batch.turns.index_K.shape).index_add(0, line, score_RT[last_RT])


def right_order(better_Q: Tensor, worse_Q: Tensor) -> Tensor:
    """[Q] 1 where the better one has the higher score, 0.5 where both are equal, else 0."""
    return (torch.sign(better_Q - worse_Q) + 1) / 2


def _mean(value_Q: Tensor, member_Q: Tensor, members: int) -> Tensor:
    """[N], NaN for a member without a pair."""
    total_N = value_Q.new_zeros(members).index_add(0, member_Q, value_Q)
    return total_N / value_Q.new_zeros(members).index_add(0, member_Q, torch.ones_like(value_Q))
