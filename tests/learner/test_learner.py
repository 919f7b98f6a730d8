"""One update: equal to separate runs, and blind to micro-batches, row order, padding, observations and neighbours."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from envs.core import Episode
from evo_hpo.config.alternatives import components
from evo_hpo.evolution import hyperparameters
from evo_hpo.learner.batch import Batch, build_batch
from evo_hpo.learner.learner import Learner
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.runtime.processes import Processes
from tests.building import config, episode, policy_of, shake

REWARDS = [1.0, 0.0, 0.5, -0.5]
VALUES = {
    "algorithm.optimizer.learning_rate": [1e-3, 5e-3, 2e-4],
    "algorithm.kl.coef": [0.01, 0.1, 0.3],
    "algorithm.objective.clip_low": [0.1, 0.2, 0.3],
    "algorithm.objective.clip_high": [0.3, 0.2, 0.1],
    "algorithm.entropy.coef": [0.0, 0.01, 0.03],
    "algorithm.optimizer.max_grad_norm": [1.0, 0.01, 10.0],
}

OF_OTHERS = {  # keys that the default algorithm does not have
    "algorithm.advantage.alpha": [1.0, 0.5, 2.0],
    "algorithm.advantage.gamma": [1.0, 0.9, 0.5],
    "algorithm.advantage.k": [1.0, 0.5, 2.0],
    "algorithm.advantage.k_future": [1.0, 0.5, 2.0],
    "algorithm.advantage.lam": [1.0, 0.9, 0.5],
    "algorithm.advantage.omega": [1.0, 0.5, 2.0],
    "algorithm.advantage.turn_gamma": [1.0, 0.9, 0.5],
    "algorithm.advantage.zeta": [0.1, 0.05, 1.0],
    "algorithm.beta": [0.1, 0.5, 0.01],
    "algorithm.critic.optimizer.learning_rate": [1e-3, 5e-3, 2e-4],
    "algorithm.critic.value_clip": [0.5, 0.1, 0.02],
    "algorithm.objective.ratio_high": [5.0, 1.1, 1.0],
    "algorithm.objective.tau_negative": [1.05, 2.0, 5.0],
    "algorithm.objective.tau_positive": [1.0, 2.0, 5.0],
    "algorithm.objective.threshold": [0.15, 0.01, 0.05],
    "algorithm.sequence_mask.delta": [0.2, 0.01, 0.05],
}


def episodes_of(members: Sequence[int], observation: int = 0) -> list[Episode]:
    """Four episodes of one task per member, two turns each, of different lengths; a member's own in any company."""
    made = []
    for place, slot in enumerate(members):
        generator = torch.Generator().manual_seed(slot)

        def ids(count: int, generator: torch.Generator = generator) -> list[int]:
            return torch.randint(5, 300, (count,), generator=generator).tolist()

        for i in range(4):
            seen = [3, *ids(4), 1, 4] if not observation else [observation] * 7
            said = [[*ids(1 + i), 1], [*ids(2), 1]]
            made.append(episode(place, 0, [(seen, said[0]), ([3, *ids(3), 1, 4], said[1])]))
    return made


def batch_of(members: Sequence[int], observation: int = 0) -> Batch:
    episodes = episodes_of(members, observation)
    rewards = [[0.0, REWARDS[i % 4] * (1 + members[e.member])] for i, e in enumerate(episodes)]
    outcomes = [sum(r) for r in rewards]
    parts = [{"success": outcome, "progress": 0.1 * i} for i, outcome in enumerate(outcomes)]
    return build_batch(episodes, rewards, outcomes, len(members), 0, torch.device("cpu"), components=parts)


def with_real_logprobs(policy: Policy, batch: Batch) -> Batch:
    """As if the policy itself had sampled the batch."""
    with torch.no_grad(), policy.acting("policy"):
        logprob, _ = policy.logprobs(batch.ids_RT, batch.tokens.mask_RT, Sampling.same(batch.ids_RT.shape[0], 1.0))
    return replace(batch, tokens=replace(batch.tokens, logprob_RT=logprob))


