"""The golden values of the specification on evolution that are not tested elsewhere.

`pbt_truncation` and `tournament_win_probability` are in `test_strategies`; the perturbations of the first and
`int_mutation_trap` are in `test_space`. `pbt_welch_t` has no test: no strategy here decides by Welch's test.
"""

from __future__ import annotations

import numpy as np
import pytest
import torch

from evo_hpo.evolution.bandit import Kernel, Process, beta
from evo_hpo.evolution.strategies import MultiFrequency
from evo_hpo.evolution.strategies.core import Ranking


@pytest.mark.parametrize(("repeats", "probability"), [(1, 0.47), (4, 0.65), (16, 0.87)])
def test_pbt_noise_prob_best_ranked_first(repeats: int, probability: float) -> None:
    # Four members 0.02 apart, evaluations with a standard deviation of 0.05.
    rng = np.random.default_rng(repeats)
    rounds = 4000
    measured = np.array([0.5, 0.48, 0.46, 0.44]) + rng.normal(0, 0.05, (rounds, repeats, 4)).mean(1)
    first = sum(Ranking.of(fitness, rng).order[0] == 0 for fitness in measured.tolist())
    assert first / rounds == pytest.approx(probability, abs=0.025)


def test_pb2_gp_ucb() -> None:
    points = torch.tensor([[0.0, 0.1], [0.5, 0.9], [1.0, 0.5]], dtype=torch.float64)
    changes = torch.tensor([-1.0, 0.2, 0.8], dtype=torch.float64)
    process = Process(Kernel(variance=1.0, length=1.0, forgetting=0.1, noise=0.01), points, changes)
    offered = torch.tensor([[1.0, value] for value in (0.0, 0.25, 0.5, 0.75, 1.0)], dtype=torch.float64)
    mean, deviation = process.predict(offered)
    assert mean.tolist() == pytest.approx([-0.486755, 0.210502, 0.706365, 0.790242, 0.493777], abs=1e-6)
    assert deviation.square().tolist() == pytest.approx([0.10306, 0.027355, 0.009222, 0.019458, 0.069445], abs=1e-6)
    assert beta(3) == pytest.approx(0.382322, abs=1e-6)
    bound = process.upper_bound(offered, beta(3))
    assert bound.tolist() == pytest.approx([-0.288255, 0.31277, 0.765744, 0.876494, 0.656719], abs=1e-6)
    assert offered[bound.argmax(), 1] == 0.75


@pytest.mark.parametrize(
    ("size", "expected"), [(3, (1, 1, 1)), (4, (1, 1, 2)), (5, (1, 1, 3)), (6, (2, 2, 2)), (8, (2, 2, 4))]
)
def test_mf_pbt_partition(size: int, expected: tuple[int, int, int]) -> None:
    assert MultiFrequency(periods=[1, 4], share=0.25, resample=0.25, mutated_keys=0).brackets(size) == expected
