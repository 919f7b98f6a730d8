"""What the episodes of an update were like, per member."""

from __future__ import annotations

import math
import statistics
from collections import defaultdict
from collections.abc import Sequence

from envs.core import Episode, StopReason
from evo_hpo.learner.scoring import Scored
from evo_hpo.tracking.alarms import repetition, top_action
from evo_hpo.tracking.turnwise import turn_name


def episode_metrics(
    episodes: Sequence[Episode], scored: Scored, members: int, in_groups: bool
) -> list[dict[str, float]]:
    """One dictionary per member.

    Args:
        episodes: all of them, failed ones too.
        scored: those that are learned from.
        in_groups: whether the estimator learns nothing from a group with equal rewards (then `zero_spread` is given).
    """
    result: list[dict[str, float]] = []
    for member in range(members):
        mine = [e for e in episodes if e.member == member]
        indices = [i for i, e in enumerate(scored.episodes) if e.member == member]
        metrics = {"failed": sum(e.failed for e in mine) / max(len(mine), 1)}
        if indices:
            metrics |= _of_scored(scored, indices, in_groups)
        metrics |= scored.metrics.get(member, {})
        result.append(metrics)
    return result


def _of_scored(scored: Scored, indices: list[int], in_groups: bool) -> dict[str, float]:
    played = [scored.episodes[i] for i in indices]
    turns = [turn for episode in played for turn in episode.turns]
    actions = [turn.action for turn in turns]
    returns = [sum(scored.turn_rewards[i]) for i in indices]
    metrics = {
        "reward": statistics.fmean(returns),
        "reward_std": statistics.pstdev(returns),
        "success": statistics.fmean(float(e.success) for e in played),
        "turns": statistics.fmean(len(e.turns) for e in played),
        "turns_max": float(max(len(e.turns) for e in played)),
        "overflow": statistics.fmean(float(e.stop is StopReason.CONTEXT_OVERFLOW) for e in played),
        "valid": statistics.fmean(float(t.valid) for t in turns),
        "void": statistics.fmean(float(not all(t.valid for t in e.turns)) for e in played),
        "truncated": statistics.fmean(float(t.truncated) for t in turns),
        "action_tokens": statistics.fmean(len(t.action_ids) for t in turns),
        "repetition": repetition(actions),
        "top_action": top_action(actions),
    }
    metrics |= _of_groups(scored, indices, returns, in_groups) | _of_turns(scored, indices)
    metrics |= _of_turn_rewards(scored, indices)
    components: dict[str, list[float]] = defaultdict(list)
    for index in indices:
        for name, value in scored.scores[index].components.items():
            components[name].append(value)
    for name, values in components.items():
        metrics[f"reward/{name}"] = statistics.fmean(values)
    return metrics


def _of_groups(scored: Scored, indices: list[int], returns: list[float], in_groups: bool) -> dict[str, float]:
    """What attempts at the same task have in common; nothing where there is one attempt at each."""
    groups: dict[int, list[tuple[float, bool]]] = defaultdict(list)
    for index, total in zip(indices, returns, strict=True):
        groups[scored.episodes[index].group].append((total, scored.episodes[index].success))
    several = [group for group in groups.values() if len(group) > 1]
    metrics = {}
    if several:
        metrics = {
            "group_std": statistics.fmean(statistics.pstdev(total for total, _ in group) for group in several),
            "all_fail": statistics.fmean(float(not any(success for _, success in group)) for group in several),
            "all_success": statistics.fmean(float(all(success for _, success in group)) for group in several),
        }
    if in_groups:
        ranges = [max(group)[0] - min(group)[0] for group in groups.values()]
        metrics["zero_spread"] = statistics.fmean(float(width < 1e-6) for width in ranges)
    return metrics


def _of_turn_rewards(scored: Scored, indices: list[int]) -> dict[str, float]:
    """Whether turn rewards and outcome want the same; nothing where the reward gives no turn rewards."""
    outcomes = [scored.scores[i].outcome for i in indices]
    metrics = {"outcome": statistics.fmean(outcomes)}
    sums = [math.fsum(rewards) for i in indices if (rewards := scored.scores[i].turn_rewards) is not None]
    if len(sums) < len(indices):
        return metrics
    metrics["turn_reward_sum"] = statistics.fmean(sums)
    if scored.mixed:
        groups: dict[int, list[tuple[float, float]]] = defaultdict(list)
        for index, outcome in zip(indices, outcomes, strict=True):
            groups[scored.episodes[index].group].append((outcome, math.fsum(scored.turn_rewards[index])))
        pairs = [(a, b) for group in groups.values() for a in group for b in group if a[0] > b[0]]
        if pairs:
            metrics["overruled"] = statistics.fmean(float(better[1] <= worse[1]) for better, worse in pairs)
    return metrics


def contradictions(scored: Scored, member: int, count: int = 3) -> list[int]:
    """Places in `scored` of the member's episodes that were paid best for the worst outcome, worst first.

    Paid is the sum of turn rewards where there are any, else the outcome, against success.
    """
    indices = [i for i, episode in enumerate(scored.episodes) if episode.member == member]

    def contrast(i: int) -> tuple[float, float]:
        score = scored.scores[i]
        if score.turn_rewards is None:
            return float(scored.episodes[i].success), -score.outcome
        return score.outcome, -math.fsum(score.turn_rewards)

    return sorted(indices, key=contrast)[:count]


def turn_outcome_correlation(pairs: Sequence[tuple[float, float]]) -> float | None:
    """Spearman's rank correlation of (sum of turn rewards, outcome) of episodes; None where one of them is constant."""
    if len(pairs) < 3 or any(len(set(column)) < 2 for column in zip(*pairs, strict=True)):
        return None
    ranks = [_ranks(column) for column in zip(*pairs, strict=True)]
    return statistics.correlation(*ranks)


def _ranks(values: Sequence[float]) -> list[float]:
    """Rank of each value, equals share the mean of theirs."""
    order = sorted(range(len(values)), key=values.__getitem__)
    ranks = [0.0] * len(values)
    start = 0
    while start < len(order):
        stop = start
        while stop < len(order) and values[order[stop]] == values[order[start]]:
            stop += 1
        for place in order[start:stop]:
            ranks[place] = (start + stop - 1) / 2
        start = stop
    return ranks


def _of_turns(scored: Scored, indices: list[int]) -> dict[str, float]:
    """Means over the turns of one index."""
    values: dict[str, list[float]] = defaultdict(list)
    for index in indices:
        turns = scored.episodes[index].turns
        for k, (turn, reward) in enumerate(zip(turns, scored.turn_rewards[index], strict=True)):
            values[turn_name("valid", k)].append(float(turn.valid))
            values[turn_name("reward", k)].append(reward)
    return {name: statistics.fmean(own) for name, own in values.items()}