def trained(
    slots: Sequence[int],
    *overrides: str,
    updates: int = 3,
    values: dict[str, list[Any]] | None = None,
    micro_tokens: int = 10_000,
    change: Any = lambda batch: batch,
) -> tuple[Policy, Learner, list[dict[str, torch.Tensor]]]:
    settings = config("algorithm.minibatches=1" if "algorithm=dpo" not in overrides else "seed=0", *overrides)
    policy = policy_of(settings, len(slots), slots)
    shake(policy)
    algorithm = settings.algorithm
    learner = Learner(policy, algorithm, Processes(cpu=True), micro_tokens)
    chosen_from = VALUES | OF_OTHERS if values is None else values
    chosen = {name: [column[slot] for slot in slots] for name, column in chosen_from.items()}
    known = hyperparameters.of_algorithm(algorithm)
    bound = hyperparameters.bind(algorithm, {k: v for k, v in chosen.items() if k in known}, torch.device("cpu"))
    batch = with_real_logprobs(policy, batch_of(slots))
    metrics = [
        learner.update(change(batch), bound, Sampling.same(len(slots), 1.0), update) for update in range(updates)
    ]
    return policy, learner, metrics


ALGORITHMS = [
    "algorithm=grpo algorithm.epochs=2",
    "algorithm=ppo algorithm.epochs=2",
    "algorithm=sorl algorithm.epochs=2 algorithm.objective.exact=true algorithm.objective.clip_low=0.01",
    *(
        f"algorithm={name}"
        for name, preset in components("algorithm").items()
        if preset.learns_from == "rollout" and not preset.trains_scorer
    ),
]


@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_a_population_of_three_equals_three_runs_of_one(algorithm: str) -> None:
    together, learner, metrics = trained([0, 1, 2], *algorithm.split())
    for slot in range(3):
        alone, single, own = trained([slot], *algorithm.split())
        # Adam divides rounding errors of a gradient near 0 by themselves, so a few weights differ by more than rounding
        torch.testing.assert_close(alone.block.data[0], together.block.data[slot], rtol=1e-4, atol=5e-5)
        torch.testing.assert_close(single.optimizer.first[0], learner.optimizer.first[slot], rtol=1e-3, atol=1e-5)
        for mine, all_ in zip(own, metrics, strict=True):
            for name in {"grad_norm", "loss", "entropy", "kl", "margin"} & set(mine):
                torch.testing.assert_close(mine[name][0], all_[name][slot], rtol=1e-3, atol=1e-5)
    start = policy_of(config(*algorithm.split()), 3)
    shake(start)
    assert not torch.allclose(start.block.data, together.block.data, atol=1e-4)


@pytest.mark.parametrize("algorithm", ["grpo", "ppo", "turn_ppo", "dpo", "sorl", "empg", "reinforce_pp", "sampo"])
def test_micro_batches_change_nothing(algorithm: str) -> None:
    whole, _, _ = trained([0, 1], f"algorithm={algorithm}", "algorithm.epochs=2", micro_tokens=10_000)
    pieces, _, _ = trained([0, 1], f"algorithm={algorithm}", "algorithm.epochs=2", micro_tokens=60)
    torch.testing.assert_close(whole.block.data, pieces.block.data, rtol=1e-4, atol=1e-5)


def test_padding_changes_nothing() -> None:
    def padded(batch: Batch) -> Batch:
        t = batch.tokens
        return replace(
            batch,
            ids_RT=torch.nn.functional.pad(batch.ids_RT, (0, 5), value=7),
            tokens=replace(
                t,
                mask_RT=torch.nn.functional.pad(t.mask_RT, (0, 5)),
                turn_RT=torch.nn.functional.pad(t.turn_RT, (0, 5), value=-1),
                logprob_RT=torch.nn.functional.pad(t.logprob_RT, (0, 5)),
            ),
        )

    short, _, _ = trained([0, 1])
    long, _, _ = trained([0, 1], change=padded)
    assert torch.equal(short.block.data, long.block.data)


