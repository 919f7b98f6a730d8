"""When a run goes wrong it says so: rules over the metrics of each member, and for each a sentence on what to do."""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from evo_hpo.tracking import hacking, trends
from evo_hpo.tracking.core import Alarm, GenerationRecord, UpdateRecord
from evo_hpo.tracking.trends import COLLAPSED, RECENT, SKILLED, Metrics

SOLVED = 0.99  # success above which a member has nothing left to learn
LOOP = re.compile(r"(.{1,8}?)\1{3,}", re.DOTALL)  # up to eight characters, four times or more in a row
READ = 2_000  # characters of an action that are looked at


def repetition(actions: Sequence[str]) -> float:
    """Share of all characters that stand in a loop: one to eight characters, four times or more in a row.

    0 for ordinary text, near 1 for a model that collapsed to `aaaaaaaa` or `left left left left`; 0 for no text.
    """
    read = [action[:READ] for action in actions]
    looped = sum(match.end() - match.start() for action in read for match in LOOP.finditer(action))
    total = sum(len(action) for action in read)
    return looped / total if total else 0.0


def top_action(actions: Sequence[str]) -> float:
    """Share of the most common action text, apart from spaces around it; 0 where there are no actions."""
    if not actions:
        return 0.0
    return Counter(action.strip() for action in actions).most_common(1)[0][1] / len(actions)


def no_signal(metrics: Metrics) -> str | None:
    cause = _without_signal(metrics)
    if cause is None or _get(metrics, "success", 0) >= SOLVED:
        return None
    return (
        f"{cause}, so nothing is learned: use easier tasks, a larger rollout.group_size, a higher rollout.temperature, "
        "or a reward that gives credit for progress"
    )


def solved(metrics: Metrics) -> str | None:
    cause = _without_signal(metrics)
    if cause is None or _get(metrics, "success", 0) < SOLVED:
        return None
    return f"{cause}: it solves every task, so use harder tasks or stop here"


def _without_signal(metrics: Metrics) -> str | None:
    if _get(metrics, "grad_norm", math.inf) == 0:
        return "its gradient is exactly zero"
    if _get(metrics, "zero_spread", 0) >= 1:
        return "all episodes of each group have the same reward"
    if _get(metrics, "compared", 1) == 0:
        return "none of its episodes is better than another"
    if _get(metrics, "reward_std", math.inf) == 0:
        return f"all its episodes have the same reward, {_get(metrics, 'reward', math.nan):.3g}"
    return None


def degenerate_text(metrics: Metrics) -> str | None:
    advice = "lower the learning rate, raise the KL coefficient, or start again from an earlier checkpoint"
    loops = _get(metrics, "repetition", 0)
    if loops > 0.5:
        return f"{loops:.0%} of what it writes is the same few characters over and over; {advice}"
    same = _get(metrics, "top_action", 0)
    if same > 0.98 and _get(metrics, "success", 0) < SKILLED:
        return f"{same:.0%} of its actions are the same text; {advice}"
    return None


def entropy_collapse(metrics: Metrics) -> str | None:
    entropy = _get(metrics, "entropy", math.inf)
    if entropy >= COLLAPSED or _get(metrics, "success", 0) >= SKILLED:
        return None
    return (
        f"its entropy fell to {entropy:.3g} nats a token at success {_get(metrics, 'success', 0):.0%}, so it explores "
        "no more: raise the entropy coefficient or clip_high, or lower the learning rate"
    )


def ratio_explosion(metrics: Metrics) -> str | None:
    ratio = _get(metrics, "ratio_max", 0)
    if ratio <= 20:
        return None
    return (
        f"a probability ratio reached {ratio:.3g}, far from the policy that sampled: lower the learning rate, do fewer "
        "passes over a batch, or clip tighter"
    )


def few_effective_samples(metrics: Metrics) -> str | None:
    share = _get(metrics, "ess", 1)
    if share >= 0.3:
        return None
    return (
        f"its samples are worth only {share:.0%} of their number, because trainer and sampler disagree about their "
        "probabilities: learn from fresher rollouts (rollout.ahead), lower the learning rate, or add a correction "
        "(conf/algorithm/correction)"
    )


def sampler_gap(metrics: Metrics) -> str | None:
    gap = _get(metrics, "gap_mean", 0)
    if gap <= 0.1:
        return None
    return (
        f"sampler and trainer are {gap:.3g} nats a token apart about the same tokens: make sure that both use the same "
        "weights, precision, temperature and template, learn from fresher rollouts (rollout.ahead), or add a "
        "correction (conf/algorithm/correction)"
    )


def not_finite(metrics: Metrics) -> str | None:
    bad = [name for name in ("loss", "grad_norm") if name in metrics and not math.isfinite(metrics[name])]
    if not bad and metrics.get("finite", 1) != 0:
        return None
    return (
        f"its {' and '.join(bad) or 'loss or gradient'} was not finite, so the update was skipped; it is replaced at "
        "the next evolution step. If it happens often, lower the upper bound of the learning rate"
    )


def env_failures(metrics: Metrics) -> str | None:
    share = _get(metrics, "failed", 0)
    if share <= 0.2:
        return None
    return (
        f"the environment failed in {share:.0%} of its episodes, which were dropped: read `error` in episodes.jsonl, "
        "and raise rollout.step_timeout if they ran out of time"
    )


def context_overflow(metrics: Metrics) -> str | None:
    share = _get(metrics, "overflow", 0)
    if share <= 0.2:
        return None
    return (
        f"{share:.0%} of its episodes ended because the context was full: raise rollout.max_context, or use an "
        "environment with shorter observations or fewer turns"
    )


