"""Products of matrices on several cores: each block of the result is computed by one thread, so that the bytes do not
depend on how many threads there are (BLAS itself adds up in an order that does)."""

from __future__ import annotations

import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import numpy as np
import scipy.sparse

BLOCKS = 8  # of a result; the bytes depend on it


def _each(work: Callable[[int, int], None], size: int) -> None:
    """`work(first, last)` of BLOCKS ranges of `size`, on as many threads as this process may use cores."""
    ends = np.linspace(0, size, BLOCKS + 1).astype(int).tolist()
    ranges = [(first, last) for first, last in pairwise(ends) if first < last]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with ThreadPoolExecutor(min(cores, BLOCKS), thread_name_prefix="block") as pool:
        for done in [pool.submit(work, *block) for block in ranges]:
            done.result()


def product(left: np.ndarray | scipy.sparse.csr_array, right: np.ndarray) -> np.ndarray:
    """float32 or float64 [rows, columns]: left @ right, by blocks of rows."""
    result = np.empty((left.shape[0], right.shape[1]), np.result_type(left.dtype, right.dtype))

    def work(first: int, last: int) -> None:
        result[first:last] = left[first:last] @ right

    _each(work, len(result))
    return result


def gram(columns: np.ndarray) -> np.ndarray:
    """float64 [k, k]: columnsᵀ @ columns, by blocks of its rows."""
    exact = columns.astype(np.float64)
    result = np.empty((exact.shape[1], exact.shape[1]))

    def work(first: int, last: int) -> None:
        result[first:last] = exact[:, first:last].T @ exact

    _each(work, len(result))
    return result