def test_row_order_changes_nothing() -> None:
    def turned(batch: Batch) -> Batch:
        order = torch.tensor([2, 0, 3, 1, 4 + 1, 4 + 3, 4 + 0, 4 + 2])
        t = batch.tokens
        return replace(
            batch,
            ids_RT=batch.ids_RT[order],
            tokens=replace(t, mask_RT=t.mask_RT[order], turn_RT=t.turn_RT[order], logprob_RT=t.logprob_RT[order]),
        )

    straight, _, _ = trained([0, 1])
    shuffled, _, _ = trained([0, 1], change=turned)
    torch.testing.assert_close(straight.block.data, shuffled.block.data, rtol=1e-4, atol=1e-5)


def test_on_the_first_step_the_ratio_is_one_and_from_a_fresh_start_kl_is_zero() -> None:
    for old in ("sampler", "recompute"):
        settings = config(f"algorithm.old_logprobs={old}", "algorithm.minibatches=1")
        policy = policy_of(settings, 2)
        learner = Learner(policy, settings.algorithm, Processes(cpu=True), 10_000)
        batch = with_real_logprobs(policy, batch_of([0, 1]))
        metrics = learner.update(batch, settings.algorithm, Sampling.same(2, 1.0), 0)
        torch.testing.assert_close(metrics["ratio_max"], torch.ones(2), rtol=0, atol=1e-5)
        torch.testing.assert_close(metrics["ratio_mean"], torch.ones(2), rtol=0, atol=1e-5)
        assert metrics["kl"].abs().max() < 1e-7


def test_after_a_warm_start_kl_to_the_frozen_start_is_zero() -> None:
    settings = config("algorithm.minibatches=1")
    policy = policy_of(settings, 2)
    shake(policy)
    batch = with_real_logprobs(policy, batch_of([0, 1]))
    drifted = Learner(policy, settings.algorithm, Processes(cpu=True), 10_000).update(
        batch,
        replace(settings.algorithm, optimizer=replace(settings.algorithm.optimizer, learning_rate=1e-12)),
        Sampling.same(2, 1.0),
        0,
    )
    assert drifted["kl"].min() > 1e-5
    policy.freeze_reference()
    metrics = Learner(policy, settings.algorithm, Processes(cpu=True), 10_000).update(
        batch, settings.algorithm, Sampling.same(2, 1.0), 0
    )
    assert metrics["kl"].abs().max() < 1e-7


def test_what_is_trained_is_what_was_sampled_and_nothing_else() -> None:
    batch = batch_of([0, 1])
    for row, one in zip(range(8), batch.episodes, strict=True):
        said = [i for turn in one.turns for i in turn.action_ids]
        assert batch.ids_RT[row][batch.tokens.mask_RT[row]].tolist() == said
        assert [turn.action_ids[-1] for turn in one.turns] == [1, 1]  # the stop token of every turn is trained
        fed = [i for turn in one.turns for i in turn.observation_ids + turn.action_ids]
        assert batch.ids_RT[row, : len(fed)].tolist() == fed
        turns = batch.tokens.turn_RT[row][batch.tokens.mask_RT[row]]
        assert turns.tolist() == sorted(turns.tolist()) and len(set(turns.tolist())) == 2


def test_what_is_retrieved_between_two_actions_is_read_and_not_trained() -> None:
    searched = episode(0, 0, [([3], [50, 51]), ([60, 61], [52, 1])])
    batch = build_batch([searched], [[0.0, 1.0]], [1.0], 1, 0, torch.device("cpu"))
    answer = batch.tokens.mask_RT[0, 1:]
    assert answer.int().tolist() == [1, 1, 0, 0, 1, 1]
    assert answer.float().mean().item() == pytest.approx(0.666667, abs=1e-5)


