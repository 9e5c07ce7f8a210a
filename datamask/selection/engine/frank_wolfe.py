"""Frank–Wolfe where a relaxed value and a gradient are all that is known, with a search along the line.

For metrics of one's own, and facility location beside others. Facility location has kinks, at which a tangent bounds
badly: it is kept whole in each step's problem, and its Lagrangian levels (`coverage`) give that problem's bound and
response.
"""

from __future__ import annotations

from collections.abc import Callable

import torch

from datamask.selection.engine import trial_swaps as trial
from datamask.selection.engine.quadratic import rounding_of
from datamask.selection.metrics.facility import FacilityLocation
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.objective import Term
from datamask.selection.problem.pool import Problem
from datamask.selection.result import Draft
from datamask.selection.solvers import Report

TOLERANCE = 2e-4  # it stops so near its bound (the calibrated objective is about 1)
STEPS, COVERED_STEPS = 600, 24  # at most; with facility location, a bound by levels in each
TRIALS = 3  # of a step's length
SWAP_ROUNDS = 6


def solve(problem: Problem, terms: list[Term], feasible: Feasible, progress: Report) -> Draft:
    """terms: those that count. Facility location's neighbours are looked for in all of the pool: O(N²·d)."""
    objective = problem.objective
    linear = objective.linear * feasible.weights / problem.size
    smooth = [term for term in terms if not isinstance(term.metric, FacilityLocation)]
    covers = [term for term in terms if isinstance(term.metric, FacilityLocation)]
    rate = sum(term.scale for term in covers) / len(problem)
    graph = covers[0].metric.graph if covers else None  # type: ignore[union-attr]

    def tangent(p: torch.Tensor) -> tuple[float, torch.Tensor]:
        value, gradient = float(linear @ p), linear.clone()
        for term in smooth:
            raw, slope = term.metric.relaxed(p)  # type: ignore[union-attr]
            value, gradient = value + term.scale * raw, gradient + term.scale * slope.cpu().double()
        return value, gradient

    def slope(p: torch.Tensor) -> torch.Tensor:
        gradient = tangent(p)[1]
        return gradient if graph is None else gradient + rate * graph.excess(graph.relaxed(p)[1])

    p, bound, history = feasible.alike(), float("inf"), []
    price = linear / feasible.weights
    for step in range(COVERED_STEPS if graph else STEPS):
        value, gradient = tangent(p)
        flat = value - float(gradient @ p)
        if graph is None:
            price = gradient / feasible.weights
            response, most = feasible.respond(price)
        else:
            covered, level = graph.relaxed(p)
            value += rate * covered
            most, mean, price = graph.bound(gradient / feasible.weights, rate, feasible, value - flat, level)
            response = feasible.project(mean)
        bound = min(bound, flat + most)
        history.append(
            {"step": step, "objective": value + objective.constant, "upper_bound": bound + objective.constant}
        )
        progress(history[-1])
        if bound - value <= TOLERANCE:
            break
        toward = response - p
        p = p + _crossing(slope, p, toward) * toward
    selected = feasible.round(p, price)
    if graph is not None and feasible.unit_weights and not problem.limits:
        selected = _covering(problem, selected, lambda mask: graph.improve(mask, tangent(mask.double())[1], rate))
    selected = trial.improve(problem, selected, slope)
    bound += objective.constant + rounding_of(bound, objective.margin, terms=len(problem) + problem.pool.dimensions)
    return Draft(selected, p.float(), price * feasible.weights, bound, history=tuple(history))


def _covering(
    problem: Problem, selected: torch.Tensor, swapped: Callable[[torch.Tensor], torch.Tensor]
) -> torch.Tensor:
    """Swaps by facility location's gains, the others' being linear where the mask is, while the objective rises."""
    reached = float(problem.objective.values(selected[None])[0])
    for _ in range(SWAP_ROUNDS):
        other = swapped(selected)
        value = float(problem.objective.values(other[None])[0])
        if value <= reached:
            break
        selected, reached = other, value
    return selected


def _crossing(gradient: Callable[[torch.Tensor], torch.Tensor], p: torch.Tensor, toward: torch.Tensor) -> float:
    """The share of the way at which the objective no longer rises along it, by false position."""

    def rise(share: float) -> float:
        return float(gradient(p + share * toward) @ toward)

    low, high, rising, falling = 0.0, 1.0, rise(0.0), rise(1.0)
    if falling >= 0:
        return 1.0
    for _ in range(TRIALS):
        ratio = rising / (rising - falling) if rising > 0 else 0.5
        share = low + (high - low) * min(0.95, max(0.05, ratio))
        there = rise(share)
        low, rising, high, falling = (share, there, high, falling) if there > 0 else (low, rising, share, there)
    return low or high
