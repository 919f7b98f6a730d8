"""Which hyperparameters help at present? A Gaussian process over changes of fitness, whose memory fades.

Optuna's own process is not used: it needs SciPy, and its kernel has no place for time.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

MIN_NOISE = 0.01  # variance, of changes that are standardised
STARTS = [(0.0, 0.0), (-2.0, 0.0), (1.0, 0.0), (0.0, 2.0)]  # of the search, in the logarithm of length and noise


@dataclass(frozen=True)
class Kernel:
    """variance exp(-|dx|^2 / length) (1 - forgetting)^(|dt| / 2), and noise (Parker-Holder et al. 2020, eq. 4)."""

    variance: float | Tensor
    length: float | Tensor
    forgetting: float | Tensor  # from one generation to the next
    noise: float | Tensor  # variance of an observation

    def __call__(self, a_AD: Tensor, b_BD: Tensor) -> Tensor:
        """[A, B] covariance of points; their first column is the time, in generations."""
        apart = (a_AD[:, None] - b_BD[None]).abs()
        near = torch.exp(-apart[..., 1:].square().sum(-1) / self.length)
        return self.variance * near * (1 - self.forgetting) ** (apart[..., 0] / 2)

    @classmethod
    def of(cls, raw: Tensor) -> Kernel:
        """The kernel at four unbounded numbers; at 0 everywhere, what is assumed before anything is known."""
        raw = raw.clamp(-6, 6)
        scale = torch.exp(raw)
        forgetting = 0.5 * torch.sigmoid(raw[2] + math.log(0.2 / 0.8))  # 0.1 at first and 0.5 at most, as in PB2
        return cls(scale[0], scale[1], forgetting, MIN_NOISE + 0.1 * scale[3])


@dataclass(frozen=True)
class Process:
    """What is believed after some observations.

    Attributes:
        points: [R, D], the time first.
        changes: [R] observed there.
    """

    kernel: Kernel
    points: Tensor
    changes: Tensor

    @classmethod
    def fitted(cls, points: Tensor, changes: Tensor) -> Process:
        """With the kernel of the highest posterior density.

        The prior is a standard normal on each of the four numbers: it keeps few observations from being explained
        without noise.
        """
        best, lowest = torch.zeros(4, dtype=torch.float64), math.inf
        for length, noise in STARTS if len(changes) else []:
            raw = torch.tensor([0.0, length, 0.0, noise], dtype=torch.float64, requires_grad=True)
            search = torch.optim.LBFGS([raw], max_iter=40, line_search_fn="strong_wolfe")

            def loss(raw: Tensor = raw) -> Tensor:
                surprise = cls(Kernel.of(raw), points, changes).surprise() + raw.square().sum() / 2
                (raw.grad,) = torch.autograd.grad(surprise, raw)
                return surprise.detach()

            search.step(loss)
            if (found := float(loss())) < lowest:
                best, lowest = raw.detach(), found
        return cls(Kernel.of(best), points, changes)

    def surprise(self) -> Tensor:
        """Negative logarithm of the marginal likelihood, up to a constant."""
        factor = self._factor()
        whitened = torch.linalg.solve_triangular(factor, self.changes[:, None], upper=False)
        return whitened.square().sum() / 2 + factor.diagonal().log().sum()

    def predict(self, points: Tensor) -> tuple[Tensor, Tensor]:
        """Mean [P] and standard deviation [P] of the change at points [P, D], without the noise of an observation."""
        factor = self._factor()
        cross = torch.linalg.solve_triangular(factor, self.kernel(self.points, points), upper=False)
        whitened = torch.linalg.solve_triangular(factor, self.changes[:, None], upper=False)
        variance = self.kernel.variance - cross.square().sum(0)
        return (cross * whitened).sum(0), variance.clamp(min=0).sqrt()

    def expecting(self, points: Tensor) -> Process:
        """As if the mean had been observed at points [P, D]: means stay as they are, and less is unknown."""
        mean, _ = self.predict(points)
        return Process(self.kernel, torch.cat([self.points, points]), torch.cat([self.changes, mean]))

    def upper_bound(self, points: Tensor, beta: float) -> Tensor:
        """[P] mean + sqrt(beta) standard deviations at points [P, D]."""
        mean, deviation = self.predict(points)
        return mean + math.sqrt(beta) * deviation

    def _factor(self) -> Tensor:
        noise = self.kernel.noise * torch.eye(len(self.points), dtype=torch.float64)
        factor: Tensor = torch.linalg.cholesky(self.kernel(self.points, self.points) + noise)
        return factor


def beta(observations: int) -> float:
    """How much the unknown attracts (the constants are those of PB2's own code)."""
    return 0.2 + max(0.0, math.log(0.4 * max(observations, 1)))
