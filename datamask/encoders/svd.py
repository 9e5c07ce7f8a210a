"""A truncated SVD of a sparse matrix whose groups of rows have their means taken off, never written out."""

from __future__ import annotations

import numpy as np
import scipy.sparse

from datamask.encoders.blocks import gram, product

OVERSAMPLES = 32
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
        self._axes = scipy.sparse.csr_array(
            ((weights / energy[groups]).astype(np.float32), groups, np.arange(len(groups) + 1))
        )  # orthonormal columns, one a group: a centred row is what is left of it beside them

    def times(self, right: np.ndarray) -> np.ndarray:
        """float32 [rows, k] of float32 [columns, k]."""
        return self._beside(product(self._rows, right))

    def transposed_times(self, right: np.ndarray) -> np.ndarray:
        """float32 [columns, k] of float32 [rows, k]."""
        return product(self._columns, self._beside(right))

    def _beside(self, values: np.ndarray) -> np.ndarray:
        return values - self._axes @ (self._axes.T @ values)


def right_singular(matrix: Centred, rank: int, generator: np.random.Generator) -> np.ndarray:
    """float32 [columns, at most rank]: the right singular vectors, of the largest singular values first.

    Randomised subspace iteration (Halko, Martinsson & Tropp 2011), in sums of one fixed order if BLAS has one thread;
    exact where rows or columns are few.
    """
    rows, columns = matrix.shape
    width = min(rank + OVERSAMPLES, rows, columns)
    if width == rows:
        range_ = np.eye(rows, dtype=np.float32)
    else:
        range_ = orthonormal(matrix.times(generator.standard_normal((columns, width), dtype=np.float32)))
        for _ in range(POWER_ITERATIONS):
            range_ = orthonormal(matrix.times(matrix.transposed_times(range_)))
    inside = matrix.transposed_times(range_)
    values, vectors = np.linalg.eigh(gram(inside))
    order = np.argsort(-values, kind="stable")[:rank]
    order = order[values[order] > max(NEGLIGIBLE**2 * values.max(initial=0), 1e-12)]
    return product(inside, (vectors[:, order] / np.sqrt(values[order])).astype(np.float32))


def orthonormal(columns: np.ndarray) -> np.ndarray:
    """An orthonormal basis of the columns' span, by their Gram matrix, twice, which is faster than QR and as exact."""
    for _ in range(2):
        values, vectors = np.linalg.eigh(gram(columns))
        kept = values > max(1e-10 * values.max(initial=0), 1e-12)
        columns = product(columns, (vectors[:, kept] / np.sqrt(values[kept])).astype(np.float32))
    return columns
