"""Facility location (published name `Facility`): how near every document of the pool is to a selected one.

It is piecewise linear, so a tangent bounds it loosely, and it brings its own relaxation: lazy greedy and swaps on the
graph of neighbours, with a Lagrangian bound. The relaxation takes it alone, the policy gradient beside other metrics.
"""

from __future__ import annotations

import heapq
from functools import cached_property
from math import ceil
from typing import ClassVar

import numpy as np
import torch

from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool, in_order_of_content
from datamask.selection.problem.problem import Draft, Problem, Term
from datamask.selection.solvers.quadratic import rounding_of

TILE = 4096
EXACT_PRODUCTS = 1 << 27  # multiplications at most of a value, or of all cosines, that float64 computes throughout
NEIGHBOURS = (32, 256)  # of a document, at least and at most: about PER_CENTRE times N / k
PER_CENTRE = 10
CALIBRATION_POINTS = 4096  # documents whose nearest selected one is looked for when calibrating
RANDOM_SETS = 4
BOUND_STEPS, PATIENCE, MOMENTUM = 300, 10, 0.7  # subgradient steps at most; without progress before a restart; momentum
GRAPH_SWAPS, SWAP_GAIN = 60, 5e-6  # rounds at most; stop after a round that gains at most this share of f
NEAREST_TILE = 2048  # documents compared with the whole pool at a time
BF16_FROM = 20_000  # in pools of more documents, neighbours are found in bfloat16; their cosines are then float64
# |x̃·ỹ − x·y| ≤ (2·2⁻⁹ + 2⁻¹⁸)·Σ|x_a y_a| ≤ 2⁻⁸ for unit vectors rounded to bfloat16, and 2⁻⁹ for the rounded result
BF16_ERROR = 2**-8 + 2**-9 + 2**-17


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
        return GraphCoverage(*nearest(self.pool, min(most, max(least, ceil(PER_CENTRE * share)))))

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

    def solve_relaxed(self, problem: Problem, term: Term, feasible: Feasible) -> Draft:
        """Lazy greedy and swaps on the neighbour graph; the bound is by Lagrangian relaxation."""
        objective, count, scale = problem.objective, len(problem), term.scale
        gain, rate = objective.linear / problem.size, scale / count
        graph = self.graph
        per_document = gain * feasible.weights
        selected = torch.from_numpy(fill_in_order(problem.limits, graph.greedy(gain.numpy(), rate, problem.limits)))
        free = problem.limits.counted and not problem.limits
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


# -- facility location with quality, on a graph of neighbours: lazy greedy, and an upper bound by Lagrangian relaxation
#
#     maximise  Σ_j gain_j s_j + rate · Σ_i max_{j∈S} x_i·x_j
#
# Let floor_i be an upper bound on the cosine of document i to any document that is not among its neighbours. For any
# levels u_i ≥ floor_i, every feasible S has
#
#     max_{j∈S} x_i·x_j ≤ u_i + Σ_{j∈S} (x_i·x_j − u_i)₊
#     f(S) ≤ rate·Σ u_i + max_s Σ_j s_j (gain_j + rate·Σ_i (x_i·x_j − u_i)₊)
#
# so the bound is valid although the graph is truncated (Cornuéjols, Fisher & Nemhauser 1977). It is minimised over the
# levels by subgradient steps (Polyak 1969).


