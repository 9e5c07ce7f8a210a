"""Near-duplicates by cosine, as SemDeDup finds them (arXiv 2303.09540): within clusters of spherical k-means.

    repeats = repeats_kept(rows, threshold=0.95)      # rows: best first; (n,) bool

SemDeDup drops a document that resembles any earlier one of its cluster, even one that is dropped itself. So it removes
whole chains of similar documents. `repeats_kept` drops only what resembles a kept document. `max_earlier_similarity` is
SemDeDup's own statistic M. `find_repeats` takes near-duplicates out of a pool before a solver sees it.
"""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

from datamask.encoders.clusters import SAMPLE, nearest_centroids, spherical_kmeans
from datamask.selection.problem.pool import BLOCK_ROWS, Pool

CLUSTER_DOCUMENTS = 8192  # mean documents of a cluster; all pairs of a smaller pool are compared
PROBES = 2  # nearest clusters in which a document is compared
BF16_MARGIN = 0.01  # bfloat16 rounds each factor by at most 2⁻⁹: a product of unit rows is off by less than this


def cluster_pool(pool: Pool, clusters: int, probes: int, seed: int) -> tuple[Tensor, Tensor]:
    """Unit centroids (clusters, d), fitted on a random sample of the pool, and the numbers (N, probes) of those nearest
    to each document."""
    generator = torch.Generator().manual_seed(seed)
    sample = torch.randperm(len(pool), generator=generator)[: SAMPLE * clusters].sort().values
    centroids = spherical_kmeans(pool.rows(sample), clusters, generator)
    return centroids, torch.cat([nearest_centroids(rows, centroids, probes) for _, rows in pool.blocks()])


def max_earlier_similarity(rows: Tensor, block: int = BLOCK_ROWS) -> Tensor:
    """SemDeDup's M (n,): the greatest cosine of each row (n, d) with an earlier one; 0 for the first."""
    unit = torch.nn.functional.normalize(rows.float(), dim=1)
    found = torch.zeros(len(unit))
    for start in range(0, len(unit), block):
        part = unit[start : start + block]
        similarity = part @ unit[: start + len(part)].T
        found[start : start + len(part)] = similarity.tril(start - 1).amax(dim=1).cpu()  # with earlier ones alone
    return found


def repeats_kept(rows: Tensor, threshold: float, candidates: Tensor | None = None, block: int = BLOCK_ROWS) -> Tensor:
    """Goes through unit rows (n, d) in order and keeps each whose cosine to every kept one is at most `threshold`.

    Returns which are not kept (n,) bool. candidates (n,) bool: rows to look at; the others neither stay nor take one
    out. Products run in bfloat16 and every row that comes near the threshold is decided again in float32, so that the
    block size never matters.
    """
    count, device = len(rows), rows.device
    repeats = torch.zeros(count, dtype=torch.bool)
    alive = torch.arange(count) if candidates is None else candidates.nonzero().flatten()
    kept_rows = torch.empty(len(alive), rows.shape[1], dtype=torch.bfloat16, device=device)
    kept_numbers = torch.empty(len(alive), dtype=torch.int64)
    kept = 0
    for numbers in alive.split(block):
        part = torch.nn.functional.normalize(rows.index_select(0, numbers.to(device)).float(), dim=1)
        if kept:
            near = (part.bfloat16() @ kept_rows[:kept].T).amax(dim=1).cpu() > threshold - BF16_MARGIN
            for suspects in near.nonzero().flatten().split(256):
                best = _greatest(part[suspects.to(device)], rows, kept_numbers[:kept])
                repeats[numbers[suspects[best > threshold]]] = True
        free = (~repeats[numbers]).nonzero().flatten()
        new = part[free.to(device)]
        over = (new @ new.T).cpu().tril(-1) > threshold
        stays = torch.ones(len(free), dtype=torch.bool)
        for i in over.any(dim=1).nonzero().flatten().tolist():
            stays[i] = not bool((over[i] & stays).any())
        repeats[numbers[free[~stays]]] = True
        added = numbers[free[stays]]
        kept_rows[kept : kept + len(added)] = new[stays.to(device)].bfloat16()
        kept_numbers[kept : kept + len(added)] = added
        kept += len(added)
    return repeats


def _greatest(part: Tensor, rows: Tensor, numbers: Tensor) -> Tensor:
    """The greatest float32 cosine of each row of `part` with the rows of these numbers."""
    best = torch.full((len(part),), -2.0)
    for some in numbers.split(8 * BLOCK_ROWS):
        others = torch.nn.functional.normalize(rows.index_select(0, some.to(rows.device)).float(), dim=1)
        best = torch.maximum(best, (part @ others.T).amax(dim=1).cpu())
    return best


def find_repeats(pool: Pool, quality: np.ndarray, epsilon: float, seed: int) -> np.ndarray:
    """(N,) bool: documents whose cosine to a better one that stays exceeds 1 − ε. The better one has the greater
    quality (N,); ties, the lower row number."""
    best_first = torch.from_numpy(np.argsort(-quality, kind="stable"))
    clusters = -(-len(pool) // CLUSTER_DOCUMENTS)
    gone = torch.zeros(len(pool), dtype=torch.bool)
    if clusters == 1:
        members = torch.zeros(len(pool), 1, dtype=torch.int64)
    else:
        members = cluster_pool(pool, clusters, PROBES, seed)[1].cpu()
    for cluster in range(clusters):
        mine = best_first[(members[best_first] == cluster).any(1)]
        if len(mine):
            gone[mine[repeats_kept(pool.rows(mine), 1 - epsilon, ~gone[mine])]] = True
    return gone.numpy()
