"""An update from rewards: policy gradient, with a critic where the estimator wants one."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from algorithms.aggregation import token_weights
from algorithms.core import gathered
from algorithms.critic import value_loss
from algorithms.filters import kept
from algorithms.memory import Memory, adapted, remembered
from algorithms.objectives.clipping_normalised import (
    ClippingNormalised,
    clip_terms,
    clipping_bias,
    gradient_scale,
    moving_bound,
)
from algorithms.objectives.core import Surrogate
from algorithms.policy_gradient import PolicyGradient, PolicyLoss, policy_loss
from evo_hpo.learner.batch import Batch
from evo_hpo.learner.diagnostics import Trace
from evo_hpo.learner.optimizer import PopulationAdamW
from evo_hpo.learner.passes import Passes, chosen, cut
from evo_hpo.policy.sampling import Sampling


@dataclass(frozen=True)
class Frozen:
    """What is computed once per update, before the first step; all [R, T]."""

    old_RT: Tensor
    advantage_RT: Tensor
    reference_RT: Tensor | None
    weight_RT: Tensor | None  # of the surrogate; None where all are 1
    value_RT: Tensor | None
    target_RT: Tensor | None
    asked_RT: Tensor | None  # bool, where the critic is trained


def learn(
    passes: Passes,
    optimizers: tuple[PopulationAdamW, PopulationAdamW | None],
    batch: Batch,
    configured: PolicyGradient,
    sampling: Sampling,
    update: int,
    memory: Memory,
    watch_kl: bool = False,
) -> tuple[dict[str, Tensor], Memory]:
    """`epochs` x `minibatches` steps; name -> [N] metrics, and what is carried to the next update."""
    algorithm = adapted(configured, memory)
    batch = filtered(batch, algorithm)
    if "return_mean" in memory:
        batch = replace(batch, turns=replace(batch.turns, baseline_E=memory["return_mean"][batch.turns.member_E]))
    frozen = _before_first_step(passes, batch, algorithm, sampling, watch_kl)
    trace = Trace(batch, batch.members, passes.processes, critic=algorithm.critic is not None)
    trace.start(
        frozen.old_RT, frozen.reference_RT, frozen.advantage_RT, frozen.value_RT, frozen.target_RT, frozen.asked_RT
    )
    gradients = _Update(passes, batch, algorithm, sampling, frozen, trace)
    policy_optimizer, critic_optimizer = optimizers
    epochs_N = torch.as_tensor(algorithm.epochs, device=batch.ids_RT.device).expand(batch.members)
    for epoch in range(round(float(epochs_N.max()))):
        active_N = epoch < epochs_N.round()
        for number, rows in enumerate(passes.minibatches(batch, algorithm.minibatches, (update, epoch))):
            finite_N, clip_norm_N = gradients.policy_gradient(rows, first_step=epoch == number == 0)
            if clip_norm_N is not None:
                memory = gradients.clipping_normalised(clip_norm_N, memory, active_N)
            norm_N, stepped_N = passes.step(policy_optimizer, algorithm.optimizer, rows, batch, finite_N & active_N)
            trace.step("policy", norm_N, stepped_N | ~active_N)
            if algorithm.critic is not None:
                assert critic_optimizer is not None
                finite_N = gradients.critic_gradient(rows)
                settings = algorithm.critic.optimizer
                norm_N, stepped_N = passes.step(critic_optimizer, settings, rows, batch, finite_N & active_N)
                trace.step("critic", norm_N, stepped_N | ~active_N)
    metrics = trace.metrics()
    if not memory:
        return metrics, memory
    memory = remembered(configured, memory, _seen(batch, metrics))
    return metrics | {f"memory/{name}": column for name, column in memory.items()}, memory


class _Update:
    """The gradients of one update; what changes from minibatch to minibatch is passed in."""

    def __init__(
        self,
        passes: Passes,
        batch: Batch,
        algorithm: PolicyGradient,
        sampling: Sampling,
        frozen: Frozen,
        trace: Trace,
    ) -> None:
        self.passes, self.batch, self.algorithm, self.sampling = passes, batch, algorithm, sampling
        self.frozen, self.trace = frozen, trace

    def policy_gradient(self, rows_NC: Tensor, first_step: bool) -> tuple[Tensor, Tensor | None]:
        """Add up the gradient of a minibatch: [N] bool, whose loss was finite, and [N] norm of what clipping took."""
        weight_RT, tokens = self._weights(rows_NC), self.batch.tokens
        objective = self.algorithm.objective
        normalised = objective if isinstance(objective, ClippingNormalised) else None
        squares_N = weight_RT.new_zeros(self.batch.members)
        clip_norm_N = self._clipped_gradient(rows_NC, weight_RT) if normalised and normalised.exact else None

        def loss_of(part: Tensor, width: int) -> Tensor:
            loss, logprob_RT, entropy_RT = self._loss(part, width)
            loss_R = (loss.loss_RT * weight_RT[part, :width]).sum(1)
            if normalised is not None:
                term_RT = self._clip_terms(loss, part, weight_RT[part, :width])
                squares_N.index_add_(0, tokens.member_R[part], term_RT.square().sum(1))
            self.trace.policy(part, width, loss, loss_R, logprob_RT, entropy_RT, first_step)
            return loss_R

        finite_N = self.passes.gradient("policy", rows_NC, self.batch, loss_of, self.passes.all_finite())
        if normalised is not None and clip_norm_N is None:
            clip_norm_N = self.passes.processes.sum_(squares_N).sqrt()
        return finite_N, clip_norm_N

    def clipping_normalised(self, clip_norm_N: Tensor, memory: Memory, active_N: Tensor) -> Memory:
        """Scale each member's gradient by what clipping took from it; memory with the bound of the next step.

        Members that are not active make no further step in this update.
        """
        objective = self.algorithm.objective
        assert isinstance(objective, ClippingNormalised)
        bound = memory["clip_bound"] if objective.bound is None else objective.bound
        self.passes.policy.block.grad *= gradient_scale(clip_norm_N, bound).unsqueeze(1)
        if objective.bound is not None:
            return memory
        moved_N = moving_bound(memory["clip_bound"], clip_norm_N, objective.decay)
        return memory | {"clip_bound": torch.where(active_N, moved_N, memory["clip_bound"])}

    def critic_gradient(self, rows_NC: Tensor) -> Tensor:
        """Add up the gradient of the critic's loss, its mean where the critic is asked; [N] bool, whose was finite."""
        frozen, batch, critic = self.frozen, self.batch, self.algorithm.critic
        assert frozen.value_RT is not None and frozen.target_RT is not None and frozen.asked_RT is not None
        assert critic is not None
        value_before_RT, target_RT, asked_RT = frozen.value_RT, frozen.target_RT, frozen.asked_RT
        weight_RT = torch.zeros(batch.ids_RT.shape, device=rows_NC.device)
        rows = chosen(batch, rows_NC)
        member_R = batch.tokens.member_R
        weight_RT[rows] = token_weights("token_mean", asked_RT[rows], member_R[rows], batch.members, 1.0)

        def loss_of(part: Tensor, width: int) -> Tensor:
            clip = gathered(critic, member_R[part], column=True).value_clip
            value_RT = self.passes.policy.values(batch.ids_RT[part, :width], batch.tokens.mask_RT[part, :width])
            loss_RT = value_loss(value_RT, value_before_RT[part, :width], target_RT[part, :width], clip)
            loss_R = (torch.where(asked_RT[part, :width], loss_RT, 0.0) * weight_RT[part, :width]).sum(1)
            self.trace.critic(part, width, loss_R, value_RT)
            return loss_R

        return self.passes.gradient("critic", rows_NC, batch, loss_of, self.passes.all_finite())

    def _loss(self, part: Tensor, width: int) -> tuple[PolicyLoss, Tensor, Tensor]:
        frozen, tokens = self.frozen, cut(self.batch.tokens, part, width)
        settings = gathered(self.algorithm, tokens.member_R, column=True)
        logprob_RT, entropy_RT = self.passes.policy.logprobs(
            self.batch.ids_RT[part, :width],
            tokens.mask_RT,
            self.sampling.rows(tokens.member_R),
            entropy_gradient=positive(self.algorithm.entropy.coef),
        )
        loss = policy_loss(
            settings,
            logprob_RT,
            frozen.old_RT[part, :width],
            None if frozen.reference_RT is None else frozen.reference_RT[part, :width],
            entropy_RT,
            frozen.advantage_RT[part, :width],
            tokens.mask_RT,
            tokens.turn_RT,
            None if frozen.weight_RT is None else frozen.weight_RT[part, :width],
        )
        return loss, logprob_RT, entropy_RT

    def _clip_terms(self, loss: PolicyLoss, part: Tensor, weight_RT: Tensor) -> Tensor:
        surrogate = Surrogate(loss.loss_RT, loss.clipped_low_RT, loss.clipped_high_RT)
        advantage_RT = self.frozen.advantage_RT[part, : weight_RT.shape[1]]
        return clip_terms(surrogate, loss.ratio_RT, advantage_RT, weight_RT)

    def _clipped_gradient(self, rows_NC: Tensor, weight_RT: Tensor) -> Tensor:
        """[N] norm of the gradient that clipping took from a minibatch; costs one more pass."""

        def loss_of(part: Tensor, width: int) -> Tensor:
            loss, logprob_RT, _ = self._loss(part, width)
            return clipping_bias(self._clip_terms(loss, part, weight_RT[part, :width]), logprob_RT).sum(1)

        self.passes.gradient("policy", rows_NC, self.batch, loss_of, self.passes.all_finite())
        grad = self.passes.policy.block.grad
        norm_N = torch.linalg.vector_norm(grad, dim=1)
        grad.zero_()
        return norm_N

    def _weights(self, rows_NC: Tensor) -> Tensor:
        """[R, T] token weights; denominators are those of the rows of this minibatch."""
        batch, rows = self.batch, chosen(self.batch, rows_NC)
        weight_RT = torch.zeros(batch.ids_RT.shape, device=rows_NC.device)
        weight_RT[rows] = token_weights(
            self.algorithm.aggregation,
            batch.tokens.mask_RT[rows],
            batch.tokens.member_R[rows],
            batch.members,
            self.algorithm.aggregation_constant,
            turn_RT=batch.tokens.turn_RT[rows],
            group_R=batch.group_R[rows],
        )
        return weight_RT


