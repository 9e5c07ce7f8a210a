"""Facility location (published name `Facility`): how near every document of the pool is to a selected one.

It is piecewise linear, so a tangent bounds it loosely, and it brings its own relaxation. Alone: lazy greedy and swaps
on the graph of neighbours, with a Lagrangian bound. Beside other metrics: Frank–Wolfe, each step of which linearises
only the others and takes its bound and response from that Lagrangian relaxation.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from datamask.selection.engine.quadratic import rounding_of
from datamask.selection.engine.swaps import swap_by_value
from datamask.selection.paper.neighbour_graph import GraphCoverage, nearest
from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool, in_order_of_content
from datamask.selection.problem.problem import Term
from datamask.selection.result import Draft
from datamask.selection.solvers import Report

if TYPE_CHECKING:
    from datamask.selection.problem.problem import Problem

TILE = 4096
EXACT_PRODUCTS = 1 << 27  # multiplications, of a value that is computed in float64 throughout
NEIGHBOURS = (32, 256)  # of a document, at least and at most: about PER_CENTRE times N / k
PER_CENTRE = 10
CALIBRATION_POINTS = 4096  # documents whose nearest selected one is looked for when calibrating
RANDOM_SETS = 4
TOLERANCE = 2e-4  # beside other metrics: stop when bound − value is at most this (the calibrated objective is about 1)
STEPS, TRIALS = 24, 3  # steps at most; gradient evaluations inside the bracket of a step's line search
SWAP_ROUNDS = 6  # rounds of swaps at most


class FacilityLocation:
    """D(S) = (1/N)·Σ_{i∈pool} max_{j∈S} x_i·x_j. Monotone submodular where cosines are not negative."""

    name: ClassVar[str] = "facility"
    incremental: ClassVar[str] = "facility"  # how greedy follows its gains

    def __init__(self, pool: Pool, weights: torch.Tensor, size: float) -> None:
        self.pool, self.weights, self.size = pool, weights, size

    def value(self, masks: torch.Tensor) -> torch.Tensor:
        """Raw D of each mask. masks: (G, N); returns (G,) float64."""
        return torch.tensor([float(self.coverage(mask.nonzero()[:, 0]).mean()) for mask in masks], dtype=torch.float64)

    def coverage(self, selected: torch.Tensor, of: torch.Tensor | None = None) -> torch.Tensor:
        """Each document's cosine to the nearest selected one, float64. selected, of (None: all): row numbers.

        The nearest is looked for in float32 where products are many, and its cosine taken again in float64: of two
        that float32 cannot tell apart it may be the lesser.
        """
        device = self.pool.device
        rows = torch.arange(len(self.pool), device=device) if of is None else of
        if not len(selected):
            return torch.zeros(len(rows), dtype=torch.float64, device=device)
        exact = len(rows) * len(selected) * self.pool.dimensions <= EXACT_PRODUCTS
        dtype = torch.float64 if exact else torch.float32
        best = torch.full((len(rows),), -torch.inf, device=device, dtype=dtype)
        nearest = torch.zeros(len(rows), dtype=torch.int64, device=device)
        for chosen in selected.split(TILE):
            centres = self.pool.rows(chosen, dtype)
            for start in range(0, len(rows), TILE):
                part = slice(start, start + TILE)
                value, place = (self.pool.rows(rows[part], dtype) @ centres.T).max(dim=1)
                nearer = value > best[part]
                best[part] = torch.where(nearer, value, best[part])
                nearest[part] = torch.where(nearer, chosen.to(device)[place], nearest[part])
        if exact:
            return best
        parts = zip(rows.split(TILE), nearest.split(TILE), strict=True)
        wide = torch.float64
        return torch.cat([(self.pool.rows(a, wide) * self.pool.rows(b, wide)).sum(dim=1) for a, b in parts])

    @cached_property
    def graph(self) -> GraphCoverage:
        """Who covers whom, for selections of the budget's size."""
        least, most = NEIGHBOURS
        share = float(self.weights.sum()) / self.size
        return GraphCoverage(nearest(self.pool, min(most, max(least, ceil(PER_CENTRE * share)))))

    def calibrate(self, problem: Problem) -> tuple[float, float]:
        """Raw values of a random selection and of this metric's own best, which greedy and swaps stand for."""
        generator = problem.generator(stream=5)
        count = len(self.pool)
        by_content = in_order_of_content(self.pool, problem.settings.seed)
        by_content = np.arange(count) if by_content is None else by_content
        points = np.sort(by_content[generator.choice(count, min(CALIBRATION_POINTS, count), replace=False)])
        of = torch.from_numpy(points).to(self.pool.device)
        plain = Limits(problem.limits.weights, problem.size)

        def value(order: np.ndarray) -> float:
            spent = np.cumsum(plain.weights[order])
            chosen = torch.from_numpy(np.sort(order[spent <= plain.size + 1e-9])).to(self.pool.device)
            return float(self.coverage(chosen, of).mean())

        zero = float(np.mean([value(by_content[generator.permutation(count)]) for _ in range(RANDOM_SETS)]))
        order = self.graph.greedy(np.zeros(count), 1.0, plain)
        if problem.unit == "documents":
            mask = torch.from_numpy(fill_in_order(plain, order))
            mask = self.graph.improve(mask, torch.zeros(count, dtype=torch.float64), 1.0)
            order = mask.nonzero()[:, 0].numpy()
        return zero, value(order)

    def solve_relaxed(self, problem: Problem, terms: list[Term], feasible: Feasible, progress: Report) -> Draft:
        """The relaxation of facility location, alone or beside other relaxed metrics; see `Metric`."""
        if len(terms) == 1:
            return self._solve_alone(problem, terms[0].scale, feasible)
        return _solve_beside(problem, terms, feasible, progress)

    def _solve_alone(self, problem: Problem, scale: float, feasible: Feasible) -> Draft:
        """Lazy greedy and swaps on the neighbour graph; the bound is by Lagrangian relaxation."""
        objective, count = problem.objective, len(problem)
        gain, rate = objective.linear / problem.size, scale / count
        graph = self.graph
        per_document = gain * feasible.weights
        selected = torch.from_numpy(fill_in_order(problem.limits, graph.greedy(gain.numpy(), rate, problem.limits)))
        free = feasible.unit_weights and not problem.limits
        if free:
            selected = graph.improve(selected, per_document, rate)
        reached = graph.value(selected, per_document, rate)
        bound, mean, price = graph.bound(gain, rate, feasible, reached, graph.covered(selected))
        other = feasible.round(mean, price)  # rounding the mean of the relaxation's responses is sometimes better
        if free:
            other = graph.improve(other, per_document, rate)
        selected = max(selected, other, key=lambda mask: graph.value(mask, per_document, rate))
        rounding = rounding_of(bound, scale, objective.margin, terms=count + problem.pool.dimensions)
        return Draft(
            selected, mean.float().clamp(0, 1), price * feasible.weights, bound + objective.constant + rounding
        )


