"""A reward made of others: the weighted sum of its parts, each of which is logged on its own."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from envs.core import Environment, Episode, Feature
from rewards.core import Bounds, Models, Range, Reward, Score, Verdict, evolvable, fault, of_member


@dataclass(frozen=True, kw_only=True)
class Composite(Reward):
    """outcome = sum of weight * outcome of the part; turn rewards likewise, over the parts that give them.

    Every component that comes with the package scores higher where the agent does better (penalties are 0 or below),
    so weights are positive. Components: `<part>`, the part's own outcome without its weight, and
    `<part>/<component>` for everything else that a part says about itself.

    Args:
        parts: name -> reward, each of which could also stand alone.
        weights: name -> what one unit of that part is worth, in reward units; one for every part.
    Raises:
        ValueError: where there is no part, a name cannot be one, or the weights do not fit.
    """

    parts: dict[str, Reward]
    weights: dict[str, float] = evolvable()

    def __post_init__(self) -> None:
        if not self.parts:
            raise ValueError(
                "a composite of no parts scores nothing; add one, say "
                "+reward@reward.parts.success=environment +reward.weights.success=1"
            )
        for name in self.parts.keys() - self.weights.keys():
            astray = ", ".join(sorted(self.weights.keys() - self.parts.keys()))
            more = f" (weights names {astray}, which is no part)" if astray else ""
            raise ValueError(
                f"the part {name} has no weight{more}; write {name}: 1 under weights, on the command line "
                f"+reward.weights.{name}=1"
            )
        for name in self.weights.keys() - self.parts.keys():
            raise ValueError(
                f"weights names {name}, and no part has that name (there is {', '.join(self.parts)}); "
                f"add one of that name, or take the weight away with ~reward.weights.{name}"
            )
        for name in self.parts:
            if "/" in name:
                raise ValueError(f"the part {name!r} has a slash in its name, which divides a part from its components")

    @property
    def needs(self) -> frozenset[Feature]:
        return frozenset().union(*(part.needs for part in self.parts.values()))

    @property
    def gives_turn_rewards(self) -> bool:
        return any(part.gives_turn_rewards for part in self.parts.values())

    @property
    def paid_by_turn(self) -> frozenset[str]:
        return frozenset(
            f"{name}.{inner}".rstrip(".") for name, part in self.parts.items() for inner in part.paid_by_turn
        )

    @property
    def kl_budget(self) -> float | None:
        return min((part.kl_budget for part in self.parts.values() if part.kl_budget is not None), default=None)

    @property
    def turn_reward_needs(self) -> frozenset[Feature]:
        return frozenset().union(*(part.turn_reward_needs for part in self.parts.values()))

    @property
    def relative(self) -> bool:
        return any(part.relative for part in self.parts.values())

    @property
    def once(self) -> bool:
        return any(part.once for part in self.parts.values())

    @property
    def component_names(self) -> frozenset[str]:
        own = {f"{name}/{inner}" for name, part in self.parts.items() for inner in part.component_names}
        return frozenset(self.parts) | own

    def bounds(self, env: Environment) -> Bounds | None:
        weighted = []
        for name, part in self.parts.items():
            bounds = part.bounds(env)
            if bounds is None:
                return None
            weighted.append((self.weights[name], bounds))
        return Bounds(
            failed_outcome=_total((weight, bounds.failed_outcome) for weight, bounds in weighted),
            succeeded_outcome=_total((weight, bounds.succeeded_outcome) for weight, bounds in weighted),
            failed_turns=_total((weight, bounds.failed_turns) for weight, bounds in weighted),
            succeeded_turns=_total((weight, bounds.succeeded_turns) for weight, bounds in weighted),
        )

    def check(self) -> None:
        for name, part in self.parts.items():
            with _keys_of(name):
                part.check()

    def attach(self, models: Models) -> None:
        for name, part in self.parts.items():
            with _keys_of(name):
                part.attach(models)

    def state(self) -> dict[str, Any]:
        return {name: state for name, part in self.parts.items() if (state := part.state())}

    def load_state(self, state: Mapping[str, Any]) -> None:
        for name, of_part in state.items():
            if name in self.parts:
                self.parts[name].load_state(of_part)

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        """Score one group.

        Raises:
            ValueError: a part gave the wrong number of scores or turn rewards, or one that is not finite, or it could
                not score the group, which only `judge` can pass on.
        """
        [verdict] = self.judge([group])
        if verdict.scores is None:
            raise ValueError(f"a part could not score task {group[0].task}; ask `judge`, which may drop a group")
        return verdict.scores

    def judge(self, groups: Sequence[Sequence[Episode]]) -> list[Verdict]:
        """Ask each part once for all groups. What one part cannot score has no score, and its calls count all the same.

        Raises:
            ValueError: as in `__call__`, for wrong numbers.
        """
        verdicts = {name: self._ask(name, groups) for name in self.parts}
        return [
            self._together(group, {name: given[i] for name, given in verdicts.items()})
            for i, group in enumerate(groups)
        ]

    def _ask(self, name: str, groups: Sequence[Sequence[Episode]]) -> list[Verdict]:
        """The verdicts of one part, checked."""
        who = f"the part {name} ({type(self.parts[name]).__name__})"
        try:
            verdicts = self.parts[name].judge(groups)
        except Exception as error:  # a part may be anybody's code
            raise ValueError(f"{who} raised {type(error).__name__}: {error}") from error
        if len(verdicts) != len(groups):
            raise ValueError(f"{who} gave {len(verdicts)} verdicts for {len(groups)} groups; give one per group")
        for group, verdict in zip(groups, verdicts, strict=True):
            if verdict.scores is None:
                continue
            if len(verdict.scores) != len(group):
                raise ValueError(
                    f"{who} gave {len(verdict.scores)} scores for the {len(group)} episodes of task {group[0].task}; "
                    "give exactly one per episode"
                )
            for episode, score in zip(group, verdict.scores, strict=True):
                if wrong := fault(score, episode):
                    raise ValueError(f"{who} gave task {episode.task} {wrong}")
        return verdicts

    def _together(self, group: Sequence[Episode], verdicts: Mapping[str, Verdict]) -> Verdict:
        metrics: dict[str, float] = {}
        for verdict in verdicts.values():
            for metric, count in verdict.metrics.items():
                metrics[metric] = metrics.get(metric, 0.0) + count
        of_parts = {name: verdict.scores for name, verdict in verdicts.items() if verdict.scores is not None}
        if len(of_parts) < len(verdicts):
            return Verdict(None, metrics)
        weights = {name: of_member(weight, group[0].member) for name, weight in self.weights.items()}
        scores = [self._sum({name: given[e] for name, given in of_parts.items()}, weights) for e in range(len(group))]
        return Verdict(scores, metrics)

    def _sum(self, scores: Mapping[str, Score], weights: Mapping[str, float]) -> Score:
        """The score of one episode from those of the parts."""
        weighted = [
            [weights[name] * reward for reward in score.turn_rewards]
            for name, score in scores.items()
            if score.turn_rewards is not None
        ]
        components = {name: score.outcome for name, score in scores.items()}
        for name, score in scores.items():
            components |= {f"{name}/{inner}": value for inner, value in score.components.items()}
        return Score(
            outcome=sum(weights[name] * score.outcome for name, score in scores.items()),
            turn_rewards=tuple(map(sum, zip(*weighted, strict=True))) if weighted else None,
            components=components,
        )


@contextmanager
def _keys_of(part: str) -> Iterator[None]:
    """Within: what a part complains about is named by the keys that it has here."""
    try:
        yield
    except ValueError as error:
        raise ValueError(re.sub(r"\breward\.", f"reward.parts.{part}.", str(error))) from error


def _total(weighted: Iterator[tuple[float, Range]]) -> Range:
    """Smallest and largest weighted sum; a negative weight turns a range round."""
    ends = [sorted((weight * low, weight * high)) for weight, (low, high) in weighted]
    return sum(low for low, _ in ends), sum(high for _, high in ends)
