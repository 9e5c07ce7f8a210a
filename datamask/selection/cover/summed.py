"""Several coverages of one matrix of atoms as one: Σ_m scale_m Σ_j t_mj log u_j = Σ_j t_j log u_j."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from datamask.selection.cover.atoms import AtomRows
from datamask.selection.metrics.coverage import Coverage


@dataclass(frozen=True, eq=False)
class SummedCoverage:
    """A weighted sum of coverages as one `tangent.StateMetric`.

    t: (J,) with the scales included; mean: (J,) the whole pool's mixture; alpha: the smoothing; base: D's zero.
    smooth: (J,) what is added under the logarithm: alpha · mean, or of words by the saturating curve their first hit.
    """

    rows: AtomRows
    t: np.ndarray
    mean: np.ndarray
    alpha: float
    base: float
    smooth: np.ndarray
    held: np.ndarray | None = None  # (J,) state of selected documents that are not among these rows

    @classmethod
    def of(cls, metrics: Sequence[Coverage], scales: Sequence[float]) -> SummedCoverage:
        """The sum of these coverages, which share their rows, times their scales."""
        first = metrics[0]
        t = sum(scale * metric.t for scale, metric in zip(scales, metrics, strict=True))
        base = sum(scale * metric.base for scale, metric in zip(scales, metrics, strict=True))
        return cls(first.rows, np.asarray(t), first.mean, first.alpha, float(base), first.smooth)

    @property
    def floor(self) -> np.ndarray:
        """(J,) the smoothed mixture when none of these rows is selected."""
        return self.smooth if self.held is None else self.smooth + (1 - self.alpha) * self.held

    def take(self, rows: np.ndarray) -> SummedCoverage:
        """The same over these documents (row numbers)."""
        return replace(self, rows=self.rows.take(rows))

    def state(self, mass: np.ndarray) -> np.ndarray:
        """Σ_i mass_i A_i: (J,). mass: (N,) shares of the budget."""
        return self.rows.state(mass)

    def level(self, state: np.ndarray) -> np.ndarray:
        """The smoothed mixture under the logarithm: (J,)."""
        return (1 - self.alpha) * state + self.smooth

    def of_state(self, state: np.ndarray) -> float:
        """Σ_m scale_m D_m at this state."""
        used = self.t > 0
        return float(self.t[used] @ np.log(np.maximum(self.level(state)[used], 1e-300))) - self.base

    def slope(self, state: np.ndarray) -> np.ndarray:
        """The gradient with respect to the state: (J,)."""
        used, found = self.t > 0, np.zeros_like(self.t)
        found[used] = self.t[used] * (1 - self.alpha) / self.level(state)[used]
        return found

    def at_slope(self, slope: np.ndarray, used: np.ndarray) -> np.ndarray:
        """The state (J,) with this gradient: its numbers at the atoms that are `used` (t > 0), (J,) bool."""
        found = self.mean.copy()
        found[used] = (self.t[used] * (1 - self.alpha) / slope - self.smooth[used]) / (1 - self.alpha)
        return found

    def curvature(self, state: np.ndarray) -> np.ndarray:
        """(N,) −⟨A_i, the second derivative with respect to the state · A_i⟩."""
        used, found = self.t > 0, np.zeros_like(self.t)
        found[used] = self.t[used] * ((1 - self.alpha) / self.level(state)[used]) ** 2
        return self.rows.curvatures(found)

    def inside(self, state: np.ndarray) -> bool:
        """Whether the sum is defined at this state (an extrapolated one may not be)."""
        return bool((self.level(state)[self.t > 0] > 0).all())

    def products(self, slope: np.ndarray) -> np.ndarray:
        """⟨slope, A_i⟩ of every document: (N,)."""
        return self.rows.scores(slope)
