"""Simulated annealing by single documents, each of which enters or leaves the selection alone.

    flip(joint, mass, value, selected, above, limits, sweeps, seed)

A document's gain is its price at the present mixture less half of its own curvature: one product with its row, without
logarithms, where a swap takes four passes with them. So it is for large pools, in which one document changes the
mixture little. The budget holds by a penalty on the square of what is over it, so that it is spent but for some
documents, which the caller mends. (Metropolis et al. 1953; Kirkpatrick, Gelatt & Vecchi 1983.)
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled
from datamask.selection.cover.compiled import seeded
from datamask.selection.cover.summed import SummedCoverage
from datamask.selection.problem.limits import Limits
from datamask.shares import tell

MOST_READ = 8_000_000_000  # numbers of rows read at most: some ten seconds of one core
# First and last temperature of a document, as a share of the geometric mean of its own curvature and the mean one:
# with one temperature for all, the short freeze long after the long (benchmarks/LOG.md).
WARM, COOL = 0.2, 0.02
# Documents that may change sides: as many again as are selected, and those whose change costs less than this share of
# their first temperature at the fractional optimum.
LIKELY = 0.25
LOOSE = 1e-3  # unit of what is over the budget, as a share of it; at least a median document
LEAST = 0.1  # a curvature is taken where no atom is below this share of the pool's mixture
TOLD = 32  # calls of `tell`


@compiled
def flips(  # type: ignore[no-untyped-def]
    start, index, value, t, level, slope, mass, half, root, linear, selected, weights, over, heats, unit
):  # fmt: skip
    """Sweeps over the documents, one at each of `heats` (S,). A document's temperature is that times its `root` (n,).

    unit: of what is `over` the budget. level, slope = t / level: (J,), and selected: changed in place. Returns what is
    over the budget.
    """
    for heat in heats:
        for row in range(len(half)):
            a, b, c, d = 0.0, 0.0, 0.0, 0.0  # four sums, which do not wait for one another
            at, last = start[row], start[row + 1]
            while at + 4 <= last:
                a += value[at] * slope[index[at]]
                b += value[at + 1] * slope[index[at + 1]]
                c += value[at + 2] * slope[index[at + 2]]
                d += value[at + 3] * slope[index[at + 3]]
                at += 4
            while at < last:
                a += value[at] * slope[index[at]]
                at += 1
            sign = -1.0 if selected[row] else 1.0
            w = weights[row]
            gain = sign * (linear[row] + mass[row] * ((a + b) + (c + d))) - half[row]
            odds = gain / (heat * root[row]) - w * (sign * over + 0.5 * w) / unit**2
            if odds < 0 and np.random.random() >= np.exp(odds):
                continue
            selected[row] = not selected[row]
            over += sign * w
            change = sign * mass[row]
            for at in range(start[row], start[row + 1]):
                atom = index[at]
                level[atom] = max(level[atom] + change * value[at], 1e-300)
                slope[atom] = t[atom] / level[atom]
    return over


def flip(
    joint: SummedCoverage,
    mass: np.ndarray,  # (N,) the factor on a document's row in the mixture
    value: np.ndarray,  # (N,) the linear part of a document's gain, less what its share of the budget costs
    selected: np.ndarray,  # (N,) bool, changed in place
    above: np.ndarray,  # (N,) a document's gain at the fractional optimum, less that cost: 0 for those in part
    limits: Limits,  # the budget alone
    sweeps: int,  # at most, over all documents that may change sides
    seed: int,
) -> None:
    """Anneals the mask, which then spends the budget but for some documents."""
    level = np.maximum(joint.rows.state(mass * selected) + joint.floor, 1e-300)
    least = np.maximum(np.maximum(level, LEAST * joint.mean), 1e-150)
    curvature = mass**2 * joint.rows.curvatures(joint.t / least**2)
    near = _near(np.abs(above), curvature, int(selected.sum()))
    rows, weights, bent = joint.rows.take(near), limits.weights[near], curvature[near]
    sweeps = max(1, min(sweeps, MOST_READ // max(len(rows.index), 1)))
    heats = np.sqrt(bent.mean()) * np.geomspace(WARM, COOL, sweeps)
    unit = max(LOOSE * limits.size, float(np.median(weights)))
    inside, over = selected[near], float(limits.weights[selected].sum()) - limits.size
    slope = joint.t / level
    seeded(seed)
    for number, some in enumerate(np.array_split(heats, TOLD)):
        tell(number / TOLD)
        over = flips(
            rows.start, rows.index, rows.value, joint.t, level, slope, mass[near], bent / 2, np.sqrt(bent), value[near],
            inside, weights, over, some, unit,
        )  # fmt: skip
    selected[near] = inside


def _near(loss: np.ndarray, curvature: np.ndarray, count: int) -> np.ndarray:
    """Row numbers, ascending, of the documents that may change sides. loss: (N,) what changing costs; count: documents
    that are selected."""
    few = min(len(loss), 2 * count)
    likely = LIKELY * WARM * np.sqrt(curvature * curvature.mean())
    return np.flatnonzero((loss <= np.partition(loss, few - 1)[few - 1]) | (loss <= likely))
