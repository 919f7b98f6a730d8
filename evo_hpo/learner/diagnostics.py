"""What an update looked like, per member and per turn index: quantities of every trained token, kept and then counted.

Each row keeps what its last visit gave. With several processes a row belongs to whoever visited it last, so that the
numbers do not depend on processes or micro-batches. Untrained positions count nowhere, whatever they hold.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from algorithms.core import TokenTable
from algorithms.kl import kl_estimate
from algorithms.policy_gradient import PolicyLoss
from evo_hpo.learner.batch import Batch
from evo_hpo.learner.grouped import Groups
from evo_hpo.runtime.processes import Processes
from evo_hpo.tracking.turnwise import INDICES, LAST, turn_name

NEAR = 32  # tokens that count as next to an observation
NEWS = frozenset({"loss", "value_loss", "grad_norm", "critic_grad_norm"})  # that one is NaN is worth saying


class Seen:
    """[Q, R, T] named quantities of each row as of its last visit, by whichever process."""

    def __init__(self, names: Sequence[str], mask_RT: Tensor) -> None:
        self.names = names
        self._value_QRT = torch.zeros(len(names), *mask_RT.shape, device=mask_RT.device)
        self._visit_R = torch.zeros(mask_RT.shape[0], dtype=torch.int64, device=mask_RT.device)

    def put(self, part: Tensor, width: int, visit: int, *values_PT: Tensor) -> None:
        """Keep what the rows `part` [P] gave; visits are counted from 1, and are the same for all processes."""
        self._value_QRT[:, part, :width] = torch.stack([value.detach().float() for value in values_PT])
        self._visit_R[part] = visit

    def collect(self, processes: Processes) -> tuple[dict[str, Tensor], Tensor]:
        """name -> [R, T], 0 for rows that nobody visited, and [R] bool, the rows that somebody did."""
        last_R = processes.max_(self._visit_R.clone())
        mine_R = (self._visit_R == last_R) & (last_R > 0)
        value_QRT = processes.sum_(torch.where(mine_R.unsqueeze(1), self._value_QRT, 0.0))
        return dict(zip(self.names, value_QRT, strict=True)), last_R > 0


class Trace:
    """Follows one update and gives its metrics.

    Args:
        batch: after filtering; its `episodes` are those before.
        critic: whether a critic is trained.
    """

    def __init__(self, batch: Batch, members: int, processes: Processes, critic: bool) -> None:
        self.batch, self.members, self.processes = batch, members, processes
        device = batch.ids_RT.device
        roles = ("policy", "critic") if critic else ("policy",)
        # there from the start, because a process without a row of its own takes part in every sum over processes
        self._seen = {"policy": Seen(("logprob", "entropy"), batch.tokens.mask_RT)}
        self._loss = {role: torch.zeros(members, device=device) for role in roles}
        self._norms: dict[str, list[Tensor]] = {role: [] for role in roles}
        self._stepped = torch.ones(members, device=device)
        self._before: dict[str, Tensor | None] = {}

    def start(
        self,
        old_RT: Tensor,
        reference_RT: Tensor | None,
        advantage_RT: Tensor | None,
        value_RT: Tensor | None,
        return_RT: Tensor | None,
        asked_RT: Tensor | None = None,
    ) -> None:
        """What a policy gradient knows before its first step; the same on every process.

        Args:
            old_RT, reference_RT: [R, T] log-probabilities in nats.
            advantage_RT, value_RT, return_RT: [R, T] in reward units.
            asked_RT: [R, T] bool, where the critic is asked; None means at every trained token.
        """
        mask_RT = self.batch.tokens.mask_RT
        names = ("logprob", "entropy", "ratio", "kl", "clipped_low", "clipped_high")
        self._seen = {"policy": Seen(names, mask_RT)}
        if torch.equal(old_RT[mask_RT], self.batch.tokens.logprob_RT[mask_RT]):
            self._seen["first"] = Seen(("logprob",), mask_RT)  # the sampler's numbers, which the trainer has yet to say
        if value_RT is not None:
            self._seen["critic"] = Seen(("value",), mask_RT)
        self._before = {"old": old_RT, "reference": reference_RT, "advantage": advantage_RT}
        self._before |= {"value": value_RT, "return": return_RT, "asked": asked_RT}

    def policy(
        self,
        part: Tensor,
        width: int,
        loss: PolicyLoss,
        loss_R: Tensor,
        logprob_RT: Tensor,
        entropy_RT: Tensor,
        first_step: bool,
    ) -> None:
        """A micro-batch: the first `width` columns of the rows `part` [P].

        Args:
            loss_R: [P] each row's share of its member's loss.
            first_step: no optimiser step has been made in this update.
        """
        kept = (logprob_RT, entropy_RT, loss.ratio_RT, loss.kl_RT, loss.clipped_low_RT, loss.clipped_high_RT)
        self._seen["policy"].put(part, width, len(self._norms["policy"]) + 1, *kept)
        if first_step and "first" in self._seen:
            self._seen["first"].put(part, width, 1, logprob_RT)
        self._add("policy", part, loss_R)

    def supervised(self, part: Tensor, width: int, loss_R: Tensor, logprob_RT: Tensor, entropy_RT: Tensor) -> None:
        self._seen["policy"].put(part, width, len(self._norms["policy"]) + 1, logprob_RT, entropy_RT)
        self._add("policy", part, loss_R)

    def critic(self, part: Tensor, width: int, loss_R: Tensor, value_RT: Tensor) -> None:
        self._seen["critic"].put(part, width, len(self._norms["critic"]) + 1, value_RT)
        self._add("critic", part, loss_R)

    def step(self, role: str, norm_N: Tensor, stepped_N: Tensor) -> None:
        """An optimiser step: gradient norms before clipping, and which members' gradients were finite."""
        self._norms[role].append(norm_N)
        self._stepped = self._stepped * stepped_N

    def metrics(self) -> dict[str, Tensor]:
        """name -> [N], NaN where a member has nothing to measure; `turn/<name>/<index>` is of one turn index.

        Means are over trained tokens; losses and norms are means over the optimiser steps.
        """
        result: dict[str, Tensor] = {}
        for role, prefix in (("policy", ""), ("critic", "critic_")):
            if role in self._norms:
                norms = self._norms[role]
                result[f"{prefix}grad_norm"] = torch.stack(norms).mean(0)
                loss = self.processes.sum_(self._loss[role].clone()) / len(norms)
                result["loss" if role == "policy" else "value_loss"] = loss
        result["finite"] = self._stepped
        tokens = _Tokens(self.batch.tokens, self.batch, self.members)
        seen, _ = self._seen["policy"].collect(self.processes)
        tokens.means(result, entropy=tokens.of(seen["entropy"]))
        result |= tokens.near_observations(seen["entropy"])
        result |= _of_rows(self.batch, tokens.members.size_G)
        if "ratio" in seen:
            self._of_policy(result, tokens, seen)
            result |= self._of_critic(tokens) | _of_turns(self.batch, self.members)
        else:
            tokens.means(result, nll=-tokens.of(seen["logprob"]))
        return result

    def _of_policy(self, result: dict[str, Tensor], tokens: _Tokens, seen: dict[str, Tensor]) -> None:
        old_RT, advantage_RT = self._before["old"], self._before["advantage"]
        assert old_RT is not None
        old, now = tokens.of(old_RT), tokens.of(seen["logprob"])
        low, high = tokens.of(seen["clipped_low"]), tokens.of(seen["clipped_high"])
        ratio = tokens.of(seen["ratio"])
        result |= {"clip_fraction_low": tokens.members.mean(low), "clip_fraction_high": tokens.members.mean(high)}
        tokens.turnwise(result, "clip_fraction", tokens.turns.mean(low + high))
        tokens.means(result, kl_old=kl_estimate("k3", old, now))
        result["kl"] = torch.full_like(self._stepped, math.nan)
        if self._before["reference"] is not None:
            tokens.means(result, kl=tokens.of(seen["kl"]))
        result["ratio_mean"] = tokens.members.mean(ratio)
        names = ("ratio_min", "ratio_p01", "ratio_p99", "ratio_max")
        result |= dict(zip(names, tokens.members.quantiles(ratio, 0.0, 0.01, 0.99, 1.0), strict=True))
        for name, column in zip(names[1:3], tokens.turns.quantiles(ratio, 0.01, 0.99), strict=True):
            tokens.turnwise(result, name, column)
        if advantage_RT is not None:
            advantage = tokens.of(advantage_RT)
            result["advantage_mean"] = tokens.members.mean(advantage)
            result["advantage_abs"] = tokens.members.mean(advantage.abs())
            result["advantage_max"] = tokens.members.largest(advantage.abs())
            result["advantage_std"] = tokens.members.std(advantage)
            tokens.turnwise(result, "advantage_std", tokens.turns.std(advantage))
        self._of_sampler(result, tokens)

    def _of_sampler(self, result: dict[str, Tensor], tokens: _Tokens) -> None:
        """How far trainer and sampler are apart about the same tokens, before the trainer has learned anything."""
        trainer_RT = self._before["old"]
        assert trainer_RT is not None
        if "first" in self._seen:
            seen, visited_R = self._seen["first"].collect(self.processes)
            trainer_RT = seen["logprob"]
            tokens = tokens.only(visited_R)
        sampler, trainer = tokens.of(self.batch.tokens.logprob_RT), tokens.of(trainer_RT)
        log_weight = trainer - sampler
        tokens.means(result, gap_mean=log_weight.abs())
        result["gap_max"] = tokens.members.largest(log_weight.abs())
        k3 = kl_estimate("k3", sampler, trainer).clamp(min=0)  # rounding takes it below
        result["gap_k3"] = tokens.members.mean(k3)
        # relative to the largest weight, which changes nothing and cannot overflow
        weight = (log_weight - tokens.members.largest(log_weight)[tokens.members.index_M]).exp()
        share = tokens.members.mean(weight).square() / tokens.members.mean(weight.square())
        result["ess"] = share.clamp(max=1)

    def _of_critic(self, tokens: _Tokens) -> dict[str, Tensor]:
        value_RT, return_RT, asked_RT = (self._before[name] for name in ("value", "return", "asked"))
        if value_RT is None or return_RT is None:
            return {}
        seen, _ = self._seen["critic"].collect(self.processes)
        asked = tokens if asked_RT is None else tokens.only(asked_RT)
        value, target = asked.of(value_RT), asked.of(return_RT)
        spread = asked.members.variance(target)
        unexplained = asked.members.variance(target - value) / spread
        change = asked.members.mean((asked.of(seen["value"]) - value).abs())
        # where all targets are equal there is nothing to explain
        return {"explained_variance": torch.where(spread > 1e-10, 1 - unexplained, math.nan), "value_change": change}

    def _add(self, role: str, part: Tensor, loss_R: Tensor) -> None:
        self._loss[role].index_add_(0, self.batch.tokens.member_R[part], loss_R.detach().float())


