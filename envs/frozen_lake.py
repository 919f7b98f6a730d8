"""FrozenLake in text, on Gymnasium's own dynamics: random solvable maps from seeds, one move per turn."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from typing import Any, ClassVar

import numpy as np
from gymnasium.envs.toy_text.frozen_lake import FrozenLakeEnv, generate_random_map

from envs.core import Environment, Feature, Step

MOVES = ("left", "down", "right", "up")  # index = Gymnasium's action number
CHOICE = "left, down, right or up"
SYMBOLS = str.maketrans({"S": ".", "F": ".", "H": "#", "G": "*"})
AGENT = "@"
DISCOUNT = 0.99  # of the slippery expert: below 1, so that it does not dawdle
SLIP_STREAM = 1 << 60  # added to the seed: from the map's own stream, holes would foretell the slips


@dataclass(frozen=True)
class Lake:
    """One map: Gymnasium's environment for it, and what can be computed once per map. Shared, never mutated."""

    rows: tuple[str, ...]
    slippery: bool

    @cached_property
    def gym(self) -> FrozenLakeEnv:
        """A prototype; copy it (shallowly: the transition table is read-only) before playing."""
        return FrozenLakeEnv(desc=list(self.rows), is_slippery=self.slippery)

    @cached_property
    def grid(self) -> str:
        return "\n".join(self.rows).translate(SYMBOLS)

    @cached_property
    def ends(self) -> frozenset[int]:
        """Cells where the episode is over: holes and the goal."""
        return frozenset(cell for cell, letter in enumerate("".join(self.rows)) if letter in "HG")

    @cached_property
    def distance(self) -> list[int]:
        """[cells] moves to the goal around the holes; a hole counts one more than the furthest cell."""
        size, cells = len(self.rows), "".join(self.rows)
        found = {len(cells) - 1: 0}
        frontier = deque(found)
        while frontier:
            cell = frontier.popleft()
            row, column = divmod(cell, size)
            for r, c in ((row, column - 1), (row + 1, column), (row, column + 1), (row - 1, column)):
                near = r * size + c
                if 0 <= r < size and 0 <= c < size and cells[near] != "H" and near not in found:
                    found[near] = found[cell] + 1
                    frontier.append(near)
        lost = max(found.values()) + 1
        return [found.get(cell, lost) for cell in range(len(cells))]

    @cached_property
    def best(self) -> list[int]:
        """[cells] a best action: along a shortest path, or by value iteration where the ice is slippery."""
        table = self.gym.P
        if not self.slippery:
            return [min(range(4), key=lambda a: self.distance[table[cell][a][0][1]]) for cell in range(len(table))]
        onward, reward = np.zeros((len(table), 4, len(table))), np.zeros((len(table), 4))
        for cell, moves in table.items():
            for action, outcomes in moves.items():
                for probability, after, gain, over in outcomes:
                    reward[cell, action] += probability * gain
                    onward[cell, action, after] += 0.0 if over else probability
        value, change = np.zeros(len(table)), 1.0
        while change > 1e-6:
            action_value = reward + DISCOUNT * onward @ value
            change = float(np.abs(action_value.max(axis=1) - value).max())
            value = action_value.max(axis=1)
        return [int(action) for action in action_value.argmax(axis=1)]


@lru_cache(maxsize=256)  # all members and groups play the same tasks; 100 kB for the largest slippery map
def lake_of(rows: tuple[str, ...], slippery: bool) -> Lake:
    return Lake(rows, slippery)


@lru_cache(maxsize=4096)
def draw_map(size: int, frozen_probability: float, slippery: bool, max_turns: int, seed: int) -> tuple[str, ...]:
    """Gymnasium's random map of `seed`; where that needs more than `max_turns` moves, the next one of the seed.

    Inside the bounds that FrozenLake sets this takes 40 ms at the very worst (size 12, half of it holes).
    """
    rows = tuple(generate_random_map(size, frozen_probability, seed))
    while lake_of(rows, slippery).distance[0] > max_turns:
        seed += 1 << 32
        rows = tuple(generate_random_map(size, frozen_probability, seed))
    return rows


