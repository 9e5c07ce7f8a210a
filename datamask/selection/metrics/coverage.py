"""Coverage: how well the selection matches a distribution over atoms (hashed n-grams, or embedded anchors)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from datamask.selection.cover.atoms import HIT, AtomRows, Atoms, make_atoms, saturates
from datamask.selection.metrics.base import MixtureMetric

if TYPE_CHECKING:
    from datamask.config import ResolvedSelect


class Coverage(MixtureMetric):
    """D(p) = Σ_j t_j log u_j − Σ_j t_j log m_j, with u = (1 − α) Σ_i w_i A_ij + α m_j, m the whole pool's mixture.

    w_i = p_i b_i / size is the share of the budget that document i takes. The log-likelihood of the atoms under the
    mixture of the chosen, less that under the pool: −KL(t ‖ choice) up to a constant, what DSIR calls KL reduction
    (Xie et al., arXiv 2302.03169). Smoothing by the pool's own mixture (α; Jelinek & Mercer 1980) keeps it finite where
    an atom is not chosen at all. Concave in p.

    With `coverage.curve: saturating` a word's u is its documents in the choice plus `HIT`, in the mixture's unit, and t
    is the same for all words: Σ_j log(1 + documents_j / HIT) up to a constant, a feature-based function (Wei et al.
    2014), concave in p as well.
    """

    name: ClassVar[str] = "coverage"
    incremental: ClassVar[str] = "coverage"  # how greedy follows its gains
    part: ClassVar[str] = ""

    def bind(self, settings: ResolvedSelect) -> None:
        """Builds the atoms these settings ask for. Called once, before anything else."""
        atoms = make_atoms(self.pool, self.weights, settings)
        mean = vars(atoms).get("_mean")
        mean = atoms.rows.state(self.weights / self.weights.sum()) if mean is None else mean
        vars(atoms)["_mean"] = mean
        self.measure(settings, atoms, mean)

    def measure(self, settings: ResolvedSelect, atoms: Atoms, mean: np.ndarray) -> None:
        """Takes atoms that were built elsewhere, and the whole pool's mixture: (J,). Called instead of `bind`."""
        self.settings, self.atoms, self.mean = settings, atoms, mean
        self.rows: AtomRows = atoms.rows
        self.t = atoms.targets[self.part]
        missing = (self.t > 0) & ~(self.mean > 0)  # atoms that no document has: no choice can change them
        self.lost = float(self.t[missing].sum())
        self.t = np.where(missing, 0.0, self.t)
        self.used = self.t > 0
        self.alpha = settings.coverage.smoothing
        self.smooth = self.alpha * mean
        whole = mean
        if saturates(settings) and atoms.density:
            self.smooth = self.smooth.copy()
            self.smooth[atoms.ngrams] = (1 - self.alpha) * HIT / (self.size * atoms.density)
            whole = self.level(mean)
        self.base = float(self.t[self.used] @ np.log(whole[self.used]))

    # -- a metric whose state is linear in the mask (`cover.tangent.StateMetric`)

    def state(self, mass: np.ndarray) -> np.ndarray:
        """Σ_i mass_i A_i: (J,). mass: (N,) shares of the budget."""
        return self.rows.state(mass)

    def level(self, state: np.ndarray) -> np.ndarray:
        """The mixture under the logarithm: (J,)."""
        return (1 - self.alpha) * state + self.smooth

    def of_state(self, state: np.ndarray) -> float:
        """Raw D at this state."""
        return float(self.t[self.used] @ np.log(np.maximum(self.level(state)[self.used], 1e-300))) - self.base

    def slope(self, state: np.ndarray) -> np.ndarray:
        """dD / dstate: (J,)."""
        found = np.zeros_like(self.t)
        found[self.used] = self.t[self.used] * (1 - self.alpha) / self.level(state)[self.used]
        return found

    def inside(self, state: np.ndarray) -> bool:
        """Whether D is defined there (an extrapolated state may not be)."""
        return bool((self.level(state)[self.used] > 0).all())

    def products(self, slope: np.ndarray) -> np.ndarray:
        """⟨slope, A_i⟩ of every document: (N,)."""
        return self.rows.scores(slope)


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
