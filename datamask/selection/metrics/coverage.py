"""Coverage: how well the selection matches a distribution over atoms (hashed n-grams, or embedded anchors).

An atom is worth a logarithm of the state, or of words by `coverage.curve: saturating` 1 − 2^−documents. Both are
concave in the state, so that a tangent bounds every selection. The first is the likelihood of the atoms under the
mixture of the chosen, the second a feature-based function (Wei et al. 2014): a bucket of words is worth half as much to
each further document that holds it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from datamask.config import ResolvedSelect
from datamask.selection.cover.atoms import AtomRows, Atoms, make_atoms
from datamask.selection.cover.compiled import SMALLEST, Curves
from datamask.selection.metrics.base import MixtureMetric, Slopes

FLATTEST = 1e-6  # least slope at which a descent begins, as a share of the greatest; saturated words have none
LEAST_SLOPE = 1e-3  # in a descent a slope stays above this share of the first one


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
    """Σ_j t_j curve_j less `base`, as a `base.StateMetric`: the state is Σ_i mass_i A_i, (J,)."""

    rows: AtomRows  # A
    t: np.ndarray  # (J,)
    mean: np.ndarray  # (J,) the whole pool's mixture
    alpha: float  # the smoothing
    base: float  # D's zero
    curves: Curves

    @property
    def smooth(self) -> np.ndarray:
        """(J,) what is added under the logarithm."""
        return self.alpha * self.mean

    def state(self, mass: np.ndarray) -> np.ndarray:
        return self.rows.state(mass)

    def products(self, slope: np.ndarray) -> np.ndarray:
        return self.rows.scores(slope)

    def level(self, state: np.ndarray) -> np.ndarray:
        """(J,) the levels at this state (J,)."""
        return levels((1 - self.alpha) * state, self.smooth, self.curves)

    def of_state(self, state: np.ndarray) -> float:
        return curve_value(self.t, self.level(state), self.curves) - self.base

    def slope(self, state: np.ndarray) -> np.ndarray:
        return (1 - self.alpha) * curve_slope(self.t, self.level(state), self.curves)

    def inside(self, state: np.ndarray) -> bool:
        bend, used = self.curves.bend, self.t > 0
        level = (1 - self.alpha) * state + self.smooth
        return bool((level[:bend][used[:bend]] > 0).all() and (self.curves.rate * state[bend:] > -1).all())


class Coverage(CurvedSum, MixtureMetric):
    """D(p) = Σ_j t_j log u_j − Σ_j t_j log m_j, with u = (1 − α) Σ_i w_i A_ij + α m_j, m the whole pool's mixture.

    w_i = p_i b_i / size is the share of the budget that document i takes. The log-likelihood of the atoms under the
    mixture of the chosen, less that under the pool: −KL(t ‖ choice) up to a constant, what DSIR calls KL reduction
    (Xie et al., arXiv 2302.03169). Smoothing by the pool's own mixture (α; Jelinek & Mercer 1980) keeps it finite where
    an atom is not chosen at all. Concave in p.

    With `coverage.curve: saturating` a word of the pool is worth t (1 − 2^−documents) instead, of the documents in the
    choice that hold it, and t is the same for all words.
    """

    name: ClassVar[str] = "coverage"
    incremental: ClassVar[str] = "coverage"  # how greedy follows its gains
    part: ClassVar[str] = ""

    def bind(self, settings: ResolvedSelect) -> None:
        """Builds the atoms these settings ask for. Called once, before anything else."""
        self.use_atoms(settings, make_atoms(self.pool, self.weights, settings))

    def use_atoms(self, settings: ResolvedSelect, atoms: Atoms) -> None:
        """Takes atoms that were built elsewhere. Called instead of `bind`."""
        self.atoms, self.rows, self.mean = atoms, atoms.rows, atoms.mean
        self.t = atoms.targets[self.part]
        missing = (self.t > 0) & ~(atoms.mean > 0)  # atoms that no document has: no choice can change them
        self.t = np.where(missing, 0.0, self.t)
        self.alpha = settings.coverage.smoothing
        self.curves = Curves.of(self.t, atoms.bend, self.size / (1 - self.alpha))
        self.base = 0.0
        self.base = self.of_state(atoms.mean)


class EmbeddingCoverage(Coverage):
    """Coverage of anchors in embedding space."""

    name: ClassVar[str] = "coverage-embedding"
    part: ClassVar[str] = "embedding"


class NgramCoverage(Coverage):
    """Coverage of the pool's own n-grams."""

    name: ClassVar[str] = "coverage-ngrams"
    part: ClassVar[str] = "ngrams"


class TargetCoverage(Coverage):
    """Coverage of a target's n-grams."""

    name: ClassVar[str] = "coverage-target"
    part: ClassVar[str] = "target"


@dataclass(frozen=True, eq=False)
class SummedCoverage(CurvedSum):
    """A weighted sum of coverages of one matrix of atoms: Σ_m scale_m Σ_j t_mj log u_j. t has the scales included."""

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
        return cls(first.rows, np.asarray(t), first.mean, first.alpha, float(base), curves)

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

    def slopes_from(self, state: np.ndarray) -> Slopes:
        """What a descent from this state (J,) begins with."""
        used = self.t > 0
        first = self.slope(state)[used]
        first = np.maximum(first, FLATTEST * first.max(initial=0.0))
        return Slopes(used, first, first / np.sqrt(self.t[used]), LEAST_SLOPE * first)

    def at_slope(self, slope: np.ndarray, used: np.ndarray) -> np.ndarray:
        """The state (J,) with this gradient, (j,) of the numbers that are `used`."""
        found, bend = self.mean.copy(), int(used[: self.curves.bend].sum())
        curves = self.curves._replace(bend=bend)
        found[used] = at_slope(self.t[used], slope / (1 - self.alpha), self.smooth[used], curves) / (1 - self.alpha)
        return found

    def curvature(self, state: np.ndarray) -> np.ndarray:
        """(N,) −⟨A_i, the second derivative with respect to the state · A_i⟩."""
        return self.rows.curvatures((1 - self.alpha) ** 2 * second(self.t, self.level(state), self.curves))