def test_absurd_observations_leave_kl_and_entropy_to_the_trained_tokens() -> None:
    """Log-probabilities of observation tokens, however wild, take part in nothing."""

    def wild(batch: Batch) -> Batch:
        logprob = torch.where(batch.tokens.mask_RT, batch.tokens.logprob_RT, torch.nan)
        return replace(batch, tokens=replace(batch.tokens, logprob_RT=logprob))

    tame, _, expected = trained([0, 1])
    changed, _, metrics = trained([0, 1], change=wild)
    assert torch.equal(tame.block.data, changed.block.data)
    for before, after in zip(expected, metrics, strict=True):
        assert all(torch.equal(before[name], after[name]) for name in before)


def test_observation_tokens_get_no_gradient_as_targets() -> None:
    policy = policy_of(config(), 1)
    batch = batch_of([0])
    with policy.acting("policy"):
        logprob, entropy = policy.logprobs(
            batch.ids_RT, batch.tokens.mask_RT, Sampling.same(4, 1.0), entropy_gradient=True
        )
    assert torch.all(logprob[~batch.tokens.mask_RT] == 0) and torch.all(entropy[~batch.tokens.mask_RT] == 0)


def test_one_members_nan_leaves_the_others_bit_identical_and_is_reported() -> None:
    def poisoned(batch: Batch) -> Batch:
        rewards = batch.turns.reward_K.clone()
        rewards[batch.turns.member_K == 1] = torch.nan
        return replace(batch, turns=replace(batch.turns, reward_K=rewards))

    well, _, _ = trained([0, 1, 2], "algorithm.advantage.normalisation.floor=0")
    sick, learner, metrics = trained([0, 1, 2], "algorithm.advantage.normalisation.floor=0", change=poisoned)
    start = policy_of(config(), 3)
    shake(start)
    assert torch.equal(well.block.data[[0, 2]], sick.block.data[[0, 2]])
    if metrics[0]["finite"][1] == 0:
        assert torch.equal(sick.block.data[1], start.block.data[1]) and learner.optimizer.count[1] == 0
    assert sick.block.data.isfinite().all()


def test_a_member_with_broken_weights_skips_its_step_and_the_others_do_not_notice() -> None:
    settings = config()
    results = []
    for broken in (False, True):
        policy = policy_of(settings, 3)
        shake(policy)
        batch = with_real_logprobs(policy, batch_of([0, 1, 2]))
        if broken:
            policy.block.data[1, 0] = torch.nan
        learner = Learner(policy, settings.algorithm, Processes(cpu=True), 10_000)
        metrics = learner.update(batch, settings.algorithm, Sampling.same(3, 1.0), 0)
        results.append((policy.block.data.clone(), metrics["finite"].tolist(), learner.optimizer.count.tolist()))
    (well, all_fine, _), (sick, finite, counts) = results
    assert all_fine == [1, 1, 1] and finite == [1, 0, 1] and counts == [2, 0, 2]
    assert torch.equal(well[[0, 2]], sick[[0, 2]])


def test_failed_episodes_leave_baseline_and_loss() -> None:
    """Members with unequally many rows are padded with empty rows, which count nowhere."""
    settings = config("algorithm.minibatches=1")
    episodes = episodes_of([0, 1])
    del episodes[1]
    rewards = [[0.0, r] for r in (1.0, 0.5, 0.0, 1.0, 0.0, 0.5, -0.5)]
    policy = policy_of(settings, 2)
    shake(policy)
    batch = with_real_logprobs(
        policy, build_batch(episodes, rewards, [r[1] for r in rewards], 2, 0, torch.device("cpu"))
    )
    Learner(policy, settings.algorithm, Processes(cpu=True), 10_000).update(
        batch, settings.algorithm, Sampling.same(2, 1.0), 0
    )
    alone = policy_of(settings, 1, [0])
    shake(alone)
    own = with_real_logprobs(
        alone, build_batch(episodes[:3], rewards[:3], [r[1] for r in rewards[:3]], 1, 0, torch.device("cpu"))
    )
    Learner(alone, settings.algorithm, Processes(cpu=True), 10_000).update(
        own, settings.algorithm, Sampling.same(1, 1.0), 0
    )
    torch.testing.assert_close(policy.block.data[0], alone.block.data[0], rtol=1e-4, atol=1e-5)