class _Tokens:
    """The trained tokens one after another [M], by member and by member and turn index."""

    def __init__(self, table: TokenTable, batch: Batch, members: int) -> None:
        self.table, self.batch, self.count = table, batch, members
        self.line_M = table.turn_RT[table.mask_RT]
        member_M = table.member_R.unsqueeze(1).expand_as(table.mask_RT)[table.mask_RT]
        index_M = batch.turns.index_K[self.line_M].clamp(max=LAST)
        self.members = Groups(member_M, members)
        self.turns = Groups(member_M * len(INDICES) + index_M, members * len(INDICES))

    def only(self, keep: Tensor) -> _Tokens:
        """Those of some rows [R], or of some positions [R, T]."""
        keep_RT = keep if keep.ndim == 2 else keep.unsqueeze(1)
        kept = TokenTable(self.table.mask_RT & keep_RT, self.table.turn_RT, self.table.member_R, self.table.logprob_RT)
        return _Tokens(kept, self.batch, self.count)

    def of(self, value_RT: Tensor) -> Tensor:
        return value_RT[self.table.mask_RT]

    def means(self, result: dict[str, Tensor], **values_M: Tensor) -> None:
        for name, value_M in values_M.items():
            result[name] = self.members.mean(value_M)
            self.turnwise(result, name, self.turns.mean(value_M))

    def turnwise(self, result: dict[str, Tensor], name: str, value_G: Tensor) -> None:
        """A column per turn index that any member reached."""
        reached = (self.turns.size_G.view(self.count, -1) > 0).any(0).tolist()
        columns = value_G.view(self.count, -1).unbind(1)
        result |= {turn_name(name, k): column for k, column in enumerate(columns) if reached[k]}

    def near_observations(self, entropy_RT: Tensor) -> dict[str, Tensor]:
        """Entropy of the last tokens before an observation and of the first ones after it."""
        turns, line_M = self.batch.turns, self.line_M
        place_M = torch.arange(len(line_M), device=line_M.device)
        lines = len(turns.index_K)
        # a turn's tokens follow each other
        first_K = torch.full((lines,), len(line_M), device=line_M.device).scatter_reduce(0, line_M, place_M, "amin")
        last_K = torch.full((lines,), -1, device=line_M.device).scatter_reduce(0, line_M, place_M, "amax")
        before_M = ~turns.last_K[line_M] & (last_K[line_M] - place_M < NEAR)
        after_M = (turns.index_K[line_M] > 0) & (place_M - first_K[line_M] < NEAR)
        entropy_M, result = self.of(entropy_RT), {}
        for name, near_M in (("before", before_M), ("after", after_M)):
            near = Groups(self.members.index_M[near_M], self.count)
            result[f"entropy_{name}_observation"] = near.mean(entropy_M[near_M])
        return result


