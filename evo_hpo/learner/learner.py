"""One update of the whole population: rows in, one optimiser step per minibatch out.

A member's loss is a weighted sum over its own rows, with weights from its own whole minibatch; gradients of members
never meet. So the result does not depend on micro-batches, row order, padding, processes, or who else is in the
population.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from algorithms.aggregation import token_weights
from algorithms.core import Algorithm, TokenTable, gathered
from algorithms.critic import value_loss
from algorithms.filters import kept
from algorithms.kl import kl_estimate
from algorithms.policy_gradient import PolicyGradient, policy_loss
from algorithms.supervised import Supervised
from evo_hpo.learner.batch import Batch
from evo_hpo.learner.diagnostics import CRITIC, POLICY, SUPERVISED, Sums
from evo_hpo.learner.optimizer import PopulationAdamW
from evo_hpo.policy.noise import key
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.runtime.processes import Processes


@dataclass(frozen=True)
class Frozen:
    """What is computed once per update, before the first step; all [R, T]."""

    old_RT: Tensor
    advantage_RT: Tensor
    reference_RT: Tensor | None
    value_RT: Tensor | None
    return_RT: Tensor | None


class Learner:
    """Trains a policy with one algorithm.

    Attributes:
        optimizer, critic_optimizer: population optimisers; their state is part of a checkpoint and of a clone.
    """

    def __init__(self, policy: Policy, algorithm: Algorithm, processes: Processes, micro_tokens: int) -> None:
        self.policy, self.algorithm, self.processes, self.micro_tokens = policy, algorithm, processes, micro_tokens
        self.optimizer = PopulationAdamW(policy.block)
        self.critic_optimizer: PopulationAdamW | None = None
        if isinstance(algorithm, PolicyGradient) and algorithm.critic is not None:
            if policy.critic is None:
                policy.add_critic()
            assert policy.critic is not None
            self.critic_optimizer = PopulationAdamW(policy.critic)

    def gather(self, parent_N: Tensor) -> None:
        self.optimizer.gather(parent_N)
        if self.critic_optimizer is not None:
            self.critic_optimizer.gather(parent_N)

    def update(self, batch: Batch, algorithm: Algorithm, sampling: Sampling, update: int) -> dict[str, Tensor]:
        """Learn from `batch` with the members' present hyperparameters.

        Args:
            algorithm: evolvable fields as floats or [N].
            sampling: per member [N]; log-probabilities are of the distribution that was sampled from.
            update: number of the update, for the order of rows and the warm-up.
        Returns:
            name -> [N] metrics.
        """
        if isinstance(algorithm, Supervised):
            return self._supervised(batch, algorithm, sampling, update)
        assert isinstance(algorithm, PolicyGradient)
        return self._policy_gradient(batch, algorithm, sampling, update)

    def _policy_gradient(
        self, batch: Batch, algorithm: PolicyGradient, sampling: Sampling, update: int
    ) -> dict[str, Tensor]:
        batch = _filtered(batch, algorithm)
        frozen = self._before_first_step(batch, algorithm, sampling)
        critic = CRITIC if algorithm.critic is not None else ()
        sums = Sums(self.policy.members, batch.ids_RT.device, POLICY, critic)
        sums.advantages(frozen.advantage_RT, batch.tokens)
        for epoch in range(algorithm.epochs):
            for rows in self._minibatches(batch, algorithm.minibatches, (update, epoch)):
                weight_RT = self._weights(batch, rows, algorithm)
                finite_N = torch.ones(self.policy.members, dtype=torch.bool, device=batch.ids_RT.device)

                def policy_part(
                    part: Tensor, width: int, weight_RT: Tensor = weight_RT, finite_N: Tensor = finite_N
                ) -> Tensor:
                    tokens = _cut(batch.tokens, part, width)
                    settings = gathered(algorithm, tokens.member_R, column=True)
                    wants_entropy = _positive(algorithm.entropy_coef)
                    logprob_RT, entropy_RT = self.policy.logprobs(
                        batch.ids_RT[part, :width], tokens.mask_RT, sampling.rows(tokens.member_R), wants_entropy
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
                    )
                    loss_R = (loss.loss_RT * weight_RT[part, :width]).sum(1)
                    sums.policy(loss, loss_R, entropy_RT, weight_RT[part, :width], tokens)
                    return self._report(loss_R, tokens.member_R, finite_N)

                def critic_part(
                    part: Tensor, width: int, weight_RT: Tensor = weight_RT, finite_N: Tensor = finite_N
                ) -> Tensor:
                    assert frozen.value_RT is not None and frozen.return_RT is not None and algorithm.critic is not None
                    tokens = _cut(batch.tokens, part, width)
                    clip = gathered(algorithm.critic, tokens.member_R, column=True).value_clip
                    value_RT = self.policy.values(batch.ids_RT[part, :width], tokens.mask_RT)
                    loss_RT = value_loss(value_RT, frozen.value_RT[part, :width], frozen.return_RT[part, :width], clip)
                    loss_R = (torch.where(tokens.mask_RT, loss_RT, 0.0) * weight_RT[part, :width]).sum(1)
                    sums.critic(loss_R, tokens)
                    return self._report(loss_R, tokens.member_R, finite_N)

                self._step("policy", rows, batch, policy_part, finite_N, algorithm, sums)
                if algorithm.critic is not None:
                    self._step("critic", rows, batch, critic_part, finite_N, algorithm, sums)
        return sums.metrics(self.processes)

    def _supervised(self, batch: Batch, algorithm: Supervised, sampling: Sampling, update: int) -> dict[str, Tensor]:
        sums = Sums(self.policy.members, batch.ids_RT.device, SUPERVISED)
        rows = next(self._minibatches(batch, 1, (update, 0)))
        weight_RT = self._weights(batch, rows, algorithm)
        finite_N = torch.ones(self.policy.members, dtype=torch.bool, device=batch.ids_RT.device)

        def part_of(part: Tensor, width: int) -> Tensor:
            tokens = _cut(batch.tokens, part, width)
            logprob_RT, entropy_RT = self.policy.logprobs(
                batch.ids_RT[part, :width], tokens.mask_RT, sampling.rows(tokens.member_R)
            )
            loss_R = (-torch.where(tokens.mask_RT, logprob_RT, 0.0) * weight_RT[part, :width]).sum(1)
            sums.supervised(loss_R, entropy_RT, weight_RT[part, :width], tokens)
            return self._report(loss_R, tokens.member_R, finite_N)

        rate = min(1.0, (update + 1) / algorithm.warmup) if algorithm.warmup else 1.0
        self._step("policy", rows, batch, part_of, finite_N, algorithm, sums, rate)
        return sums.metrics(self.processes)

    @torch.no_grad()
    def _before_first_step(self, batch: Batch, algorithm: PolicyGradient, sampling: Sampling) -> Frozen:
        tokens = batch.tokens
        old_RT = tokens.logprob_RT
        if algorithm.old_logprobs == "recompute":
            old_RT = self._everywhere("policy", batch, lambda part, width: self._logprobs(batch, sampling, part, width))
        reference_RT = None
        if _positive(algorithm.kl.coef):
            reference_RT = self._everywhere(
                "reference", batch, lambda part, width: self._logprobs(batch, sampling, part, width)
            )
            if algorithm.kl.place == "reward":
                coef = gathered(algorithm.kl, tokens.member_R, column=True).coef
                penalty_RT = coef * kl_estimate(algorithm.kl.estimator, old_RT, reference_RT)
                tokens = replace(tokens, penalty_RT=torch.where(tokens.mask_RT, penalty_RT, 0.0))
        value_RT = return_RT = None
        if algorithm.critic is not None:
            value_RT = self._everywhere(
                "critic",
                batch,
                lambda part, width: self.policy.values(batch.ids_RT[part, :width], tokens.mask_RT[part, :width]),
            )
            tokens = replace(tokens, value_RT=value_RT)
            return_RT = algorithm.value_targets(batch.turns, tokens)
        return Frozen(old_RT, algorithm.advantages(batch.turns, tokens), reference_RT, value_RT, return_RT)

    def _logprobs(self, batch: Batch, sampling: Sampling, part: Tensor, width: int) -> Tensor:
        tokens = _cut(batch.tokens, part, width)
        return self.policy.logprobs(batch.ids_RT[part, :width], tokens.mask_RT, sampling.rows(tokens.member_R))[0]

    def _everywhere(self, role: str, batch: Batch, of: Callable[[Tensor, int], Tensor]) -> Tensor:
        """[R, T] a quantity of every row, each process computing its share."""
        result = torch.zeros(batch.ids_RT.shape, device=batch.ids_RT.device)
        everything = torch.arange(batch.rows, device=result.device).expand(batch.members, batch.rows)
        with self.policy.acting(role):  # type: ignore[arg-type]
            for part, width in self._micro_batches(everything, batch):
                result[part, :width] = of(part, width)
        return self.processes.sum_(result)

    def _step(
        self,
        role: str,
        rows_NC: Tensor,
        batch: Batch,
        loss_of: Callable[[Tensor, int], Tensor],
        finite_N: Tensor,
        algorithm: Algorithm,
        sums: Sums,
        rate: float = 1.0,
    ) -> None:
        with self.policy.acting(role):  # type: ignore[arg-type]
            for part, width in self._micro_batches(rows_NC, batch):
                loss_of(part, width).backward()
        optimizer = self.optimizer if role == "policy" else self.critic_optimizer
        assert optimizer is not None
        self.processes.sum_(optimizer.block.grad)
        unusable = self.processes.max_((~finite_N).float())
        settings = algorithm.optimizer if role == "policy" else algorithm.critic.optimizer  # type: ignore[attr-defined]
        # a member without a trained token here has nothing to step for; momentum alone must not move it
        present_N = batch.tokens.mask_RT[_chosen(batch, rows_NC)].view(batch.members, -1).any(1)
        norm_N, stepped_N = optimizer.step(settings, (unusable == 0) & present_N, rate)
        sums.step(role, norm_N, stepped_N | ~present_N)

    @staticmethod
    def _report(loss_R: Tensor, member_R: Tensor, finite_N: Tensor) -> Tensor:
        """Sum of the losses; members with a loss that is not finite are marked, and the others do not notice."""
        bad_R = ~loss_R.detach().isfinite()
        finite_N[member_R[bad_R]] = False
        return loss_R.sum()

    def _weights(self, batch: Batch, rows_NC: Tensor, algorithm: PolicyGradient | Supervised) -> Tensor:
        """[R, T] token weights; denominators are those of the rows of this minibatch."""
        chosen = _chosen(batch, rows_NC)
        weight_RT = torch.zeros(batch.ids_RT.shape, device=rows_NC.device)
        weight_RT[chosen] = token_weights(
            algorithm.aggregation,
            batch.tokens.mask_RT[chosen],
            batch.tokens.member_R[chosen],
            batch.members,
            algorithm.aggregation_constant,
        )
        return weight_RT

    def _minibatches(self, batch: Batch, count: int, purpose: tuple[int, int]) -> Iterator[Tensor]:
        """[N, about C / count] row numbers within each member; the order is each member's own draw.

        A member's own rows are dealt out as if it were alone; the empty rows behind them, of a member that lost
        episodes, only fill its minibatches up to the width of the widest.
        """
        if count == 1:
            yield torch.arange(batch.rows, device=batch.ids_RT.device).expand(batch.members, -1)
            return
        count = min(count, batch.rows)
        own_N = torch.bincount(batch.turns.member_E.cpu(), minlength=batch.members).tolist()
        dealt: list[list[Tensor]] = []
        for slot, own in zip(self.policy.slots, own_N, strict=True):
            generator = torch.Generator().manual_seed(key(self.policy.seed, "order", slot, *purpose) % 2**63)
            dealt.append(list(torch.randperm(own, generator=generator).tensor_split(count)))
        empty = [torch.arange(own, batch.rows) for own in own_N]
        for parts in zip(*dealt, strict=True):
            width = max(len(part) for part in parts)
            filled = []
            for member, part in enumerate(parts):
                missing = width - len(part)
                filled.append(torch.cat([part, empty[member][:missing]]))
                empty[member] = empty[member][missing:]
            yield torch.stack(filled).to(batch.ids_RT.device)

    def _micro_batches(self, rows_NC: Tensor, batch: Batch) -> Iterator[tuple[Tensor, int]]:
        """My share of the rows, longest first, in parts of at most `micro_tokens` tokens, and the width of each part.

        A part has equally many rows of every member, one at least.
        """
        length_R = _lengths(batch.tokens.mask_RT)
        first = torch.arange(batch.members, device=rows_NC.device).unsqueeze(1) * batch.rows
        rows_NC = rows_NC + first
        order = length_R[rows_NC].argsort(dim=1, descending=True, stable=True)
        rows_NC = rows_NC.gather(1, order)[:, self.processes.rank :: self.processes.count]
        width_C = length_R[rows_NC].amax(0).tolist() if rows_NC.numel() else []
        start = 0
        while start < len(width_C) and width_C[start]:
            count = max(1, self.micro_tokens // (batch.members * width_C[start]))
            yield rows_NC[:, start : start + count].reshape(-1), width_C[start]
            start += count


def _filtered(batch: Batch, algorithm: PolicyGradient) -> Batch:
    """Episodes that a filter drops leave the mask, and with it loss, KL, statistics and denominators."""
    if not algorithm.filters:
        return batch
    keep_E = kept(algorithm.filters, batch.turns)
    keep_K = keep_E[batch.turns.episode_K]
    mask_RT = batch.tokens.mask_RT & keep_K[batch.tokens.turn_RT.clamp(min=0)]
    turn_RT = torch.where(mask_RT, batch.tokens.turn_RT, -1)
    return replace(batch, tokens=replace(batch.tokens, mask_RT=mask_RT, turn_RT=turn_RT))


def _cut(tokens: TokenTable, rows: Tensor, width: int) -> TokenTable:
    return TokenTable(
        tokens.mask_RT[rows, :width],
        tokens.turn_RT[rows, :width],
        tokens.member_R[rows],
        tokens.logprob_RT[rows, :width],
    )


def _chosen(batch: Batch, rows_NC: Tensor) -> Tensor:
    """[N * C] rows of the batch behind row numbers within each member, member-major."""
    return (torch.arange(batch.members, device=rows_NC.device).unsqueeze(1) * batch.rows + rows_NC).reshape(-1)


def _lengths(mask_RT: Tensor) -> Tensor:
    """[R] columns up to the last trained token."""
    position = torch.arange(1, mask_RT.shape[1] + 1, device=mask_RT.device)
    return (mask_RT * position).amax(1)


def _positive(value: float | Tensor) -> bool:
    return bool((torch.as_tensor(value) > 0).any())
