"""What holds for every advantage estimator, on tables drawn at random."""

from __future__ import annotations

import dataclasses
import math
import random
from collections.abc import Iterator
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from algorithms.advantages import Advantage
from algorithms.core import TokenTable, TurnTable
from tests.algorithms.estimators import EVERY, GIGPO, GROUP_RELATIVE, MT_GRPO
from tests.algorithms.tables import assert_close, token_table, turn_table

MEMBERS = 3
TEXTS = ("aaaaa", "aaaa!", "bbbbb", "bbbb?", "ccccc")  # alike within a letter, unlike across: no order decides
seeds = st.integers(0, 2**31 - 1)
few = settings(deadline=None, max_examples=15)
for_every = pytest.mark.parametrize("name", list(EVERY))
for_group_relative = pytest.mark.parametrize("name", list(GROUP_RELATIVE))

Tables = tuple[TurnTable, TokenTable]


def tables(seed: int, observation: int = 1, equal_turns: bool = False, kl: bool = False) -> Tables:
    """Three members, groups of one to three episodes, one to four turns of one to three tokens; a row per episode.

    The numbers at trained tokens depend on `seed` alone, not on `observation`.
    """
    draw = random.Random(seed)
    groups = [g for g in range(2 * MEMBERS) for _ in range(draw.randint(1, 3))]
    draw.shuffle(groups)
    count = 3 if equal_turns else 0
    lengths = [[draw.randint(1, 3) for _ in range(count or draw.randint(1, 4))] for _ in groups]
    turns = turn_table(
        [[draw.choice([0.0, 0.0, 1.0, 0.5, -0.25]) for _ in turn] for turn in lengths],
        groups,
        members=[g % MEMBERS for g in groups],
        lengths=lengths,
        states=[[draw.choice([-1, 10 * g, 10 * g + 1]) for _ in turn] for g, turn in zip(groups, lengths, strict=True)],
        texts=[[draw.choice(TEXTS) for _ in turn] for turn in lengths],
        components={name: [draw.choice([0.0, 1.0, 0.25]) for _ in groups] for name in ("fmt", "acc")},
        baselines=[[0.1, math.nan, 0.3][g % MEMBERS] for g in groups],
    )
    tokens = token_table(turns, observation)
    generator = torch.Generator().manual_seed(seed)

    def numbers() -> Tensor:
        drawn = torch.rand(int(turns.length_K.sum()), dtype=torch.float64, generator=generator)
        return torch.zeros(tokens.mask_RT.shape, dtype=torch.float64).masked_scatter(tokens.mask_RT, drawn)

    tokens = dataclasses.replace(tokens, logprob_RT=-numbers(), value_RT=numbers(), entropy_RT=numbers())
    return turns, dataclasses.replace(tokens, penalty_RT=0.1 * numbers()) if kl else tokens


def with_kl(name: str) -> bool:
    return name != "gdpo"  # refuses it


def only(given: Tables, keep_E: Tensor) -> Tables:
    """The tables of some of the episodes."""
    turns, tokens = given
    fewer, line_K = turns.only(keep_E)
    turn_RT = torch.where(tokens.mask_RT, line_K[tokens.turn_RT.clamp(min=0)], -1)[keep_E]
    rows = {f.name: getattr(tokens, f.name) for f in dataclasses.fields(tokens)}
    kept = {field: column[keep_E] for field, column in rows.items() if column is not None}
    return fewer, dataclasses.replace(tokens, **{**kept, "turn_RT": turn_RT})


def untrained(tokens: TokenTable, drop_R: Tensor) -> TokenTable:
    """The rows in `drop_R` [R] are no longer trained, as after a filter that leaves the baseline alone."""
    mask_RT = tokens.mask_RT & ~drop_R.unsqueeze(1)
    return dataclasses.replace(tokens, mask_RT=mask_RT, turn_RT=torch.where(mask_RT, tokens.turn_RT, -1))


def outputs(estimator: Advantage, turns: TurnTable, tokens: TokenTable) -> list[Tensor]:
    """Advantages and, with a critic, its targets and where it is asked."""
    return [estimator(turns, tokens), *(estimator.targets(turns, tokens) or ())]


