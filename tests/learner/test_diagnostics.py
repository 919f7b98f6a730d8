"""What an update looked like: every number is checked against one computed by hand, whatever surrounds it."""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from algorithms.policy_gradient import PolicyLoss
from envs.core import Episode
from evo_hpo.learner.batch import Batch, build_batch
from evo_hpo.learner.diagnostics import Trace, by_member
from evo_hpo.learner.grouped import Groups
from evo_hpo.runtime.processes import Processes
from tests.algorithms.tables import assert_close
from tests.building import episode

GARBAGE = (math.nan, math.inf, -math.inf, 1e30)


def alone() -> Processes:
    """Made when it is needed: the two processes of the last test import this file before they are two."""
    return Processes(cpu=True)


def batch_of(episodes: list[Episode], members: int = 1) -> Batch:
    rewards = [[0.0] * len(each.turns) for each in episodes]
    return build_batch(episodes, rewards, [0.0] * len(episodes), members, 0, torch.device("cpu"))


def played(member: int, *lengths: int, observation: int = 2, group: int = 0) -> Episode:
    """An episode with turns of so many sampled tokens, each after an observation."""
    return episode(member, group, [([9] * observation, [7] * length) for length in lengths])


def at_tokens(batch: Batch, values: Iterable[float], elsewhere: float = 0.0) -> Tensor:
    """[R, T] the values at the trained tokens, row after row."""
    mask_RT = batch.tokens.mask_RT
    result = torch.full(mask_RT.shape, elsewhere)
    result[mask_RT] = torch.tensor(list(values), dtype=torch.float32)
    return result


def drawn(batch: Batch, seed: int, elsewhere: float = 0.0) -> Tensor:
    """[R, T] numbers that belong to a row of a member, in whatever company."""
    result = torch.full(batch.tokens.mask_RT.shape, elsewhere)
    for row, episode_ in enumerate(batch.episodes):
        count = int(batch.tokens.mask_RT[row].sum())
        generator = torch.Generator().manual_seed(1000 * seed + 10 * episode_.task + row % batch.rows)
        result[row, batch.tokens.mask_RT[row]] = torch.randn(count, generator=generator)
    return result


def traced(
    batch: Batch,
    parts: Sequence[Sequence[int]] | None = None,
    elsewhere: float = 0.0,
    critic: bool = True,
) -> dict[str, Tensor]:
    """One step over the whole batch in micro-batches of the given rows, with numbers that depend on the row only."""
    x = [drawn(batch, seed, elsewhere) for seed in range(9)]
    trace = Trace(batch, batch.members, alone(), critic)
    value_RT, return_RT = (x[6], x[7]) if critic else (None, None)
    trace.start(batch.tokens.logprob_RT, x[8], x[5], value_RT, return_RT)
    for rows in [range(len(x[0]))] if parts is None else parts:
        part = torch.tensor(rows)
        width = int(batch.tokens.mask_RT[part].nonzero()[:, 1].max()) + 1
        ratio, kl, logprob, entropy, loss = (each[part, :width] for each in x[:5])
        of = PolicyLoss(loss, ratio.exp(), kl, ratio < -0.5, ratio > 0.5)
        loss_R = torch.where(batch.tokens.mask_RT[part, :width], loss, 0.0).sum(1)
        trace.policy(part, width, of, loss_R, logprob, entropy.abs(), first_step=True)
        if critic:
            trace.critic(part, width, loss_R, logprob)
    for role in ("policy", "critic") if critic else ("policy",):
        trace.step(role, torch.arange(batch.members) + 1.0, torch.ones(batch.members))
    return trace.metrics()


def policy_trace(batch: Batch, old: Tensor | None = None, advantage: Tensor | None = None) -> Trace:
    trace = Trace(batch, batch.members, alone(), critic=False)
    trace.start(batch.tokens.logprob_RT if old is None else old, None, advantage, None, None)
    return trace


def visit(trace: Trace, ratio_RT: Tensor, logprob_RT: Tensor, first_step: bool = True) -> None:
    """Every row of the batch in one micro-batch, entropy 1 everywhere."""
    rows, width = ratio_RT.shape
    never = torch.zeros_like(ratio_RT, dtype=torch.bool)
    loss = PolicyLoss(torch.zeros_like(ratio_RT), ratio_RT, torch.zeros_like(ratio_RT), never, never)
    ones = torch.ones_like(ratio_RT)
    trace.policy(torch.arange(rows), width, loss, torch.zeros(rows), logprob_RT, ones, first_step)


