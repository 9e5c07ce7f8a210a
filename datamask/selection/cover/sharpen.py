"""From the fractional optimum to a mask by following it, while documents are driven to 0 or 1: mean-field annealing.

    selected = sharpen(joint, mass, value, p, above, limits, share)

Of documents drawn alone with the probabilities p the expected value is f(p) − ½ Σ κ_i p_i (1 − p_i), to second order:
κ_i is a document's own curvature, and none of it is lost by a mask. Followed is a maximum of

    f(p) − ½ μ Σ κ_i p_i (1 − p_i) + Σ T_i entropy(p_i)

while μ rises to 1 and T falls to 0: at the end every p_i is 0 or 1, and no document's change alone gains. μ stands for
the reaction of all others to a document, which in such mean-field equations is the weaker the more of them are
undecided (Thouless, Anderson & Palmer 1977). p moves along the directions in which f is least curved, which becomes
unstable first (as in Subag, arXiv 1812.04588), and nothing is drawn at random. A sweep takes one document after
another to its own maximum and beyond it (successive over-relaxation; Young 1954).
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datamask.compiling import compiled, vectorised
from datamask.selection.cover.atoms import AtomRows
from datamask.selection.cover.compiled import Mixture, Rows, bend_of, factor_left
from datamask.selection.metrics.coverage import SummedCoverage, curve_slope, second
from datamask.selection.problem.limits import NOTHING, Limits, Spent
from datamask.shares import tell_share

# Over the documents that may change sides, where their rows hold few numbers and where they hold many. There 150 and
# 500 find no better masks, or .05 % of the objective's span better (benchmarks/LOG.md). `coverage.search`: for more.
SWEEPS, OF_MANY = 150, 75
MANY_READ, MOST_READ = 100_000_000, 12_000_000_000  # numbers of rows times sweeps at most, for each of the two
# μ at first, and where the fractional optimum is nearly a mask: from less, it would be lost. Nearly: Σ p (1 − p) is far
# below this share of Σ p, each document counted by its curvature.
FIRST, LATER, UNDECIDED = 0.35, 0.6, 0.1
# Temperature as a share of 1 − μ, in units of the geometric mean of a document's own curvature and the mean one; what
# is added to it, for the last sweep.
WARM, LAST = 0.1, 1e-4
BEYOND = 1.8  # times the way to a document's own maximum
# Documents that may change sides: the fractional ones, and those whose change costs less than this in the same unit at
# the fractional optimum; so many at least.
LIKELY, FEWEST = 0.15, 2048
# A document whose p is within EDGE of 0 or 1 rests for up to RESTING sweeps: FARTHER of them for each curvature by
# which its price is beyond the one at which it would move. A p within EDGE / 100 is 0 or 1.
EDGE, RESTING, FARTHER = 1e-2, 8, 30
STILL = 2e-3  # a move less than this is not made
# Sweeps towards the fractional optimum, after which few documents are undecided (benchmarks/LOG.md), and the least
# share of its curvature that a document keeps in one.
CLIMBS, FALLS = 16, 0.125
LOOSE = 0.01  # as SPENT, in these sweeps
HALVINGS = 14  # of the interval in which a document's maximum lies
KEPT = 0.9  # of a limit's price after a sweep that ends within its range
SPENT = 0.1  # curvature that the budget has, as a share of the mean document's, and of its price that moves in a sweep
LEAST = 0.1  # a curvature is taken where no atom is below this share of the pool's mixture
SMALLEST = 1e-30  # a mixture's least share of an atom
TOLD = 32  # calls of `tell`


class Columns(NamedTuple):
    """(n,) each, of the documents that may change sides."""

    mass: np.ndarray  # the factor on a document's row in the mixture
    curvature: np.ndarray
    unit: np.ndarray  # the geometric mean of its own curvature and the mean one
    linear: np.ndarray  # the linear part of its gain, less what its share of the budget costs
    p: np.ndarray
    rest: np.ndarray  # sweeps until it is looked at again
    codes: np.ndarray  # (n, kinds) int32: of which sums it is part; the budget's is the first
    coefficients: np.ndarray  # (n, kinds) what it adds to them


class SoftSums(NamedTuple):
    """(1 + R,) each: the budget's sum, less the budget, and those of the limits, which a price holds in their range."""

    sums: np.ndarray
    low: np.ndarray
    high: np.ndarray
    price: np.ndarray  # beside what is in the documents' linear gain
    penalty: np.ndarray  # by how much the price rises for each unit beyond the range
    moves: float  # share of that by which the price itself moves in a sweep


@vectorised
def row_price(index, value, ratio, first, last):  # type: ignore[no-untyped-def]
    """Σ_j ratio_j A_ij of a row's places first to last − 1, in float32."""
    total = np.float32(0)
    for at in range(first, last):
        total += value[at] * ratio[index[at]]
    return total