def _before_first_step(
    passes: Passes, batch: Batch, algorithm: PolicyGradient, sampling: Sampling, watch_kl: bool
) -> Frozen:
    tokens, policy = batch.tokens, passes.policy
    old_RT = tokens.logprob_RT
    recompute = algorithm.old_logprobs == "recompute"
    if recompute or algorithm.needs_entropy:
        present_RT, entropy_RT = passes.logprobs("policy", batch, sampling)
        old_RT = present_RT if recompute else old_RT
        tokens = replace(tokens, entropy_RT=entropy_RT)
    measured = watch_kl or positive(algorithm.kl.coef)
    reference_RT = passes.logprobs("reference", batch, sampling)[0] if measured else None
    value_RT = None
    if algorithm.critic is not None:

        def of(part: Tensor, width: int) -> tuple[Tensor]:
            return (policy.values(batch.ids_RT[part, :width], tokens.mask_RT[part, :width]),)

        value_RT = (passes.everywhere("critic", batch, of) or [torch.zeros_like(old_RT)])[0]
        tokens = replace(tokens, value_RT=value_RT)
    advantage_RT, asked = algorithm.credited(batch.turns, tokens, old_RT, reference_RT)
    weight_RT = algorithm.surrogate_weights(tokens, old_RT, batch.members)
    target_RT, asked_RT = asked or (None, None)
    return Frozen(old_RT, advantage_RT, reference_RT, weight_RT, value_RT, target_RT, asked_RT)


