"""Builds the tables of the tests from the numbers that a test shows, and compares with numbers that a test shows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from algorithms.core import TokenTable, TurnTable

Nested = Sequence[Any]


def assert_close(actual: Tensor, expected: Nested | float | Tensor, tolerance: float = 1e-5) -> None:
    if not isinstance(expected, Tensor):
        expected = torch.tensor(expected, dtype=torch.float64)
    torch.testing.assert_close(actual.detach().double(), expected.double(), atol=tolerance, rtol=0)


def turn_table(
    rewards: Sequence[Sequence[float]],
    groups: Sequence[int],
    members: Sequence[int] | None = None,
    outcomes: Sequence[float] | None = None,
    lengths: Sequence[Sequence[int]] | None = None,
    states: Sequence[Sequence[int]] | None = None,
    texts: Sequence[Sequence[str]] | None = None,
    components: Mapping[str, Sequence[float]] | None = None,
    baselines: Sequence[float] | None = None,
) -> TurnTable:
    """Episodes by the rewards of their turns; unless given: two tokens a turn, one member, last reward as outcome.

    `states` and `texts` are by turn, `components` and `baselines` by episode.
    """
    episode = [e for e, turns in enumerate(rewards) for _ in turns]
    flat_lengths = [length for turns in lengths for length in turns] if lengths else [2] * len(episode)
    flat_states = [state for turns in states for state in turns] if states else [-1] * len(episode)
    last = [turns[-1] if turns else 0.0 for turns in rewards]
    return TurnTable(
        episode_K=torch.tensor(episode, dtype=torch.int64),
        index_K=torch.tensor([k for turns in rewards for k in range(len(turns))], dtype=torch.int64),
        reward_K=torch.tensor([reward for turns in rewards for reward in turns], dtype=torch.float64),
        length_K=torch.tensor(flat_lengths, dtype=torch.int64),
        state_K=torch.tensor(flat_states, dtype=torch.int64),
        group_E=torch.tensor(groups, dtype=torch.int64),
        member_E=torch.tensor(members if members is not None else [0] * len(rewards), dtype=torch.int64),
        outcome_E=torch.tensor(outcomes if outcomes is not None else last, dtype=torch.float64),
        text_K=tuple(text for turns in texts for text in turns) if texts else (),
        components={name: torch.tensor(part, dtype=torch.float64) for name, part in (components or {}).items()},
        baseline_E=None if baselines is None else torch.tensor(baselines, dtype=torch.float64),
    )


def token_table(
    turns: TurnTable,
    observation: int = 1,
    value: Nested | None = None,
    penalty: Nested | None = None,
    entropy: Nested | None = None,
) -> TokenTable:
    """One row per episode: before the tokens of each turn, `observation` tokens that are not trained.

    `value`, `penalty` and `entropy` are [R, T], columns of untrained tokens included.
    """
    episodes = turns.outcome_E.shape[0]
    rows: list[list[int]] = [[] for _ in range(episodes)]
    for line, (episode, length) in enumerate(zip(turns.episode_K.tolist(), turns.length_K.tolist(), strict=True)):
        rows[episode] += [-1] * observation + [line] * length
    width = max(len(row) for row in rows)
    turn_RT = torch.tensor([row + [-1] * (width - len(row)) for row in rows])
    return TokenTable(
        mask_RT=turn_RT >= 0,
        turn_RT=turn_RT,
        member_R=turns.member_E,
        logprob_RT=torch.zeros(turn_RT.shape, dtype=torch.float64),
        value_RT=None if value is None else torch.tensor(value, dtype=torch.float64),
        penalty_RT=None if penalty is None else torch.tensor(penalty, dtype=torch.float64),
        entropy_RT=None if entropy is None else torch.tensor(entropy, dtype=torch.float64),
    )
