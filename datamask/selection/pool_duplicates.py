"""Near-duplicates left out of one pool in memory, before any solver (`datamask.filter` reads the texts)."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch

from datamask.devices import pick_device
from datamask.selection.near_duplicates import keep_first, nearest_centroids, spherical_kmeans
from datamask.selection.problem.pool import Pool

CLUSTER_DOCUMENTS = 8192  # on average: up to so many, all pairs are compared
SAMPLE = 256  # documents a cluster that the centroids are fitted on
PROBES = 2  # clusters a document is looked for in


def repeats_in(features: Any, quality: np.ndarray, epsilon: float, seed: int, device: str = "cpu") -> np.ndarray:
    """(N,) bool: documents whose cosine to a better one that stays exceeds 1 − ε. features: (N, d); quality: (N,).

    The better one has the greater quality; ties, the lower row number.

    :raises InputError: a row is not finite or all zero, or the shapes do not fit.
    """
    pool = Pool(features, quality, device=pick_device(device))
    best_first = torch.from_numpy(np.argsort(-quality, kind="stable"))
    clusters = -(-len(pool) // CLUSTER_DOCUMENTS)
    gone = torch.zeros(len(pool), dtype=torch.bool)
    if clusters == 1:
        members = torch.zeros(len(pool), 1, dtype=torch.int64)
    else:
        generator = torch.Generator().manual_seed(seed)
        sample = torch.randperm(len(pool), generator=generator)[: SAMPLE * clusters].sort().values
        centroids = spherical_kmeans(pool.rows(sample), clusters, generator)
        members = torch.cat([nearest_centroids(rows, centroids, PROBES).cpu() for _, rows in pool.blocks()])
    for cluster in range(clusters):
        mine = best_first[(members[best_first] == cluster).any(1)]
        if len(mine):
            found = keep_first(pool.rows(mine), 1 - epsilon, ~gone[mine])
            gone[mine[found.leader >= 0]] = True
    return gone.numpy()
