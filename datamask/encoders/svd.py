"""A truncated SVD of a sparse matrix whose groups of rows have their means taken off, never written out."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from datamask.compiling import compiled, on_cores

OVERSAMPLES = 32
FEW = 2.0  # times the vectors looked for: up to so many rows their own products are the faster way, and exact
POWER_ITERATIONS = 1  # two are no better here (benchmarks/LOG.md)
NEGLIGIBLE = 1e-3  # of the largest singular value: float32 tells no direction below that
TILE = 64  # columns: BLAS adds up what is left of a tile at a matrix's edge in another order


class Centred:
    """rows − weight · mean of the group, for rows that carry a weight each.

    :param rows: float32 [rows, columns], each already times its weight
    :param groups: int64 [rows], from 0
    :param weights: float64 [rows]; rows of weight 0 are left as they are
    """

    def __init__(self, rows: scipy.sparse.csr_array, groups: np.ndarray, weights: np.ndarray) -> None:
        self.shape = rows.shape
        self._rows = rows
        self._columns = rows.T.tocsr()
        energy = np.maximum(np.sqrt(np.bincount(groups, weights**2)), 1e-30)
        self._exact_axes = scipy.sparse.csr_array((weights / energy[groups], groups, np.arange(len(groups) + 1)))
        self._axes = self._exact_axes.astype(np.float32)
        # orthonormal columns, one a group: a centred row is what is left of it beside them

    def times(self, right: np.ndarray) -> np.ndarray:
        """float32 [rows, k] of float32 [columns, k]."""
        return _beside(self._axes, product(self._rows, right))

    def transposed_times(self, right: np.ndarray) -> np.ndarray:
        """float32 [columns, k] of float32 [rows, k]."""
        return product(self._columns, _beside(self._axes, right))

    def row_products(self) -> np.ndarray:
        """float64 [rows, rows]: the matrix times its transpose."""
        rows = self._rows.shape[0]
        result = np.empty((rows, rows))

        def work(first: int, last: int) -> None:
            result[first:last] = (self._rows @ self._rows[first:last].toarray().T.astype(np.float64)).T

        on_cores(work, rows)
        beside = _beside(self._exact_axes, result)
        return _beside(self._exact_axes, beside.T)


def _beside(axes: scipy.sparse.csr_array, values: np.ndarray) -> np.ndarray:
    return values - axes @ (axes.T @ values)


def right_singular(matrix: Centred, rank: int, generator: np.random.Generator) -> np.ndarray:
    """float32 [columns, at most rank]: the right singular vectors, of the largest singular values first.

    Randomised subspace iteration (Halko, Martinsson & Tropp 2011), in sums of one fixed order if BLAS has one thread;
    exact where rows are few (FEW) or columns.
    """
    rows, columns = matrix.shape
    if rows <= FEW * (rank + OVERSAMPLES):  # by the products of rows with each other
        return matrix.transposed_times(_scaled(*np.linalg.eigh(matrix.row_products()), rank))
    width = min(rank + OVERSAMPLES, columns)
    range_ = orthonormal(matrix.times(generator.standard_normal((columns, width), dtype=np.float32)))
    for _ in range(POWER_ITERATIONS):
        range_ = orthonormal(matrix.times(matrix.transposed_times(range_)))
    inside = matrix.transposed_times(range_)
    values, vectors = np.linalg.eigh(gram_matrix(inside))
    return product(inside, _scaled(values, vectors, rank))


def _scaled(values: np.ndarray, vectors: np.ndarray, rank: int) -> np.ndarray:
    """float32 [rows, at most rank]: the eigenvectors of the largest eigenvalues, over their square roots."""
    order = np.argsort(-values, kind="stable")[:rank]
    order = order[values[order] > max(NEGLIGIBLE**2 * values.max(initial=0), 1e-12)]
    return (vectors[:, order] / np.sqrt(values[order])).astype(np.float32)


def orthonormal(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the columns' span, by their Gram matrix, twice, which is faster than QR and as exact."""
    for _ in range(2):
        values, vectors = np.linalg.eigh(gram_matrix(columns))
        kept = values > max(1e-10 * values.max(initial=0), 1e-12)
        columns = product(columns, (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32))
    return columns


# ---------------------------------------------------------------- products on several cores
# Each block of the result is computed by one thread, so that the bytes do not depend on how many threads there are
# (BLAS itself adds up in an order that does).


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


@compiled
def rows_times(
    ends: np.ndarray, columns: np.ndarray, values: np.ndarray, dense: np.ndarray, first: int, result: np.ndarray
) -> None:
    """Fills `result` (n, k) with rows `first` to `first` + n − 1 of a sparse matrix times a dense one (columns, k).

    A row's terms are added one after the other, as SciPy does, four of them between two visits to the sum.

    :param ends: [rows + 1]. :param columns, values: of the terms, a row's after the other's; float32 as all sums.
    """
    width = dense.shape[1]
    for row in range(len(result)):
        place, end = ends[first + row], ends[first + row + 1]
        sums = result[row]
        sums[:] = 0
        while end - place >= 4:
            a, b, c, d = values[place], values[place + 1], values[place + 2], values[place + 3]
            one, two = dense[columns[place]], dense[columns[place + 1]]
            three, four = dense[columns[place + 2]], dense[columns[place + 3]]
            for k in range(width):
                sums[k] = (((sums[k] + a * one[k]) + b * two[k]) + c * three[k]) + d * four[k]
            place += 4
        while place < end:
            a, one = values[place], dense[columns[place]]
            for k in range(width):
                sums[k] += a * one[k]
            place += 1
