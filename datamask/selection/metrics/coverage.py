"""Coverage: how well the selection matches a distribution over atoms (hashed n-grams, or embedded anchors)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

import numpy as np

from datamask.selection.cover.atoms import AtomRows, Atoms, make_atoms
from datamask.selection.cover.curves import CurvedSum, Curves
from datamask.selection.metrics.base import MixtureMetric

if TYPE_CHECKING:
    from datamask.config import ResolvedSelect


class Coverage(CurvedSum, MixtureMetric):
    """D(p) = Σ_j t_j log u_j − Σ_j t_j log m_j, with u = (1 − α) Σ_i w_i A_ij + α m_j, m the whole pool's mixture.

    w_i = p_i b_i / size is the share of the budget that document i takes. The log-likelihood of the atoms under the
    mixture of the chosen, less that under the pool: −KL(t ‖ choice) up to a constant, what DSIR calls KL reduction
    (Xie et al., arXiv 2302.03169). Smoothing by the pool's own mixture (α; Jelinek & Mercer 1980) keeps it finite where
    an atom is not chosen at all. Concave in p.

    With `coverage.curve: saturating` a word of the pool is worth t (1 − 2^−documents) instead, of the documents in the
    choice that hold it, and t is the same for all words: `cover.curves`.
    """

    name: ClassVar[str] = "coverage"
    incremental: ClassVar[str] = "coverage"  # how greedy follows its gains
    part: ClassVar[str] = ""

    def bind(self, settings: ResolvedSelect) -> None:
        """Builds the atoms these settings ask for. Called once, before anything else."""
        self.use_atoms(settings, make_atoms(self.pool, self.weights, settings))

    def use_atoms(self, settings: ResolvedSelect, atoms: Atoms) -> None:
        """Takes atoms that were built elsewhere. Called instead of `bind`."""
        self.settings, self.atoms = settings, atoms
        self.rows: AtomRows = atoms.rows
        self.t = atoms.targets[self.part]
        missing = (self.t > 0) & ~(atoms.mean > 0)  # atoms that no document has: no choice can change them
        self.lost = float(self.t[missing].sum())
        self.t = np.where(missing, 0.0, self.t)
        self.alpha = settings.coverage.smoothing
        self.smooth = self.alpha * atoms.mean
        self.curves = Curves.of(self.t, atoms.bend, self.size / (1 - self.alpha))
        self.base = 0.0
        self.base = self.of_state(atoms.mean)

    # -- a metric whose state is linear in the mask (`cover.tangent.StateMetric`)

    def state(self, mass: np.ndarray) -> np.ndarray:
        """Σ_i mass_i A_i: (J,). mass: (N,) shares of the budget."""
        return self.rows.state(mass)

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
