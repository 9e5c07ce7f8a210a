"""Products of matrices on several cores: each block of the result is computed by one thread, so that the bytes do not
depend on how many threads there are (BLAS itself adds up in an order that does)."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from datamask.compiling import on_cores
from datamask.encoders.sparse_loops import rows_times

TILE = 64  # columns: BLAS adds up what is left of a tile at a matrix's edge in another order


def product(left: np.ndarray | scipy.sparse.csr_array, right: np.ndarray) -> np.ndarray:
    """float32 or float64 [rows, columns]: left @ right, by blocks of rows."""
    result = np.empty((left.shape[0], right.shape[1]), np.result_type(left.dtype, right.dtype))

    def work(first: int, last: int) -> None:
        if isinstance(left, scipy.sparse.csr_array):
            rows_times(left.indptr, left.indices, left.data, right, first, result[first:last])
        else:
            result[first:last] = left[first:last] @ right

    on_cores(work, len(result))
    return result


def gram_matrix(columns: np.ndarray) -> np.ndarray:
    """float64 [k, k]: columnsᵀ @ columns, by blocks of its rows, each as far as the diagonal: the rest is the same."""
    exact = columns.astype(np.float64)
    result = np.empty((exact.shape[1], exact.shape[1]))

    def work(first: int, last: int) -> None:
        until = min(-(-last // TILE) * TILE, len(result))
        result[first:last, :until] = exact[:, first:last].T @ exact[:, :until]

    on_cores(work, len(result))
    above = np.triu_indices(len(result), 1)
    result[above] = result.T[above]
    return result
