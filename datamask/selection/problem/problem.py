"""The problem: a pool of documents, a budget, and limits that the selection must stay within.

    pool = Pool(features, quality, tokens=tokens, groups={"domain": domain})
    problem = make_problem(pool, Select(select_ratio=0.1, lamb=0.5))      # `datamask.selection.calibration`
    problem.size, problem.weights, problem.objective, problem.limits

A document takes `weights[i]` of the budget: 1 where the budget counts documents, its number of tokens where it counts
tokens. The objective's means are over the same unit, so a token budget maximises the mean quality of a *token*.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from datamask.config import ResolvedSelect
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.objective import Objective, Term, balance
from datamask.selection.problem.pool import Pool, row_hashes

SAMPLE = 16_384  # documents on which a larger pool's first prices are learned; a term's own best takes no more
Terms = tuple[Sequence[Term], Sequence[Term]]  # of quality and of diversity, calibrated but not yet weighted by λ


@dataclass(frozen=True, eq=False)
class Problem:
    """A pool with its budget, limits and objective resolved: the input of every solver."""

    pool: Pool
    settings: ResolvedSelect
    unit: str  # "documents" or "tokens": what the budget counts
    size: float  # the budget in its unit
    weights: torch.Tensor  # (N,) float64: what a document takes of the budget
    limits: Limits
    calibrate: Callable[[Problem], Terms]  # called on first use of `objective`, since it takes a small solve
    copies: float = 1.0  # how many documents of the corpus each of the pool represents, if it is a sample

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def documents(self) -> int:
        """k, the number of documents: exact where the budget counts documents, else that of a random selection."""
        return max(1, round(self.size / float(self.weights.mean())))

    @cached_property
    def objective(self) -> Objective:
        """The objective to maximise."""
        return balance(self, *self.calibrate(self))

    @cached_property
    def sample(self) -> np.ndarray:
        """(n,) at most `SAMPLE` row numbers, for calibration and first prices, in the order of a hash of the rows.

        The same documents are chosen in whatever order the rows stand.
        """
        hashes = row_hashes(self.pool.features, self.settings.seed)
        few = len(hashes) <= SAMPLE
        first = np.arange(len(hashes)) if few else np.sort(np.argpartition(hashes, SAMPLE)[:SAMPLE])
        return first[np.argsort(hashes[first], kind="stable")]

    def at(self, lamb: float) -> Problem:
        """The same problem at another λ, sharing this one's calibration, which does not depend on λ."""
        terms = self.objective.quality, self.objective.diversity
        return replace(self, settings=self.settings.model_copy(update={"lamb": lamb}), calibrate=lambda _: terms)

    def generator(self, stream: int = 0) -> np.random.Generator:
        """A random generator from the problem's seed; different values of `stream` give independent sequences."""
        return np.random.default_rng([self.settings.seed, stream])