@compiled
def own_maximum(slope, unit, aim):  # type: ignore[no-untyped-def]
    """q in [0, 1] where unit · log(q / (1 − q)) + slope · q = aim. 0 and 1 stand for what is very near them."""
    near = EDGE / 100
    most = unit * np.log(1 / near - 1)
    if aim <= slope * near - most:
        return 0.0
    if aim >= slope * (1 - near) + most:
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(HALVINGS):
        q = 0.5 * (low + high)
        if unit * np.log(q / (1 - q)) + slope * q > aim:
            high = q
        else:
            low = q
    return 0.5 * (low + high)


@compiled
def beyond(soft, code):  # type: ignore[no-untyped-def]
    """How far a sum lies beyond its range; negative below it."""
    return max(soft.sums[code] - soft.high[code], 0.0) + min(soft.sums[code] - soft.low[code], 0.0)


@compiled
def sweeps(rows, mixture, ratio, columns, soft, steps):  # type: ignore[no-untyped-def]
    """A sweep over the documents at each μ and heat of `steps` (S, 2). Without heat documents go to their maxima, not
    beyond, and their curvatures follow them.

    ratio: the slope at the mixture's level, float32 (J,). level, ratio, p, rest, sums and prices are changed in place.
    """
    start, index, value = rows
    t, level, curves = mixture
    mass, curvature, unit, linear, p, rest, codes, coefficients = columns
    steep = np.log(2.0) * curves.rate * curves.worth
    for mu, heat in steps:
        onward = BEYOND if heat else 1.0
        for row in range(len(p)):
            if rest[row]:
                rest[row] -= 1
                continue
            first, last, k, here = start[row], start[row + 1], curvature[row], p[row]
            cost, penalty = 0.0, 0.0
            for kind in range(codes.shape[1]):
                code, w = codes[row, kind], coefficients[row, kind]
                cost += w * (soft.price[code] + soft.penalty[code] * beyond(soft, code))
                penalty += soft.penalty[code] * w**2
            gain = mass[row] * row_price(index, value, ratio, first, last) + linear[row] - cost
            slope = k * (1 - mu) + penalty
            aim = gain + (k + penalty) * here - 0.5 * mu * k
            q = own_maximum(slope, heat * unit[row], aim)
            if q < EDGE:
                rest[row] = int(min(RESTING, max(0.0, -FARTHER * aim / k)))
            elif q > 1 - EDGE:
                rest[row] = int(min(RESTING, max(0.0, FARTHER * (aim - slope) / k)))
            q = min(1.0, max(0.0, here + onward * (q - here)))
            moved = q - here
            if moved == 0 or (abs(moved) < STILL and 0 < q < 1):
                continue
            p[row] = q
            for kind in range(codes.shape[1]):
                soft.sums[codes[row, kind]] += coefficients[row, kind] * moved
            m = mass[row] * moved
            bend = bend_of(index, first, last, curves.bend)
            for at in range(first, bend):
                atom = index[at]
                level[atom] = max(level[atom] + m * value[at], SMALLEST)
                ratio[atom] = t[atom] / level[atom]
            if bend < last:
                factor = factor_left(m, value[bend], curves.rate)
                for at in range(bend, last):
                    atom = index[at]
                    level[atom] = min(1.0, max(level[atom] * factor, SMALLEST))
                    ratio[atom] = steep * level[atom]
            if not heat:
                bent = 0.0
                for at in range(first, bend):
                    bent += value[at] * value[at] * ratio[index[at]] / level[index[at]]
                for at in range(bend, last):
                    bent += value[at] * value[at] * ratio[index[at]] * np.log(2.0) * curves.rate
                curvature[row] = max(bent * mass[row] ** 2, FALLS * k)
        for code in range(len(soft.sums)):
            over = beyond(soft, code)
            soft.price[code] = (
                soft.price[code] + soft.moves * soft.penalty[code] * over if over else soft.price[code] * KEPT
            )


