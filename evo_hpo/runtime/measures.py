"""What members are worth: success of agents in the environment, or how well scorers order episodes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from algorithms.scorers import RewardModel, ScorerAlgorithm
from envs.core import Episode
from evo_hpo.config.errors import UserError
from evo_hpo.config.schema import Config
from evo_hpo.learner.batch import Batch, build_batch
from evo_hpo.learner.from_scores import right_order, scores
from evo_hpo.learner.learner import Learner
from evo_hpo.learner.pairs import Pair, episodes_of, read_pairs, split
from evo_hpo.learner.scoring import Scored, score
from evo_hpo.policy.noise import generator
from evo_hpo.runtime.evaluate import Player, Success
from evo_hpo.runtime.tasks import Tasks
from evo_hpo.tracking.statistics import wilson
from rewards.core import Score

BINS = 10  # of the calibration


class Measure(ABC):
    """Measures fitness on one held-out part and the result on another; both are the same in every run."""

    of: str = "tasks"  # what is counted, for sentences
    about: str = "success"  # what the share is of

    @abstractmethod
    def fitness(
        self, learner: Learner | None, generation: int, members: Sequence[int] | None = None, again: int = 0
    ) -> tuple[list[Success], list[Episode]]:
        """One per member, and the episodes that were played for it; `members` and `again` as in `Player.fitness`."""

    @abstractmethod
    def start(self) -> tuple[Success, Success, list[Episode]]:
        """The result, and the fitness, of what the members start from, and the episodes that were played for it."""

    @abstractmethod
    def final(self, learner: Learner | None) -> tuple[Success, list[Episode]]:
        """Of the one agent or scorer that all members hold at the moment."""

    @property
    @abstractmethod
    def final_size(self) -> int:
        """Tasks or pairs of the result."""

    def details(self) -> dict[str, Any]:
        """More about what `final` measured last, for the result."""
        return {}


class Played(Measure):
    """Success in the environment."""

    def __init__(self, config: Config, player: Player, tasks: Tasks) -> None:
        self.player, self.of = player, tasks.held_out_by
        self.fitness_tasks = tasks.of("fitness", config.evaluation.tasks)
        self.final_tasks = tasks.of("final", config.evaluation.final_tasks)

    def fitness(
        self, learner: Learner | None, generation: int, members: Sequence[int] | None = None, again: int = 0
    ) -> tuple[list[Success], list[Episode]]:
        return self.player.fitness(self.fitness_tasks, generation, members, again)

    def start(self) -> tuple[Success, Success, list[Episode]]:
        (final, played), (fitness, more) = self.player.final(self.final_tasks), self.player.final(self.fitness_tasks)
        return final, fitness, played + more

    def final(self, learner: Learner | None) -> tuple[Success, list[Episode]]:
        return self.player.final(self.final_tasks)

    @property
    def final_size(self) -> int:
        return len(self.final_tasks)


class Ordered(Measure):
    """How often a scorer gives the better of two episodes the higher score; equals count half.

    A progress model is asked about the episodes of the fitness tasks and of the final ones; every two with different
    outcomes are compared, and the interval counts only as many pairs as there are episodes. A reward model is asked
    about held-out pairs.
    """

    of, about = "pairs", "pairs in the right order"

    def __init__(self, config: Config, algorithm: ScorerAlgorithm, player: Player, tasks: Tasks) -> None:
        self.config, self.algorithm, self.player = config, algorithm, player
        self.pairs = Pairs(config, algorithm, player) if isinstance(algorithm, RewardModel) else None
        self.played = None if self.pairs else Played(config, player, tasks)
        if self.played is not None:
            self.of = self.played.of
        self._details: dict[str, Any] = {}

    def fitness(
        self, learner: Learner | None, generation: int, members: Sequence[int] | None = None, again: int = 0
    ) -> tuple[list[Success], list[Episode]]:
        if self.pairs is not None:
            scored, episodes = self.pairs.held_out("fitness", for_all=True), list[Episode]()
        else:
            assert self.played is not None
            _, episodes = self.played.fitness(None, generation, members, again)
            scored = score(episodes, self.config.reward, self.config.granularity, 0, self.player.processes)
        better_Q, worse_Q, member_Q, episodes_N, _ = self._ranked(learner, scored)
        order_Q = right_order(better_Q, worse_Q)
        found = []
        for member in range(self.player.policy.members):
            mine_Q = order_Q[member_Q == member]
            found.append(_success(mine_Q, episodes_N[member], paired=self.pairs is not None))
        return found, episodes

    def start(self) -> tuple[Success, Success, list[Episode]]:
        """Nothing was learned, so every score is 0 and half of the pairs count as right."""
        (final, played), (fitness, more) = self.final(None), self.fitness(None, 0)
        return final, fitness[0], played + more

    def final(self, learner: Learner | None) -> tuple[Success, list[Episode]]:
        if self.pairs is not None:
            scored, episodes = self.pairs.held_out("final", for_all=False), list[Episode]()
        else:
            assert self.played is not None
            _, episodes = self.played.final(None)
            scored = score(episodes, self.config.reward, self.config.granularity, 0, self.player.processes)
        better_Q, worse_Q, _, episodes_N, score_K = self._ranked(learner, scored, together=self.pairs is None)
        if self.pairs is not None:
            self._details = {"calibration": calibration(better_Q - worse_Q)}
        last = torch.stack([part[-1] for part in score_K.split([len(e.turns) for e in scored.episodes])])
        spread = last if self.pairs is not None else score_K
        self._details |= {"mean": float(spread.mean()), "std": max(float(spread.std(unbiased=False)), 1e-6)}
        return _success(right_order(better_Q, worse_Q), sum(episodes_N)), episodes

    @property
    def final_size(self) -> int:
        if self.pairs is not None:
            return len(self.pairs.parts["final"])
        assert self.played is not None
        return self.played.final_size

    def details(self) -> dict[str, Any]:
        return self._details

    def _ranked(
        self, learner: Learner | None, scored: Scored, together: bool = False
    ) -> tuple[Tensor, Tensor, Tensor, list[int], Tensor]:
        """What the algorithm compares, how many episodes (or pairs) of each member that rests on, and all scores.

        Args:
            learner: None before the first stage begins, when every score is 0.
            together: the members hold the same scorer, and their episodes are compared with each other.
        """
        if not scored.episodes:
            raise UserError(
                "not one held-out episode could be played and scored; look at `error` in episodes.jsonl, and at what "
                "the reward said"
            )
        policy = self.player.policy
        batch = batch_of(scored, policy.members, policy.base.device)
        score_K = torch.zeros(len(batch.turns.index_K), device=policy.base.device)
        if learner is not None:
            score_K = scores(learner.passes, batch)
        turns = batch.turns
        if together:
            turns = replace(turns, member_E=torch.zeros_like(turns.member_E))
        better_Q, worse_Q, member_Q = self.algorithm.ranked(score_K, turns)
        counted = turns.member_E.bincount(minlength=policy.members)
        halves = 2 if self.pairs is not None else 1
        return better_Q, worse_Q, member_Q, (counted // halves).tolist(), score_K


class Pairs:
    """Preference pairs, encoded once: those to learn from and the two held-out parts."""

    def __init__(self, config: Config, algorithm: RewardModel, player: Player) -> None:
        self.config, self.algorithm, self.policy = config, algorithm, player.policy
        self.parts = split(read_pairs(algorithm.data), config.evaluation.held_out)
        self._chat, self._encoded = player.policy.base.chat, dict[str, tuple[Episode, Episode]]()

    def training(self, update: int) -> Scored:
        """The pairs of one update, the same for every member; each pass over them is in an order of its own."""
        pairs, size = self.parts["train"], self.algorithm.batch
        chosen = []
        for place in range(update * size, (update + 1) * size):
            lap, index = divmod(place, len(pairs))
            order = generator(self.config.seed, "pairs", lap).permutation(len(pairs))
            chosen.append(pairs[int(order[index])])
        return self._scored(chosen, for_all=True)

    def held_out(self, part: str, for_all: bool) -> Scored:
        """A held-out part, by every member, or split between them."""
        return self._scored(self.parts[part], for_all)

    def _scored(self, pairs: Sequence[Pair], for_all: bool) -> Scored:
        episodes: list[Episode] = []
        members = self.policy.members
        for group, pair in enumerate(pairs):
            if pair.where not in self._encoded:
                self._encoded[pair.where] = episodes_of(pair, self._chat, 0, self.config.rollout.max_context)
            for member in range(members) if for_all else [group % members]:
                for one in self._encoded[pair.where]:
                    episodes.append(Episode(one.task, member, group, one.turns, one.stop))
        outcomes = [1.0, 0.0] * (len(episodes) // 2)
        paid = [[0.0] * (len(e.turns) - 1) + [outcome] for e, outcome in zip(episodes, outcomes, strict=True)]
        return Scored(episodes, [Score(outcome) for outcome in outcomes], paid)


def batch_of(scored: Scored, members: int, device: torch.device, pad_id: int = 0, version: int = 0) -> Batch:
    """Rows and tables of scored episodes."""
    return build_batch(
        scored.episodes,
        scored.turn_rewards,
        [one.outcome for one in scored.scores],
        members,
        pad_id,
        device,
        version,
        [one.components for one in scored.scores],
    )


def calibration(margin_Q: Tensor) -> dict[str, float]:
    """How far the probabilities that a Bradley-Terry model gives can be believed.

    Args:
        margin_Q: [Q] score of the better episode minus score of the worse one.
    Returns:
        `expected_error`: mean distance of confidence and accuracy over bins of confidence (ECE, Naeini et al. 2015);
        `brier`: mean squared error of the probability; `log_loss` in nats; `confidence`: mean probability of whatever
        was thought the better one.
    """
    chosen_Q = torch.sigmoid(margin_Q.double())
    confidence_Q, right_Q = torch.maximum(chosen_Q, 1 - chosen_Q), right_order(margin_Q, torch.zeros_like(margin_Q))
    bin_Q = ((confidence_Q - 0.5) * 2 * BINS).long().clamp(max=BINS - 1)
    error = 0.0
    for b in bin_Q.unique().tolist():
        inside = bin_Q == b
        gap = confidence_Q[inside].mean() - right_Q[inside].double().mean()
        error += float(gap.abs()) * float(inside.double().mean())
    return {
        "expected_error": error,
        "brier": float((1 - chosen_Q).square().mean()),
        "log_loss": float(-torch.nn.functional.logsigmoid(margin_Q.double()).mean()),
        "confidence": float(confidence_Q.mean()),
    }


def _success(order_Q: Tensor, count: int, paired: bool = False) -> Success:
    """The share in the right order, with the interval of `count` independent ones.

    Args:
        paired: what is compared is the same for every member, so that each comparison is a result of its own.
    """
    if not order_Q.numel() or not count or not order_Q.isfinite().all():
        return Success(float("nan"), float("nan"), float("nan"), 0)
    rate = float(order_Q.mean())
    _, low, high = wilson(rate * count, count)
    return Success(rate, low, high, count, tuple(order_Q.tolist()) if paired else (rate,))
