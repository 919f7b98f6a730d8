"""Rows: the episodes as they were fed, side by side. What is trained on is exactly what was seen."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from algorithms.core import TokenTable, TurnTable
from envs.core import Episode, StopReason

Table = TypeVar("Table", TokenTable, TurnTable)


@dataclass(frozen=True)
class Batch:
    """One update's data: N members x C rows, member-major, padded on the right.

    Attributes:
        ids_RT: [R, T] int64 token ids.
        tokens, turns: the tables that algorithms read.
        members, rows: N and C; R = N * C.
        row_E: [E] row of each episode of `turns`.
        group_R: [R] group of each row's episode, -1 for an empty row.
        own_rows: rows of each member that hold an episode; they come first.
        episodes: all of them, those that a filter dropped too.
    """

    ids_RT: Tensor
    tokens: TokenTable
    turns: TurnTable
    members: int
    rows: int
    row_E: Tensor
    group_R: Tensor
    own_rows: list[int]
    episodes: list[Episode]


def build_batch(
    episodes: Sequence[Episode],
    rewards: Sequence[Sequence[float]],
    outcomes: Sequence[float],
    members: int,
    pad_id: int,
    device: torch.device,
    version: int = 0,
    components: Sequence[Mapping[str, float]] = (),
) -> Batch:
    """Rows and tables of episodes that did not fail.

    Args:
        episodes: with at least one turn each; ids of members in 0..members-1.
        rewards: turn rewards of each episode, in reward units.
        outcomes: raw outcome of each episode.
        version: of the policy that will learn, for the age of the turns.
        components: named parts of the score of each episode, or nothing.
    Raises:
        ValueError: no episode at all, or a turn whose log-probabilities do not match its ids.
    """
    if not episodes:
        raise ValueError(
            "not one usable episode came back, so there is nothing to learn from; "
            "look at the alarms and at episodes.jsonl"
        )
    by_member: list[list[int]] = [[] for _ in range(members)]
    for e, episode in enumerate(episodes):
        by_member[episode.member].append(e)
    rows = max(len(mine) for mine in by_member)
    width = max(sum(len(t.observation_ids) + len(t.action_ids) for t in episode.turns) for episode in episodes)
    shape = (members * rows, width)
    ids, mask = np.full(shape, pad_id), np.zeros(shape, dtype=np.bool_)
    turn_of, logprob = np.full(shape, -1), np.zeros(shape, dtype=np.float32)
    first_turn = _offsets([len(episode.turns) for episode in episodes])
    for member, mine in enumerate(by_member):
        for c, e in enumerate(mine):
            row, at = member * rows + c, 0
            for k, turn in enumerate(episodes[e].turns):
                if len(turn.logprobs) != len(turn.action_ids):
                    raise ValueError(
                        f"turn {k} of task {episodes[e].task} has {len(turn.action_ids)} sampled ids but "
                        f"{len(turn.logprobs)} log-probabilities; the rollout engine must return one per id"
                    )
                start = at + len(turn.observation_ids)
                stop = start + len(turn.action_ids)
                ids[row, at:stop] = turn.observation_ids + turn.action_ids
                mask[row, start:stop] = True
                turn_of[row, start:stop] = first_turn[e] + k
                logprob[row, start:stop] = turn.logprobs
                at = stop
    turns = turn_table(episodes, rewards, outcomes, version, components)
    row_E = torch.zeros(len(episodes), dtype=torch.int64)
    for member, mine in enumerate(by_member):
        row_E[torch.tensor(mine, dtype=torch.int64)] = member * rows + torch.arange(len(mine))
    group_R = torch.full((members * rows,), -1)
    group_R[row_E] = turns.group_E
    member_R = torch.arange(members).repeat_interleave(rows)
    tokens = TokenTable(torch.from_numpy(mask), torch.from_numpy(turn_of), member_R, torch.from_numpy(logprob))
    return Batch(
        torch.from_numpy(ids).to(device),
        _to(tokens, device),
        _to(turns, device),
        members,
        rows,
        row_E.to(device),
        group_R.to(device),
        [len(mine) for mine in by_member],
        list(episodes),
    )


def turn_table(
    episodes: Sequence[Episode],
    rewards: Sequence[Sequence[float]],
    outcomes: Sequence[float],
    version: int = 0,
    components: Sequence[Mapping[str, float]] = (),
) -> TurnTable:
    """One line per turn of the episodes, in their order; arguments as in `build_batch`."""
    played = [turn for one in episodes for turn in one.turns]
    episode, index, reward, state = [], [], [], []
    groups: dict[tuple[int, int], int] = {}
    states: dict[object, int] = {}
    for e, one in enumerate(episodes):
        group = groups.setdefault((one.member, one.group), len(groups))
        for k, turn in enumerate(one.turns):
            episode.append(e)
            index.append(k)
            reward.append(float(rewards[e][k]))
            known = turn.state_key is not None
            state.append(states.setdefault((group, turn.state_key), len(states)) if known else -1)
    return TurnTable(
        episode_K=torch.tensor(episode),
        index_K=torch.tensor(index),
        reward_K=torch.tensor(reward),
        length_K=torch.tensor([len(turn.action_ids) for turn in played]),
        state_K=torch.tensor(state),
        group_E=torch.tensor([groups[(one.member, one.group)] for one in episodes]),
        member_E=torch.tensor([one.member for one in episodes]),
        outcome_E=torch.tensor([float(outcome) for outcome in outcomes]),
        valid_K=torch.tensor([turn.valid for turn in played]),
        # an episode that ended because its context was full was cut off like an action without a stop token
        truncated_K=torch.tensor(
            [
                t.truncated or (one.stop is StopReason.CONTEXT_OVERFLOW and t is one.turns[-1])
                for one in episodes
                for t in one.turns
            ]
        ),
        age_K=torch.tensor([version - turn.version for turn in played]),
        text_K=tuple(turn.observation for turn in played),
        components={name: torch.tensor([parts[name] for parts in components]) for name in _common(components)},
    )


def _common(components: Sequence[Mapping[str, float]]) -> list[str]:
    """Names that every episode has, sorted."""
    return sorted(set.intersection(*(set(parts) for parts in components))) if components else []


def _offsets(counts: list[int]) -> list[int]:
    result, total = [], 0
    for count in counts:
        result.append(total)
        total += count
    return result


def _to(table: Table, device: torch.device) -> Table:
    def moved(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: moved(column) for name, column in value.items()}
        return value.to(device) if isinstance(value, Tensor) else value

    return dataclasses.replace(table, **{name: moved(value) for name, value in vars(table).items()})
