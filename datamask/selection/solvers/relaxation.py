"""The relaxation: a concave maximisation over fractional masks, rounded, with a certificate.

For metrics that are quadratic in the mask (pairwise, DiSF) see `datamask.selection.ascent`: prices are learned on a
sample, corrected on the whole pool with bf16 products, rounded, improved by exchanges, and certified in float32.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import torch

from datamask.errors import ConfigError
from datamask.selection.ascent import Prepared, ascend
from datamask.selection.calibration import SAMPLE, sample_rows
from datamask.selection.feasible import Feasible, fill_in_order
from datamask.selection.limits import Limits
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.metrics.facility import FacilityLocation
from datamask.selection.objective import Term
from datamask.selection.problem import Problem
from datamask.selection.result import Draft
from datamask.selection.solvers import Progress
from datamask.selection.swaps import improve

TOLERANCE = 2e-4  # the ascent stops so near its bound (the calibrated objective is about 1)
ITERATIONS = 60


@dataclass
class Warm:
    """What one solve leaves to the next on the same pool: prepared rows, and where it ended. Empty at first."""

    prepared: list[Prepared] = field(default_factory=list)
    mask: torch.Tensor | None = None
    tolerance: float = TOLERANCE
    iterations: int = ITERATIONS


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
    if len(terms) == 1 and isinstance(terms[0].metric, FacilityLocation):
        return _facility(problem, terms[0].scale, terms[0].metric, feasible)
    if any(isinstance(term.metric, FacilityLocation) for term in terms):
        raise ConfigError(
            "facility location has no relaxation together with another metric; use solver policy-gradient"
        )
    missing = [term.name for term in terms if not hasattr(term.metric, "relaxed")]
    if missing:
        raise ConfigError(f"metric {', '.join(missing)} has no relaxation; use solver policy-gradient")
    return _concave(problem, terms, feasible, progress)


def _facility(problem: Problem, scale: float, metric: FacilityLocation, feasible: Feasible) -> Draft:
    """Lazy greedy and swaps on the neighbours' graph for the selection, Lagrangian levels for the bound."""
    objective, count = problem.objective, len(problem)
    gain, rate = objective.linear / problem.size, scale / count
    graph = metric.graph

    per_document = gain * feasible.weights
    selected = torch.from_numpy(fill_in_order(problem.limits, graph.greedy(gain.numpy(), rate, problem.limits)))
    free = feasible.unit_weights and not problem.limits
    if free:
        selected = graph.improve(selected, per_document, rate)
    reached = graph.value(selected, per_document, rate)
    bound, mean, price = graph.bound(gain, rate, feasible, reached, graph.covered(selected))
    other = feasible.round(mean, price)  # what the levels' responses agree on is sometimes the better choice
    if free:
        other = graph.improve(other, per_document, rate)
    selected = max(selected, other, key=lambda mask: graph.value(mask, per_document, rate))
    return Draft(selected, mean.float().clamp(0, 1), price * feasible.weights, bound + objective.constant)


def _concave(problem: Problem, terms: list[Term], feasible: Feasible, progress: Progress) -> Draft:
    """Metrics known by a relaxed value and a supergradient: Frank–Wolfe with a search along the line."""
    objective = problem.objective
    linear = objective.linear * feasible.weights / problem.size

    def value_of(p: torch.Tensor) -> tuple[float, torch.Tensor]:
        value, gradient = float(linear @ p), linear.clone()
        for term in terms:
            raw, slope = term.metric.relaxed(p)  # type: ignore[union-attr]
            value, gradient = value + term.scale * raw, gradient + term.scale * slope.cpu().double()
        return value, gradient

    p = torch.full((len(problem),), _share(feasible), dtype=torch.float64)
    p = feasible.project(p) if problem.limits else p
    bound, history = float("inf"), []
    value, gradient = value_of(p)
    for step in range(10 * ITERATIONS):
        response, most = feasible.respond(gradient / feasible.weights)
        bound = min(bound, value + most - float(gradient @ p))
        history.append(
            {"step": step, "objective": value + objective.constant, "upper_bound": bound + objective.constant}
        )
        progress(history[-1])
        if bound - value <= TOLERANCE:
            break
        low, high = 0.0, 1.0  # where the slope along the line changes sign
        for _ in range(12):
            middle = (low + high) / 2
            slope = float(value_of(p + middle * (response - p))[1] @ (response - p))
            low, high = (middle, high) if slope > 0 else (low, middle)
        p = p + (low or high) * (response - p)
        value, gradient = value_of(p)
    selected = feasible.round(p, gradient / feasible.weights)
    return Draft(selected, p.float(), gradient, bound + objective.constant, tuple(history))


