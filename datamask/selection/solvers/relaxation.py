"""The relaxation: a concave maximisation over fractional masks, rounded, with an upper bound as certificate.

For metrics that are quadratic in the mask (pairwise, DiSF; see `solvers.quadratic`), prices are learned on a sample and
corrected, first on the whole pool and then on the documents that remain undecided. The fractional optimum is rounded,
the mask improved by swaps, and the bound computed from the features with all rounding errors included.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch

from datamask.selection.cover.solve import RepeatDriver, StateDriver
from datamask.selection.driver import PoolDriver, Record
from datamask.selection.metrics.base import MaskState, MomentMetric, StateMetric
from datamask.selection.metrics.moments import DiSF
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.problem import SAMPLE, Draft, Problem, Term, moment_coefficients
from datamask.selection.solvers import RELAXATION, Report, Solver
from datamask.selection.solvers.ascent import Ascent, Multilinear, Spectral, standing
from datamask.selection.solvers.newton import DualPoint, Newton, suits_newton
from datamask.selection.solvers.quadratic import Quadratic, certified, prepare, priced, rounding_of, swap_by_kernel
from datamask.shares import share_part

TOLERANCE = 2e-4  # the ascent stops when bound − value is at most this (the calibrated objective is about 1)
WHOLE, ITERATIONS = 32, 100  # most steps of one ascent: on all documents, and on the undecided alone
LEARNING = 20  # steps of the ascent on a sample
ROUGH = 2e-3  # tolerance of Newton's path on a sample
# Steps on all documents before the undecided are solved alone: from the uniform start, and from a sample's prices.
FROM_UNIFORM, FROM_SAMPLE = 8, 4
# Where rounding would lose more than COSTLY (the calibrated objective is about 1), the multilinear extension is
# ascended for at most MULTILINEAR steps.
COSTLY, MULTILINEAR = 0.01, 16
ROUNDS = 12  # most choices of the undecided documents
SCREENED = 0.1  # the undecided alone are solved to max(TOLERANCE / 2, this share of the whole pool's gap)
RECORDS = 20  # of greedy's progress
GREEDY_TOO = 1 << 24  # multiplications for comparing k documents with all, up to which greedy runs too


class Relaxation(Solver):
    """Concave maximisation over fractional masks, rounded, with a certificate."""

    holds: ClassVar = RELAXATION
    requires: ClassVar = ("relaxed", "solve_relaxed")  # a concave extension, or a relaxation of its own, used alone
    agree_in: ClassVar = "solve_relaxed"

    def solve(self, problem: Problem, progress: Report) -> Draft:
        """Solves the problem by the method that suits its metrics. The draft has an upper bound."""
        with share_part(0, 0.15):
            objective = problem.objective
        terms = [term for term in objective.diversity if term.scale]
        if problem.settings.repeat > 1:
            return RepeatDriver(problem, terms, progress).run()
        feasible = Feasible(problem.limits)
        if feasible.everything and not problem.settings.quotas and problem.settings.length_tolerance is None:
            return _everything(problem)
        if not terms:
            price = objective.linear / problem.size
            p, bound = feasible.respond(price)
            selected = feasible.round(p, price)
            rounding = rounding_of(float(feasible.weights @ price.abs()), objective.margin, terms=len(problem))
            return Draft(selected, p.float(), price * feasible.weights, bound + objective.constant + rounding)
        if all(isinstance(term.metric, MomentMetric) for term in terms):
            return _or_greedy(problem, terms, MomentDriver(problem, terms, feasible, progress).run())
        if own := getattr(terms[0].metric, "solve_relaxed", None):
            return own(problem, terms[0], feasible)
        share = problem.limits.weights / problem.size
        for place, term in enumerate(terms):  # a metric that names no sums is a function of the mask itself
            if not isinstance(term.metric, StateMetric):
                terms[place] = replace(term, metric=MaskState(term.metric, share))  # type: ignore[arg-type]
        with share_part(0.15, 1):
            return StateDriver(problem, terms, feasible, progress).run()


def _everything(problem: Problem) -> Draft:
    """The selection of all documents, for a budget that has room for the whole pool; the bound is its own value."""
    selected = torch.ones(len(problem), dtype=torch.bool)
    value = float(problem.objective.values(selected[None])[0])
    bound = value + rounding_of(value, problem.objective.margin, terms=len(problem))
    return Draft(selected, selected.float(), upper_bound=bound)


def _or_greedy(problem: Problem, terms: list[Term], draft: Draft) -> Draft:
    """The better of `draft` and greedy's selection in a small pool, where greedy is cheap and rounding loses most."""
    k, free = int(problem.size), problem.unit == "documents" and not problem.limits
    if not free or k * len(problem) * problem.pool.dimensions > GREEDY_TOO:
        return draft
    other = torch.zeros(len(problem), dtype=torch.bool)
    other[rank_incrementally(problem, terms, k, lambda record: None).cpu()] = True
    ours, greedys = problem.objective.values(torch.stack([draft.selected, other])).tolist()
    if ours >= greedys:
        return draft
    metrics = [term.metric for term in terms if isinstance(term.metric, MomentMetric)]
    coefficients = moment_coefficients(terms, problem.size)
    moments = [metric.sum_over(problem.pool, other.double()) for metric in metrics]
    price, _ = priced(problem.pool, metrics, coefficients, problem.objective.linear / problem.size, moments)
    return replace(draft, selected=other, price=price)  # documents counted: per document


