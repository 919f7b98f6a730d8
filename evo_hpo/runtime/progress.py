"""How far a run is: everything but tensors that a resumed run needs to end as if it had never stopped."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any


@dataclass
class Progress:
    """Counters, hyperparameters and history; JSON types only."""

    stage: int = 0  # index into pipeline.order
    stage_generation: int = 0  # generations of this stage that are complete
    generation: int = 0  # complete ones, over all stages
    update: int = 0  # over all stages
    policy_tokens: int = 0
    environment_turns: int = 0
    seconds: float = 0.0
    spent: dict[str, float] = field(default_factory=dict)  # when the latest generation was measured, before selection
    latest: dict[str, float] = field(default_factory=dict)  # what it cost, with the selection before it
    slots: list[int] = field(default_factory=list)  # those that are still filled, in the order of the members
    values: dict[str, list[Any]] = field(default_factory=dict)  # evolving key -> value of each member
    condemned: dict[str, str] = field(default_factory=dict)  # member -> why it loses the next selection
    fitness: list[list[float | None]] = field(default_factory=list)  # [rate, low, high] of each member, last generation
    base: dict[str, Any] = field(default_factory=dict)  # success of the base on the final tasks, and its fitness
    history: list[dict[str, Any]] = field(default_factory=list)  # a `selection` entry for each generation
    champion: dict[str, Any] = field(default_factory=dict)  # best member of any generation, where members begin anew
    reward: dict[str, Any] = field(default_factory=dict)  # what the reward must know when it goes on (money spent, say)
    alarms: list[dict[str, Any]] = field(default_factory=list)

    def state(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def of(cls, state: dict[str, Any]) -> Progress:
        return cls(**state)

    def costs(self) -> dict[str, float]:
        """What was spent so far, by name of the budget."""
        spent = {"policy_tokens": self.policy_tokens, "environment_turns": self.environment_turns}
        return {**spent, "updates": self.update, "seconds": self.seconds}

    def condemn(self, member: int, reason: str) -> None:
        """Make a member lose the next selection; the first reason counts."""
        self.condemned.setdefault(str(member), reason)

    def best(self) -> int:
        """The member with the best fitness in the last generation.

        One that is condemned is chosen only if all are, by the lower end of its interval.
        """

        def worth(member: int) -> tuple[float, float]:
            rate, low, _ = self.fitness[member]
            return (-1.0 if rate is None else rate, -1.0 if low is None else low)

        return max(range(len(self.fitness)), key=worth)

    @property
    def crowned(self) -> dict[str, Any] | None:
        """The champion, where it is better than the best member of the last generation."""
        present = self.fitness[self.best()][0]
        return self.champion if self.champion and (present is None or self.champion["fitness"] > present) else None

    def schedule(self, member: int, last: int | None = None) -> list[dict[str, Any]]:
        """Hyperparameters, generation by generation, of the weights that `member` holds: its ancestors' and its own.

        Args:
            member: its place in the generation `last`.
            last: number of a generation; None: the latest.
        Returns:
            Since it began: where a member began anew, what was before is another's.
        """
        steps = []
        slot, end = member, len(self.history) - 1 if last is None else last
        for number in range(end, -1, -1):
            entry = self.history[number]
            if number < end:
                if entry["events"][slot] == "restarted":
                    break
                slot = entry["parents"][slot]
            steps.append(
                {
                    "generation": number,
                    "stage": entry["stage"],
                    "updates": entry["updates"],
                    "member": entry["slots"][slot],
                    "hyperparameters": {
                        key: column[slot] for key, column in entry["values"].items() if column[slot] is not None
                    },
                }
            )
        return steps[::-1]
