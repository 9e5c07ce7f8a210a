"""Rows of sparse matrices copied in one pass: scipy's own way makes three arrays of the numbers' length on the way."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from scipy.sparse import csr_array

from datamask.compiling import compiled

NARROW = 1 << 16  # columns that uint16 can number


def index_type(width: int) -> type:
    """The type that numbers so many columns."""
    return np.uint16 if width <= NARROW else np.uint32


@compiled
def copy_rows(start, index, value, rows, to_start, to_index, to_value):  # type: ignore[no-untyped-def]
    """Row rows[n]'s columns and numbers, to the places from to_start[n] on."""
    for n in range(len(rows)):
        row = rows[n]
        at = to_start[n]
        for place in range(start[row], start[row + 1]):
            to_index[at] = index[place]
            to_value[at] = value[place]
            at += 1


def taken_rows(
    start: np.ndarray, index: np.ndarray, value: np.ndarray, rows: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """These rows, in this order: their start (n + 1,) int64, index and value."""
    rows = np.ascontiguousarray(rows, np.int64)
    to_start = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(start[rows + 1] - start[rows], out=to_start[1:])
    to_index, to_value = np.empty(to_start[-1], index.dtype), np.empty(to_start[-1], value.dtype)
    copy_rows(start, index, value, rows, to_start, to_index, to_value)
    return to_start, to_index, to_value


def take_rows(matrix: csr_array, rows: np.ndarray) -> csr_array:
    """matrix[rows]. rows: row numbers or (N,) bool."""
    rows = np.asarray(rows)
    rows = np.flatnonzero(rows) if rows.dtype == bool else rows
    start, index, value = taken_rows(matrix.indptr.astype(np.int64), matrix.indices, matrix.data, rows)
    return csr_array((value, index, start), shape=(len(rows), matrix.shape[1]))


def stack_rows(matrices: Sequence[csr_array]) -> csr_array:
    """The matrices' rows, one matrix after the other."""
    if len(matrices) == 1:
        return matrices[0]
    lengths = [matrix.indptr[-1] for matrix in matrices]
    before = np.cumsum([0, *lengths], dtype=np.int64)
    ends = [matrix.indptr[1:] + first for matrix, first in zip(matrices, before, strict=False)]
    return csr_array(
        (
            np.concatenate([matrix.data for matrix in matrices]),
            np.concatenate([matrix.indices for matrix in matrices]),
            np.concatenate([np.zeros(1, np.int64), *ends]),
        ),
        shape=(sum(matrix.shape[0] for matrix in matrices), matrices[0].shape[1]),
    )
