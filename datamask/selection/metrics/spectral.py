"""Vendi score and log-determinant: how evenly the choice spreads over the directions of embedding space."""

from __future__ import annotations

import math
from typing import ClassVar

import numpy as np
import torch

from datamask.selection.metrics.base import MixtureMetric
from datamask.selection.problem.pool import BLOCK_ROWS, Pool

EXACT = 1 << 22  # numbers of a pool that is read in float64


class Spectral(MixtureMetric):
    """A concave function of C = Σ_i w_i x_i x_iᵀ, w the shares of the budget: (d, d), trace 1."""

    name: ClassVar[str]

    def __init__(self, pool: Pool, weights: torch.Tensor, size: float) -> None:
        super().__init__(pool, weights, size)
        self.dtype = torch.float64 if len(pool) * pool.dimensions <= EXACT else torch.float32

    def state(self, mass: np.ndarray) -> np.ndarray:
        """Σ_i mass_i x_i x_iᵀ: (d, d) float64. mass: (N,) shares of the budget."""
        total = torch.zeros(self.pool.dimensions, self.pool.dimensions, dtype=torch.float64)
        share = torch.from_numpy(np.ascontiguousarray(mass))
        for part in share.nonzero()[:, 0].split(8192):
            rows = self.pool.rows(part, self.dtype)
            total += ((rows * share[part].to(rows)[:, None]).T @ rows).double().cpu()
        return ((total + total.T) / 2).numpy()

    def products(self, slope: np.ndarray) -> np.ndarray:
        """x_iᵀ slope x_i of every document: (N,)."""
        matrix = torch.from_numpy(slope).to(self.pool.device, self.dtype)
        parts = []
        for start in range(0, len(self.pool), BLOCK_ROWS):
            rows = self.pool.rows(slice(start, start + BLOCK_ROWS), self.dtype)
            parts.append(((rows @ matrix) * rows).sum(dim=1))
        return torch.cat(parts).double().cpu().numpy()

    @property
    def rounding(self) -> float:
        """What float64 leaves uncertain of a value: that of √d eigenvalues, where D is steepest."""
        return float(np.finfo(np.float64).eps * math.sqrt(self.pool.dimensions) * self.steepest)

    @property
    def steepest(self) -> float:
        """The greatest |∂D / ∂eigenvalue|, which is at an eigenvalue of 0."""
        raise NotImplementedError

    def inside(self, state: np.ndarray) -> bool:
        """Whether the state is positive semidefinite up to rounding."""
        return bool(np.linalg.eigvalsh(state)[0] > -1e-12)


class Vendi(Spectral):
    """D(p) = −tr C' log C', C' = C with `FLOOR` of the identity: the logarithm of the Vendi score.

    (Friedman & Dieng, arXiv 2210.02410, with the cosine kernel; von Neumann's entropy, concave in p, its gradient
    −x_iᵀ(log C' + I)x_i.) The floor, spread over all directions, keeps the gradient finite.
    """

    name: ClassVar[str] = "vendi"
    FLOOR: ClassVar[float] = 1e-4

    @property
    def steepest(self) -> float:
        """The greatest |∂D / ∂eigenvalue|, which is at an eigenvalue of 0."""
        return -math.log(self.FLOOR / self.pool.dimensions)

    def _eigen(self, state: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        values, vectors = np.linalg.eigh(state)
        return np.maximum((1 - self.FLOOR) * values + self.FLOOR / len(values), 1e-300), vectors

    def of_state(self, state: np.ndarray) -> float:
        """The logarithm of the Vendi score at this state."""
        values = self._eigen(state)[0]
        return -float(values @ np.log(values))

    def slope(self, state: np.ndarray) -> np.ndarray:
        """dD / dstate: (d, d)."""
        values, vectors = self._eigen(state)
        return (self.FLOOR - 1) * (vectors * (np.log(values) + 1)) @ vectors.T

    def inside(self, state: np.ndarray) -> bool:
        """Whether D is defined at this state: no eigenvalue so negative that the floor does not lift it."""
        return bool(np.linalg.eigvalsh(state)[0] > -0.5 * self.FLOOR / len(state))


class LogDeterminant(Spectral):
    """D(p) = log det(C + ε I) / d, ε = `FLOOR` / d: the mean logarithm of the directions' shares.

    The log-determinant diversity of determinantal point processes (Kulesza & Taskar, arXiv 1207.6083) and D-optimal
    design, regularised; concave in p, its gradient x_iᵀ(C + εI)⁻¹x_i / d.
    """

    name: ClassVar[str] = "logdet"
    FLOOR: ClassVar[float] = 1e-2

    @property
    def steepest(self) -> float:
        """The greatest |∂D / ∂eigenvalue|, which is at an eigenvalue of 0."""
        return 1 / self.FLOOR

    def of_state(self, state: np.ndarray) -> float:
        """Raw D at this state."""
        d = len(state)
        return float(np.linalg.slogdet(state + self.FLOOR / d * np.eye(d))[1]) / d

    def slope(self, state: np.ndarray) -> np.ndarray:
        """dD / dstate: (d, d)."""
        d = len(state)
        return np.linalg.inv(state + self.FLOOR / d * np.eye(d)) / d

    def inside(self, state: np.ndarray) -> bool:
        """Whether D is defined at this state: no eigenvalue so negative that the floor does not lift it."""
        return bool(np.linalg.eigvalsh(state)[0] > -0.5 * self.FLOOR / len(state))