def finished(trace: Trace) -> dict[str, Tensor]:
    trace.step("policy", torch.ones(trace.members), torch.ones(trace.members))
    return trace.metrics()


def assert_same(first: dict[str, Tensor], second: dict[str, Tensor]) -> None:
    assert first.keys() == second.keys()
    for name, value in first.items():
        torch.testing.assert_close(value, second[name], rtol=1e-5, atol=1e-6, equal_nan=True, msg=name)


# ---- numbers by hand ----


def test_per_member_and_per_turn_index_are_what_a_pencil_gives() -> None:
    batch = batch_of([played(0, 2, 1), played(0, 1), played(1, 1, 1)], members=2)
    # member 0: turn 0 has tokens 1, 2 and 4, turn 1 has token 3; member 1: turn 0 has token 5, turn 1 token 6
    ratio = at_tokens(batch, [1.0, 2.0, 4.0, 3.0, 0.5, 0.7])
    trace = Trace(batch, 2, alone(), critic=False)
    trace.start(batch.tokens.logprob_RT, batch.tokens.logprob_RT, at_tokens(batch, [1, 3, 5, -2, 1, 1]), None, None)
    loss = PolicyLoss(
        ratio,
        ratio,
        kl_RT=at_tokens(batch, [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]),
        clipped_low_RT=at_tokens(batch, [0, 0, 0, 0, 1, 0]) > 0,
        clipped_high_RT=at_tokens(batch, [0, 1, 1, 0, 0, 0]) > 0,
    )
    entropy = at_tokens(batch, [1, 2, 3, 4, 5, 6])
    loss_R = torch.tensor([0.5, 0.25, -1.0, 0.0])
    trace.policy(torch.arange(4), ratio.shape[1], loss, loss_R, at_tokens(batch, [-1.0] * 6), entropy, True)
    trace.step("policy", torch.tensor([2.0, 3.0]), torch.tensor([1.0, 0.0]))
    metrics = trace.metrics()

    # rows hold the tokens in the order of turns: member 0's are 1, 2 | 4 in its first row, 3 in its second
    expected = {
        "loss": [0.75, -1.0],
        "grad_norm": [2.0, 3.0],
        "finite": [1.0, 0.0],
        "entropy": [2.5, 5.5],
        "kl": [0.25, 0.55],
        "clip_fraction_low": [0.0, 0.5],
        "clip_fraction_high": [0.5, 0.0],
        "ratio_mean": [2.5, 0.6],
        "ratio_min": [1.0, 0.5],
        "ratio_max": [4.0, 0.7],
        "ratio_p01": [1.03, 0.502],
        "ratio_p99": [3.97, 0.698],
        "advantage_mean": [1.75, 1.0],
        "advantage_abs": [2.75, 1.0],
        "advantage_max": [5.0, 1.0],
        "advantage_std": [math.sqrt((0.75**2 + 1.25**2 + 3.25**2 + 3.75**2) / 4), 0.0],
        "turn/entropy/0": [(1 + 2 + 4) / 3, 5.0],
        "turn/entropy/1": [3.0, 6.0],
        "turn/kl/0": [(0.1 + 0.2 + 0.4) / 3, 0.5],
        "turn/kl/1": [0.3, 0.6],
        "turn/clip_fraction/0": [1 / 3, 1.0],
        "turn/clip_fraction/1": [1.0, 0.0],
        "turn/ratio_p01/0": [1.02, 0.5],
        "turn/ratio_p99/0": [2.98, 0.5],
        "turn/ratio_p99/1": [4.0, 0.7],
        "turn/advantage_std/0": [math.sqrt(((1 - 2 / 3) ** 2 + (3 - 2 / 3) ** 2 + (-2 - 2 / 3) ** 2) / 3), 0.0],
        "turn/advantage_std/1": [0.0, 0.0],
    }
    for name, numbers in expected.items():
        assert_close(metrics[name], numbers)