def nearest(pool: Pool, count: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """The m = `count` nearest neighbours of every document, itself included, most similar first.

    (N, m) int64 row numbers; (N, m) float64 cosines; and (N,) float64, an upper bound on the cosine to any document
    outside the m. All pairs are compared: O(N²·d) time, memory of one tile.
    """
    total = len(pool)
    count = min(count, total)
    low, exact_already = total > BF16_FROM, total * total * pool.dimensions <= EXACT_PRODUCTS
    dtype = torch.float64 if exact_already else torch.bfloat16 if low else torch.float32
    wide = torch.float64 if exact_already else torch.float32
    every = torch.cat([rows.to(dtype) for _, rows in pool.blocks(dtype=wide)])
    error = BF16_ERROR if low else torch.finfo(dtype).eps * (pool.dimensions + 8)  # of a product of unit rows
    index = torch.empty(total, count, dtype=torch.int64)
    similarity = torch.empty(total, count, dtype=torch.float64)
    floor = torch.full((total,), -1.0, dtype=torch.float64)
    for start in range(0, total, NEAREST_TILE):
        part = slice(start, min(start + NEAREST_TILE, total))
        found = (every[part] @ every.T).topk(count, dim=1)
        if exact_already:
            exact = found.values
        else:
            rows = pool.rows(part, torch.float64)
            near = zip(rows, found.indices, strict=True)
            exact = torch.stack([pool.rows(index, torch.float64) @ row for row, index in near])
        if count < total:
            floor[part] = found.values[:, -1].double().cpu() + error
        order = exact.argsort(dim=1, descending=True, stable=True)
        index[part] = found.indices.gather(1, order).cpu()
        similarity[part] = exact.gather(1, order).cpu()
    return index, similarity, floor


class GraphCoverage:
    """The neighbour graph as edges (document, candidate), also indexed by candidate. Of what `nearest` returns."""

    def __init__(self, index: torch.Tensor, similarity: torch.Tensor, floor: torch.Tensor) -> None:
        count, width = index.shape
        self.count, self.near, self.cosines = count, index, similarity.double()  # (N, m) as `nearest` has them
        self.point = torch.arange(count).repeat_interleave(width)  # (E,) the document covered
        self.candidate = index.reshape(-1)  # (E,) the candidate that covers it
        self.similarity = self.cosines.reshape(-1)
        self.floor = floor.double()
        order = torch.argsort(self.candidate, stable=True)
        self.by_candidate = self.point[order].numpy(), self.similarity[order].numpy()
        self.starts = np.concatenate([[0], np.bincount(self.candidate.numpy(), minlength=count).cumsum()])

    def excess(self, level: torch.Tensor) -> torch.Tensor:
        """Σ_i (x_i·x_j − level_i)₊ of every candidate j: (N,)."""
        over = (self.similarity - level[self.point]).clamp_(min=0)
        return torch.zeros(self.count, dtype=torch.float64).index_add_(0, self.candidate, over)

    def greedy(self, gain: np.ndarray, rate: float, limits: Limits) -> np.ndarray:
        """(N,) row numbers in the order lazy greedy takes them until the budget is spent, then the rest by gain.

        gain: (N,) per unit of the budget. A document with no selected neighbour counts as covered at its floor.
        """
        weights, (points, similarities) = limits.weights, self.by_candidate
        best = self.floor.numpy().copy()

        def marginal_value(row: int) -> float:
            part = slice(self.starts[row], self.starts[row + 1])
            over = similarities[part] - best[points[part]]
            return gain[row] + rate * float(over[over > 0].sum()) / weights[row]

        start = gain + rate * self.excess(torch.from_numpy(best)).numpy() / weights
        heap = [(-value, row) for row, value in enumerate(start.tolist())]
        heapq.heapify(heap)
        taken: list[int] = []
        spent = 0.0
        left_of = limits.high.copy()
        while heap and spent < limits.size - 1e-9:
            stale, row = heapq.heappop(heap)
            if spent + weights[row] > limits.size + 1e-9:
                continue
            takes = [(kind.codes[row], kind.coefficients[row]) for kind in limits.kinds]
            if any(left_of[code] + 1e-9 < coefficient for code, coefficient in takes):
                continue
            fresh = marginal_value(row)
            if heap and -fresh > heap[0][0] and fresh < -stale:
                heapq.heappush(heap, (-fresh, row))
                continue
            taken.append(row)
            spent += weights[row]
            for code, coefficient in takes:
                left_of[code] -= coefficient
            part = slice(self.starts[row], self.starts[row + 1])
            np.maximum.at(best, points[part], similarities[part])
        rest = np.ones(self.count, dtype=bool)
        rest[taken] = False
        left = np.flatnonzero(rest)
        after = gain[left] + rate * self.excess(torch.from_numpy(best)).numpy()[left] / weights[left]
        return np.concatenate([np.array(taken, dtype=np.int64), left[np.argsort(-after, kind="stable")]])

    def covered(self, selected: torch.Tensor) -> torch.Tensor:
        """(N,) cosine to the nearest selected neighbour, the floor where none is selected."""
        values = torch.where(selected[self.candidate], self.similarity, -torch.inf)
        best = torch.full((self.count,), -torch.inf, dtype=torch.float64)
        best.scatter_reduce_(0, self.point, values, "amax")
        return torch.maximum(best, self.floor)

    def value(self, selected: torch.Tensor, gain: torch.Tensor, rate: float) -> float:
        """f of a mask on the graph, with uncovered documents at their floor. gain: (N,) per document."""
        return float(gain[selected].sum()) + rate * float(self.covered(selected).sum())

    def improve(self, selected: torch.Tensor, gain: torch.Tensor, rate: float) -> torch.Tensor:
        """Swaps selected for unselected documents while that raises f, many at once (FastPAM; Schubert 2019).

        selected: (N,) bool; gain: (N,) per document. Returns a mask (N,) whose f on the graph is no less.
        """
        reached, batch, pairs = self.value(selected, gain, rate), int(selected.sum()), self._swaps(selected, gain, rate)
        for _ in range(GRAPH_SWAPS):
            out, into = pairs[0][:batch], pairs[1][:batch]
            if not len(out):
                break
            other = selected.clone()
            other[out], other[into] = False, True
            value = self.value(other, gain, rate)
            if value > reached + 1e-12 * abs(reached):
                gained, selected, reached = value - reached, other, value
                if gained <= SWAP_GAIN * abs(reached):
                    break
                pairs = self._swaps(other, gain, rate)
            elif min(batch, len(out)) == 1:
                break
            else:
                batch = min(batch, len(out)) // 4 or 1
        return selected

    def _swaps(self, selected: torch.Tensor, gain: torch.Tensor, rate: float) -> tuple[torch.Tensor, torch.Tensor]:
        """(out, into) row numbers: swaps that each raise f, the best first, with no document in two of them."""
        chosen = selected[self.near]
        rank = chosen.cumsum(dim=1)
        first, second = ((rank == place) & chosen for place in (1, 2))

        def picked(where: torch.Tensor) -> torch.Tensor:
            return torch.maximum(torch.where(where, self.cosines, -torch.inf).amax(dim=1), self.floor)

        best, next_best = picked(first), picked(second)
        where = first.int().argmax(dim=1)[:, None]
        owner = self.near.gather(1, where)[:, 0]
        owner = torch.where(first.any(dim=1), owner, -1)
        loss = gain.clone()
        loss.index_add_(0, owner.clamp(min=0), rate * torch.where(owner >= 0, best - next_best, 0.0))
        add = gain + rate * self.excess(best)
        # the part of the loss that a candidate makes good, by covering documents that the leaving one covered
        near = (owner[self.point] >= 0) & ~selected[self.candidate] & (self.similarity > next_best[self.point])
        point, candidate = self.point[near], self.candidate[near]
        saved = (self.similarity[near] - next_best[point]) - (self.similarity[near] - best[point]).clamp(min=0)
        keys, place = torch.unique(owner[point] * self.count + candidate, return_inverse=True)
        total = torch.zeros(len(keys), dtype=torch.float64).index_add_(0, place, rate * saved)
        out, into = keys // self.count, keys % self.count
        gains = total + add[into] - loss[out]
        leaving = torch.where(selected, loss, torch.inf).sort(stable=True)
        coming = torch.where(selected, -torch.inf, add).sort(descending=True, stable=True)
        count = min(int(selected.sum()), int((~selected).sum()))
        out, into = torch.cat([out, leaving.indices[:count]]), torch.cat([into, coming.indices[:count]])
        gains = torch.cat([gains, coming.values[:count] - leaving.values[:count]])
        keep = torch.nonzero(gains > 0)[:, 0]
        keep = keep[gains[keep].argsort(descending=True, stable=True)]
        taken: set[int] = set()
        rows: list[int] = []
        for row, a, b in zip(keep.tolist(), out[keep].tolist(), into[keep].tolist(), strict=True):
            if a not in taken and b not in taken:
                taken.update((a, b))
                rows.append(row)
        return out[rows], into[rows]

    def bound(
        self, gain: torch.Tensor, rate: float, feasible: Feasible, target: float, start: torch.Tensor
    ) -> tuple[float, torch.Tensor, torch.Tensor]:
        """The least bound found, the running mean (N,) of the last responses, and the prices (N,) at the best levels.

        gain: (N,) per unit of budget; target: a value that some selection reaches; start: (N,) levels. Takes Polyak's
        steps along a running mean of the subgradients; when they stop helping, halves them and restarts from the best
        levels.
        """
        weights = feasible.weights
        level = best = torch.maximum(start, self.floor)
        least, eager, since = float("inf"), 1.0, 0
        direction, mean = torch.zeros(self.count, dtype=torch.float64), torch.zeros(self.count, dtype=torch.float64)
        for _ in range(BOUND_STEPS):
            response, most = feasible.respond(gain + rate * self.excess(level) / weights)
            value = rate * float(level.sum()) + most
            since = 0 if value < least - 1e-6 * abs(least) else since + 1
            if value < least:
                least, best = value, level
            if since >= PATIENCE:
                eager, since, level = eager / 2, 0, best
                direction = torch.zeros_like(direction)
                continue
            mean += (response - mean) / 20  # exponential mean over about the last twenty
            held = torch.zeros(self.count, dtype=torch.float64)
            held.index_add_(0, self.point, response[self.candidate] * (self.similarity > level[self.point]))
            direction = MOMENTUM * direction + (1 - MOMENTUM) * (1 - held)
            toward = torch.where((level <= self.floor) & (direction > 0), 0.0, direction)
            length = rate * float(toward.square().sum())
            if not length or eager < 1e-3 or value - target <= 1e-6 * abs(target):
                break
            level = torch.maximum(level - eager * (value - target) / length * toward, self.floor)
        return least, mean, gain + rate * self.excess(best) / weights
