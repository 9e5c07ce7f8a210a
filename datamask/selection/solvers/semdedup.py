"""SemDeDup as a selection (arXiv 2303.09540): keeps the documents least similar to an earlier one of their cluster.

Within a cluster of spherical k-means, documents are sorted by distance to the centroid, farthest first (the published
code's default, `which_to_keep: hard`), and M is each one's greatest cosine with an earlier one. The paper drops
M > 1 − ε and tunes ε until the wanted share is left; that is the same as keeping the k documents of least M.
Quality plays no part. Near-duplicates before another solver: `datamask.selection.near_duplicates.keep_first`.
"""

from __future__ import annotations

from typing import ClassVar

import torch

from datamask.selection.near_duplicates import fit_centroids, max_earlier_similarity, nearest_centroids
from datamask.selection.problem.problem import Problem
from datamask.selection.result import Draft
from datamask.selection.solvers import Report, Solver

CLUSTER_DOCUMENTS = 1000  # mean documents of a cluster at most (the paper's 50,000 clusters of 440 M hold 8,800)


class SemDeDup(Solver):
    """The least redundant documents of each cluster; uses neither quality nor metric."""

    holds: ClassVar = frozenset({"documents"})

    def solve(self, problem: Problem, progress: Report) -> Draft:
        """Clusters the pool and keeps the k documents with the least cosine to an earlier one of their cluster."""
        pool, count, k = problem.pool, len(problem), int(problem.size)
        generator = torch.Generator().manual_seed(problem.settings.seed)
        clusters = -(-count // CLUSTER_DOCUMENTS)
        centroids = fit_centroids(pool, clusters, generator)
        nearest = torch.cat([nearest_centroids(rows, centroids, 1)[:, 0] for _, rows in pool.blocks()])
        likeness = torch.zeros(count)
        for cluster in range(clusters):
            members = (nearest == cluster).nonzero()[:, 0]
            if not len(members):
                continue
            rows = pool.rows(members)
            order = (rows @ centroids[cluster]).argsort(stable=True)  # farthest first
            likeness[members[order].cpu()] = max_earlier_similarity(rows[order])
            progress({"step": cluster + 1})
        selected = torch.zeros(count, dtype=torch.bool)
        selected[likeness.argsort(stable=True)[:k]] = True
        return Draft(selected, selected.float())