def evolvable(part: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for f in dataclasses.fields(part):
        value = getattr(part, f.name)
        if f.metadata.get("evolvable"):
            yield (*path, f.name)
        elif dataclasses.is_dataclass(value):
            yield from evolvable(value, (*path, f.name))


def with_value(part: Any, path: tuple[str, ...], value: float | Tensor) -> Any:
    inner = with_value(getattr(part, path[0]), path[1:], value) if len(path) > 1 else value
    return dataclasses.replace(part, **{path[0]: inner})


CASES = [(name, path) for name, estimator in EVERY.items() for path in evolvable(estimator)]


@for_every
@few
@given(seeds)
def test_untrained_tokens_have_no_advantage_and_all_others_a_finite_one(name: str, seed: int) -> None:
    turns, tokens = tables(seed, kl=with_kl(name))
    for result in outputs(EVERY[name], turns, tokens):
        assert result.isfinite().all() and not result[~tokens.mask_RT].any()
        assert not result.requires_grad


@for_every
@pytest.mark.parametrize("absurd", [math.nan, math.inf, -math.inf, 1e9])
def test_untrained_tokens_may_hold_anything(name: str, absurd: float) -> None:
    for seed in range(5):
        turns, tokens = tables(seed, observation=2, kl=with_kl(name))
        columns = ("logprob_RT", "value_RT", "entropy_RT", *(["penalty_RT"] if with_kl(name) else []))
        filled = {column: torch.where(tokens.mask_RT, getattr(tokens, column), absurd) for column in columns}
        dirty = dataclasses.replace(tokens, **filled)
        for seen, expected in zip(outputs(EVERY[name], turns, dirty), outputs(EVERY[name], turns, tokens), strict=True):
            assert torch.equal(seen, expected)


@for_every
@few
@given(seeds)
def test_observations_between_turns_change_nothing(name: str, seed: int) -> None:
    """PITFALLS 5, 7 and 13 of the estimators: credit crosses observations, however long they are."""
    turns, near = tables(seed, observation=0, kl=with_kl(name))
    _, far = tables(seed, observation=3, kl=with_kl(name))
    for close, apart in zip(outputs(EVERY[name], turns, near), outputs(EVERY[name], turns, far), strict=True):
        assert_close(apart[far.mask_RT], close[near.mask_RT], 1e-9)


@for_every
@few
@given(seeds)
def test_a_members_advantages_do_not_depend_on_other_members(name: str, seed: int) -> None:
    given = tables(seed, kl=with_kl(name))
    together = outputs(EVERY[name], *given)
    for member in range(MEMBERS):
        mine = given[0].member_E == member
        for all_, alone in zip(together, outputs(EVERY[name], *only(given, mine)), strict=True):
            assert_close(all_[mine], alone, 1e-9)


@for_every
@few
@given(seeds)
def test_the_order_of_episodes_does_not_matter(name: str, seed: int) -> None:
    turns, tokens = tables(seed, kl=with_kl(name))
    order_E = torch.randperm(turns.group_E.numel(), generator=torch.Generator().manual_seed(seed))
    new_E = order_E.argsort()
    order_K = (new_E[turns.episode_K] * 100 + turns.index_K).argsort()
    changes: dict[str, Any] = {"episode_K": new_E[turns.episode_K][order_K]}
    for column in ("index_K", "reward_K", "length_K", "state_K"):
        changes[column] = getattr(turns, column)[order_K]
    for column in ("group_E", "member_E", "outcome_E", "baseline_E"):
        changes[column] = getattr(turns, column)[order_E]
    changes["text_K"] = tuple(turns.text_K[line] for line in order_K.tolist())
    changes["components"] = {part: column[order_E] for part, column in turns.components.items()}
    rows = {f.name: getattr(tokens, f.name) for f in dataclasses.fields(tokens)}
    moved = {field: column[order_E] for field, column in rows.items() if column is not None}
    moved["turn_RT"] = torch.where(moved["mask_RT"], order_K.argsort()[moved["turn_RT"].clamp(min=0)], -1)
    shuffled = outputs(EVERY[name], dataclasses.replace(turns, **changes), dataclasses.replace(tokens, **moved))
    for seen, expected in zip(shuffled, outputs(EVERY[name], turns, tokens), strict=True):
        assert_close(seen, expected[order_E], 1e-9)


@pytest.mark.parametrize(("name", "path"), CASES, ids=lambda part: part if isinstance(part, str) else ".".join(part))
def test_a_value_per_member_equals_every_member_alone(name: str, path: tuple[str, ...]) -> None:
    values = torch.tensor([1.0, 0.4, 0.0], dtype=torch.float64)
    differs = False
    for seed in range(4):
        turns, tokens = tables(seed, equal_turns=seed % 2 == 1, kl=with_kl(name))
        together = outputs(with_value(EVERY[name], path, values), turns, tokens)
        for member, value in enumerate(values.tolist()):
            alone = outputs(with_value(EVERY[name], path, value), turns, tokens)
            mine = turns.member_E == member
            for all_, one in zip(together, alone, strict=True):
                assert_close(all_[mine], one[mine], 1e-12)
                differs |= bool((all_[~mine].double() - one[~mine].double()).abs().max() > 1e-6)
    reads_nothing = name == "trajectory_ppo" and path == ("lam",)
    assert differs != reads_nothing


def test_all_that_the_issue_calls_evolvable_is() -> None:
    assert {path[-1] for _, path in CASES} == {"gamma", "turn_gamma", "lam", "alpha", "omega", "k", "k_future", "zeta"}


@for_group_relative
@few
@given(seeds, st.integers(-8, 8))
def test_a_constant_added_to_the_outcomes_of_a_group_says_nothing(name: str, seed: int, constant: int) -> None:
    """Section 13, item 22. With gamma below 1 GiGPO tells a long way to the same reward from a short one."""
    estimator = dataclasses.replace(EVERY[name], gamma=1.0) if name.startswith("gigpo") else EVERY[name]  # type: ignore[type-var]
    turns, tokens = tables(seed)
    added = (turns.group_E[turns.episode_K] == 1) & turns.last_K
    parts = {part: column + constant * (turns.group_E == 1) for part, column in turns.components.items()}
    moved = dataclasses.replace(turns, reward_K=turns.reward_K + constant * added, components=parts)
    expected = estimator(turns, tokens)
    if name == "centred_by_batch_spread":  # the spread of the batch knows where the group lies: all groups move
        moved = dataclasses.replace(turns, reward_K=turns.reward_K + constant * turns.last_K)
    assert_close(estimator(moved, tokens), expected, 1e-9)


@for_group_relative
@few
@given(seeds)
def test_a_group_of_one_gets_nothing(name: str, seed: int) -> None:
    """Section 13, item 2."""
    turns, tokens = tables(seed)
    everywhere = torch.arange(turns.index_K.numel())
    apart = dataclasses.replace(turns, state_K=everywhere, text_K=tuple(chr(200 + int(k)) * 5 for k in everywhere))
    size_E = torch.tensor([int((turns.group_E == group).sum()) for group in turns.group_E])
    assert not EVERY[name](apart, tokens)[size_E == 1].any()


@for_group_relative
@few
@given(seeds)
def test_a_group_whose_rewards_are_equal_gets_nothing_whatever_the_kl_says(name: str, seed: int) -> None:
    """PITFALLS 22."""
    turns, tokens = tables(seed, equal_turns=True, kl=with_kl(name))
    estimator = dataclasses.replace(EVERY[name], gamma=1.0) if name.startswith("gigpo") else EVERY[name]  # type: ignore[type-var]
    silent = turns.group_E == 1
    rewards_K = torch.where(silent[turns.episode_K], (turns.index_K == 2) * 0.7, turns.reward_K)
    state_K = torch.where(silent[turns.episode_K], turns.index_K, turns.state_K + 100)
    texts = tuple(chr(200 + int(k)) * 5 for k in turns.index_K)
    parts = {part: torch.where(silent, 0.1, column) for part, column in turns.components.items()}
    flat = dataclasses.replace(turns, reward_K=rewards_K, state_K=state_K, text_K=texts, components=parts)
    assert not estimator(flat, tokens)[silent].any()


@pytest.mark.parametrize("name", ["grpo", "dr_grpo", "rloo", "centred_by_batch_spread", "gdpo"])
@few
@given(seeds)
def test_advantages_of_rewards_between_zero_and_one_have_mean_zero_in_each_group(name: str, seed: int) -> None:
    """PITFALLS 24, of one number per episode; whitening over tokens gives long episodes more weight on purpose."""
    turns, tokens = tables(seed)
    bounded = dataclasses.replace(turns, reward_K=turns.reward_K.abs() / 4)
    advantage_E = EVERY[name](bounded, tokens)[torch.arange(turns.group_E.numel()), 1]  # of the first sampled token
    for group in turns.group_E.unique():
        assert abs(float(advantage_E[turns.group_E == group].sum())) < 1e-9


@for_every
@few
@given(seeds)
def test_an_episode_that_is_gone_is_in_no_statistic(name: str, seed: int) -> None:
    """PITFALLS 20: rewards, values and entropies of an episode that was rejected reach nothing."""
    turns, tokens = tables(seed, kl=with_kl(name))
    gone = torch.arange(turns.group_E.numel()) == seed % turns.group_E.numel()
    absurd_K = torch.where(gone[turns.episode_K], 1e6, turns.reward_K)
    parts = {part: torch.where(gone, 1e6, column) for part, column in turns.components.items()}
    odd = dataclasses.replace(turns, reward_K=absurd_K, components=parts)
    for seen, expected in zip(
        outputs(EVERY[name], *only((odd, tokens), ~gone)),
        outputs(EVERY[name], *only((turns, tokens), ~gone)),
        strict=True,
    ):
        assert torch.equal(seen, expected)


@for_every
@few
@given(seeds)
def test_an_episode_that_counts_without_being_trained_has_no_advantage_itself(name: str, seed: int) -> None:
    turns, tokens = tables(seed, kl=with_kl(name))
    dropped = torch.arange(turns.group_E.numel()) == seed % turns.group_E.numel()
    fewer = untrained(tokens, dropped)
    results = outputs(EVERY[name], turns, fewer)
    assert all(result.isfinite().all() and not result[dropped].any() for result in results)
    if EVERY[name].needs_values:  # it has no values, so it is in no statistic either
        for result, alone in zip(results, outputs(EVERY[name], *only((turns, tokens), ~dropped)), strict=True):
            assert_close(result[~dropped], alone, 1e-9)


def test_the_tables_of_these_tests_hold_what_they_are_meant_to_hold() -> None:
    drawn = [tables(seed) for seed in range(40)]
    sizes = {int((turns.group_E == group).sum()) for turns, _ in drawn for group in turns.group_E.unique()}
    assert sizes == {1, 2, 3}
    assert {int(turns.index_K.max()) for turns, _ in drawn} == {3}
    for estimator in (MT_GRPO, GIGPO):
        assert all(estimator(turns, tokens).abs().max() > 0 for turns, tokens in drawn)
