"""Frank–Wolfe with a line search, for metrics that offer only a relaxed value and its gradient.

It solves users' own metrics, and facility location combined with other metrics. Facility location is piecewise linear,
so its tangent bound is loose: each step linearises only the other metrics and keeps facility location as it is, and the
Lagrangian relaxation in `neighbour_graph` gives that step's bound and response.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

from datamask.selection.engine import trial_swaps as trial
from datamask.selection.engine.quadratic import rounding_of
from datamask.selection.metrics.facility import FacilityLocation
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.objective import Term
from datamask.selection.result import Draft
from datamask.selection.solvers import Report

if TYPE_CHECKING:
    from datamask.selection.problem.problem import Problem

TOLERANCE = 2e-4  # stop when bound − value is at most this (the calibrated objective is about 1)
STEPS, COVERED_STEPS = 600, 24  # steps at most: without facility location, and with it (a Lagrangian bound in each)
TRIALS = 3  # gradient evaluations inside the bracket of a line search
SWAP_ROUNDS = 6  # rounds of facility location's swaps at most


def solve_facility(problem: Problem, terms: list[Term], feasible: Feasible, progress: Report) -> Draft:
    """Solves the problem by Frank–Wolfe and rounds; returns the selection with prices and an upper bound.

    terms: the diversity terms with a non-zero scale. Facility location's neighbour graph compares all pairs: O(N²·d).
    """
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

    p, bound, history = feasible.uniform_start(), float("inf"), []
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
    """Repeats `swapped` (mask -> improved mask) while the true objective rises.

    Its swaps use facility location's exact gains and the other metrics' gradient at the mask.
    """
    reached = float(problem.objective.values(selected[None])[0])
    for _ in range(SWAP_ROUNDS):
        other = swapped(selected)
        value = float(problem.objective.values(other[None])[0])
        if value <= reached:
            break
        selected, reached = other, value
    return selected


def _crossing(gradient: Callable[[torch.Tensor], torch.Tensor], p: torch.Tensor, toward: torch.Tensor) -> float:
    """The step length in (0, 1] at which the objective stops rising along `toward`, by false position."""

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