def test_kl_old_is_the_k3_estimate_between_the_start_and_the_last_visit() -> None:
    batch = batch_of([played(0, 2)])
    trace = policy_trace(batch, old=at_tokens(batch, [-1.0, -2.0]))
    visit(trace, at_tokens(batch, [1, 1]), at_tokens(batch, [-1.2, -1.5]))
    assert_close(finished(trace)["kl_old"], [(0.018731 + 0.148721) / 2])


def test_the_last_visit_of_a_row_counts_and_losses_are_means_over_the_steps() -> None:
    batch = batch_of([played(0, 1), played(0, 1)])
    trace = policy_trace(batch)
    for first, (ratios, losses) in enumerate([([1.0, 1.0], [1.0, 2.0]), ([1.5, 1.5], [4.0, 5.0])]):
        of = PolicyLoss(*[at_tokens(batch, ratios)] * 3, *[torch.zeros(2, 3, dtype=torch.bool)] * 2)
        old = batch.tokens.logprob_RT
        trace.policy(torch.arange(2), 3, of, torch.tensor(losses), old, old, first_step=first == 0)
        trace.step("policy", torch.tensor([1.0 + first]), torch.ones(1))
    metrics = trace.metrics()
    assert_close(metrics["ratio_mean"], [1.5])
    assert_close(metrics["loss"], [(1 + 2 + 4 + 5) / 2])
    assert_close(metrics["grad_norm"], [1.5])


def test_the_sampler_gap_is_between_the_sampler_and_the_recomputed_log_probabilities() -> None:
    batch = batch_of([played(0, 4)])  # the sampler said -1 everywhere
    trace = policy_trace(batch, old=at_tokens(batch, [-1.1, -0.6, -1.0, 1.0]))
    visit(trace, at_tokens(batch, [1] * 4), at_tokens(batch, [-9.0] * 4))
    metrics = finished(trace)
    assert_close(metrics["gap_mean"], [(0.1 + 0.4 + 0 + 2) / 4])
    assert_close(metrics["gap_max"], [2.0])
    k3 = [math.exp(x) - x - 1 for x in (-0.1, 0.4, 0.0, 2.0)]
    assert_close(metrics["gap_k3"], [sum(k3) / 4])
    assert_close(metrics["ess"], [0.495937])  # golden, tis_icepop
    assert_close(metrics["turn/gap_mean/0"], [2.5 / 4])


def test_without_recomputation_the_gap_is_that_of_the_first_forward_of_the_first_step() -> None:
    batch = batch_of([played(0, 1), played(0, 1)])
    trace = policy_trace(batch)
    loss = PolicyLoss(*[torch.ones(1, 3)] * 3, *[torch.zeros(1, 3, dtype=torch.bool)] * 2)
    zero = torch.zeros(1, 3)
    for row, logprob in enumerate((-1.25, -9.0)):  # the second row is visited after a step
        trace.policy(torch.tensor([row]), 3, loss, torch.zeros(1), torch.full((1, 3), logprob), zero, row == 0)
        trace.step("policy", torch.ones(1), torch.ones(1))
    metrics = trace.metrics()
    assert_close(metrics["gap_mean"], [0.25])
    assert_close(metrics["gap_max"], [0.25])
    assert_close(metrics["ess"], [1.0])


def test_a_huge_gap_gives_the_least_sample_size_and_no_overflow() -> None:
    batch = batch_of([played(0, 4)])
    trace = policy_trace(batch, old=at_tokens(batch, [199.0, -1, -1, -1]))
    visit(trace, at_tokens(batch, [1] * 4), at_tokens(batch, [-1.0] * 4))
    assert_close(finished(trace)["ess"], [0.25])


