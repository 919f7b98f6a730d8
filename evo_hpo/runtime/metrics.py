"""What the episodes of an update were like, per member."""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Sequence

from envs.core import Episode, StopReason
from evo_hpo.learner.scoring import Scored
from evo_hpo.tracking.alarms import repetition, top_action


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
        "overflow": statistics.fmean(float(e.stop is StopReason.CONTEXT_OVERFLOW) for e in played),
        "valid": statistics.fmean(float(t.valid) for t in turns),
        "truncated": statistics.fmean(float(t.truncated) for t in turns),
        "action_tokens": statistics.fmean(len(t.action_ids) for t in turns),
        "repetition": repetition(actions),
        "top_action": top_action(actions),
    }
    if in_groups:
        groups: dict[int, list[float]] = defaultdict(list)
        for index, total in zip(indices, returns, strict=True):
            groups[scored.episodes[index].group].append(total)
        metrics["zero_spread"] = statistics.fmean(float(max(g) - min(g) < 1e-6) for g in groups.values())
    components: dict[str, list[float]] = defaultdict(list)
    for index in indices:
        for name, value in scored.scores[index].components.items():
            components[name].append(value)
    for name, values in components.items():
        metrics[f"reward/{name}"] = statistics.fmean(values)
    return metrics