def rank_incrementally(problem: Problem, terms: list[Term], k: int, progress: Report) -> torch.Tensor:
    """Row numbers in the order picked, (k,), for pairwise and DiSF."""
    pool, linear = problem.pool, problem.objective.linear.to(problem.pool.device, torch.float32)
    prepared = []
    for term in terms:
        assert isinstance(term.metric, MomentMetric)
        z = torch.cat([term.metric.prepare(rows).float() for _, rows in pool.blocks(dtype=term.metric.reads)])
        prepared.append((term.scale * term.metric.unit, term.metric, z, z.square()))
    squares = [metric.squares(z) for _, metric, z, _ in prepared]
    products = [torch.zeros_like(linear) for _ in prepared]  # ⟨Σ_{j picked} v_j, v_i⟩
    taken = torch.zeros_like(linear)
    ranking = torch.empty(k, dtype=torch.int64, device=pool.device)
    for pick in range(k):
        size = pick + 1  # the number of documents with the new one
        gain = linear / size
        for (scale, *_), product, square in zip(prepared, products, squares, strict=True):
            gain = gain - scale * (2 * product + square) / size**2
        chosen = int((gain - taken).argmax())
        ranking[pick] = chosen
        taken[chosen] = torch.inf
        for number, (_, metric, z, z2) in enumerate(prepared):
            dot = z @ z[chosen]
            products[number] += dot.square() - z2 @ z2[chosen] if isinstance(metric, DiSF) else dot
        if size % max(1, k // RECORDS) == 0:
            progress({"step": size, "gain": float(gain[chosen])})
    return ranking


class MomentDriver(PoolDriver):
    """The driver of a pool whose metrics are quadratic in the mask."""

    def init(self) -> None:
        """The objective as a quadratic, and the point to start from."""
        problem = self.problem
        self.metrics = [term.metric for term in self.diversity if isinstance(term.metric, MomentMetric)]
        prepared, linear = [prepare(metric) for metric in self.metrics], problem.objective.linear / problem.size
        coefficients = moment_coefficients(self.diversity, problem.size)
        self.quadratic = Quadratic(prepared, coefficients, linear, self.feasible)
        self.start = _first_guess(problem, self.quadratic)

    def step(self) -> None:
        """The fractional optimum."""
        self.relaxed = relax_mask(self.quadratic, self.start, TOLERANCE, self.note)

    def postprocess(self) -> Draft:
        """The optimum rounded and improved by swaps, with an upper bound."""
        objective, quadratic, relaxed = self.problem.objective, self.quadratic, self.relaxed
        given = quadratic.coefficients, quadratic.linear, self.feasible, relaxed.bound_moments, objective.constant
        bound = certified(self.problem.pool, self.metrics, *given) + rounding_of(objective.margin, terms=8)
        selected, price, p = to_mask(quadratic, relaxed, TOLERANCE / 4, self.note)
        value = relaxed.value + objective.constant
        return Draft(selected, p.float(), price * self.feasible.weights, bound, value, tuple(self.history))


def relax_mask(quadratic: Quadratic, start: torch.Tensor | DualPoint, tolerance: float, record: Record) -> Ascent:
    """The fractional optimum with its bound: a few steps on all documents, then on the undecided alone.

    start: a feasible p (N,), or the end of Newton's path on a sample where `suits_newton` holds.
    """
    if suits_newton(quadratic):
        return Newton(quadratic, start, tolerance, record).run()[0]
    assert isinstance(start, torch.Tensor)
    opening = FROM_SAMPLE if len(quadratic) > 2 * SAMPLE else FROM_UNIFORM
    found = Spectral(quadratic, start, tolerance, opening, record=record).run()
    for _ in range(ROUNDS):
        if found.near(quadratic, tolerance):
            break
        before = found.bound - found.value
        screened = _screened(quadratic, found, tolerance, record)
        found = screened or Spectral(quadratic, found.p, tolerance, WHOLE, found.step, record).run()
        if before - (found.bound - found.value) < tolerance / 4:
            break
    return found


def _screened(quadratic: Quadratic, found: Ascent, tolerance: float, record: Record) -> Ascent | None:
    """Continues the ascent on the undecided documents alone; None if there are too many of them to help."""
    few = quadratic.undecided(found.p, found.price)
    if few is None:
        return None
    index, part = few
    enough = max(tolerance / 2, SCREENED * (found.bound - found.value))
    inner = Spectral(part, part.feasible.project(found.p[index]), enough, ITERATIONS, found.step, record).run()
    p = found.p.clone()
    p[index] = inner.p
    price = quadratic.price(inner.moments)
    at_best = price if inner.bound_moments is inner.moments else quadratic.price(inner.bound_moments)
    bound, _ = quadratic.bound(inner.bound_moments, at_best)
    bound, best = min((bound, inner.bound_moments), (found.bound, found.bound_moments), key=lambda pair: pair[0])
    record(standing(quadratic, p, inner.value, bound))
    return Ascent(p, inner.moments, inner.value, price, bound, best, inner.step)


def to_mask(
    quadratic: Quadratic, relaxed: Ascent, tolerance: float, record: Record
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Rounds a fractional optimum and improves the mask by swaps.

    Returns the mask (N,) bool, the prices at it (N,), and the p (N,) it was rounded from. Where rounding would lose
    more than `COSTLY`, the multilinear extension is ascended first, on the undecided alone.
    """
    p, price = relaxed.p, relaxed.price
    if quadratic.rounding(p) > COSTLY:
        index, part = quadratic.undecided(p, price) or (torch.arange(len(quadratic)), quadratic)
        start = part.feasible.project(p[index])
        found = Multilinear(part, start, tolerance, MULTILINEAR, record=record).run()
        chosen, _, _ = swap_by_kernel(part, part.feasible.round(found.p, found.price), tolerance / 5)
        p = p.clone()
        p[index] = found.p
        selected = p > 0.5
        selected[index] = chosen
    else:
        selected = quadratic.feasible.round(p, price)
    selected, _, price = swap_by_kernel(quadratic, selected, tolerance / 5)
    return selected, price, p


def _first_guess(problem: Problem, quadratic: Quadratic) -> torch.Tensor | DualPoint:
    """The start of the ascent: the uniform feasible p, or in a large pool the p given by prices learned on a sample."""
    count, feasible = len(problem), quadratic.feasible
    if count <= 2 * SAMPLE:
        return feasible.uniform_start()
    rows = np.sort(problem.sample)
    index = torch.from_numpy(rows)
    share = float(feasible.weights[index].sum() / feasible.weights.sum())
    small = Quadratic(
        [part.take(index) for part in quadratic.prepared],
        [c / share**2 for c in quadratic.coefficients],
        quadratic.linear[index] / share,
        Feasible(feasible.limits.sample(rows, share)),
    )
    if suits_newton(quadratic):
        _, end = Newton(small, small.feasible.uniform(), ROUGH).run()
        return end.beyond(share)
    copies = len(quadratic) / len(rows)
    found = Multilinear(small, small.feasible.uniform(), TOLERANCE, LEARNING).representing(copies).run()
    price = quadratic.price([moment / share for moment in found.moments])
    fractional = float(((found.p > 1e-6) & (found.p < 1 - 1e-6)).double().mean())
    above = feasible.reduced(price)
    near = above.abs()[:: count // SAMPLE]
    width = float(torch.quantile(near, max(fractional, 1e-3)))
    return feasible.project(price / max(2 * width, 1e-300))
