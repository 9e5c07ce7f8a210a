"""A saturating cover by lazy greedy search: each bucket of words is worth half as much at every hit."""

from __future__ import annotations

import heapq
from typing import Any

import numpy as np


def saturating_cover(counts: Any, tokens: Any, allowed: Any, budget: float) -> Any:
    """(N,) bool: the documents that gain most a token, one after the other, within the budget of tokens.

    A document's gain is Σ 2^−hits over its distinct buckets. It only falls while others are chosen, so that a gain
    computed earlier is a bound, and a document whose fresh gain still leads is the best (Minoux 1978).
    """
    start, buckets = counts.indptr, counts.indices
    worth = np.ones(counts.shape[1])
    mask = np.zeros(counts.shape[0], dtype=bool)
    heap = [(-(start[row + 1] - start[row]) / tokens[row], row) for row in np.flatnonzero(allowed).tolist()]
    heapq.heapify(heap)
    while heap:
        _, row = heapq.heappop(heap)
        if tokens[row] > budget:
            continue
        own = buckets[start[row] : start[row + 1]]
        gain = worth[own].sum() / tokens[row]
        if heap and gain < -heap[0][0]:
            heapq.heappush(heap, (-gain, row))
            continue
        mask[row] = True
        budget -= tokens[row]
        worth[own] *= 0.5
    return mask
