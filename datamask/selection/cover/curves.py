"""What atoms are worth at a state: a logarithm, or of words by `coverage.curve: saturating` 1 − 2^−documents.

    curves = Curves(bend, rate, worth)        # atoms from `bend` on saturate
    level = levels(state, smooth, curves)     # what the compiled loops keep: see `Curves`
    slope(t, level, curves), at_slope(t, slope, smooth, curves)

Both are concave in the state, so that a tangent bounds every selection. The first is the likelihood of the atoms under
the mixture of the chosen, the second a feature-based function (Wei et al. 2014): a bucket of words is worth half as
much to each further document that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from datamask.compiling import compiled

if TYPE_CHECKING:
    from datamask.selection.cover.atoms import AtomRows
    from datamask.selection.metrics.coverage import Coverage

SMALLEST = 1e-300  # a level is no less: a logarithm, and what is left of a word in a thousand documents, stay finite


class Curves(NamedTuple):
    """Which curve an atom follows. State: (1 − α) Aᵀ w, w the shares of the budget.

    Before `bend` the level is the smoothed mixture u, and an atom is worth t log u. From there on it is 2^−documents,
    what a word still has to give, and a word is worth t (1 − level). All numbers of a document's row in these columns
    are alike, and t is `worth` for every word that a document holds.
    """

    bend: int
    rate: float  # documents for each unit of the state
    worth: float

    @classmethod
    def of(cls, t: np.ndarray, bend: int, rate: float) -> Curves:
        """The curves of this t (J,)."""
        return cls(bend, rate, float(t[bend:].max(initial=0.0)))


def levels(state: np.ndarray, smooth: np.ndarray, curves: Curves) -> np.ndarray:
    """(J,) the levels at a state (J,). smooth: (J,) what is added under the logarithm."""
    found = state + smooth
    found[curves.bend :] = np.exp2(-curves.rate * state[curves.bend :])
    return np.maximum(found, SMALLEST)


def curve_value(t: np.ndarray, level: np.ndarray, curves: Curves) -> float:
    """Σ_j t_j curve_j. t, level: (J,)."""
    bend, used = curves.bend, np.flatnonzero(t[: curves.bend])
    # Not by `@`: the cores that share a product this short wait for one another longer than it takes.
    return float((t[used] * np.log(level[used])).sum() + (t[bend:] * (1 - level[bend:])).sum())


def curve_slope(t: np.ndarray, level: np.ndarray, curves: Curves) -> np.ndarray:
    """(J,) the derivative with respect to the state."""
    found = t * level * (np.log(2) * curves.rate)
    found[: curves.bend] = t[: curves.bend] / level[: curves.bend]
    return found


def second(t: np.ndarray, level: np.ndarray, curves: Curves) -> np.ndarray:
    """(J,) the second derivative with respect to the state, positive."""
    bend, found = curves.bend, t * level * (np.log(2) * curves.rate) ** 2
    found[:bend] = t[:bend] / level[:bend] / level[:bend]
    return found


def at_slope(t: np.ndarray, slopes: np.ndarray, smooth: np.ndarray, curves: Curves) -> np.ndarray:
    """(J,) the state with this derivative; all of t and slopes are positive."""
    found = t / slopes - smooth
    ends = slice(curves.bend, None)
    found[ends] = np.log2(t[ends] * (np.log(2) * curves.rate) / slopes[ends]) / curves.rate
    return found


class CurvedSum:
    """Σ_j t_j curve_j less `base`, of what has these; a state of theirs is Aᵀ w."""

    t: np.ndarray  # (J,)
    smooth: np.ndarray  # (J,)
    alpha: float
    base: float
    curves: Curves

    def level(self, state: np.ndarray) -> np.ndarray:
        """(J,) the levels at this state (J,)."""
        return levels((1 - self.alpha) * state, self.smooth, self.curves)

    def of_state(self, state: np.ndarray) -> float:
        """The sum at this state."""
        return curve_value(self.t, self.level(state), self.curves) - self.base

    def slope(self, state: np.ndarray) -> np.ndarray:
        """The gradient with respect to the state: (J,)."""
        return (1 - self.alpha) * curve_slope(self.t, self.level(state), self.curves)

    def inside(self, state: np.ndarray) -> bool:
        """Whether the sum is defined at this state (an extrapolated one may not be)."""
        bend, used = self.curves.bend, self.t > 0
        level = (1 - self.alpha) * state + self.smooth
        return bool((level[:bend][used[:bend]] > 0).all() and (self.curves.rate * state[bend:] > -1).all())


@dataclass(frozen=True, eq=False)
class SummedCoverage(CurvedSum):
    """A weighted sum of coverages of one matrix of atoms as one `tangent.StateMetric`: Σ_m scale_m Σ_j t_mj log u_j.

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

    def used(self) -> SummedCoverage:
        """The same by shorter rows: without the atoms of no weight, which are other parts' atoms."""
        return replace(self, rows=self.rows.within(self.t > 0))

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


@compiled
def bend_of(index, first, last, bend):  # type: ignore[no-untyped-def]
    """The first place of a row, index[first:last], whose atom saturates: such atoms stand last in a row."""
    if first == last or index[last - 1] < bend:
        return last
    low, high = first, last - 1
    while low < high:
        middle = (low + high) // 2
        if index[middle] < bend:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def factor_left(mass, value, rate):  # type: ignore[no-untyped-def]
    """The factor on the levels of words when `mass` of a row that has this number for them is added."""
    return 2.0 ** (-rate * mass * value)
