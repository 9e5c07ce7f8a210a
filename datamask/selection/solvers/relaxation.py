"""The relaxation: a concave maximisation over fractional masks, rounded, with a certificate.

For metrics that are quadratic in the mask (pairwise, DiSF) see `datamask.selection.ascent`: prices are learned on a
sample, corrected on the whole pool with bf16 products, rounded, improved by exchanges, and certified in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from datamask.errors import ConfigError
from datamask.selection.ascent import Prepared, ascend
from datamask.selection.feasible import Feasible
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.objective import Term
from datamask.selection.problem import Problem
from datamask.selection.result import Draft
from datamask.selection.solvers import Progress

TOLERANCE = 2e-4  # of the bound: the ascent stops there


@dataclass
class Warm:
    """What one solve leaves to the next on the same pool: prepared rows, and where it ended. Empty at first."""

    prepared: list[Prepared] = field(default_factory=list)
    mask: torch.Tensor | None = None


def solve(problem: Problem, progress: Progress, warm: Warm | None = None) -> Draft:
    """warm: left by a solve of the same pool and metrics at another λ; begins there, and is brought up to date.

    :raises ConfigError: a diversity metric has no relaxation.
    """
    objective = problem.objective
    terms = [term for term in objective.diversity if term.scale]
    feasible = Feasible(problem.limits)
    if not terms:
        price = objective.linear
        p, bound = feasible.respond(price)
        selected = feasible.round(p, price)
        return Draft(
            selected, p.float(), price * feasible.weights / problem.size, bound / problem.size + objective.constant
        )
    if all(isinstance(term.metric, MomentMetric) for term in terms):
        return _quadratic(problem, terms, feasible, progress, warm or Warm())
    missing = [term.name for term in terms if not hasattr(term.metric, "relaxed")]
    raise ConfigError(f"metric {', '.join(missing)} has no relaxation; use solver policy-gradient")


def _quadratic(problem: Problem, terms: list[Term], feasible: Feasible, progress: Progress, warm: Warm) -> Draft:
    objective = problem.objective
    dtype = torch.bfloat16 if len(problem) * problem.pool.dimensions > 1 << 20 else torch.float32
    metrics = [term.metric for term in terms if isinstance(term.metric, MomentMetric)]
    warm.prepared = warm.prepared or [Prepared(metric, dtype) for metric in metrics]
    coefficients = [term.scale * term.metric.unit / problem.size**2 for term in terms]  # type: ignore[union-attr]
    linear = objective.linear / problem.size
    start = warm.mask
    if start is None:
        start = torch.full((len(problem),), problem.size / float(feasible.weights.sum()), dtype=torch.float64)
        if problem.limits:
            start = feasible.project(start)
    found = ascend(
        warm.prepared,
        coefficients,
        linear,
        feasible,
        start,
        tolerance=TOLERANCE,
        report=lambda record: progress({**record, "objective": record["objective"] + objective.constant}),
    )
    warm.mask = found.p
    selected = feasible.round(found.p, found.price)
    history = tuple(
        {**r, "objective": r["objective"] + objective.constant, "upper_bound": r["upper_bound"] + objective.constant}
        for r in found.history
    )
    return Draft(selected, found.p.float(), found.price * feasible.weights, found.bound + objective.constant, history)