def _of_rows(batch: Batch, trained_N: Tensor) -> dict[str, Tensor]:
    """Share of all tokens that are trained, and share of the episodes that a filter left out."""
    device = trained_N.device
    member_E = torch.tensor([episode.member for episode in batch.episodes], device=device)
    fed_E = torch.tensor(
        [sum(len(t.observation_ids) + len(t.action_ids) for t in e.turns) for e in batch.episodes], device=device
    )
    episodes = Groups(member_E, len(trained_N))
    trained_R = batch.tokens.mask_RT.any(1)
    kept_N = Groups(batch.tokens.member_R, len(trained_N)).total(trained_R)
    return {"mask_coverage": trained_N / episodes.total(fed_E), "dropped": 1 - kept_N / episodes.size_G}


def _of_turns(batch: Batch, members: int) -> dict[str, Tensor]:
    """How often states come again within a group, and how old the turns are."""
    turns, result = batch.turns, {}
    known_K = turns.state_K >= 0
    if known_K.any():
        _, state_K, size_S = torch.unique(turns.state_K[known_K], return_inverse=True, return_counts=True)
        size_K = size_S[state_K].float()
        lines = Groups(turns.member_K[known_K], members)
        all_N = Groups(turns.member_K, members).size_G
        result["anchored"] = torch.where(lines.size_G > 0, lines.total(size_K > 1) / all_N, math.nan)
        result["bucket_size"] = lines.size_G / lines.total(1 / size_K)  # turns per state
    if turns.age_K is not None:
        ages = Groups(turns.member_K, members)
        result |= {"age_mean": ages.mean(turns.age_K.float()), "age_max": ages.largest(turns.age_K)}
    return result


def by_member(metrics: dict[str, Tensor]) -> list[dict[str, float]]:
    """One dictionary per member; what a member has nothing of is left out."""
    columns = {name: column.tolist() for name, column in metrics.items()}
    members = len(next(iter(columns.values())))
    return [
        {name: column[m] for name, column in columns.items() if name in NEWS or not math.isnan(column[m])}
        for m in range(members)
    ]
