"""Rows: the episodes as they were fed, side by side. What is trained on is exactly what was seen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

from algorithms.core import TokenTable, TurnTable
from envs.core import Episode

Table = TypeVar("Table", TokenTable, TurnTable)


@dataclass(frozen=True)
class Batch:
    """One update's data: N members x C rows, member-major, padded on the right.

    Attributes:
        ids_RT: [R, T] int64 token ids.
        tokens, turns: the tables that algorithms read.
        members, rows: N and C; R = N * C.
        trained_E: episodes behind the per-episode columns of `turns`.
    """

    ids_RT: Tensor
    tokens: TokenTable
    turns: TurnTable
    members: int
    rows: int
    episodes: list[Episode]


def build_batch(
    episodes: Sequence[Episode],
    rewards: Sequence[Sequence[float]],
    outcomes: Sequence[float],
    members: int,
    pad_id: int,
    device: torch.device,
) -> Batch:
    """Rows and tables of episodes that did not fail.

    Args:
        episodes: with at least one turn each; ids of members in 0..members-1.
        rewards: turn rewards of each episode, in reward units.
        outcomes: raw outcome of each episode.
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
    member_R = torch.arange(members).repeat_interleave(rows)
    tokens = TokenTable(torch.from_numpy(mask), torch.from_numpy(turn_of), member_R, torch.from_numpy(logprob))
    return Batch(
        torch.from_numpy(ids).to(device),
        _to(tokens, device),
        _to(_turn_table(episodes, rewards, outcomes), device),
        members,
        rows,
        list(episodes),
    )


def _turn_table(
    episodes: Sequence[Episode], rewards: Sequence[Sequence[float]], outcomes: Sequence[float]
) -> TurnTable:
    episode, index, reward, length, state = [], [], [], [], []
    groups: dict[tuple[int, int], int] = {}
    states: dict[object, int] = {}
    for e, one in enumerate(episodes):
        group = groups.setdefault((one.member, one.group), len(groups))
        for k, turn in enumerate(one.turns):
            episode.append(e)
            index.append(k)
            reward.append(float(rewards[e][k]))
            length.append(len(turn.action_ids))
            known = turn.state_key is not None
            state.append(states.setdefault((group, turn.state_key), len(states)) if known else -1)
    return TurnTable(
        episode_K=torch.tensor(episode),
        index_K=torch.tensor(index),
        reward_K=torch.tensor(reward),
        length_K=torch.tensor(length),
        state_K=torch.tensor(state),
        group_E=torch.tensor([groups[(one.member, one.group)] for one in episodes]),
        member_E=torch.tensor([one.member for one in episodes]),
        outcome_E=torch.tensor([float(outcome) for outcome in outcomes]),
    )


def _offsets(counts: list[int]) -> list[int]:
    result, total = [], 0
    for count in counts:
        result.append(total)
        total += count
    return result


def _to(table: Table, device: torch.device) -> Table:
    values = {name: v.to(device) if isinstance(v, Tensor) else v for name, v in vars(table).items()}
    return type(table)(**values)