def test_explained_variance_is_over_the_places_where_the_critic_is_asked() -> None:
    batch = batch_of([played(0, 2, 2)])
    value, target = at_tokens(batch, [0.0, 50.0, 1.0, -50.0]), at_tokens(batch, [0.5, 7.0, 2.5, 7.0])
    results = []
    for asked in (at_tokens(batch, [1, 0, 1, 0]) > 0, None):
        trace = Trace(batch, 1, alone(), critic=True)
        trace.start(batch.tokens.logprob_RT, None, None, value, target, asked)
        visit(trace, at_tokens(batch, [1] * 4), batch.tokens.logprob_RT)
        trace.critic(torch.arange(1), value.shape[1], torch.tensor([0.3]), value + 0.25)
        trace.step("critic", torch.tensor([4.0]), torch.ones(1))
        results.append(finished(trace))
    # targets 0.5 and 2.5 have variance 1; what is left of them, 0.5 and 1.5, has variance 0.25
    assert_close(results[0]["explained_variance"], [0.75])
    assert results[1]["explained_variance"] < 0
    assert_close(results[0]["value_change"], [0.25])
    assert_close(results[0]["value_loss"], [0.3])
    assert_close(results[0]["critic_grad_norm"], [4.0])


def test_a_critic_whose_targets_are_all_equal_has_nothing_to_explain() -> None:
    batch = batch_of([played(0, 2)])
    trace = Trace(batch, 1, alone(), critic=True)
    trace.start(batch.tokens.logprob_RT, None, None, at_tokens(batch, [0.1, 0.2]), at_tokens(batch, [0.3, 0.3]))
    visit(trace, at_tokens(batch, [1, 1]), batch.tokens.logprob_RT)
    trace.step("critic", torch.ones(1), torch.ones(1))
    assert "explained_variance" not in by_member(finished(trace))[0]


def test_coverage_counts_every_fed_token_and_dropped_the_episodes_without_a_trained_one() -> None:
    batch = batch_of([played(0, 2, 1), played(0, 3), played(0, 1)])  # 7, 5 and 3 tokens, of which 3, 3 and 1 sampled
    mask_RT = batch.tokens.mask_RT.clone()
    mask_RT[1] = False
    turn_RT = torch.where(mask_RT, batch.tokens.turn_RT, -1)
    filtered = replace(batch, tokens=replace(batch.tokens, mask_RT=mask_RT, turn_RT=turn_RT))
    for one, coverage, dropped in ((batch, 7 / 15, 0.0), (filtered, 4 / 15, 1 / 3)):
        metrics = traced(one, critic=False)
        assert_close(metrics["mask_coverage"], [coverage])
        assert_close(metrics["dropped"], [dropped])


def test_entropy_around_an_observation_is_of_32_tokens_at_most() -> None:
    batch = batch_of([played(0, 40, 50, 1)])
    entropy = [*[9.0] * 8, *[1.0] * 32, *[2.0] * 18, *[6.0] * 14, *[4.0] * 18, 5.0]
    trace = Trace(batch, 1, alone(), critic=False)
    trace.supervised(torch.arange(1), batch.ids_RT.shape[1], torch.zeros(1), *[at_tokens(batch, entropy)] * 2)
    metrics = finished(trace)
    # before: the last 32 of turn 0, the last 32 of turn 1; after: the first 32 of turn 1, and turn 2
    assert_close(metrics["entropy_before_observation"], [(32 * 1 + 14 * 6 + 18 * 4) / 64])
    assert_close(metrics["entropy_after_observation"], [(18 * 2 + 14 * 6 + 5) / 33])


def test_anchored_turns_are_those_whose_state_comes_again_in_their_group() -> None:
    episodes = [played(0, 1, 1), played(0, 1, 1), played(0, 1, group=1)]
    states: list[list[str | None]] = [["a", "b"], ["a", None], ["a"]]
    for one, keys in zip(episodes, states, strict=True):
        for turn, state in zip(one.turns, keys, strict=True):
            turn.state_key = state
    metrics = traced(batch_of([*episodes, played(1, 1)], members=2), critic=False)
    assert_close(metrics["anchored"][0], 2 / 5)  # the group's a twice, b once; the other group's a once; one unknown
    assert_close(metrics["bucket_size"][0], 4 / 3)
    assert not {"anchored", "bucket_size"} & by_member(metrics)[1].keys()


def test_ages_are_reported_where_they_are_known() -> None:
    batch = batch_of([played(0, 1, 1), played(1, 1)], members=2)
    assert "age_mean" not in traced(replace(batch, turns=replace(batch.turns, age_K=None)))
    metrics = traced(replace(batch, turns=replace(batch.turns, age_K=torch.tensor([0, 3, 1]))))
    assert_close(metrics["age_mean"], [1.5, 1.0])
    assert_close(metrics["age_max"], [3.0, 1.0])


