"""Several coverages of one matrix of atoms as one: Σ_m scale_m Σ_j t_mj log u_j = Σ_j t_j log u_j."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from datamask.selection.cover.atoms import AtomRows
from datamask.selection.cover.curves import CurvedSum, Curves, at_slope, levels, second
from datamask.selection.metrics.coverage import Coverage


@dataclass(frozen=True, eq=False)
class SummedCoverage(CurvedSum):
    """A weighted sum of coverages as one `tangent.StateMetric`.

    t: (J,) with the scales included; mean: (J,) the whole pool's mixture; alpha: the smoothing; base: D's zero.
    """

    rows: AtomRows
    t: np.ndarray
    mean: np.ndarray
    alpha: float
    base: float
    curves: Curves
    held: np.ndarray | None = None  # (J,) state of selected documents that are not among these rows

    @classmethod
    def of(cls, metrics: Sequence[Coverage], scales: Sequence[float]) -> SummedCoverage:
        """The sum of these coverages, which share their rows, times their scales."""
        first = metrics[0]
        t = sum(scale * metric.t for scale, metric in zip(scales, metrics, strict=True))
        base = sum(scale * metric.base for scale, metric in zip(scales, metrics, strict=True))
        curves = Curves.of(np.asarray(t), first.curves.bend, first.curves.rate)
        return cls(first.rows, np.asarray(t), first.atoms.mean, first.alpha, float(base), curves)

    @property
    def smooth(self) -> np.ndarray:  # type: ignore[override]
        """(J,) what is added under the logarithm."""
        return self.alpha * self.mean

    def levels(self, mass: np.ndarray | float) -> np.ndarray:
        """(J,) the levels with (1 − α) of these shares of the budget, (N,), beside what is held; 0: of that alone."""
        state = self.rows.state(mass) if isinstance(mass, np.ndarray) else np.zeros(len(self.t))
        held = 0.0 if self.held is None else (1 - self.alpha) * self.held
        return levels(state + held, self.smooth, self.curves)

    def take(self, rows: np.ndarray) -> SummedCoverage:
        """The same over these documents (row numbers)."""
        return replace(self, rows=self.rows.take(rows))

    def state(self, mass: np.ndarray) -> np.ndarray:
        """Σ_i mass_i A_i: (J,). mass: (N,) shares of the budget."""
        return self.rows.state(mass)

    def at_slope(self, slope: np.ndarray, used: np.ndarray) -> np.ndarray:
        """The state (J,) with this gradient: its numbers at the atoms that are `used` (t > 0), (J,) bool."""
        found, bend = self.mean.copy(), int(used[: self.curves.bend].sum())
        curves = self.curves._replace(bend=bend)
        found[used] = at_slope(self.t[used], slope / (1 - self.alpha), self.smooth[used], curves) / (1 - self.alpha)
        return found

    def curvature(self, state: np.ndarray) -> np.ndarray:
        """(N,) −⟨A_i, the second derivative with respect to the state · A_i⟩."""
        return self.rows.curvatures((1 - self.alpha) ** 2 * second(self.t, self.level(state), self.curves))

    def products(self, slope: np.ndarray) -> np.ndarray:
        """⟨slope, A_i⟩ of every document: (N,)."""
        return self.rows.scores(slope)
