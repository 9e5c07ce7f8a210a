"""Simulated annealing by single documents, each of which enters or leaves the selection alone.

    flip(joint, mass, value, selected, above, limits, share, seed)

A document's gain is computed anew, by a series for the logarithms: one pass over its row, where a swap takes four. The
budget holds by a penalty on the square of what is over it, so that it is spent but for some documents, which the caller
mends. (Metropolis et al. 1953; Kirkpatrick, Gelatt & Vecchi 1983.)
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled, vectorised
from datamask.selection.cover.compiled import seeded, series
from datamask.selection.cover.summed import SummedCoverage
from datamask.selection.problem.limits import Limits
from datamask.shares import tell

SWEEPS = 700  # over the documents that may change sides
MOST_READ = 6_000_000_000  # numbers of rows read at most: a third of a minute of one core
# First and last temperature of a document, as a share of the geometric mean of its own curvature and the mean one:
# with one temperature for all, the short freeze long after the long (benchmarks/LOG.md).
WARM, COOL = 0.125, 0.0125
# Documents that may change sides: as many again as are selected, and those whose change costs less than this share of
# their first temperature at the fractional optimum.
LIKELY = 0.25
SERIES = 0.2  # below this, log(1 + x) is four terms of its series, exact to 1 in 2,500 of it
SMALLEST = 1e-30  # a mixture's least share of an atom, whose inverse is a float32
LOOSE = 1e-3  # unit of what is over the budget, as a share of it; at least a median document
# Where it is known what rounding lost, the first temperature is this many times the loss a selected document, in units
# of the mean curvature, but no more than WARM: of many documents rounding loses little, and a hot start loses it anew.
STIRRED = 1.5
FEWEST = 2048  # documents that may change sides, at least
LEAST = 0.1  # a curvature is taken where no atom is below this share of the pool's mixture
TOLD = 32  # calls of `tell`


@vectorised
def near_zero(index, value, t, inverse, m, first, last):  # type: ignore[no-untyped-def]
    """Σ_j t_j log(1 + x_j) of a row's places first to last − 1 by the logarithm's series, x_j = m·A_ij·inverse_j, and
    how many x_j are too far from 0 for it. All numbers are float32: the processor gathers several at a time."""
    total, outside = np.float32(0), 0
    half, third, quarter, one = np.float32(1 / 2), np.float32(1 / 3), np.float32(1 / 4), np.float32(1)
    for at in range(first, last):
        atom = index[at]
        x = m * value[at] * inverse[atom]
        total += t[atom] * (x * (one - x * (half - x * (third - x * quarter))))
        outside += (x >= np.float32(SERIES)) | (x <= -np.float32(SERIES))
    return total, outside


@compiled
def exact(index, value, t, inverse, m, first, last):  # type: ignore[no-untyped-def]
    """The same sum by logarithms where the series does not hold."""
    total = 0.0
    for at in range(first, last):
        atom = index[at]
        x = np.float64(m * value[at]) * inverse[atom]
        if -SERIES < x < SERIES:
            total += t[atom] * series(x)
        elif t[atom] > 0:
            total += t[atom] * np.log(max(1.0 + x, 1e-12))
    return total


@compiled
def flips(  # type: ignore[no-untyped-def]
    start, index, value, t, level, inverse, mass, root, linear, selected, weights, over, heats, unit
):  # fmt: skip
    """Sweeps over the documents, one at each of `heats` (S,). A document's temperature is that times its `root` (n,).

    unit: of what is `over` the budget. t, inverse (of level): (J,) float32. level, inverse and selected: changed in
    place. Returns what is over the budget.
    """
    for heat in heats:
        for row in range(len(root)):
            sign = -1.0 if selected[row] else 1.0
            w = weights[row]
            m, first, last = sign * mass[row], start[row], start[row + 1]
            found, outside = near_zero(index, value, t, inverse, np.float32(m), first, last)
            if outside:
                found = exact(index, value, t, inverse, np.float32(m), first, last)
            found += sign * linear[row]
            odds = found / (heat * root[row]) - w * (sign * over + 0.5 * w) / unit**2
            if odds < 0 and np.random.random() >= np.exp(odds):
                continue
            selected[row] = not selected[row]
            over += sign * w
            for at in range(first, last):
                atom = index[at]
                level[atom] = max(level[atom] + m * value[at], SMALLEST)
                inverse[atom] = 1 / level[atom]
    return over


def flip(
    joint: SummedCoverage,
    mass: np.ndarray,  # (N,) the factor on a document's row in the mixture
    value: np.ndarray,  # (N,) the linear part of a document's gain, less what its share of the budget costs
    selected: np.ndarray,  # (N,) bool, changed in place
    above: np.ndarray,  # (N,) a document's gain at the fractional optimum, less that cost: 0 for those in part
    limits: Limits,  # the budget alone
    share: float,  # of the usual number of sweeps over the documents that may change sides
    seed: int,
    lost: float | None = None,  # by rounding the fractional optimum to this mask; None: not known
) -> None:
    """Anneals the mask, which then spends the budget but for some documents."""
    level = np.maximum(joint.rows.state(mass * selected) + joint.floor, SMALLEST)
    least = np.maximum(level, LEAST * joint.mean)
    curvature = mass**2 * joint.rows.curvatures(joint.t / least**2)
    count = int(selected.sum())
    near = _near(np.abs(above), curvature, 2 * count if lost is None else FEWEST)
    rows, weights, bent = joint.rows.take(near), limits.weights[near], curvature[near]
    sweeps = max(1, int(share * min(SWEEPS, MOST_READ / max(len(rows.index), 1))))
    warm = WARM if lost is None else min(WARM, STIRRED * max(lost, 1e-12) / max(count * bent.mean(), 1e-300))
    heats = np.sqrt(bent.mean()) * np.geomspace(warm, warm * COOL / WARM, sweeps)
    unit = max(LOOSE * limits.size, float(np.median(weights)))
    inside, over = selected[near], float(limits.weights[selected].sum()) - limits.size
    matrix = rows.start, rows.index, rows.value.astype(np.float32, copy=False)
    mixture = joint.t.astype(np.float32), level, (1 / level).astype(np.float32)
    columns = mass[near], np.sqrt(bent), value[near], inside, weights
    seeded(seed)
    for number, some in enumerate(np.array_split(heats, TOLD)):
        tell(number / TOLD)
        over = flips(*matrix, *mixture, *columns, over, some, unit)
    selected[near] = inside


def _near(loss: np.ndarray, curvature: np.ndarray, few: int) -> np.ndarray:
    """Row numbers, ascending, of the documents that may change sides, `few` at least. loss: (N,) what changing
    costs."""
    few = min(len(loss), few)
    likely = LIKELY * WARM * np.sqrt(curvature * curvature.mean())
    return np.flatnonzero((loss <= np.partition(loss, few - 1)[few - 1]) | (loss <= likely))
