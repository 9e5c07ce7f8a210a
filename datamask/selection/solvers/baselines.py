"""Selections without optimisation: top-quality, random, and direct (the scores summed)."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from datamask.selection.engine.quadratic import prepare
from datamask.selection.metrics.base import MomentMetric, RelaxedMetric
from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.problem import Problem
from datamask.selection.result import Draft
from datamask.selection.solvers import Report, Solver


class Baseline(Solver):
    """Takes documents in the order of a score, and so holds every limit that can be filled in order."""

    holds: ClassVar = frozenset({"documents", "tokens", "quotas", "length"})


class TopQuality(Baseline):
    """The best quality first, as a quality threshold does (FineWeb-Edu, Ultra-FineWeb, FineWeb-DCLM)."""

    def solve(self, problem: Problem, progress: Report) -> Draft:
        """See `Solver.solve`."""
        return _take(problem, torch.from_numpy(problem.pool.quality @ problem.pool.quality_weights))


class Random(Baseline):
    """Uniformly at random, by the settings' seed."""

    def solve(self, problem: Problem, progress: Report) -> Draft:
        """See `Solver.solve`; the probability is the budget's share of the pool."""
        draft = _take(problem, torch.from_numpy(problem.generator(stream=2).random(len(problem))))
        share = problem.size / float(problem.weights.sum())
        return Draft(draft.selected, torch.full((len(problem),), share))


class Direct(Baseline):
    """The sum of quality and diversity scores, without optimisation.

    A document's diversity score is its marginal gain on a random selection, approximated by the uniform fractional one.
    """

    def solve(self, problem: Problem, progress: Report) -> Draft:
        """See `Solver.solve`."""
        objective = problem.objective
        score = objective.linear / problem.size
        share = torch.full((len(problem),), problem.size / float(problem.weights.sum()), dtype=torch.float64)
        for term in objective.diversity:
            metric = term.metric
            if isinstance(metric, MomentMetric):
                rows = prepare(metric)
                moment = rows.moment(share * problem.weights.cpu())
                score = score - 2 * term.scale * metric.unit / problem.size**2 * rows.products(moment)
            elif isinstance(metric, RelaxedMetric):
                score = score + term.scale * metric.relaxed(share)[1].cpu() / problem.weights.cpu()
            else:
                score = score + term.scale * _trial_scores(problem, metric)
        return _take(problem, score, price=score * problem.weights.cpu())


def _trial_scores(problem: Problem, metric: object, trials: int = 64) -> torch.Tensor:
    """(N,) gains of a metric that offers only values: the mean over random selections with a document less the mean
    without it."""
    generator = problem.generator(stream=3)
    masks = torch.from_numpy(
        np.stack([fill_in_order(problem.limits, generator.permutation(len(problem))) for _ in range(trials)])
    )
    values = metric.value(masks.to(problem.pool.device)).cpu()  # type: ignore[attr-defined]
    inside = masks.double()
    count = inside.sum(dim=0)
    mean_in = (values @ inside) / count.clamp(min=1)
    mean_out = (values @ (1 - inside)) / (trials - count).clamp(min=1)
    return torch.where((count > 0) & (count < trials), mean_in - mean_out, torch.zeros(())) / problem.size


def _take(problem: Problem, score: torch.Tensor, price: torch.Tensor | None = None) -> Draft:
    if problem.limits:
        order = np.argsort(-score.numpy(), kind="stable")
        selected = torch.from_numpy(fill_in_order(problem.limits, order))
    else:
        selected = Feasible(problem.limits).round(score, score)
    return Draft(selected, selected.float(), price)
