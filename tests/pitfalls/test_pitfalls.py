"""Failures of other frameworks that no other test guards; the number is that of the list they come from."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path
from typing import ClassVar

import pytest
import torch

from algorithms.advantages import Advantage, Returns
from envs.core import Environment, Episode, Step, StopReason
from envs.frozen_lake import FrozenLake
from evo_hpo.learner.batch import Batch, build_batch
from evo_hpo.learner.learner import Learner
from evo_hpo.learner.scoring import score
from evo_hpo.policy.noise import key
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.rollout.fused import FusedSampler
from evo_hpo.rollout.pool import EnvironmentPool
from evo_hpo.rollout.runner import Assignment, play
from evo_hpo.runtime.checkpoints import Checkpoints
from evo_hpo.runtime.metrics import episode_metrics
from evo_hpo.runtime.processes import Processes
from evo_hpo.tracking.alarms import Watch
from evo_hpo.tracking.core import MemberUpdate, UpdateRecord
from rewards.core import Reward, Score
from rewards.environment import EnvironmentReward
from rewards.granularity import Granularity
from tests.algorithms.estimators import DR_GRPO, GRPO, RLOO
from tests.algorithms.tables import assert_close, token_table, turn_table
from tests.building import config, episode, policy_of, shake, training_of
from tests.runtime.support import resumed, started
from tests.runtime.test_population import recorded

CPU = torch.device("cpu")
EMPTY_THOUGHT = (  # the prompt of a new turn holds an empty reasoning block, which earlier turns lose
    "{% for m in messages %}<|{{ m['role'] }}|>{{ m['content'] }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|><think>\n\n</think>\n{% endif %}"
)


def played(policy: Policy, tasks: Sequence[int], temperature: float = 1.0, budget: int = 6) -> list[Episode]:
    sampling = Sampling.same(policy.members, temperature)
    assignments = [
        Assignment(m, g, task, key("p", m, g)) for g, task in enumerate(tasks) for m in range(policy.members)
    ]
    sampler = FusedSampler(policy, sampling, slots=4, max_action_tokens=budget, max_context=512)
    pool = EnvironmentPool(threads=2, limit=5.0)
    return play(sampler, policy.base.chat, FrozenLake(), assignments, pool, budget, 512, False, version=0)


def rows_of(episodes: list[Episode], members: int = 1) -> Batch:
    rewards = [[0.0] * (len(e.turns) - 1) + [float(i % 2)] for i, e in enumerate(episodes)]
    return build_batch(episodes, rewards, [r[-1] for r in rewards], members, 0, CPU)


def trained_ids(batch: Batch, row: int) -> list[int]:
    ids: list[int] = batch.ids_RT[row][batch.tokens.mask_RT[row]].tolist()
    return ids


def test_ids_that_would_be_encoded_otherwise_are_trained_as_they_were_sampled() -> None:
    """PITFALLS 1 and 2: a hot policy writes texts whose tokens are not those that the tokenizer would choose."""
    policy = policy_of(config(), 1)
    shake(policy)
    episodes = played(policy, range(4), temperature=2.5)
    turns = [turn for e in episodes for turn in e.turns]
    chat = policy.base.chat
    assert any(chat.encode(chat.decode(t.action_ids)) != [i for i in t.action_ids if i != chat.stop_id] for t in turns)
    batch = rows_of(episodes)
    for row, e in enumerate(episodes):
        assert trained_ids(batch, row) == [i for turn in e.turns for i in turn.action_ids]


@pytest.mark.parametrize("template", [None, EMPTY_THOUGHT])
def test_an_inserted_empty_reasoning_block_is_fed_never_trained_and_shifts_no_mask(template: str | None) -> None:
    """PITFALLS 6, 7, 8 and 14."""
    settings = config()
    settings = dataclasses.replace(settings, model=dataclasses.replace(settings.model, chat_template=template))
    policy = policy_of(settings, 1)
    episodes = played(policy, range(3))
    batch = rows_of(episodes)
    tokenizer, stop = policy.base.tokenizer, policy.base.chat.stop_id
    assert any(len(e.turns) > 1 for e in episodes)
    for row, e in enumerate(episodes):
        assert trained_ids(batch, row) == [i for turn in e.turns for i in turn.action_ids]
        fed = [tokenizer.decode(turn.observation_ids) for turn in e.turns]
        assert all(text.endswith("</think>\n") for text in fed) == (template is not None)
        for before, after in zip(e.turns, e.turns[1:], strict=False):
            closing = [stop] if before.truncated else []
            assert after.observation_ids == closing + policy.base.chat.following(after.observation)
    with torch.no_grad(), policy.acting("policy"):
        scored, _ = policy.logprobs(batch.ids_RT, batch.tokens.mask_RT, Sampling.same(batch.ids_RT.shape[0], 1.0))
    torch.testing.assert_close(scored, batch.tokens.logprob_RT, rtol=1e-4, atol=1e-4)


def test_metrics_of_an_update_are_of_trained_tokens_alone() -> None:
    """PITFALLS 11 and 13."""
    policy = policy_of(config(), 1)
    shake(policy)
    episodes = played(policy, range(4))
    batch = rows_of(episodes)
    settings = config("algorithm.minibatches=1").algorithm
    with torch.no_grad(), policy.acting("policy"):
        everywhere = Sampling.same(batch.ids_RT.shape[0], 1.0)
        _, entropy_RT = policy.logprobs(batch.ids_RT, batch.tokens.mask_RT, everywhere)
    expected = float(entropy_RT[batch.tokens.mask_RT].mean())
    metrics = Learner(policy, settings, Processes(cpu=True), 10_000).update(batch, settings, Sampling.same(1, 1.0), 0)
    assert metrics["entropy"].tolist() == pytest.approx([expected], rel=1e-5)
    assert expected > 0
    mine = [turn for e in episodes for turn in e.turns]
    scored = score(episodes, EnvironmentReward(), Granularity("sparse"))
    [of_episodes] = episode_metrics(episodes, scored, 1, in_groups=False)
    assert of_episodes["action_tokens"] == pytest.approx(int(batch.tokens.mask_RT.sum()) / len(mine))


@pytest.mark.parametrize(
    "estimator",
    [GRPO, DR_GRPO, RLOO, *(Returns(credit="turn", gamma=1.0, baseline=b, decay=0.0) for b in ("none", "batch"))],
)
def test_one_more_turn_of_equal_worth_earns_no_bonus(estimator: Advantage) -> None:
    """PITFALLS 23: arms "stop now" and "one more turn" of equal value, each winning half of the time."""
    turns = turn_table([[1.0], [0.0], [0.0, 1.0], [0.0, 0.0]], groups=[0, 0, 0, 0], lengths=[[2], [2], [2, 2], [2, 2]])
    advantage_RT = estimator(turns, token_table(turns))
    stop, more = advantage_RT[:2, 1], advantage_RT[2:, 1]  # of the first sampled token; an observation stands before it
    assert_close(stop, more)
    assert stop[0] > stop[1]


@dataclasses.dataclass(frozen=True)
class Length(Reward):
    """The number of sampled tokens of the episode; keeps how large the groups were."""

    seen: ClassVar[list[int]] = []

    def __call__(self, group: Sequence[Episode]) -> list[Score]:
        Length.seen.append(len(group))
        return [Score(float(e.policy_tokens)) for e in group]


def test_failed_and_empty_episodes_are_in_no_group_that_a_reward_compares() -> None:
    """PITFALLS 20."""
    good = [episode(0, 0, [([1, 2], [3] * n)]) for n in (1, 2, 3)]
    broken = episode(0, 0, [([1, 2], [3, 4])], stop=StopReason.ENV_ERROR, error="broke")
    empty = episode(0, 0, [], stop=StopReason.CONTEXT_OVERFLOW)
    Length.seen.clear()
    scored = score([good[0], broken, good[1], empty, good[2]], Length(), Granularity("sparse"))
    assert Length.seen == [3] and scored.episodes == good
    batch = build_batch(scored.episodes, scored.turn_rewards, [1.0, 2.0, 3.0], 1, 0, CPU)
    advantage_RT = DR_GRPO(batch.turns, batch.tokens)
    assert advantage_RT.sum(1).tolist() == [-1.0, 0.0, 3.0]


def test_a_member_that_lost_episodes_is_dealt_the_minibatches_it_would_be_dealt_alone() -> None:
    """PITFALLS 28: the gradient does not depend on who else is in the population."""
    settings = config("algorithm.minibatches=2", "algorithm.epochs=2")
    lengths = [(1, 3, 2, 4, 2), (2, 1, 3)]  # the second member lost two of its five episodes
    blocks = []
    for slots in ([0, 1], [1]):
        episodes = [
            episode(place, 0, [([5, 6, 7], [8 + n + slot] * n + [1])])
            for place, slot in enumerate(slots)
            for n in lengths[slot]
        ]
        rewards = [[float(len(e.turns[0].action_ids) % 3)] for e in episodes]
        batch = build_batch(episodes, rewards, [r[0] for r in rewards], len(slots), 0, CPU)
        policy = policy_of(settings, len(slots), slots)
        learner = Learner(policy, settings.algorithm, Processes(cpu=True), 10_000)
        learner.update(batch, settings.algorithm, Sampling.same(len(slots), 1.0), 0)
        assert learner.optimizer.count.tolist() == [4] * len(slots)
        blocks.append(policy.block.data[-1].clone())
    torch.testing.assert_close(blocks[0], blocks[1], rtol=1e-4, atol=1e-5)


def test_a_value_is_that_of_the_context_before_its_token() -> None:
    """PITFALLS 33: what is sampled at a position, and whatever comes later, changes no value up to it."""
    policy = policy_of(config("algorithm=ppo"), 1)
    policy.add_critic()
    assert policy.critic is not None
    policy.critic.data.normal_(std=0.3, generator=torch.Generator().manual_seed(0))
    ids = torch.randint(5, 300, (2, 10), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids, dtype=torch.bool)
    mask[:, 0] = False
    other = ids.clone()
    other[:, 5:] = (other[:, 5:] + 7) % 290 + 5
    with torch.no_grad(), policy.acting("critic"):
        before, after = policy.values(ids, mask), policy.values(other, mask)
    torch.testing.assert_close(before[:, :6], after[:, :6], rtol=1e-5, atol=1e-6)
    assert (before[:, 6:] - after[:, 6:]).abs().min() > 1e-6


@dataclasses.dataclass
class OneTurn(Environment):
    """One turn, in which anything may be said."""

    max_turns: int = 1

    def reset(self, seed: int) -> str:
        return "say much"

    def step(self, action: str) -> Step:
        return Step("", done=True, success=len(action) > 4)


def test_a_reward_for_length_is_learned_within_a_few_updates_so_new_weights_reach_the_sampler() -> None:
    """PITFALLS 35."""
    settings = config(
        "evolution=none",
        "algorithm.optimizer.learning_rate=1e-2",
        "algorithm.kl.coef=0",
        "rollout.group_size=8",
        "pipeline.stages.train.generations=1",
        "pipeline.stages.train.updates=6",
        "granularity=sparse",
        "evaluation.tasks=1",
        "evaluation.final_tasks=1",
        "rollout.temperature=1.5",
    )
    settings = dataclasses.replace(settings, env=OneTurn(), reward=Length())
    training = training_of(settings)
    recorder = recorded(training)
    training.run()
    length = [record.members[0].metrics["action_tokens"] for record in recorder.updates]
    assert length[-1] > 1.3 * length[0], length


def test_updates_are_counted_on_after_a_stop(tmp_path: Path) -> None:
    """PITFALLS 43: the version that a turn is stamped with goes on where it was."""
    started(tmp_path / "run")
    before = Checkpoints(tmp_path / "run", 3).load(1).state["progress"]["update"]
    resumed(tmp_path / "run", "generation=1")
    after = Checkpoints(tmp_path / "run", 3).load(2).state["progress"]["update"]
    assert (before, after) == (1, 2)


def test_repeated_evaluations_of_a_task_are_further_episodes_with_noise_of_their_own() -> None:
    """PITFALLS 50: common to all members, and an interval that they make narrower."""
    settings = config("evolution.population=2", "evaluation.repeats=4", "evaluation.temperature=2.0")
    training = training_of(settings)
    fitness, episodes = training.player.fitness([11, 12], generation=0)
    assert [one.episodes for one in fitness] == [8, 8]
    assert all(one.low <= one.rate <= one.high and one.high - one.low < 1 for one in fitness)
    said = {(e.member, e.task, tuple(tuple(turn.action_ids) for turn in e.turns)) for e in episodes if e.member == 0}
    assert len(said) > 2, "repeats of a task are meant to differ"
    for task in (11, 12):  # fresh adapters change nothing: members differ in nothing but what they say by noise
        first, second = ([e.turns[0].action_ids for e in episodes if (e.member, e.task) == (m, task)] for m in (0, 1))
        assert first == second


def test_collapsed_text_and_runs_without_reward_raise_alarms_from_the_metrics_of_their_episodes() -> None:
    """PITFALLS 51 and 52."""
    episodes = [episode(0, 0, [([1, 2], [3, 4])]) for _ in range(4)]
    for one in episodes:
        one.turns[0].action = "aaaaaaaaaaaa"
    scored = score(episodes, EnvironmentReward(), Granularity("sparse"))
    metrics = episode_metrics(episodes, scored, 1, in_groups=True)[0]
    watch = Watch()
    kinds: list[str] = []
    for update in range(5):
        record = UpdateRecord("rl", 0, update, [MemberUpdate(0, metrics | {"loss": 0.0, "grad_norm": 0.0})], 0.0, 0, 0)
        kinds += [alarm.kind for alarm in watch.update(record)]
    assert kinds == ["degenerate_text", "no_signal"] and not math.isnan(metrics["reward"])
