"""Products of matrices on several cores: each block of the result is computed by one thread, so that the bytes do not
depend on how many threads there are (BLAS itself adds up in an order that does)."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from datamask.compiling import on_cores


def product(left: np.ndarray | scipy.sparse.csr_array, right: np.ndarray) -> np.ndarray:
    """float32 or float64 [rows, columns]: left @ right, by blocks of rows."""
    result = np.empty((left.shape[0], right.shape[1]), np.result_type(left.dtype, right.dtype))

    def work(first: int, last: int) -> None:
        result[first:last] = left[first:last] @ right

    on_cores(work, len(result))
    return result


def gram(columns: np.ndarray) -> np.ndarray:
    """float64 [k, k]: columnsᵀ @ columns, by blocks of its rows."""
    exact = columns.astype(np.float64)
    result = np.empty((exact.shape[1], exact.shape[1]))

    def work(first: int, last: int) -> None:
        result[first:last] = exact[:, first:last].T @ exact

    on_cores(work, len(result))
    return result