RULES: dict[str, tuple[int, Callable[[Metrics], str | None]]] = {  # kind: (updates in a row, rule)
    "no_signal": (5, no_signal),
    "solved": (5, solved),
    "degenerate_text": (1, degenerate_text),
    "entropy_collapse": (3, entropy_collapse),
    "ratio_explosion": (1, ratio_explosion),
    "few_effective_samples": (2, few_effective_samples),
    "sampler_gap": (3, sampler_gap),
    "not_finite": (1, not_finite),
    "env_failures": (1, env_failures),
    "context_overflow": (1, context_overflow),
    **hacking.RULES,
}
TRENDS = trends.TRENDS | hacking.TRENDS
KEPT = frozenset(trends.REMEMBERED) | frozenset(hacking.REMEMBERED)
KINDS = (*RULES, *TRENDS)
# what the member's own learning brought about; not environment, context, sampler or a solved task
REPLACEABLE = frozenset(KINDS) - {
    *("env_failures", "context_overflow", "few_effective_samples", "sampler_gap", "solved"),
    *("judge_failures", "judge_budget"),
}


@dataclass
class Watch:
    """Turns metrics into alarms: one for each member and kind, and none again until the condition has cleared.

    Metrics it reads, all of one member and one update; one that is missing is not judged:

    - `grad_norm`: before clipping. `loss`. `finite`: 0 where the update was skipped because one was not finite.
    - `reward`, `reward_std`: mean and spread over episodes of the reward of a whole episode.
    - `zero_spread`: share of groups with equal rewards; only where the estimator learns nothing from such groups.
    - `compared`: pairs of episodes, one better than the other, that a scorer learns from.
    - `overflow`: share of episodes that ran out of context.
    - `success`: share of episodes. `failed`: share of episodes that the environment broke.
    - `group_std`: mean over groups of the spread of rewards within one.
    - `entropy`: nats per token. `ratio_max`: largest probability ratio of a trained token.
    - `gap_mean`: mean distance in nats between sampler and trainer. `ess`: share of samples that are left in effect.
    - `turn_reward_sum`, `outcome`: means over episodes. `overruled`: share of comparisons within groups in which turn
      rewards turn the outcome round. `kl`, `kl_limit`: nats per token. `judge/…`: counts of the update.
    - `repetition`, `top_action`: as the functions of this module give them for the actions of the batch.

    `clip_fraction_low`, `clip_fraction_high`, `valid` (share of turns), `turns` (per episode), `action_tokens`
    and `truncated` (share of actions) are shown by the trackers but raise no alarm.
    """

    _streak: Counter[tuple[int, str]] = field(default_factory=Counter, init=False, repr=False)
    _raised: set[tuple[int, str]] = field(default_factory=set, init=False, repr=False)
    _recent: dict[int, deque[dict[str, float]]] = field(
        default_factory=lambda: defaultdict(lambda: deque(maxlen=RECENT)), init=False, repr=False
    )

    def update(self, record: UpdateRecord) -> list[Alarm]:
        """The alarms that this update sets off."""
        alarms = []
        for part in record.members:
            earlier = self._recent[part.member]
            for kind, (patience, rule) in RULES.items():
                alarms += self._judge(record, part.member, kind, patience, rule(part.metrics))
            for kind, (patience, trend) in TRENDS.items():
                alarms += self._judge(record, part.member, kind, patience, trend(earlier, part.metrics))
            known = {name: float(part.metrics[name]) for name in KEPT if name in part.metrics}
            earlier.append({name: value for name, value in known.items() if math.isfinite(value)})
        return alarms

    def generation(self, record: GenerationRecord) -> None:
        """Forget what was known of slots that were filled with another member's weights."""
        for member in record.members:
            if member.parent != member.member or member.event == "rescued":
                self._recent.pop(member.member, None)
                for kind in KINDS:
                    self._clear(member.member, kind)

    def state_dict(self) -> dict[str, Any]:
        """Everything a resumed run needs to raise the same alarms as one that was never stopped, as JSON types."""
        return {
            "streak": [[member, kind, count] for (member, kind), count in sorted(self._streak.items())],
            "raised": [list(place) for place in sorted(self._raised)],
            "recent": [[member, list(recent)] for member, recent in sorted(self._recent.items())],
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        self._streak = Counter({(int(member), str(kind)): int(count) for member, kind, count in state["streak"]})
        self._raised = {(int(member), str(kind)) for member, kind in state["raised"]}
        self._recent.clear()
        for member, recent in state["recent"]:
            self._recent[int(member)].extend(dict(each) for each in recent)

    def _judge(self, record: UpdateRecord, member: int, kind: str, patience: int, finding: str | None) -> list[Alarm]:
        place = (member, kind)
        if finding is None:
            self._clear(member, kind)
            return []
        self._streak[place] += 1
        if self._streak[place] < patience or place in self._raised:
            return []
        self._raised.add(place)
        lasting = f"for {patience} updates " if patience > 1 else ""
        text = f"Member {member}: {lasting}{finding}."
        return [Alarm(kind, text, generation=record.generation, update=record.update, member=member)]

    def _clear(self, member: int, kind: str) -> None:
        self._streak.pop((member, kind), None)
        self._raised.discard((member, kind))


def _get(metrics: Metrics, name: str, missing: float) -> float:
    """The metric, or `missing` where it is absent or not finite (not_finite reports that)."""
    value = metrics.get(name, missing)
    return value if math.isfinite(value) else missing
