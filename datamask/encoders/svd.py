"""A truncated SVD of a sparse matrix whose groups of rows have their means taken off, never written out."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from datamask.compiling import on_cores
from datamask.encoders.blocks import gram_matrix, product

OVERSAMPLES = 32
FEW = 2.0  # times the vectors looked for: up to so many rows their own products are the faster way, and exact
POWER_ITERATIONS = 1  # two are no better here (benchmarks/LOG.md)
NEGLIGIBLE = 1e-3  # of the largest singular value: float32 tells no direction below that


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