def test_turns_beyond_the_eighth_share_a_bucket_and_one_that_no_turn_reached_is_absent() -> None:
    batch = batch_of([played(0, *[1] * 11), played(1, 1)], members=2)
    own = by_member(traced(batch))
    long, short = ({name for name in one if name.startswith("turn/kl/")} for one in own)
    assert long == {f"turn/kl/{index}" for index in (*range(8), "8+")} and short == {"turn/kl/0"}
    kl = drawn(batch, 1)[0][batch.tokens.mask_RT[0]]
    assert_close(torch.tensor(own[0]["turn/kl/8+"]), kl[8:].mean())


def test_supervised_updates_report_likelihood_and_entropy_and_nothing_of_a_sampler() -> None:
    batch = batch_of([played(0, 2, 1)])
    trace = Trace(batch, 1, alone(), critic=False)
    logprob = at_tokens(batch, [-1.0, -2.0, -6.0])
    trace.supervised(torch.arange(1), batch.ids_RT.shape[1], torch.tensor([0.5]), logprob, -logprob)
    metrics = finished(trace)
    assert_close(metrics["nll"], [3.0])
    assert_close(metrics["turn/nll/1"], [6.0])
    assert_close(metrics["entropy"], [3.0])
    assert not {"ratio_mean", "kl", "gap_mean", "advantage_abs"} & metrics.keys()


def test_a_member_without_a_trained_token_reports_its_step_and_its_turns_but_no_mean_over_tokens() -> None:
    batch = batch_of([played(0, 2), played(1, 2)], members=2)
    mask_RT = batch.tokens.mask_RT.clone()
    mask_RT[1] = False
    empty = replace(batch, tokens=replace(batch.tokens, mask_RT=mask_RT))
    own = by_member(traced(empty, parts=[[0]]))
    assert own[1].keys() == {
        "loss", "value_loss", "grad_norm", "critic_grad_norm", "finite",
        "mask_coverage", "dropped", "age_mean", "age_max",
    }  # fmt: skip
    assert own[1]["dropped"] == 1.0 and own[0] == pytest.approx(by_member(traced(batch_of([played(0, 2)])))[0])


def test_a_batch_without_any_trained_token_has_metrics() -> None:
    batch = batch_of([played(0, 2)])
    empty = replace(batch, tokens=replace(batch.tokens, mask_RT=torch.zeros_like(batch.tokens.mask_RT)))
    without_turns = replace(empty, turns=batch.turns.only(torch.tensor([False]))[0])
    for each in (empty, without_turns):
        assert by_member(finished(policy_trace(each)))[0]["dropped"] == 1.0


# ---- what must not matter ----

LENGTHS = st.lists(st.lists(st.integers(1, 5), min_size=1, max_size=10), min_size=4, max_size=4)


