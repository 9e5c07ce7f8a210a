"""Rows of sparse matrices copied in one pass by all cores, their columns in 16 bits, which scipy has not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from scipy.sparse import csr_array

from datamask.compiling import compiled, on_cores

NARROW = 1 << 16  # columns that uint16 can number
SHARED = 1 << 20  # numbers in rows from which cores share a pass over them


def index_type(width: int) -> type:
    """The type that numbers so many columns."""
    return np.uint16 if width <= NARROW else np.uint32


@compiled
def copy_rows(matrix, rows, to_start, to, shift, first, last):  # type: ignore[no-untyped-def]
    """The columns, plus `shift`, and numbers of the rows rows[first:last], to the places from to_start[n] on."""
    (start, index, value), (to_index, to_value) = matrix, to
    for n in range(first, last):
        row = rows[n]
        at = to_start[n]
        for place in range(start[row], start[row + 1]):
            to_index[at] = index[place] + shift
            to_value[at] = value[place]
            at += 1


def lay_rows(
    matrix: tuple[np.ndarray, np.ndarray, np.ndarray],  # start, index, value
    rows: np.ndarray,  # (n,) row numbers
    to_start: np.ndarray,  # (n,) at which place each begins
    to: tuple[np.ndarray, np.ndarray],  # index, value
    shift: int = 0,  # added to the columns
) -> None:
    """Copies rows to these places."""

    def work(first: int, last: int) -> None:
        copy_rows(tuple(matrix), rows, to_start, to, to[0].dtype.type(shift), first, last)

    share_rows(work, len(rows), len(to[0]))


def share_rows(work: Callable[[int, int], None], rows: int, numbers: int) -> None:
    """`work(first, last)` of ranges of rows, each of which it computes alone: on all cores where there are many
    numbers."""
    if numbers < SHARED:
        work(0, rows)
    else:
        on_cores(work, rows)


def taken_rows(
    matrix: tuple[np.ndarray, np.ndarray, np.ndarray], rows: np.ndarray, kinds: tuple[type, type] | None = None
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """These rows, in this order, of a matrix of start, index and value: the same three, start (n + 1,) int64.

    kinds: the types of index and value; None: as they are."""
    start, index, value = matrix
    rows = np.ascontiguousarray(rows, np.int64)
    to_start = np.zeros(len(rows) + 1, np.int64)
    np.cumsum(start[rows + 1] - start[rows], out=to_start[1:])
    kept, of_value = kinds or (index.dtype, value.dtype)
    to_index, to_value = np.empty(to_start[-1], kept), np.empty(to_start[-1], of_value)
    lay_rows(matrix, rows, to_start, (to_index, to_value))
    return to_start, to_index, to_value


def csr_of(start: np.ndarray, index: np.ndarray, value: np.ndarray, width: int) -> csr_array:
    """The matrix. Starts are numbered as columns are where they can be: otherwise scipy copies all columns to int64."""
    start = start.astype(np.int32 if start[-1] < 1 << 31 else np.int64)
    return csr_array((value, index, start), shape=(len(start) - 1, width))
