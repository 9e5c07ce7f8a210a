"""The problem: a pool of documents, a budget, and limits that the selection must stay within.

    pool = Pool(features, quality, tokens=tokens, groups={"domain": domain})
    problem = make_problem(pool, Select(select_ratio=0.1, lamb=0.5))
    problem.size, problem.weights, problem.objective, problem.limits

A document takes `weights[i]` of the budget: 1 where the budget counts documents, its number of tokens where it counts
tokens. The objective's means are over the same unit, so a token budget maximises the mean quality of a *token*.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch

from datamask.config import ResolvedSelect, Select, resolve
from datamask.selection.problem.calibration import make_terms, sample_rows
from datamask.selection.problem.limits import Limits, make_limits
from datamask.selection.problem.objective import Objective, Term, balance
from datamask.selection.problem.pool import Pool, budget


@dataclass(frozen=True, eq=False)
class Problem:
    """A pool with its budget, limits and objective resolved: the input of every solver."""

    pool: Pool
    settings: ResolvedSelect
    unit: str  # "documents" or "tokens": what the budget counts
    size: float  # the budget in its unit
    weights: torch.Tensor  # (N,) float64: what a document takes of the budget
    limits: Limits
    copies: float = 1.0  # how many documents of the corpus each of the pool represents, if it is a sample
    terms: tuple[Sequence[Term], Sequence[Term]] | None = None  # calibrated before; None: on first use of `objective`

    def __len__(self) -> int:
        return len(self.pool)

    @property
    def documents(self) -> int:
        """k, the number of documents: exact where the budget counts documents, else that of a random selection."""
        return max(1, round(self.size / float(self.weights.mean())))

    @cached_property
    def objective(self) -> Objective:
        """The objective to maximise. Made on first use, since calibrating it takes a small solve."""
        return balance(self, *(self.terms or make_terms(self)))

    @cached_property
    def sample(self) -> np.ndarray:
        """Row numbers, in a pseudo-random order, of the documents for calibration and for learning first prices."""
        return sample_rows(self)

    def at(self, lamb: float) -> Problem:
        """The same problem at another λ, sharing this one's calibration, which does not depend on λ."""
        terms = self.objective.quality, self.objective.diversity
        return replace(self, settings=self.settings.model_copy(update={"lamb": lamb}), terms=terms)

    def generator(self, stream: int = 0) -> np.random.Generator:
        """A random generator from the problem's seed; different values of `stream` give independent sequences."""
        return np.random.default_rng([self.settings.seed, stream])


def make_problem(pool: Pool, settings: Select) -> Problem:
    """The problem these settings pose on this pool.

    :raises InputError: the budget is more than the pool holds or not one document; a quota cannot be met.
    :raises ConfigError: a token budget, quota or length bound whose column the pool lacks.
    """
    resolved = resolve(settings, words=pool.ngrams is not None, tokens=pool.tokens is not None)
    unit, size, weights = budget(resolved, len(pool), pool.tokens)
    limits = make_limits(resolved, weights, size, pool.tokens, pool.groups)
    return Problem(pool, resolved, unit, size, torch.from_numpy(weights).to(pool.device), limits)
