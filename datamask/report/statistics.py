"""The report's statistics: small pure functions over features, scores, lengths and groups.

vendi_score(features)                 # effective number of directions in (n, d) unit-norm features
nearest_similarity(features, rows)    # each row's greatest cosine to another row
effective_number(counts)              # exp of the entropy of a group's shares
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.floating]
Integers = npt.NDArray[np.integer]

NEAR_DUPLICATE = 0.95  # cosine above which two documents count as near-duplicates: SemDeDup's ε = 0.05
_CHUNK = 256  # rows of a similarity block


# ---------------------------------------------------------------- diversity


def spectrum(features: npt.NDArray[np.generic]) -> Floats:
    """Eigenvalues of the similarity matrix X Xᵀ / n, largest first, by way of the d×d matrix Xᵀ X / n.

    :param features: (n, d), any float type; for unit-norm rows the eigenvalues sum to 1.
    :returns: (d,) float64, never negative; those beyond n are zero.
    """
    gram = np.zeros((features.shape[1], features.shape[1]))
    for start in range(0, len(features), 8192):
        block = features[start : start + 8192].astype(np.float32)
        gram += block.T @ block
    values = np.linalg.eigvalsh(gram / max(len(features), 1))[::-1]
    return np.clip(values, 0, None)


def effective_number(counts: npt.ArrayLike) -> float:
    """exp of the entropy of the shares (Hill number of order 1): n equal groups give n; no group gives 0."""
    weights = np.asarray(counts, dtype=np.float64)
    if not weights.any():
        return 0.0
    shares = weights[weights > 0] / weights.sum()
    return float(np.exp(-(shares * np.log(shares)).sum()))


def vendi_score(features: npt.NDArray[np.generic]) -> float:
    """Vendi score (Friedman & Dieng 2023, arXiv 2210.02410) with the cosine kernel: exp of the spectrum's entropy.

    From 1 (all documents point one way) to min(n, d). The effective rank of the features.
    """
    return effective_number(spectrum(features))


def nearest_similarity(features: npt.NDArray[np.generic], rows: Integers | None = None) -> Floats:
    """Greatest cosine of each document to another document of the same set.

    :param features: (n, d) unit-norm.
    :param rows: the documents asked about; all by default.
    :returns: (len(rows),) float32; -1 where there is no other document.
    """
    rows = np.arange(len(features)) if rows is None else np.asarray(rows)
    best = np.full(len(rows), -1.0, dtype=np.float32)
    if len(features) < 2:
        return best
    queries = features[rows].astype(np.float32)
    for start in range(0, len(features), 16_384):  # the set in blocks, so that it may stay float16
        block = features[start : start + 16_384].astype(np.float32)
        for first in range(0, len(rows), _CHUNK):
            similarity = queries[first : first + _CHUNK] @ block.T
            own = rows[first : first + _CHUNK] - start
            inside = np.flatnonzero((own >= 0) & (own < len(block)))
            similarity[inside, own[inside]] = -1.0
            np.maximum(best[first : first + _CHUNK], similarity.max(axis=1), out=best[first : first + _CHUNK])
    return best


def near_duplicate_share(nearest: npt.ArrayLike) -> float:
    """Share of documents whose nearest neighbour (`nearest_similarity`) has a cosine above NEAR_DUPLICATE."""
    values = np.asarray(nearest)
    return float((values > NEAR_DUPLICATE).mean()) if values.size else 0.0


def mean_pairwise_cosine(features: npt.NDArray[np.generic]) -> float:
    """Mean cosine over all ordered pairs, a document with itself included: ‖mean of x‖²."""
    return float(np.square(features.mean(axis=0, dtype=np.float64)).sum()) if len(features) else 0.0


# ---------------------------------------------------------------- quality, length, groups


def length_ratio(selected_tokens: npt.ArrayLike, pool_tokens: npt.ArrayLike) -> float:
    """Mean tokens of the selection over the pool's mean (the DATAMASK paper: FineWeb-Edu 1.47); nan if empty."""
    selected, pool = np.asarray(selected_tokens, dtype=np.float64), np.asarray(pool_tokens, dtype=np.float64)
    if not selected.size or not pool.size or pool.mean() == 0:
        return float("nan")
    return float(selected.mean() / pool.mean())


def rank_correlation(first: npt.ArrayLike, second: npt.ArrayLike) -> float:
    """Spearman's ρ over the pairs where both are finite; nan where one of them is constant or there are under 3."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    both = np.isfinite(a) & np.isfinite(b)
    a, b = a[both], b[both]
    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return float("nan")
    return float(np.corrcoef(_ranks(a), _ranks(b))[1, 0])


def _ranks(values: Floats) -> Floats:
    """The place of each value among all, ascending from 1; equal ones share the mean of theirs."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    return (np.cumsum(counts) - (counts - 1) / 2)[place]


def variance_explained(values: npt.ArrayLike, groups: Iterable[object]) -> float:
    """η², the share of a score's variance that lies between groups: 1 if the group decides it, 0 if it says nothing.

    nan where the score is constant.
    """
    scores = np.asarray(values, dtype=np.float64)
    codes = np.unique([str(group) for group in groups], return_inverse=True)[1]
    kept = np.isfinite(scores)
    scores, codes = scores[kept], codes[kept]
    if len(scores) < 2 or np.ptp(scores) == 0:
        return float("nan")
    counts = np.bincount(codes)
    means = np.bincount(codes, weights=scores) / np.maximum(counts, 1)
    return float((counts * np.square(means - scores.mean())).sum() / np.square(scores - scores.mean()).sum())


def percentile_of(value: float, sorted_values: Floats) -> float:
    """Percent of `sorted_values` below `value`, ties counted half: 50 is the median."""
    if not len(sorted_values):
        return float("nan")
    low, high = np.searchsorted(sorted_values, value, "left"), np.searchsorted(sorted_values, value, "right")
    return float(100 * (low + high) / (2 * len(sorted_values)))


def wilson(count: npt.ArrayLike, of: npt.ArrayLike) -> tuple[Floats, Floats]:
    """The ends of the 95 % interval of a share (Wilson, J. Am. Stat. Assoc. 22, 1927): 0 and 1 where `of` is 0.

    Unlike count/of ± an error, it is right for few documents and for shares near 0 and 1.
    """
    z = 1.96  # of 95 %
    k, n = np.asarray(count, dtype=np.float64), np.asarray(of, dtype=np.float64)
    there = np.maximum(n, 1)
    middle = (k + z * z / 2) / (there + z * z)
    half = z / (there + z * z) * np.sqrt(np.clip(k * (there - k) / there, 0, None) + z * z / 4)
    none = n <= 0
    return np.where(none, 0.0, np.clip(middle - half, 0, 1)), np.where(none, 1.0, np.clip(middle + half, 0, 1))


def coverage(selected: Iterable[object], pool: Iterable[object]) -> float:
    """Share of the pool's distinct values that occur in the selection; nan where the pool has none."""
    there = set(pool) - {None}
    return len(there & set(selected)) / len(there) if there else float("nan")
