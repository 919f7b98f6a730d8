"""The distribution that is sampled from is the one that is scored, and noise depends on nothing but its key."""

from __future__ import annotations

import numpy as np
import torch

from evo_hpo.policy.noise import key, uniform
from evo_hpo.policy.sampling import Sampling, logprob_and_entropy, processed_logits, sample
from tests.algorithms.tables import assert_close


def settings(temperature: float = 1.0, top_k: int = 0, top_p: float = 1.0, rows: int = 1) -> Sampling:
    return Sampling.same(rows, temperature, top_k, top_p)


def test_temperature_divides_the_logits() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0]])
    assert torch.equal(processed_logits(logits, settings(temperature=2.0)), logits / 2)


def test_the_entropy_is_that_of_the_whole_distribution_and_of_what_is_left_of_it() -> None:
    logits, token = torch.tensor([[2.0, 1.0, 0.0]], requires_grad=True), torch.tensor([1])
    logprob, entropy = logprob_and_entropy(logits, token, entropy_gradient=True)
    assert_close(entropy, [0.832396])
    assert_close(logprob, [-1.407606])
    entropy.sum().backward()
    assert logits.grad is not None
    p = torch.tensor([[2.0, 1.0, 0.0]]).softmax(1)
    assert_close(logits.grad, -p * (p.log() + 0.832396))
    two = processed_logits(torch.tensor([[2.0, 1.0, 0.0]]), settings(top_k=2))
    assert_close(logprob_and_entropy(two, token)[1], [0.582203])
    assert not logprob_and_entropy(logits, token)[1].requires_grad


def test_top_k_keeps_the_k_largest() -> None:
    kept = processed_logits(torch.tensor([[2.0, 1.0, 0.0, 3.0]]), settings(top_k=2)).isfinite()
    assert kept.tolist() == [[True, False, False, True]]


def test_top_p_keeps_the_smallest_set_that_reaches_p() -> None:
    logits = torch.tensor([[0.5, 0.3, 0.15, 0.05]]).log()
    for top_p, expected in ((0.4, 1), (0.5, 1), (0.79, 2), (0.81, 3), (1.0, 4)):
        assert int(processed_logits(logits, settings(top_p=top_p)).isfinite().sum()) == expected


def test_rows_are_filtered_by_their_own_settings() -> None:
    logits = torch.zeros(3, 5) + torch.arange(5.0)
    rows = Sampling(torch.tensor([1.0, 2.0, 1.0]), torch.tensor([0, 2, 1]), torch.tensor([1.0, 1.0, 1.0]))
    assert processed_logits(logits, rows).isfinite().sum(1).tolist() == [5, 2, 1]


def test_the_sampled_token_stays_in_the_trainers_distribution() -> None:
    logits = torch.tensor([[2.0, 1.0, 0.0, -1.0]])
    scored = processed_logits(logits, settings(top_k=2), always_B=torch.tensor([3])).log_softmax(1)
    assert scored[0, 3].isfinite() and scored[0, 2] == -torch.inf


def test_sampled_frequencies_follow_the_distribution() -> None:
    probability = torch.tensor([0.1, 0.2, 0.3, 0.4])
    keys = np.array([key("draw", i) for i in range(20_000)], dtype=np.uint64)
    noise = torch.from_numpy(uniform(keys, np.zeros(20_000, dtype=np.uint64)))
    token, logprob = sample(probability.log().expand(20_000, 4), noise)
    frequency = torch.bincount(token, minlength=4) / 20_000
    assert (frequency - probability).abs().max() < 0.015  # four standard errors
    torch.testing.assert_close(logprob, probability.log()[token])


def test_a_token_without_probability_is_never_sampled() -> None:
    logits = torch.tensor([[-torch.inf, 0.0, -torch.inf, 0.0, -torch.inf]]).expand(1000, 5)
    noise = torch.linspace(1e-12, 1 - 1e-12, 1000, dtype=torch.float64)
    assert set(sample(logits, noise)[0].tolist()) == {1, 3}


def test_noise_is_uniform_and_depends_on_key_and_counter_only() -> None:
    keys = np.full(10_000, key("episode", 3), dtype=np.uint64)
    counters = np.arange(10_000, dtype=np.uint64)
    noise = uniform(keys, counters)
    assert 0 < noise.min() and noise.max() < 1
    assert abs(noise.mean() - 0.5) < 0.012 and abs(noise.var() - 1 / 12) < 0.003
    assert abs(np.corrcoef(noise[:-1], noise[1:])[0, 1]) < 0.04
    assert np.array_equal(uniform(keys[5:9], counters[5:9]), noise[5:9])
    assert not np.array_equal(uniform(np.full(4, key("episode", 4), dtype=np.uint64), counters[5:9]), noise[5:9])