def filtered(batch: Batch, algorithm: PolicyGradient) -> Batch:
    """Without what the filters drop: it leaves the mask, and unless a filter says otherwise the table of turns."""
    if not algorithm.filters:
        return batch
    trained_E, counted_E = kept(algorithm.filters, batch.turns)
    line_RT = batch.tokens.turn_RT
    mask_RT = batch.tokens.mask_RT & trained_E[batch.turns.episode_K][line_RT.clamp(min=0)]
    turns, line_K = batch.turns.only(counted_E)
    tokens = replace(batch.tokens, mask_RT=mask_RT, turn_RT=torch.where(mask_RT, line_K[line_RT.clamp(min=0)], -1))
    return replace(batch, tokens=tokens, turns=turns, row_E=batch.row_E[counted_E])


def _seen(batch: Batch, metrics: dict[str, Tensor]) -> dict[str, Tensor]:
    """[N] what the update measured, for the memory; NaN where a member had nothing to measure."""
    turns, members = batch.turns, batch.members
    zeros = torch.zeros(members, device=batch.ids_RT.device)
    episodes_N = zeros.index_add(0, turns.member_E, torch.ones_like(turns.outcome_E))
    nothing = torch.full_like(zeros, math.nan)
    return {
        "kl": metrics["kl"],
        "entropy": metrics["entropy"],
        "return": zeros.index_add(0, turns.member_E, turns.return_E) / torch.where(episodes_N > 0, episodes_N, nothing),
        "episodes": episodes_N,
    }


def positive(value: float | Tensor) -> bool:
    """Whether the number, or that of any member, is above 0."""
    return bool((torch.as_tensor(value) > 0).any())
