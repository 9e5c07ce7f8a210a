"""The limits' sums over a selection that changes document by document, for the compiled loops of searches."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datamask.compiling import compiled
from datamask.selection.problem.limits import Limits


class RunningSums(NamedTuple):
    """The documents' parts in the limits' sums, and these with their ends."""

    weights: np.ndarray  # (N,) what each document takes of the budget
    codes: np.ndarray  # (N, kinds) int32: of which limits a document is part
    coefficients: np.ndarray  # (N, kinds) what it adds to their sums
    sums: np.ndarray  # (R,) over the selection
    low: np.ndarray  # (R,)
    high: np.ndarray  # (R,)


def running_sums(limits: Limits, selected: np.ndarray, index: np.ndarray | None = None) -> RunningSums:
    """The sums of this mask (N,) bool, for a search among the documents `index` (None: all)."""
    part = limits if index is None else limits.at(index)
    codes, coefficients = np.zeros((2, len(part.weights), len(part.kinds)))
    for column, kind in enumerate(part.kinds):
        codes[:, column], coefficients[:, column] = kind
    return RunningSums(
        part.weights, codes.astype(np.int32), coefficients, limits.spent(selected).sums, part.low, part.high
    )


@compiled
def allowed(leaving, entering, spent, room, sums):  # type: ignore[no-untyped-def]
    """Whether a swap keeps the budget (within `room` of it) and the limits.

    leaving is −1 for an addition, entering −1 for a removal. spent: what is spent beyond the budget.
    """
    more = sums.weights[entering] if entering >= 0 else 0.0
    less = sums.weights[leaving] if leaving >= 0 else 0.0
    after = spent + more - less
    if abs(after) > room + 1e-9 and abs(after) > abs(spent) - 1e-9:
        return False
    for column in range(sums.codes.shape[1]):
        out = sums.codes[leaving, column] if leaving >= 0 else -1
        into = sums.codes[entering, column] if entering >= 0 else -1
        more = sums.coefficients[entering, column] if entering >= 0 else 0.0
        less = sums.coefficients[leaving, column] if leaving >= 0 else 0.0
        if out == into:
            there = sums.sums[out] + more - less
            if more != less and (there < sums.low[out] - 1e-9 or there > sums.high[out] + 1e-9):
                return False
            continue
        if out >= 0 and sums.sums[out] - less < sums.low[out] - 1e-9:
            return False
        if into >= 0 and sums.sums[into] + more > sums.high[into] + 1e-9:
            return False
    return True


@compiled
def book_row(row, sign, sums):  # type: ignore[no-untyped-def]
    """Updates the sums in place when a row enters (sign 1) or leaves (sign −1)."""
    for column in range(sums.codes.shape[1]):
        sums.sums[sums.codes[row, column]] += sign * sums.coefficients[row, column]
