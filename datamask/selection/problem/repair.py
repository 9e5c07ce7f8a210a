"""From an order of preference to a mask within the limits.

One column of quotas over a budget in documents is filled in order. Everything else is a small integer programme over
the documents nearest the cut, with the others fixed (HiGHS, through SciPy; Huangfu and Hall, Math. Program. Comput.
2018). Where that is infeasible, more documents are freed, finally all of them, so that only infeasible limits fail.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import coo_array, csr_array, vstack

from datamask.errors import InputError
from datamask.selection.problem.limits import GRAIN, Limits

WINDOW = 512  # documents nearest the cut in the first integer programme; each next one has four times as many
NODES = 2000  # nodes of branch and bound at most; the best selection found by then is taken
NEAR = 1e-3  # relative gap at which branch and bound may stop


def fill_one(limits: Limits, order: np.ndarray) -> np.ndarray:
    """One column of quotas, documents counted: first each value's minimum in order, then the rest in order."""
    grouping = limits.groupings[0]
    by_group = order[np.argsort(grouping.codes[order], kind="stable")]
    codes = grouping.codes[by_group]
    within = np.empty(len(order))
    within[by_group] = np.arange(len(order)) - np.searchsorted(codes, np.arange(len(grouping.names)))[codes]
    selected = within < grouping.low[grouping.codes] - GRAIN
    rest = order[(~selected & (within < grouping.high[grouping.codes] - GRAIN))[order]]
    selected[rest[: max(0, round(limits.size - selected.sum()))]] = True
    return selected


def repair_selection(limits: Limits, value: np.ndarray, start: np.ndarray) -> np.ndarray:
    """(N,) bool: a selection within the limits that maximises Σ w·value, documents whose value is far from 0 fixed.

    value: (N,) reduced prices, per unit of the budget. start: (N,) bool, the selection that fixes the far documents.

    :raises InputError: no selection is within the limits.
    """
    if limits.counted and limits.length is None and len(limits.groupings) == 1:
        return fill_one(limits, np.argsort(-value, kind="stable"))
    nearest = np.argsort(np.abs(value), kind="stable")
    window = WINDOW
    while True:
        index = np.sort(nearest[:window])
        taken = start.copy()
        taken[index] = False
        part = limits.part(index, taken) if len(index) < len(value) else limits
        chosen = _best(part, value[index])
        if chosen is not None:
            selected = taken
            selected[index[chosen]] = True
            if not limits.violations(selected):
                return selected
        if window >= len(value):
            raise InputError(
                "no selection holds all limits at once (budget, quotas, length_tolerance); loosen one of them"
            )
        window *= 4


def _best(limits: Limits, value: np.ndarray) -> np.ndarray | None:
    """(n,) bool: the selection of greatest Σ w·value within the limits, up to `NEAR`; None if none is found."""
    rows, low, high = _rows(limits)
    gain = limits.weights * value
    gain /= max(float(np.abs(gain).max()), 1e-300)
    # The solver's 0 and 1 are inexact, so a sum may end just beyond a limit: limits tightened by several margins are
    # tried until the rounded selection holds the true ones.
    for tighten in (1e-7, 0.0, 1e-6, 1e-5):
        room = np.minimum(tighten, (high - low) / 4).clip(0)
        found = milp(
            -gain,
            integrality=np.ones(len(gain)),
            bounds=Bounds(0, 1),
            constraints=LinearConstraint(rows, low + room, high - room),
            options={"node_limit": NODES, "mip_rel_gap": NEAR, "presolve": True},
        )
        if found.x is not None:
            selected: np.ndarray = found.x > 0.5
            if not limits.violations(selected):
                return selected
    return None


def _rows(limits: Limits) -> tuple[csr_array, np.ndarray, np.ndarray]:
    """All limits as rows of coefficients with lower and upper ends, scaled so that the greatest coefficient is one."""
    count = len(limits.weights)
    parts, lows, highs = [], [], []

    def add(rows: csr_array, low: np.ndarray, high: np.ndarray, scale: float) -> None:
        parts.append(rows / scale)
        lows.append(low / scale)
        highs.append(np.minimum(high, 1e18) / scale)

    grain = GRAIN * max(limits.size, 1.0)
    most = float(limits.weights.max())
    whole = coo_array((limits.weights, (np.zeros(count, int), np.arange(count))), shape=(1, count)).tocsr()
    add(whole, np.array([limits.size - limits.unspent - grain]), np.array([limits.size + grain]), most)
    for grouping in limits.groupings:
        shape = (len(grouping.names), count)
        rows = coo_array((limits.weights, (grouping.codes, np.arange(count))), shape=shape).tocsr()
        add(rows, grouping.low - grain, grouping.high + grain, most)
    if limits.length is not None:
        coefficients = limits.length.coefficients
        row = coo_array((coefficients, (np.zeros(count, int), np.arange(count))), shape=(1, count)).tocsr()
        grain = GRAIN * max(abs(limits.length.low), 1.0)
        ends = np.array([limits.length.low - grain]), np.array([limits.length.high + grain])
        add(row, *ends, float(coefficients.max()))
    return vstack(parts).tocsr(), np.concatenate(lows), np.concatenate(highs)