def _quadratic(problem: Problem, terms: list[Term], feasible: Feasible, progress: Progress, warm: Warm) -> Draft:
    objective, count = problem.objective, len(problem)
    big = count * problem.pool.dimensions > 1 << 20
    metrics = [term.metric for term in terms if isinstance(term.metric, MomentMetric)]
    warm.prepared = warm.prepared or [Prepared(m, torch.bfloat16 if big and m.bf16 else torch.float32) for m in metrics]
    prepared = warm.prepared
    coefficients = [term.scale * metric.unit / problem.size**2 for term, metric in zip(terms, metrics, strict=True)]
    linear = objective.linear / problem.size
    own = torch.zeros(count, dtype=torch.float64)
    for c, rows in zip(coefficients, prepared, strict=True):
        own += c * feasible.weights.square() * rows.squares()
    history: list[dict[str, float]] = []

    def record(step: dict[str, float]) -> None:
        step = {**step, "step": len(history), "objective": step["objective"] + objective.constant}
        if "upper_bound" in step:
            step["upper_bound"] += objective.constant
        history.append(step)
        progress(step)

    start = _first_guess(problem, terms, linear, feasible, prepared) if warm.mask is None else warm.mask
    relaxed = ascend(
        prepared,
        coefficients,
        linear,
        feasible,
        start,
        tolerance=warm.tolerance,
        iterations=warm.iterations,
        charge=own,
        report=record,
    )
    warm.mask = relaxed.p
    bound = certify(metrics, coefficients, linear, feasible, relaxed.moments)
    found = relaxed
    if float(own @ (relaxed.p - relaxed.p.square())) > warm.tolerance / 4:
        found = ascend(
            prepared,
            coefficients,
            linear,
            feasible,
            relaxed.p,
            tolerance=warm.tolerance / 4,
            iterations=warm.iterations,
            own=own,
            report=record,
        )
    selected = feasible.round(found.p, found.price)
    selected, _, price = improve(prepared, coefficients, linear, own, feasible, selected, warm.tolerance / 20)
    return Draft(selected, found.p.float(), price * feasible.weights, bound + objective.constant, tuple(history))


def certify(
    metrics: list[MomentMetric],
    coefficients: list[float],
    linear: torch.Tensor,
    feasible: Feasible,
    moments: list[torch.Tensor],
) -> float:
    """No feasible S has more: −‖M‖² ≤ ‖m‖² − 2⟨m, M⟩ for any m at all, so prices at `moments` give a true bound.

    In float32 from the features themselves, whatever precision found the moments.
    """
    price = linear.clone()
    for metric, c, moment in zip(metrics, coefficients, moments, strict=True):
        moment = moment.float()
        for part, rows in metric.pool.blocks():
            price[part] -= 2 * c * metric.products(metric.prepare(rows), moment).double().cpu()
    _, most = feasible.respond(price)
    return most + sum(c * float(m.double().square().sum()) for c, m in zip(coefficients, moments, strict=True))


def _first_guess(
    problem: Problem, terms: list[Term], linear: torch.Tensor, feasible: Feasible, prepared: list[Prepared]
) -> torch.Tensor:
    """Where to start: everything alike, or in a large pool what the prices learned on a sample say."""
    count = len(problem)
    if count <= 2 * SAMPLE:
        start = torch.full((count,), _share(feasible), dtype=torch.float64)
        return feasible.project(start) if problem.limits else start
    chosen = torch.from_numpy(sample_rows(problem, SAMPLE))
    weights = feasible.weights[chosen]
    share = float(weights.sum() / feasible.weights.sum())
    small = Feasible(Limits(weights.numpy(), problem.size * share))
    parts = [rows.take(chosen) for rows in prepared]
    coefficients = [term.scale * rows.metric.unit / small.size**2 for term, rows in zip(terms, parts, strict=True)]
    own = torch.zeros(len(chosen), dtype=torch.float64)
    for c, rows in zip(coefficients, parts, strict=True):
        own += c * weights.square() * rows.squares()
    start = torch.full((len(chosen),), small.size / float(weights.sum()), dtype=torch.float64)
    found = ascend(
        parts, coefficients, linear[chosen] / share, small, start, TOLERANCE, ITERATIONS // 2, own=own, copies=1 / share
    )
    price = linear.clone()
    for rows, c, moment in zip(prepared, coefficients, found.moments, strict=True):
        price -= 2 * c * share * rows.products(moment)
    fractional = float(((found.p > 1e-6) & (found.p < 1 - 1e-6)).double().mean())
    level = float(torch.quantile(price[:: count // SAMPLE], 1 - min(_share(feasible), 1.0)))
    band = float(torch.quantile((price[:: count // SAMPLE] - level).abs(), max(fractional, 1e-3)))
    return feasible.project(price / max(2 * band, 1e-300))


def _share(feasible: Feasible) -> float:
    """The budget as a share of the pool."""
    return feasible.size / float(feasible.weights.sum())
