"""A saturating cover by lazy greedy search: each bucket of words is worth half as much at every hit."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np


def saturating_cover(counts: Any, tokens: Any, allowed: Any, budget: float, bonus: Any = 0.0) -> Any:
    """(N,) bool: the documents that gain most a token, one after the other, within the budget of tokens.

    A document's gain is Σ 2^−hits over its distinct buckets, and its tokens' `bonus`. It only falls while others are
    chosen, so that a gain computed earlier is a bound, and a document whose fresh gain still leads is the best (Minoux
    1978).
    """
    start, buckets = counts.indptr, counts.indices
    worth = np.ones(counts.shape[1])
    mask = np.zeros(counts.shape[0], dtype=bool)
    extra = np.broadcast_to(bonus, mask.shape)
    heap = [
        (-(start[row + 1] - start[row]) / tokens[row] - extra[row], row) for row in np.flatnonzero(allowed).tolist()
    ]
    heapq.heapify(heap)
    while heap:
        _, row = heapq.heappop(heap)
        if tokens[row] > budget:
            continue
        own = buckets[start[row] : start[row + 1]]
        gain = worth[own].sum() / tokens[row] + extra[row]
        if heap and gain < -heap[0][0]:
            heapq.heappush(heap, (-gain, row))
            continue
        mask[row] = True
        budget -= tokens[row]
        worth[own] *= 0.5
    return mask


def covered(counts: Any, mask: Any) -> float:
    """Σ over buckets of 2 (1 − 2^−hits), what the gains of a choice add up to."""
    hits = np.bincount(counts[np.flatnonzero(mask)].indices, minlength=counts.shape[1])
    return float(2 * (1 - 0.5**hits).sum())
