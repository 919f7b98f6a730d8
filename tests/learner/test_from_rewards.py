"""What a policy gradient does with filters, corrections, memory, minibatches and a critic, told by what it trains."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor

from algorithms.kl import adapted_coefficient
from envs.core import Episode
from evo_hpo.evolution import hyperparameters
from evo_hpo.learner.batch import Batch, build_batch
from evo_hpo.learner.learner import Learner
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.runtime.processes import Processes
from tests.building import config, episode, policy_of, shake
from tests.learner.test_learner import batch_of, trained, with_real_logprobs

SURROGATE = ["algorithm.kl.coef=0", "algorithm.entropy.coef=0", "algorithm.minibatches=1"]
FLOOR = "floor: 0.0}]"


def learner_of(*overrides: str, members: int = 2) -> tuple[Policy, Learner]:
    """Members that have moved away from the base, each on its own."""
    settings = config("seed=0" if "algorithm=dpo" in overrides else "algorithm.minibatches=1", *overrides)
    policy = policy_of(settings, members)
    shake(policy)
    return policy, Learner(policy, settings.algorithm, Processes(cpu=True), 10_000)


def update(learner: Learner, batch: Batch, number: int = 0, **values: list[float]) -> dict[str, Tensor]:
    """One update; `values` are of evolving keys, with __ for a dot."""
    named = {f"algorithm.{name.replace('__', '.')}": column for name, column in values.items()}
    algorithm = hyperparameters.bind(learner.algorithm, named, torch.device("cpu"))
    return learner.update(batch, algorithm, Sampling.same(learner.policy.members, 1.0), number)


def batch_from(policy: Policy, episodes: Sequence[Episode], rewards: Sequence[float]) -> Batch:
    """Of one member; everything is paid at the end."""
    paid = [[0.0] * (len(e.turns) - 1) + [reward] for e, reward in zip(episodes, rewards, strict=True)]
    return with_real_logprobs(policy, build_batch(episodes, paid, rewards, 1, 0, torch.device("cpu")))


def one_turn(group: int, said: list[int], **changes: Any) -> Episode:
    made = episode(0, group, [([3, 20, 21, 1, 4], said)])
    return replace(made, turns=[replace(turn, **changes) for turn in made.turns])


MIXED = [one_turn(0, [30, 31, 1]), one_turn(0, [40, 1])]
FILTER = "algorithm.filters=[{_target_: algorithms.filters."


# Filters


def test_a_group_that_a_filter_drops_leaves_loss_divergence_and_denominators() -> None:
    """As if it had never been played, though its tokens are many and far from the reference."""
    flat = [one_turn(1, [50, 51, 52, 53, 54, 1]), one_turn(1, [60, 61, 62, 63, 1])]
    results = []
    for filters, episodes, rewards in (
        (f"{FILTER}ZeroSpread, {FLOOR}", MIXED + flat, [1.0, 0.0, 1.0, 1.0]),
        ("seed=0", MIXED, [1.0, 0.0]),
        ("seed=0", MIXED + flat, [1.0, 0.0, 1.0, 1.0]),
    ):
        policy, learner = learner_of(filters, "algorithm.kl.coef=0.3", members=1)
        metrics = update(learner, batch_from(policy, episodes, rewards))
        results.append((policy.block.data.clone(), metrics["loss"], metrics["kl"]))
    filtered, without, unfiltered = results
    for kept, alone, everything in zip(filtered, without, unfiltered, strict=True):
        torch.testing.assert_close(kept, alone, rtol=1e-5, atol=1e-6)
        assert not torch.allclose(everything, alone, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "flag", "counts"),
    [("VoidTurn}]", {"valid": False}, True), ("Truncated}]", {"truncated": True}, False)],
)
def test_an_episode_that_is_dropped_still_counts_in_the_baseline_where_its_filter_says_so(
    name: str, flag: dict[str, bool], counts: bool
) -> None:
    """The returns 1 and 0 are compared with 1, 0 and 0.8, or with each other alone."""
    third = one_turn(0, [50, 51, 1], **flag)
    plain = ["algorithm.advantage.normalisation.spread=none", *SURROGATE]
    policy, learner = learner_of(f"{FILTER}{name}", *plain, members=1)
    metrics = update(learner, batch_from(policy, [*MIXED, third], [1.0, 0.0, 0.8]))
    mean = 0.6 if counts else 0.5
    assert metrics["advantage_max"].item() == pytest.approx(max(1 - mean, mean))
    of_tokens = (3 * (1 - mean) - 2 * mean) / 5
    assert metrics["advantage_mean"].item() == pytest.approx(of_tokens, abs=1e-6), "of two episodes"
    assert metrics["dropped"].item() == pytest.approx(1 / 3)


def test_an_update_without_an_episode_that_is_kept_moves_nothing_and_forgets_nothing() -> None:
    everything = f"{FILTER}ZeroSpread, floor: 10.0}}]"
    adaptive = ["algorithm.kl.target=0.01", "algorithm.entropy.target=0.5"]
    policy, learner = learner_of(everything, *adaptive)
    before, memory = policy.block.data.clone(), {name: column.clone() for name, column in learner.memory.items()}
    metrics = update(learner, with_real_logprobs(policy, batch_of([0, 1])))
    assert torch.equal(policy.block.data, before) and learner.optimizer.count.tolist() == [0, 0]
    assert metrics["finite"].tolist() == [1, 1] and metrics["dropped"].tolist() == [1, 1]
    assert all(torch.equal(learner.memory[name], column) for name, column in memory.items())


# What weighs the loss


def test_a_correction_multiplies_the_surrogate() -> None:
    tis = ["algorithm.old_logprobs=recompute", "algorithm/correction=truncated_is", "algorithm.correction.cap=0.5"]
    norms = []
    for overrides in (tis, tis[:1]):
        policy, learner = learner_of(*overrides, *SURROGATE)
        batch = batch_of([0, 1])
        sampled = torch.where(batch.tokens.mask_RT, -30.0, 0.0)  # so unlikely that every weight is above the cap
        batch = replace(batch, tokens=replace(batch.tokens, logprob_RT=sampled))
        norms.append(update(learner, batch)["grad_norm"])
    torch.testing.assert_close(norms[0], norms[1] / 2)


def test_recomputed_log_probabilities_leave_no_say_to_those_of_the_sampler() -> None:
    in_reward = ["algorithm.kl.place=reward", "algorithm.kl.estimator=k1", "algorithm.kl.coef=0.1"]
    blocks = []
    for sampled in (-1.0, -9.0):
        policy, learner = learner_of("algorithm.old_logprobs=recompute", *in_reward)
        batch = batch_of([0, 1])
        said = torch.where(batch.tokens.mask_RT, sampled, 0.0)
        update(learner, replace(batch, tokens=replace(batch.tokens, logprob_RT=said)))
        blocks.append(policy.block.data)
    assert torch.equal(*blocks)


def test_an_entropy_bonus_moves_a_policy_that_nothing_else_moves() -> None:
    norms = []
    for coef in (0.0, 0.1):
        policy, learner = learner_of("algorithm.kl.coef=0", f"algorithm.entropy.coef={coef}", members=1)
        norms.append(update(learner, batch_from(policy, MIXED, [1.0, 1.0]))["grad_norm"].item())
    assert norms[0] == 0 and norms[1] > 0


def test_the_divergence_is_from_the_base_where_nothing_else_is_the_reference() -> None:
    policy, learner = learner_of()
    batch = with_real_logprobs(policy, batch_of([0, 1]))
    with torch.no_grad(), policy.acting("reference"):
        reference, _ = policy.logprobs(batch.ids_RT, batch.tokens.mask_RT, Sampling.same(8, 1.0))
    gap = (reference - batch.tokens.logprob_RT)[batch.tokens.mask_RT]
    member = batch.tokens.member_R.unsqueeze(1).expand_as(batch.tokens.mask_RT)[batch.tokens.mask_RT]
    k3 = gap.exp() - gap - 1
    expected = torch.stack([k3[member == m].mean() for m in (0, 1)])
    assert expected.min() > 1e-4
    torch.testing.assert_close(update(learner, batch)["kl"], expected, rtol=1e-3, atol=1e-6)


def test_a_minibatch_has_denominators_of_its_own() -> None:
    """Rows that are all alike give the same gradient in one half as in all of them."""
    same = [one_turn(g, [30, 31, 1]) for g in range(4)]
    norms = []
    for minibatches in (1, 2):
        halves = [f"algorithm.minibatches={minibatches}", "algorithm.optimizer.learning_rate=1e-9"]
        policy, learner = learner_of(
            "algorithm=reinforce_pp", "algorithm.advantage.baseline=none", *SURROGATE, *halves, members=1
        )
        norms.append(update(learner, batch_from(policy, same, [1.0] * 4))["grad_norm"])
    torch.testing.assert_close(norms[0], norms[1], rtol=1e-4, atol=0)


SORL = ["algorithm=sorl", *SURROGATE]


def partly_clipped(policy: Policy) -> Batch:
    """Sampled by a policy that some of the rows would be clipped against."""
    batch = with_real_logprobs(policy, batch_of([0, 1]))
    moved = torch.where(batch.tokens.mask_RT, torch.tensor([0.0, 0.5, -0.5, 0.0] * 2).unsqueeze(1), 0.0)
    return replace(batch, tokens=replace(batch.tokens, logprob_RT=batch.tokens.logprob_RT + moved))


@pytest.mark.parametrize("exact", ["true", "false"])
def test_sorl_shrinks_a_step_by_as_much_as_its_bias_is_above_the_bound(exact: str) -> None:
    policy, learner = learner_of(*SORL, f"algorithm.objective.exact={exact}")
    batch = partly_clipped(policy)
    free = update(learner, batch)
    assert (free["grad_norm"] > 0.001).all(), "not everything is clipped"
    bias = learner.memory["clip_bound"].clone()
    assert (bias > 0).all(), "the first bias becomes the bound"
    _, bounded = learner_of(*SORL, f"algorithm.objective.exact={exact}")
    bounded.memory["clip_bound"] = bias / torch.tensor([4.0, 0.5])
    shrunk = update(bounded, batch)
    torch.testing.assert_close(shrunk["grad_norm"], free["grad_norm"] / torch.tensor([4.0, 1.0]))


def test_measuring_the_bias_of_sorl_exactly_leaves_no_trace_in_the_gradient() -> None:
    norms, bounds = [], []
    for exact in ("true", "false"):
        policy, learner = learner_of(*SORL, f"algorithm.objective.exact={exact}")
        norms.append(update(learner, partly_clipped(policy))["grad_norm"])
        bounds.append(learner.memory["clip_bound"])
    torch.testing.assert_close(norms[0], norms[1])
    assert not torch.allclose(bounds[0], bounds[1])


# Memory


ADAPTIVE = {
    "kl": (["algorithm.kl.coef=0.2", "algorithm.kl.target=0.001"], "kl_factor", 0.5, "algorithm.kl.coef=0.1"),
    "entropy": (
        ["algorithm.entropy.coef=0.01", "algorithm.entropy.target=0.1"],
        "entropy_shift",
        0.04,
        "algorithm.entropy.coef=0.05",
    ),
}


@pytest.mark.parametrize(("overrides", "name", "known", "fixed"), ADAPTIVE.values(), ids=ADAPTIVE)
def test_a_coefficient_that_was_adapted_is_the_one_that_trains(
    overrides: list[str], name: str, known: float, fixed: str
) -> None:
    policy, learner = learner_of(*overrides)
    learner.memory[name].fill_(known)
    other, plain = learner_of(fixed)
    batch = with_real_logprobs(policy, batch_of([0, 1]))
    update(learner, batch)
    update(plain, batch)
    torch.testing.assert_close(policy.block.data, other.block.data, rtol=1e-3, atol=1e-5)


def test_coefficients_adapt_to_what_the_update_measured() -> None:
    policy, learner = learner_of(
        "algorithm.kl.target=1e-6", "algorithm.entropy.target=50", "algorithm.entropy.step=0.01"
    )
    learner.memory["entropy_shift"] = torch.tensor([0.02, -0.5])  # the second is as low as it gets, 0
    metrics = update(learner, with_real_logprobs(policy, batch_of([0, 1])), entropy__coef=[0.1, 0.2])
    expected = adapted_coefficient(torch.ones(2), metrics["kl"], 1e-6, torch.tensor([4.0, 4.0]), 10_000)
    assert (expected > 1).all()
    torch.testing.assert_close(learner.memory["kl_factor"], expected, rtol=1e-6, atol=0)
    torch.testing.assert_close(learner.memory["entropy_shift"], torch.tensor([0.03, 0.01 - 0.2]))
    torch.testing.assert_close(metrics["memory/kl_factor"], expected)


def test_a_moving_baseline_is_that_of_the_updates_before() -> None:
    moving = ["algorithm=reinforce", "algorithm.advantage.baseline=moving", "algorithm.advantage.decay=0.5"]
    policy, learner = learner_of(*moving, *SURROGATE, members=1)
    first = update(learner, batch_from(policy, MIXED, [1.0, 0.0]))
    assert learner.memory["return_mean"].tolist() == [0.5]
    second = update(learner, batch_from(policy, MIXED, [3.0, 2.0]), 1)
    assert learner.memory["return_mean"].tolist() == [0.5 * 0.5 + 0.5 * 2.5]
    assert first["advantage_mean"].item() == pytest.approx((3 * 0.5 - 2 * 0.5) / 5)
    assert second["advantage_mean"].item() == pytest.approx((3 * 2.5 + 2 * 1.5) / 5)


def test_a_clone_has_its_parents_memory_and_critic() -> None:
    memory = ["algorithm.kl.target=0.001", "algorithm.entropy.target=50"]
    policy, learner = learner_of("algorithm=ppo", *memory, members=3)
    update(learner, with_real_logprobs(policy, batch_of([0, 1, 2])))
    learner.memory["kl_factor"] = torch.tensor([1.0, 2.0, 3.0])
    assert policy.critic is not None and learner.critic_optimizer is not None
    before = {name: tensor.clone() for name, tensor in learner.tensors().items()} | {
        "critic": policy.critic.data.clone()
    }
    parents = torch.tensor([2, 1, 1])
    policy.gather(parents)
    learner.gather(parents)
    for name, tensor in {**learner.tensors(), "critic": policy.critic.data}.items():
        assert torch.equal(tensor, before[name][parents]), name
    assert not torch.equal(before["critic_optimizer.first"][0], before["critic_optimizer.first"][2])


def test_a_learner_that_is_loaded_goes_on_with_what_was_carried() -> None:
    adaptive = ["algorithm=ppo", "algorithm.kl.target=0.001", "algorithm.entropy.target=50"]
    policy, learner = learner_of(*adaptive)
    update(learner, with_real_logprobs(policy, batch_of([0, 1])))
    _, fresh = learner_of(*adaptive)
    assert not torch.equal(fresh.memory["kl_factor"], learner.memory["kl_factor"])
    fresh.load(learner.tensors())
    for name, tensor in learner.tensors().items():
        assert torch.equal(fresh.tensors()[name], tensor), name


# Critics


@pytest.mark.parametrize("algorithm", ["ppo", "turn_ppo", "bilevel_ppo"])
def test_a_broken_critic_stops_its_member_and_the_others_do_not_notice(algorithm: str) -> None:
    results = []
    for broken in (False, True):
        policy, learner = learner_of(f"algorithm={algorithm}", members=3)
        assert policy.critic is not None
        batch = with_real_logprobs(policy, batch_of([0, 1, 2]))
        start = policy.block.data.clone()
        if broken:
            policy.critic.data[1, :7] = torch.nan
        metrics = update(learner, batch)
        results.append((policy.block.data, policy.critic.data, metrics["finite"].tolist()))
    (well, critics, _), (sick, sick_critics, finite) = results
    assert finite == [1, 0, 1]
    assert torch.equal(sick[1], start[1])
    assert torch.equal(well[[0, 2]], sick[[0, 2]]) and torch.equal(critics[[0, 2]], sick_critics[[0, 2]])


# What may evolve

REACHES: dict[str, tuple[str, float, float]] = {  # key: algorithm, value before, value after
    "advantage.gamma": ("algorithm=ppo", 1.0, 0.5),
    "advantage.lam": ("algorithm=ppo", 1.0, 0.5),
    "advantage.turn_gamma": ("algorithm=bilevel_ppo", 1.0, 0.5),
    "advantage.omega": ("algorithm=gigpo", 1.0, 0.0),
    "advantage.alpha": ("algorithm=mt_grpo", 1.0, 3.0),
    "advantage.k": ("algorithm=empg", 1.0, 3.0),
    "advantage.zeta": ("algorithm=empg", 0.1, 3.0),
    "correction.cap": ("algorithm=decoupled_ppo algorithm/correction=truncated_is", 2.0, 0.1),
    "critic.value_clip": ("algorithm=ppo algorithm.epochs=4", 0.5, 1e-4),
    "critic.optimizer.learning_rate": ("algorithm=ppo", 1e-3, 1e-2),
    "objective.ratio_high": ("algorithm=cispo", 5.0, 1.0),
    "objective.tau_positive": ("algorithm=sapo algorithm.epochs=3", 1.0, 30.0),
    "objective.tau_negative": ("algorithm=sapo algorithm.epochs=3", 1.0, 30.0),
    "objective.threshold": ("algorithm=dppo", 0.9, 1e-4),
    "beta": ("algorithm=dpo", 0.1, 1.0),
    "entropy.coef": ("algorithm=grpo", 0.0, 0.1),
    "sequence_mask.delta": ("algorithm=sampo algorithm.objective.clip_low=0.9", 100.0, 0.0),
}


@pytest.mark.parametrize("key", REACHES)
def test_a_value_that_evolves_changes_its_own_members_learning_and_nobody_elses(key: str) -> None:
    overrides, before, after = REACHES[key]

    def repeated(batch: Batch) -> Batch:
        """From the same states, and sampled by another policy than the present one."""
        states = batch.turns.episode_K % 2 + 10 * batch.turns.group_E[batch.turns.episode_K]
        sampled = torch.where(batch.tokens.mask_RT, batch.tokens.logprob_RT + 0.7, 0.0)
        return replace(
            batch,
            turns=replace(batch.turns, state_K=states),
            tokens=replace(batch.tokens, logprob_RT=sampled),
        )

    def of(value: float) -> Tensor:
        values = {f"algorithm.{key}": [before, value, before], "algorithm.optimizer.learning_rate": [2e-2] * 3}
        policy, learner, _ = trained([0, 1, 2], *overrides.split(), values=values, change=repeated, updates=2)
        critic = [] if policy.critic is None else [policy.critic.data]
        return torch.cat([policy.block.data, *critic], 1)

    then, now = of(before), of(after)
    assert torch.equal(then[[0, 2]], now[[0, 2]])
    assert not torch.equal(then[1], now[1])