def population(lengths: list[list[int]]) -> list[Episode]:
    """Two episodes of each of two members; the task says whose they are."""
    return [replace(played(i // 2, *each), task=i // 2) for i, each in enumerate(lengths)]


@given(LENGTHS, st.sampled_from(GARBAGE))
def test_what_stands_at_untrained_positions_never_matters(lengths: list[list[int]], garbage: float) -> None:
    batch = batch_of(population(lengths), members=2)
    dirty_RT = torch.where(batch.tokens.mask_RT, batch.tokens.logprob_RT, garbage)
    dirty = replace(batch, tokens=replace(batch.tokens, logprob_RT=dirty_RT))
    assert_same(traced(batch), traced(dirty, elsewhere=garbage))


@given(LENGTHS, st.permutations(range(4)), st.integers(1, 3))
def test_micro_batches_and_their_order_never_matter(lengths: list[list[int]], order: list[int], size: int) -> None:
    batch = batch_of(population(lengths), members=2)
    assert_same(traced(batch), traced(batch, [order[start : start + size] for start in range(0, 4, size)]))


@given(LENGTHS)
def test_a_population_reports_what_its_members_report_alone(lengths: list[list[int]]) -> None:
    together = by_member(traced(batch_of(population(lengths), members=2)))
    for member in range(2):
        mine = [replace(each, member=0) for each in population(lengths) if each.member == member]
        own = by_member(traced(batch_of(mine)))[0]
        for name in ("grad_norm", "critic_grad_norm"):  # made up by `traced` from the member's number
            own[name] = together[member][name]
        assert own == pytest.approx(together[member], abs=1e-5)


@pytest.mark.parametrize("wild", [math.nan, math.inf])
def test_a_member_whose_numbers_are_not_finite_spoils_no_other(wild: float) -> None:
    batch = batch_of(population([[2, 2], [3], [1, 4], [2]]), members=2)
    ratio = drawn(batch, 0).exp()
    results = []
    for change in (False, True):
        trace = policy_trace(batch, advantage=drawn(batch, 1))
        sick = torch.where(batch.tokens.member_R.unsqueeze(1) == 0, wild, ratio) if change else ratio
        visit(trace, sick, sick.log())
        results.append(by_member(finished(trace)))
    assert results[0][1] == results[1][1]


def test_a_loss_that_is_not_a_number_is_reported_as_one() -> None:
    batch = batch_of([played(0, 1)])
    trace = Trace(batch, 1, alone(), critic=False)
    trace.supervised(torch.arange(1), 3, torch.tensor([math.nan]), *[at_tokens(batch, [math.nan])] * 2)
    own = by_member(finished(trace))[0]
    assert math.isnan(own["loss"]) and "entropy" not in own


@given(
    st.lists(st.tuples(st.integers(0, 3), st.floats(-100, 100, width=32)), max_size=40),
    st.floats(0, 1),
)
def test_grouped_statistics_are_those_of_each_group_alone(values: list[tuple[int, float]], share: float) -> None:
    index, value = torch.tensor([g for g, _ in values], dtype=torch.int64), torch.tensor([v for _, v in values])
    groups = Groups(index, 4)
    [quantile] = groups.quantiles(value, share)
    for group in range(4):
        own = value[index == group]
        actual = [each[group] for each in (quantile, groups.mean(value), groups.std(value), groups.largest(value))]
        if own.numel() == 0:
            assert all(each.isnan() for each in actual)
            continue
        expected = [own.quantile(share), own.mean(), own.std(correction=0), own.max()]
        torch.testing.assert_close(torch.stack(actual), torch.stack(expected), rtol=1e-3, atol=1e-3)


# ---- processes ----


def part_of_two(rank: int, folder: str) -> None:
    """One of two processes; between the epochs a row may move to the other, and keeps its last visit."""
    os.environ |= {"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"}
    torch.distributed.init_process_group("gloo", f"file://{folder}/meeting", rank=rank, world_size=2)
    processes = Processes(cpu=True)
    assert processes.count == 2
    torch.save(two_epochs(processes), Path(folder) / f"{rank}.pt")
    torch.distributed.destroy_process_group()


def two_epochs(processes: Processes) -> dict[str, Tensor]:
    batch = batch_of(population([[2, 2], [3], [1, 4], [2]]), members=2)
    trace = Trace(batch, 2, processes, critic=False)
    trace.start(batch.tokens.logprob_RT, None, drawn(batch, 1), None, None)
    for epoch, shares in enumerate(([[0, 2], [1, 3]], [[1, 2], [0, 3]])):
        ratio_RT = drawn(batch, 2 + epoch).exp()
        never = torch.zeros_like(ratio_RT, dtype=torch.bool)
        for rank, rows in enumerate(shares):
            if processes.count == 1 or rank == processes.rank:
                part = torch.tensor(rows)
                ratio, no = ratio_RT[part], never[part]
                trace.policy(part, ratio.shape[1], PolicyLoss(ratio, ratio, ratio, no, no), ratio.sum(1), ratio.log(),
                             ratio, first_step=epoch == 0)  # fmt: skip
        trace.step("policy", torch.ones(2), torch.ones(2))
    return trace.metrics()


def test_two_processes_report_what_one_does(tmp_path: Path) -> None:
    torch.multiprocessing.spawn(part_of_two, args=(str(tmp_path),), nprocs=2)
    expected = two_epochs(alone())
    for rank in range(2):
        assert_same(torch.load(tmp_path / f"{rank}.pt"), expected)