def test_a_member_with_nothing_to_learn_from_is_not_moved_by_its_momentum() -> None:
    settings = config("algorithm.minibatches=1")
    policy = policy_of(settings, 2)
    shake(policy)
    learner = Learner(policy, settings.algorithm, Processes(cpu=True), 10_000)
    batch = with_real_logprobs(policy, batch_of([0, 1]))
    learner.update(batch, settings.algorithm, Sampling.same(2, 1.0), 0)
    before = policy.block.data.clone()
    nothing = batch.tokens.mask_RT & (batch.tokens.member_R == 0).unsqueeze(1)
    emptied = replace(batch, tokens=replace(batch.tokens, mask_RT=nothing))
    metrics = learner.update(emptied, settings.algorithm, Sampling.same(2, 1.0), 1)
    assert torch.equal(policy.block.data[1], before[1]) and not torch.equal(policy.block.data[0], before[0])
    assert metrics["finite"].tolist() == [1, 1] and learner.optimizer.count.tolist() == [2, 1]


def test_a_turn_without_logprobs_is_an_error_that_names_it() -> None:
    episodes = episodes_of([0])
    episodes[2].turns[1].logprobs = []
    with pytest.raises(ValueError, match="turn 1 of task 0"):
        build_batch(episodes, [[0.0, 1.0]] * 4, [1.0] * 4, 1, 0, torch.device("cpu"))


def test_minibatches_make_one_step_each_on_all_rows_once() -> None:
    _, learner, _ = trained([0, 1], "algorithm.minibatches=2", "algorithm.epochs=3", updates=1)
    assert learner.optimizer.count.tolist() == [6, 6]
    batch = batch_of([0, 1])
    seen = torch.cat([rows[0] for rows in learner.passes.minibatches(batch, 2, (0, 0))])
    assert sorted(seen.tolist()) == [0, 1, 2, 3]


@pytest.mark.parametrize("key", sorted(VALUES))
def test_every_evolving_value_reaches_the_update(key: str) -> None:
    """Mutating one member's value changes that member's weights and nobody else's."""
    high = {"algorithm.objective.clip_low": 0.001, "algorithm.objective.clip_high": 0.001}
    # a large first step, so that the second one meets the clip range
    base = {"algorithm.optimizer.learning_rate": [2e-2] * 3, "algorithm.optimizer.max_grad_norm": [1.0] * 3}
    base |= {name: VALUES[name] for name in VALUES if name not in base}
    changed = dict(base)
    changed[key] = [base[key][0], high.get(key, base[key][1] * 3), base[key][2]]
    before, _, _ = trained([0, 1, 2], "algorithm.epochs=4", values=base)
    after, _, _ = trained([0, 1, 2], "algorithm.epochs=4", values=changed)
    assert torch.equal(before.block.data[[0, 2]], after.block.data[[0, 2]])
    assert not torch.equal(before.block.data[1], after.block.data[1])


def test_kl_in_the_reward_reaches_the_advantages() -> None:
    overrides = ["algorithm=ppo", "algorithm.kl.place=reward", "algorithm.kl.estimator=k1", "algorithm.epochs=1"]
    values = {"algorithm.kl.coef": [0.0, 0.5]}
    policy, _, _ = trained([0, 1], *overrides, values={"algorithm.kl.coef": [0.001, 0.001]}, updates=1)
    other, _, _ = trained([0, 1], *overrides, values=values, updates=1)
    assert not torch.equal(policy.block.data[1], other.block.data[1])


def test_the_critic_learns_what_the_rewards_are() -> None:
    _, _, metrics = trained(
        [0, 1, 2], "algorithm=ppo", "algorithm.critic.optimizer.learning_rate=0.003", updates=40, values={}
    )
    assert (metrics[-1]["value_loss"] < 0.5 * metrics[0]["value_loss"]).all(), [m["value_loss"] for m in metrics]
