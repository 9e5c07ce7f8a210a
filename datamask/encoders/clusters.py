"""Clusters of vectors by cosine: spherical k-means.

centroids = spherical_kmeans(sample, clusters=50, generator=generator)
nearest = nearest_centroids(rows, centroids, probes=2)
"""

from __future__ import annotations

import torch
from torch import Tensor

SAMPLE = 256  # documents for each cluster on which the centroids are fitted
BLOCK_ROWS = 2048  # rows compared with the centroids at a time


def spherical_kmeans(sample: Tensor, clusters: int, generator: torch.Generator, iterations: int = 20) -> Tensor:
    """Unit centroids (clusters, d) of unit rows (n, d), n ≥ clusters; the same generator gives the same centroids.

    A cluster that empties is put on the row farthest from its own centroid.
    """
    start = torch.randperm(len(sample), generator=generator)[:clusters]
    centroids = sample[start.to(sample.device)].clone()
    for _ in range(iterations):
        similarity, nearest = _nearest(sample, centroids)
        sums = torch.zeros_like(centroids).index_add_(0, nearest, sample)
        empty = torch.bincount(nearest, minlength=clusters) == 0
        if empty.any():
            sums[empty] = sample[similarity.argsort(stable=True)[: int(empty.sum())]]
        moved = torch.nn.functional.normalize(sums, dim=1)
        if torch.equal(moved, centroids):
            break
        centroids = moved
    return centroids


def _nearest(rows: Tensor, centroids: Tensor) -> tuple[Tensor, Tensor]:
    """The greatest cosine of each row with a centroid, and its number; a block of rows × centroids at a time."""
    parts = [(block @ centroids.T).max(dim=1) for block in rows.split(BLOCK_ROWS)]
    return torch.cat([part.values for part in parts]), torch.cat([part.indices for part in parts])


def nearest_centroids(rows: Tensor, centroids: Tensor, probes: int) -> Tensor:
    """(n, probes) numbers of the centroids nearest to unit rows (n, d), nearest first."""
    parts = [(block @ centroids.T).topk(probes, dim=1).indices for block in rows.split(BLOCK_ROWS)]
    return torch.cat(parts)
