"""The objective f(S) = Σ_j λ_j·Q_j(S) + Σ_m (1 − λ)_m·D_m(S): quality columns and diversity metrics, calibrated.

    objective = problem.objective
    objective.values(masks)              # (G,) of masks (G, N)
    objective.evaluate(mask)             # exactly, term by term

Calibrated (the default), each term is measured from a random selection of the budget's size (0) to the term's own best
selection (1), so that λ means the same on every corpus. Uncalibrated, it is the paper's raw sum.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from datamask.selection.metrics import metric_class
from datamask.selection.metrics.base import Metric

if TYPE_CHECKING:
    from datamask.config import Select
    from datamask.selection.problem.pool import Problem


@dataclass(frozen=True, eq=False)
class Term:
    """One summand: weight · (raw − zero) / (one − zero). `metric` is None for a quality column."""

    name: str
    weight: float  # λ's share
    zero: float  # raw value that scores 0
    one: float  # raw value that scores 1
    metric: Metric | None = None
    column: int | None = None  # of the pool's quality

    @property
    def rate(self) -> float:
        """Calibrated units of a raw one; 0 where all selections are equal (constant quality, equal documents).

        Metrics' raw values are of order one and exact to some 1e-15, so a span below 1e-9 is rounding to six digits.
        """
        span = self.one - self.zero
        least = 1e-3 if self.metric is not None else 1e-9  # quality may be in any unit
        return 1 / span if span > 1e-6 * max(abs(self.one), abs(self.zero), least) else 0.0

    @property
    def scale(self) -> float:
        """What a raw unit counts in the objective."""
        return self.weight * self.rate

    def calibrated(self, raw: float) -> float:
        return (raw - self.zero) * self.rate


@dataclass(frozen=True, eq=False)
class Evaluation:
    objective: float
    terms: Mapping[str, float]  # calibrated
    statistics: Mapping[str, float]  # raw


@dataclass(frozen=True, eq=False)
class Objective:
    """`quality` and `diversity` terms. `linear` (N,) float64, on the CPU: quality's value of a document, so that
    quality's part of f is Σ_i linear_i·w_i·m_i / size, less what is in `constant`."""

    problem: Problem
    quality: tuple[Term, ...]
    diversity: tuple[Term, ...]
    linear: torch.Tensor
    constant: float  # −Σ scale·zero over all terms

    @property
    def terms(self) -> tuple[Term, ...]:
        return self.quality + self.diversity

    @property
    def margin(self) -> float:
        """What the terms' absolute values add up to, their zeros included: the scale of rounding in f."""
        return sum(abs(term.scale) * (abs(term.zero) + max(abs(term.zero), abs(term.one), 1.0)) for term in self.terms)

    @property
    def scales(self) -> dict[str, dict[str, float]]:
        """By term: f = Σ scale · (raw − zero)."""
        return {term.name: {"zero": term.zero, "scale": term.scale} for term in self.terms}

    def values(self, masks: torch.Tensor) -> torch.Tensor:
        """f of each mask: (G, N) bool or 0/1 -> (G,) float64."""
        masks = masks.to(self.problem.pool.device)
        per_document = self.linear.to(masks.device) * self.problem.weights / self.problem.size
        total = masks.double() @ per_document + self.constant
        for term in self.diversity:
            if term.scale and term.metric is not None:
                total = total + term.scale * term.metric.value(masks).to(total.device)
        return total

    def evaluate(self, mask: torch.Tensor) -> Evaluation:
        """f of one mask (N,) and its terms, in float64. Whole numbers: documents taken so often."""
        problem = self.problem
        mask = mask.cpu()
        weighted = (mask.double() * problem.weights.cpu()).numpy() / problem.size
        raw = {term.name: float(weighted @ problem.pool.quality[:, term.column]) for term in self.quality}
        exact: dict[str, float] = {}
        for term in self.diversity:
            assert term.metric is not None
            raw[term.name] = float(term.metric.value(mask[None].to(problem.pool.device))[0])
            if hasattr(term.metric, "exact"):
                exact[f"{term.name}_exact"] = float(term.metric.exact(mask.to(problem.pool.device)))
        objective = self.constant + sum(term.scale * raw[term.name] for term in self.terms)
        return Evaluation(
            objective, {term.name: term.calibrated(raw[term.name]) for term in self.terms}, {**raw, **exact}
        )


def make_objective(problem: Problem) -> Objective:
    """The problem's objective, each term calibrated if its settings say so."""
    return balance(problem, *make_terms(problem, problem.limits.weights, problem.size, problem.pool.quality))


def make_terms(
    problem: Problem, weights: np.ndarray, size: float, quality: np.ndarray
) -> tuple[list[Term], list[Term]]:
    """Quality's and diversity's terms, not yet weighted. weights (N,), size, quality (N, Q): what quality is calibrated
    on, the problem's own, or the corpus's of which the problem is a sample."""
    from datamask.selection.problem.calibration import diversity_span, quality_span

    settings = problem.settings
    columns, diversity = [], []
    for column, name in enumerate(problem.pool.quality_names):
        most = weights if settings.repeat == 1 else weights * settings.repeat
        zero, one = quality_span(most, size, quality[:, column]) if settings.calibrate else (0.0, 1.0)
        columns.append(Term(name, 0.0, zero, one, column=column))
    for name in settings.metrics:
        metric = metric_class(name)(problem.pool, problem.weights, problem.size)
        if hasattr(metric, "bind"):
            metric.bind(settings)
        zero, one = diversity_span(problem, metric) if settings.calibrate else (0.0, 1.0)
        diversity.append(Term(name, 0.0, zero, one, metric=metric))
    return columns, diversity


def balance(problem: Problem, quality: Sequence[Term], diversity: Sequence[Term]) -> Objective:
    """The objective of calibrated terms, weighted by the problem's λ: terms of one λ serve every other."""
    pool = problem.pool
    quality, diversity = weigh(problem.settings, pool.quality_weights, quality, diversity)
    constant = -sum(term.scale * term.zero for term in (*quality, *diversity))
    return Objective(problem, quality, diversity, torch.from_numpy(worth(quality, pool.quality)), constant)


def weigh(
    settings: Select, quality_weights: np.ndarray, quality: Sequence[Term], diversity: Sequence[Term]
) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """The terms with λ's share of each. quality_weights: (Q,), adding up to 1."""
    shares = [settings.metrics[term.name] for term in diversity]
    pairs = zip(quality, quality_weights, strict=True)
    return (
        tuple(replace(term, weight=settings.lamb * float(share)) for term, share in pairs),
        tuple(
            replace(term, weight=(1 - settings.lamb) * share / sum(shares))
            for term, share in zip(diversity, shares, strict=True)
        ),
    )


def worth(terms: Sequence[Term], quality: np.ndarray) -> np.ndarray:
    """(N,) float64: what a document's quality counts in the objective. quality: (N, Q)."""
    total = np.zeros(len(quality))
    for term in terms:
        total += term.scale * quality[:, term.column]
    return total