def _solve_beside(problem: Problem, terms: list[Term], feasible: Feasible, progress: Report) -> Draft:
    """Frank–Wolfe, its p rounded and improved by swaps. terms: the diversity terms with a non-zero scale."""
    objective = problem.objective
    linear = objective.linear * feasible.weights / problem.size
    smooth = [term for term in terms if not isinstance(term.metric, FacilityLocation)]
    covers = [term for term in terms if isinstance(term.metric, FacilityLocation)]
    rate = sum(term.scale for term in covers) / len(problem)
    graph = covers[0].metric.graph  # type: ignore[union-attr]

    def tangent(p: torch.Tensor) -> tuple[float, torch.Tensor]:
        value, gradient = float(linear @ p), linear.clone()
        for term in smooth:
            raw, slope = term.metric.relaxed(p)  # type: ignore[union-attr]
            value, gradient = value + term.scale * raw, gradient + term.scale * slope.cpu().double()
        return value, gradient

    def slope(p: torch.Tensor) -> torch.Tensor:
        return tangent(p)[1] + rate * graph.excess(graph.relaxed(p)[1])

    p, bound, history = feasible.uniform_start(), float("inf"), []
    for step in range(STEPS):
        value, gradient = tangent(p)
        flat = value - float(gradient @ p)
        covered, level = graph.relaxed(p)
        value += rate * covered
        most, mean, price = graph.bound(gradient / feasible.weights, rate, feasible, value - flat, level)
        bound = min(bound, flat + most)
        history.append(
            {"step": step, "objective": value + objective.constant, "upper_bound": bound + objective.constant}
        )
        progress(history[-1])
        if bound - value <= TOLERANCE:
            break
        toward = feasible.project(mean) - p
        p = p + _crossing(slope, p, toward) * toward
    selected = feasible.round(p, price)
    if feasible.unit_weights and not problem.limits:
        selected = _covering(problem, selected, lambda mask: graph.improve(mask, tangent(mask.double())[1], rate))
    selected = swap_by_value(problem.limits, selected, objective.values, slope)
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
