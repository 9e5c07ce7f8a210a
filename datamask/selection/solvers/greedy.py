"""Greedy: takes the document of greatest marginal gain, k times.

- pairwise and DiSF: incremental, each pick a rank-one update of all documents' gains, O(k·N·d) in all. The objective is
  that of the set so far (its own size under the means), as DiSF's greedy has it (arXiv 2505.00422).
- coverage: lazy, by exact gains at the mixture so far (cynical selection, Axelrod, arXiv 1709.02279).
- facility location: lazy (`engine.lazy_greedy`); pools above `SHARD` documents go by GreeDi (Mirzasoleiman et al.,
  NeurIPS 2013): greedy on each of several random shards, then greedy among what the shards picked, and the best of
  that and of the shards' own picks.
"""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor

from datamask.selection.cover.curves import SummedCoverage
from datamask.selection.cover.greedy_search import grow_greedily
from datamask.selection.engine.lazy_greedy import Columns, lazy_greedy
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.metrics.coverage import Coverage
from datamask.selection.metrics.disf import DiSF
from datamask.selection.metrics.facility import FacilityLocation
from datamask.selection.metrics.pairwise import Pairwise
from datamask.selection.problem.objective import Term
from datamask.selection.problem.problem import Problem
from datamask.selection.result import Draft
from datamask.selection.solvers import Report, Solver

SHARD = 20_000  # documents of a GreeDi shard: their similarities are 1.6 GB
RECORDS = 20


class Greedy(Solver):
    """The document of greatest marginal gain, k times."""

    holds: ClassVar = frozenset({"documents"})
    requires: ClassVar = ("incremental",)  # the way in which the metric's gains are updated from one pick to the next
    agree_in: ClassVar = "incremental"

    def solve(self, problem: Problem, progress: Report) -> Draft:
        """The first k documents of a greedy ranking, by the metrics' incremental form."""
        terms = [term for term in problem.objective.diversity if term.scale]
        k = int(problem.size)
        if all(isinstance(term.metric, Pairwise | DiSF) for term in terms):
            ranking = rank_incrementally(problem, terms, k, progress)
        elif isinstance(terms[0].metric, FacilityLocation):
            ranking = rank_by_shards(problem, terms[0], k, _shards(problem))
        else:
            covers = [term.metric for term in terms if isinstance(term.metric, Coverage)]
            joint = SummedCoverage.of(covers, [term.scale for term in terms])
            ranking = torch.from_numpy(grow_greedily(joint, (problem.objective.linear / k).numpy(), problem.limits)[:k])
        selected = torch.zeros(len(problem), dtype=torch.bool)
        selected[ranking.cpu()] = True
        return Draft(selected, selected.float())


def rank_incrementally(problem: Problem, terms: list[Term], k: int, progress: Report) -> Tensor:
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


def rank_by_shards(problem: Problem, term: Term, k: int, shards: list[Tensor]) -> Tensor:
    """Row numbers, (k,), of facility location's greedy over these shards of row numbers; one shard: plain greedy."""
    quality = problem.objective.linear / problem.size

    def pick(candidates: Tensor, points: Tensor) -> tuple[Tensor, float]:
        count = min(k, len(candidates))
        found = lazy_greedy(
            _columns(problem, candidates, points),
            len(candidates),
            count,
            quality[candidates.cpu()],
            floor=-1.0,  # the least a cosine can be: the metric is then submodular from the empty set on
            scale=term.scale / len(points),
        )
        return candidates[found.ranking.to(candidates.device)], float(found.gains.sum())

    picks = [pick(shard, shard)[0] for shard in shards]
    if len(shards) == 1:
        return picks[0]
    everything = torch.arange(len(problem), device=problem.pool.device)
    joined = pick(torch.cat(picks).sort().values, everything)[0]
    full = [picked for picked in [joined, *picks] if len(picked) == k]
    masks = torch.zeros(len(full), len(problem), dtype=torch.bool, device=problem.pool.device)
    for mask, picked in zip(masks, full, strict=True):
        mask[picked] = True
    return full[int(problem.objective.values(masks).argmax())]


def _shards(problem: Problem) -> list[Tensor]:
    generator = torch.Generator().manual_seed(problem.settings.seed)
    mixed = torch.randperm(len(problem), generator=generator)
    count = -(-len(problem) // SHARD)
    return [part.sort().values.to(problem.pool.device) for part in torch.tensor_split(mixed, count)]


def _columns(problem: Problem, candidates: Tensor, points: Tensor) -> Columns:
    """The function that gives all points' cosines to some candidates; all cosines are computed once if they fit."""
    pool = problem.pool
    rows = pool.rows(points)
    if len(points) * len(candidates) <= SHARD**2:
        chosen = rows if candidates is points else pool.rows(candidates)
        whole = chosen @ rows.T  # a candidate a row: contiguous to read
        return lambda numbers: whole[numbers.to(whole.device)].T
    return lambda numbers: rows @ pool.rows(candidates[numbers.to(candidates.device)]).T
