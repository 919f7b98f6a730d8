"""Episodes: what was sampled is what is kept, slots are reused, and a broken environment costs its own episode only."""

from __future__ import annotations

import time
from collections.abc import Sequence

import pytest
import torch

from envs.core import Environment, Episode, StopReason
from envs.frozen_lake import FrozenLake
from envs.guess_number import GuessNumber
from evo_hpo.policy.noise import key
from evo_hpo.policy.policy import Policy
from evo_hpo.policy.sampling import Sampling
from evo_hpo.rollout.fused import FusedSampler
from evo_hpo.rollout.pool import EnvironmentPool
from evo_hpo.rollout.runner import Assignment, play
from evo_hpo.rollout.sampler import Request
from tests.building import config, policy_of, shake
from tests.envs.broken import HangsOnStep, NoisyText, RaisesOnReset, RaisesOnStep, RewardsNaN


def episodes_of(
    policy: Policy,
    environment: Environment,
    tasks: Sequence[int] = (1, 2, 3),
    slots: int = 4,
    sampling: Sampling | None = None,
    max_context: int = 512,
    max_action_tokens: int = 6,
    limit: float = 5.0,
) -> list[Episode]:
    assignments = [
        Assignment(m, g, task, key("test", slot, g))
        for g, task in enumerate(tasks)
        for m, slot in enumerate(policy.slots)
    ]
    sampler = FusedSampler(
        policy, sampling or Sampling.same(policy.members, 1.0), slots, max_action_tokens, max_context
    )
    pool = EnvironmentPool(threads=2, limit=limit)
    chat = policy.base.chat
    return play(sampler, chat, environment, assignments, pool, max_action_tokens, max_context, False, version=7)


def said(episodes: Sequence[Episode]) -> list[list[list[int]]]:
    return [[turn.action_ids for turn in episode.turns] for episode in episodes]


@pytest.fixture
def policy() -> Policy:
    made = policy_of(config(), members=3)
    shake(made)
    return made


def test_recorded_logprobs_are_those_of_the_trainer_on_the_same_ids(policy: Policy) -> None:
    sampling = Sampling(torch.tensor([0.7, 1.0, 1.3]), torch.tensor([0, 5, 0]), torch.tensor([1.0, 1.0, 0.9]))
    for episode in episodes_of(policy, FrozenLake(), sampling=sampling):
        ids = [i for turn in episode.turns for i in turn.observation_ids + turn.action_ids]
        mask = [
            sampled for t in episode.turns for sampled in [False] * len(t.observation_ids) + [True] * len(t.action_ids)
        ]
        rows = torch.tensor(ids).repeat(policy.members, 1)
        masks = torch.tensor(mask).repeat(policy.members, 1)
        with torch.no_grad(), policy.acting("policy"):
            scored = policy.logprobs(rows, masks, sampling)[0][episode.member][masks[0]]
        recorded = torch.tensor([lp for turn in episode.turns for lp in turn.logprobs])
        torch.testing.assert_close(recorded, scored, rtol=1e-4, atol=1e-4)


def test_a_population_samples_what_its_members_sample_alone(policy: Policy) -> None:
    together = episodes_of(policy, FrozenLake())
    for slot in range(3):
        one = policy_of(config(), members=1, slots=[slot])
        shake(one)
        assert said(episodes_of(one, FrozenLake())) == said([e for e in together if e.member == slot])


def test_the_number_of_slots_changes_nothing(policy: Policy) -> None:
    tasks = range(10)
    assert said(episodes_of(policy, FrozenLake(), tasks, slots=2)) == said(
        episodes_of(policy, FrozenLake(), tasks, slots=10)
    )


def test_every_action_ends_with_the_stop_token_unless_it_is_truncated(policy: Policy) -> None:
    stop = policy.base.chat.stop_id
    hot = Sampling.same(3, 3.0)
    turns = [t for e in episodes_of(policy, FrozenLake(), range(6), sampling=hot, max_action_tokens=2) for t in e.turns]
    assert any(t.truncated for t in turns) and any(not t.truncated for t in turns)
    for turn in turns:
        assert (turn.action_ids[-1] == stop) == (not turn.truncated)
        assert stop not in turn.action_ids[:-1] and len(turn.action_ids) <= 2
        assert turn.version == 7 and len(turn.logprobs) == len(turn.action_ids)