def sharpen(
    joint: SummedCoverage,
    mass: np.ndarray,  # (N,) the factor on a document's row in the mixture
    value: np.ndarray,  # (N,) the linear part of a document's gain, less what budget and limits charge for it
    p: np.ndarray,  # (N,) the fractional optimum
    above: np.ndarray,  # (N,) a document's gain at the fractional optimum, less that charge: 0 for those in part
    limits: Limits,
    multipliers: np.ndarray = NOTHING,  # (R,) the limits' dual prices: those that are not 0 are kept tight
    share: float = 1.0,  # of the usual number of sweeps
) -> np.ndarray:
    """(N,) bool: a mask that spends the budget, and is within the limits, but for some documents."""
    level = joint.levels(mass * p)
    words = slice(joint.curves.bend)
    level[words] = np.maximum(level[words], LEAST * joint.mean[words])
    curvature = _curvatures(joint, mass, level)
    unit = np.sqrt(curvature * curvature.mean())
    undecided = curvature @ (p * (1 - p)) / (curvature @ p)
    first = LATER - (LATER - FIRST) * min(1.0, undecided / UNDECIDED)
    near = _near(np.abs(above) / unit, (p > 0) & (p < 1), FEWEST)
    whole = np.where(p > 0.5, 1.0, 0.0)
    whole[near] = p[near]
    part, inside = limits.at(near), whole[near]
    rows, mixture, ratio = _laid(joint, joint.rows.take(near), joint.levels(mass * whole))
    numbers = max(len(rows.atoms), 1)
    count = max(2, int(share * max(min(SWEEPS, MANY_READ / numbers), min(OF_MANY, MOST_READ / numbers))))
    columns = Columns(mass[near], curvature[near], unit[near], value[near], inside, *_resting(part))
    low, high = np.where(multipliers > 0, limits.high, limits.low), np.where(multipliers < 0, limits.low, limits.high)
    ends = limits.spent(whole), low, high
    soft = _soft_sums(part, ends, SPENT * curvature[near].mean(), np.zeros(1 + len(low)), SPENT)
    mu = np.linspace(first, 1, count)
    steps = np.stack([mu, WARM * (1 - mu) + LAST], axis=1)
    for number, some in enumerate(np.array_split(steps, TOLD)):
        tell_share(number / TOLD)
        sweeps(rows, mixture, ratio, columns, soft, some)
    whole[near] = inside
    return whole > 0.5


def climb(
    joint: SummedCoverage,
    limits: Limits,
    mass: np.ndarray,  # (N,) the factor on a document's row in the mixture
    linear: np.ndarray,  # (N,) the linear part of a document's gain
    p: np.ndarray,  # (N,) where it begins
    level: np.ndarray,  # (J,) the mixture's levels there
    prices: np.ndarray,  # (1 + R,) the dual prices there of the budget and of the limits, per unit of their sums
) -> np.ndarray:
    """(N,) p after `CLIMBS` sweeps towards the fractional optimum: it holds budget and limits nearly."""
    rows, mixture, ratio = _laid(joint, joint.rows, level)
    curvature = _curvatures(joint, mass, level)
    columns = Columns(mass, curvature, curvature, linear, p.copy(), *_resting(limits))
    ends = limits.spent(p), limits.low, limits.high
    soft = _soft_sums(limits, ends, LOOSE * curvature.mean(), prices.copy(), 1.0)
    sweeps(rows, mixture, ratio, columns, soft, np.zeros((CLIMBS, 2)))
    return columns.p


def _curvatures(joint: SummedCoverage, mass: np.ndarray, level: np.ndarray) -> np.ndarray:
    """(N,) each document's own curvature at these levels (J,), above 0."""
    found = mass**2 * joint.rows.curvatures(second(joint.t, level, joint.curves))
    return np.maximum(found, max(1e-9 * found.mean(), 1e-300))


def _laid(joint: SummedCoverage, rows: AtomRows, level: np.ndarray) -> tuple[Rows, Mixture, np.ndarray]:
    """These rows, the mixture at these levels (J,), and its slope, as `sweeps` takes them."""
    level = np.maximum(level, SMALLEST)
    matrix = Rows(rows.start, rows.index, rows.value.astype(np.float32, copy=False))
    ratio = curve_slope(joint.t, level, joint.curves).astype(np.float32)
    return matrix, Mixture(joint.t.astype(np.float32), level, joint.curves), ratio


def _resting(limits: Limits) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The last three of the `Columns` of documents with these limits."""
    codes, coefficients = limits.by_document
    codes = np.pad(codes + 1, ((0, 0), (1, 0)))
    return np.zeros(len(codes), np.int64), codes, np.column_stack([limits.weights, coefficients])


def _soft_sums(
    limits: Limits, ends: tuple[Spent, np.ndarray, np.ndarray], curvature: float, prices: np.ndarray, moves: float
) -> SoftSums:
    """The sums at these prices. limits: of the documents that move; ends: what is spent, and the range of the limits'
    sums; curvature: of a sum, for a document of mean coefficient."""
    spent, low, high = ends
    penalty = np.full(1 + len(low), curvature / limits.weights.mean() ** 2)
    for kind in limits.kinds:
        penalty[1 + kind.codes] = curvature / kind.coefficients.mean() ** 2
    sums = np.append(spent.weight - limits.size, spent.sums)
    return SoftSums(sums, np.append(0.0, low), np.append(0.0, high), prices, penalty, moves)


def _near(loss: np.ndarray, fractional: np.ndarray, few: int) -> np.ndarray:
    """Row numbers, ascending, of the documents that may change sides, `few` at least. loss: (N,) what changing
    costs."""
    few = max(1, min(len(loss), few))
    return np.flatnonzero((loss <= np.partition(loss, few - 1)[few - 1]) | (loss <= LIKELY) | fractional)
