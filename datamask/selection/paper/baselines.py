"""What the relaxation is compared with: top-quality, random, direct (the scores summed), greedy, SemDeDup."""

from __future__ import annotations

from typing import ClassVar

import numpy as np
import torch

from datamask.selection.cover.greedy_search import grow_greedily
from datamask.selection.metrics.base import Metric, RelaxedMetric
from datamask.selection.metrics.coverage import Coverage, SummedCoverage
from datamask.selection.metrics.moments import DiSF, Pairwise
from datamask.selection.paper.facility import FacilityLocation
from datamask.selection.problem.feasible import fill_in_order
from datamask.selection.problem.pool import cluster_pool, max_earlier_similarity
from datamask.selection.problem.problem import Draft, Problem
from datamask.selection.solvers import Report, Solver
from datamask.selection.solvers.relaxation import rank_incrementally

CLUSTER_DOCUMENTS = 1000  # mean documents of a SemDeDup cluster at most (the paper's 50,000 of 440 M hold 8,800)
TRIALS = 64  # random selections by which `direct` scores documents of a metric without a gradient


class Baseline(Solver):
    """Takes documents in the order of a score, and so holds every limit that can be filled in order."""

    holds: ClassVar = frozenset({"documents", "tokens", "quotas", "length"})


class TopQuality(Baseline):
    """The best quality first, as a quality threshold does (FineWeb-Edu, Ultra-FineWeb, FineWeb-DCLM)."""

    def solve(self, problem: Problem, progress: Report) -> Draft:
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
        objective = problem.objective
        score = objective.linear / problem.size
        share = torch.full((len(problem),), problem.size / float(problem.weights.sum()), dtype=torch.float64)
        for term in objective.diversity:
            metric = term.metric
            assert metric is not None
            if isinstance(metric, RelaxedMetric):
                score = score + term.scale * metric.relaxed(share)[1].cpu() / problem.weights.cpu()
            else:
                score = score + term.scale * _trial_scores(problem, metric)
        return _take(problem, score, price=score * problem.weights.cpu())


class SemDeDup(Solver):
    """The documents least similar to an earlier one of their cluster (arXiv 2303.09540); no quality, no metric.

    Within a cluster of spherical k-means, documents are sorted by distance to the centroid, farthest first (the
    published code's default, `which_to_keep: hard`), and M is each one's greatest cosine with an earlier one. The paper
    drops M > 1 − ε and tunes ε until the wanted share is left; that is the same as keeping the k documents of least M.
    Near-duplicates before another solver: `datamask.selection.problem.pool.repeats_kept`.
    """

    holds: ClassVar = frozenset({"documents"})

    def solve(self, problem: Problem, progress: Report) -> Draft:
        """Clusters the pool and keeps the k documents with the least cosine to an earlier one of their cluster."""
        pool, count, k = problem.pool, len(problem), int(problem.size)
        clusters = -(-count // CLUSTER_DOCUMENTS)
        centroids, nearest = cluster_pool(pool, clusters, 1, problem.settings.seed)
        likeness = torch.zeros(count)
        for cluster in range(clusters):
            members = (nearest[:, 0] == cluster).nonzero()[:, 0]
            if not len(members):
                continue
            rows = pool.rows(members)
            order = (rows @ centroids[cluster]).argsort(stable=True)  # farthest first
            likeness[members[order].cpu()] = max_earlier_similarity(rows[order])
            progress({"step": cluster + 1})
        selected = torch.zeros(count, dtype=torch.bool)
        selected[likeness.argsort(stable=True)[:k]] = True
        return Draft(selected, selected.float())


class Greedy(Solver):
    """The document of greatest marginal gain, k times.

    - pairwise and DiSF: each pick is a rank-one update of all documents' gains, O(k·N·d) in all. The objective is that
      of the set so far (its own size under the means), as DiSF's greedy has it (arXiv 2505.00422).
    - coverage: lazy, by exact gains at the mixture so far (cynical selection, Axelrod, arXiv 1709.02279).
    - facility location: lazy (Minoux 1978), on the graph of neighbours.
    """

    holds: ClassVar = frozenset({"documents"})
    requires: ClassVar = ("incremental",)  # the way in which the metric's gains are updated from one pick to the next
    agree_in: ClassVar = "incremental"

    def solve(self, problem: Problem, progress: Report) -> Draft:
        """The first k documents of a greedy ranking, by the metrics' incremental form."""
        terms = [term for term in problem.objective.diversity if term.scale]
        k, linear = int(problem.size), (problem.objective.linear / problem.size).numpy()
        if all(isinstance(term.metric, Pairwise | DiSF) for term in terms):
            ranking = rank_incrementally(problem, terms, k, progress)
        elif isinstance(terms[0].metric, FacilityLocation):
            rate = terms[0].scale / len(problem)
            ranking = torch.from_numpy(terms[0].metric.graph.greedy(linear, rate, problem.limits)[:k])
        else:
            covers = [term.metric for term in terms if isinstance(term.metric, Coverage)]
            joint = SummedCoverage.of(covers, [term.scale for term in terms])
            ranking = torch.from_numpy(grow_greedily(joint, linear, problem.limits)[:k])
        selected = torch.zeros(len(problem), dtype=torch.bool)
        selected[ranking.cpu()] = True
        return Draft(selected, selected.float())


def _trial_scores(problem: Problem, metric: Metric) -> torch.Tensor:
    """(N,) gains of a metric that offers only values: the mean over random selections with a document less the mean
    without it."""
    generator = problem.generator(stream=3)
    masks = torch.from_numpy(
        np.stack([fill_in_order(problem.limits, generator.permutation(len(problem))) for _ in range(TRIALS)])
    )
    values = metric.value(masks.to(problem.pool.device)).cpu()
    inside = masks.double()
    count = inside.sum(dim=0)
    mean_in = (values @ inside) / count.clamp(min=1)
    mean_out = (values @ (1 - inside)) / (TRIALS - count).clamp(min=1)
    return torch.where((count > 0) & (count < TRIALS), mean_in - mean_out, torch.zeros(())) / problem.size


def _take(problem: Problem, score: torch.Tensor, price: torch.Tensor | None = None) -> Draft:
    selected = torch.from_numpy(fill_in_order(problem.limits, np.argsort(-score.numpy(), kind="stable")))
    return Draft(selected, selected.float(), price)