def test_a_truncated_action_is_closed_by_an_untrained_stop_token(policy: Policy) -> None:
    stop = policy.base.chat.stop_id
    for episode in episodes_of(policy, FrozenLake(), range(6), sampling=Sampling.same(3, 3.0), max_action_tokens=2):
        for before, after in zip(episode.turns, episode.turns[1:], strict=False):
            assert (after.observation_ids[0] == stop) == before.truncated


def test_episodes_carry_state_keys_validity_and_why_they_stopped(policy: Policy) -> None:
    episodes = episodes_of(policy, FrozenLake(max_turns=8), range(8))
    assert {e.stop for e in episodes} <= {StopReason.TERMINATED, StopReason.TURN_LIMIT}
    assert all(len(e.turns) == 8 for e in episodes if e.stop is StopReason.TURN_LIMIT)
    assert all(t.state_key is not None for e in episodes for t in e.turns)


def test_a_context_limit_is_checked_on_what_would_be_fed(policy: Policy) -> None:
    for episode in episodes_of(policy, FrozenLake(), range(6), max_context=70):
        fed = sum(len(t.observation_ids) + len(t.action_ids) for t in episode.turns)
        assert fed <= 70
        if episode.stop is StopReason.CONTEXT_OVERFLOW:
            assert fed + len(policy.base.chat.following(episode.final_observation)) + 6 > 70
    stops = {e.stop for e in episodes_of(policy, FrozenLake(), range(6), max_context=70)}
    assert StopReason.CONTEXT_OVERFLOW in stops


def test_observation_tokens_do_not_count_against_the_actions_budget(policy: Policy) -> None:
    turns = [t for e in episodes_of(policy, FrozenLake(), max_action_tokens=2) for t in e.turns]
    assert all(len(t.observation_ids) > 2 for t in turns) and any(len(t.action_ids) == 2 for t in turns)


@pytest.mark.parametrize("broken", [RaisesOnStep(every=2), RaisesOnReset(every=2), RewardsNaN(every=2)])
def test_an_environment_that_raises_costs_its_episode_only(policy: Policy, broken: Environment) -> None:
    for episode in episodes_of(policy, broken, range(4)):
        assert episode.failed == (episode.task % 2 == 0)
        assert bool(episode.error) == episode.failed


def test_an_environment_that_hangs_costs_its_episode_and_its_time_limit(policy: Policy) -> None:
    started = time.monotonic()
    episodes = episodes_of(policy, HangsOnStep(seconds=30.0, every=3), range(4), limit=0.3)
    assert [e.stop for e in episodes if e.task % 3 == 0] == [StopReason.ENV_TIMEOUT] * 6
    assert not any(e.failed for e in episodes if e.task % 3)
    assert time.monotonic() - started < 25  # it did not wait for one of them


def test_observations_of_any_text_are_fed_whole(policy: Policy) -> None:
    episodes = episodes_of(policy, NoisyText(surrogates=True), range(3))
    assert all(e.turns for e in episodes if not e.failed)


def test_histories_are_fed_once(policy: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    fed = 0
    forward = FusedSampler._forward

    def counting(self: FusedSampler, slots: object, ids: list[list[int]]) -> torch.Tensor:
        nonlocal fed
        fed += sum(map(len, ids))
        return forward(self, slots, ids)  # type: ignore[arg-type]

    monkeypatch.setattr(FusedSampler, "_forward", counting)
    episodes = episodes_of(policy, GuessNumber())
    total = sum(len(t.observation_ids) + len(t.action_ids) for e in episodes for t in e.turns)
    assert fed == total - len(episodes)  # the last token of an episode is never fed


def test_a_slot_is_not_given_out_twice_and_comes_back_empty(policy: Policy) -> None:
    sampler = FusedSampler(policy, Sampling.same(3, 1.0), slots=2, max_action_tokens=3, max_context=64)
    first, second = sampler.open(1), sampler.open(1)
    assert first is not None and second is not None and first != second and sampler.open(1) is None
    sampler.act([Request(first, [5, 6, 7], key=1)])
    assert sampler.length(first) > 3
    sampler.close(first)
    assert sampler.open(1) == first and sampler.length(first) == 0


def test_new_weights_reach_the_sampler_at_once(policy: Policy) -> None:
    sampler = FusedSampler(policy, Sampling.same(3, 1.0), slots=1, max_action_tokens=1, max_context=64)
    ids = policy.base.chat.first("..@")

    def logprob() -> float:
        slot = sampler.open(0)
        assert slot is not None
        value = sampler.act([Request(slot, ids, key=1)])[0].logprobs[0]
        sampler.close(slot)
        return value

    before = logprob()
    shake(policy)
    assert logprob() != before
