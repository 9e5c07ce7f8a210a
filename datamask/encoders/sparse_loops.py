"""The inner loop of a sparse matrix times a dense one, compiled by Numba."""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled


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
