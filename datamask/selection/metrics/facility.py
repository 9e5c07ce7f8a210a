"""Facility location (published name `Facility`): how near every document of the pool is to a selected one."""

from __future__ import annotations

from functools import cached_property
from math import ceil
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import torch

from datamask.selection.engine.neighbour_graph import GraphCoverage
from datamask.selection.engine.neighbours import nearest
from datamask.selection.problem.feasible import fill_in_order
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool, in_order_of_content

if TYPE_CHECKING:
    from datamask.selection.problem.problem import Problem

TILE = 4096
EXACT_PRODUCTS = 1 << 27  # multiplications, of a value that is computed in float64 throughout
NEIGHBOURS = (32, 256)  # of a document, at least and at most: about PER_CENTRE times N / k
PER_CENTRE = 10
CALIBRATION_POINTS = 4096  # documents whose nearest selected one is looked for when calibrating
RANDOM_SETS = 4


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