@dataclass
class FrozenLake(Environment):
    """Walk from the upper left corner to the goal in the lower right one without falling into a hole.

    The turn reward is the decrease of the distance to the goal (around the holes), as a share of the distance at the
    start: it sums to 1 on success and is negative for a fall, which counts as one move beyond the furthest cell.
    The task key is the map. On slippery ice (Gymnasium's own: a move goes where it should, or to either side of that,
    with 1/3 each) the expert maximises the discounted chance of reaching the goal and does not always win.

    Raises:
        ValueError: where the settings admit no winnable map.
    """

    size: int = 4
    frozen_probability: float = 0.8
    slippery: bool = False
    max_turns: int = 12

    _lake: Lake | None = field(default=None, init=False, repr=False, compare=False)
    _gym: FrozenLakeEnv | None = field(default=None, init=False, repr=False, compare=False)

    features: ClassVar[frozenset[Feature]] = frozenset(Feature) - {Feature.FIXED_TURNS, Feature.ANSWER}

    def __post_init__(self) -> None:
        if not 2 <= self.size <= 12:
            raise ValueError(f"frozen_lake: size is {self.size}; write a number of cells from 2 to 12")
        if not 0.5 <= self.frozen_probability <= 1:
            raise ValueError(
                f"frozen_lake: frozen_probability is {self.frozen_probability}; write a number from 0.5 to 1"
            )
        if self.max_turns < 2 * (self.size - 1):
            raise ValueError(
                f"frozen_lake: the goal of a map of size {self.size} is at least {2 * (self.size - 1)} moves away and "
                f"max_turns is {self.max_turns}; write max_turns: {3 * self.size}"
            )

    @property
    def instructions(self) -> str:
        slip = " The ice is slippery: two moves in three go to one side of where you wanted." if self.slippery else ""
        return (
            f"You ({AGENT}) stand on a frozen lake of ice (.), holes (#) and one goal (*). Each turn you move by one "
            f"cell; reach the goal within {self.max_turns} turns and never step into a hole.{slip} "
            f"Answer with one word only: {CHOICE}."
        )

    @property
    def turn_totals(self) -> tuple[tuple[float, float], tuple[float, float]]:
        nearest, furthest = 2 * (self.size - 1), self.size**2  # distances of the start, and of a hole at most
        return (1 - furthest / nearest, 1 - 1 / self.max_turns), (1.0, 1.0)

    def reset(self, seed: int) -> str:
        rows = draw_map(self.size, self.frozen_probability, self.slippery, self.max_turns, seed)
        self._place(rows)
        self._playing[1].reset(seed=seed + SLIP_STREAM)
        return self._view()

    def step(self, action: str) -> Step:
        lake, gym = self._playing
        before = int(gym.s)
        if before in lake.ends:
            raise RuntimeError("frozen_lake: the episode is over; call reset before the next step")
        move = action.strip().lower()
        if move not in MOVES:
            return Step(f"Say {CHOICE}.\n{self._view()}", valid=False, signals=self._facts(before))
        after, gain, done, _, _ = gym.step(MOVES.index(move))
        notice = "" if not done else "You reached the goal.\n" if gain else "You fell into a hole.\n"
        return Step(
            observation=notice + self._view(),
            reward=(lake.distance[before] - lake.distance[after]) / lake.distance[0],
            done=done,
            success=gain > 0,
            signals=self._facts(before),
        )

    def task_key(self) -> str:
        return "/".join(self._playing[0].rows)

    def state_key(self) -> Hashable:
        lake, gym = self._playing
        return (lake.rows, int(gym.s))

    def potential(self) -> float:
        """Minus the moves to the goal, as a share of those from the start."""
        lake, gym = self._playing
        return -lake.distance[int(gym.s)] / lake.distance[0]

    def snapshot(self) -> Any:
        lake, gym = self._playing
        return (lake.rows, int(gym.s), gym.np_random.bit_generator.state)

    def restore(self, snapshot: Any) -> None:
        rows, cell, random_state = snapshot
        self._place(rows)
        gym = self._playing[1]
        gym.s = cell
        bits = np.random.PCG64()
        bits.state = random_state
        gym.np_random = np.random.Generator(bits)

    def expert(self) -> str | None:
        lake, gym = self._playing
        return None if int(gym.s) in lake.ends else MOVES[lake.best[int(gym.s)]]

    def actions(self) -> list[str]:
        return list(MOVES)

    def privileged(self) -> str:
        lake, gym = self._playing
        return f"The goal is {lake.distance[int(gym.s)]} moves away; the best move is {self.expert() or 'none'}."

    @property
    def _playing(self) -> tuple[Lake, FrozenLakeEnv]:
        if self._lake is None or self._gym is None:
            raise RuntimeError("frozen_lake: no episode is in progress; call reset first")
        return self._lake, self._gym

    def _place(self, rows: tuple[str, ...]) -> None:
        self._lake = lake_of(rows, self.slippery)
        self._gym = copy.copy(self._lake.gym)

    def _view(self) -> str:
        lake, gym = self._playing
        at = int(gym.s) + int(gym.s) // len(lake.rows)  # one newline after each row
        return lake.grid[:at] + AGENT + lake.grid[at + 1 :]

    def _facts(self, before: int) -> dict[str, float]:
        """Moves to the goal now, and whether the agent moved at all (a wall stops it)."""
        lake, gym = self._playing
        return {"distance": float(lake.distance[int(gym.s)]), "moved": float(gym.s != before)}
