"""Sparse rows, their columns in 16 bits, which SciPy has not; and the inner loops over them, compiled by Numba. A loop
uses one thread, so that sums are added in a fixed order; passes in which each row stands for itself use all cores.

Row i's atoms are index[start[i]:start[i + 1]] (uint16 or uint32), with values `value` (float32). `level` (J,) and
`curves` are `Curves`, t (J,) the target distribution, mass (N,) the factor on a document's row.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from scipy.sparse import csr_array

from datamask.compiling import compiled, on_cores
from datamask.selection.problem.limits import allowed, book_row

SERIES = 0.02  # below this, log(1 + x) is four terms of its series: exact to 1e-10 of the first term
MOST = 24  # candidates that are evaluated anew for each selected document
BLOCK = 64  # atoms of a row whose terms are computed together
NARROW = 1 << 16  # columns that uint16 can number
SHARED = 1 << 20  # numbers in rows from which cores share a pass over them
SMALLEST = 1e-300  # a level is no less: a logarithm, and what is left of a word in a thousand documents, stay finite


class Curves(NamedTuple):
    """Which curve an atom follows. State: (1 − α) Aᵀ w, w the shares of the budget.

    Before `bend` the level is the smoothed mixture u, and an atom is worth t log u. From there on it is 2^−documents,
    what a word still has to give, and a word is worth t (1 − level). All numbers of a document's row in these columns
    are alike, and t is `worth` for every word that a document holds.
    """

    bend: int
    rate: float  # documents for each unit of the state
    worth: float

    @classmethod
    def of(cls, t: np.ndarray, bend: int, rate: float) -> Curves:
        """The curves of this t (J,)."""
        return cls(bend, rate, float(t[bend:].max(initial=0.0)))


class Rows(NamedTuple):
    """Sparse rows."""

    start: np.ndarray
    atoms: np.ndarray
    value: np.ndarray


class Mixture(NamedTuple):
    """The covered mixture: target distribution, levels at the present mask, and curves."""

    t: np.ndarray
    level: np.ndarray
    curves: Curves


class Documents(NamedTuple):
    """(N,) each: the factor on a document's row, the linear part of its gain, and whether it is selected."""

    mass: np.ndarray
    linear: np.ndarray
    selected: np.ndarray


@compiled
def scores(start, index, value, price, found, first, last):  # type: ignore[no-untyped-def]
    """found (N,) += A price, of the rows `first` to `last` − 1. price: (J,)."""
    for row in range(first, last):
        total = 0.0
        for at in range(start[row], start[row + 1]):
            total += value[at] * price[index[at]]
        found[row] += total


@compiled
def curvatures(start, index, value, price, found, first, last):  # type: ignore[no-untyped-def]
    """found (N,) += Σ_j A_ij² price_j, of the rows `first` to `last` − 1. price: (J,)."""
    for row in range(first, last):
        total = 0.0
        for at in range(start[row], start[row + 1]):
            total += value[at] * value[at] * price[index[at]]
        found[row] += total


@compiled
def to_shares(start, value):  # type: ignore[no-untyped-def]
    """Divides each row's counts by their sum, in place; a row that has none stays as it is."""
    for row in range(len(start) - 1):
        total = 0.0
        for at in range(start[row], start[row + 1]):
            total += value[at]
        for at in range(start[row], start[row + 1]):
            value[at] /= max(total, 1.0)


@compiled
def count_used(start, index, used, found):  # type: ignore[no-untyped-def]
    """Fills found (N + 1,) with where each row starts once atoms that are not `used` (J,) are left out."""
    for row in range(len(start) - 1):
        count = 0
        for at in range(start[row], start[row + 1]):
            count += used[index[at]]
        found[row + 1] = found[row] + count


@compiled
def add_state(start, index, value, mass, found, first, last):  # type: ignore[no-untyped-def]
    """found (J,) += Aᵀ mass, of the rows `first` to `last` − 1. mass: (N,)."""
    for row in range(first, last):
        m = mass[row]
        if m != 0.0:
            for at in range(start[row], start[row + 1]):
                found[index[at]] += m * value[at]


@compiled
def bend_of(index, first, last, bend):  # type: ignore[no-untyped-def]
    """The first place of a row, index[first:last], whose atom saturates: such atoms stand last in a row."""
    if first == last or index[last - 1] < bend:
        return last
    low, high = first, last - 1
    while low < high:
        middle = (low + high) // 2
        if index[middle] < bend:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def factor_left(mass, value, rate):  # type: ignore[no-untyped-def]
    """The factor on the levels of words when `mass` of a row that has this number for them is added."""
    return 2.0 ** (-rate * mass * value)


@compiled
def series(x):  # type: ignore[no-untyped-def]
    """log(1 + x) by four terms, for x near 0."""
    return x * (1 - x * (0.5 - x * (1 / 3 - x * 0.25)))


@compiled
def row_gain(rows, mixture, mass, row):  # type: ignore[no-untyped-def]
    """The change of coverage when `mass` of a row is added (or removed): Σ_j t_j log(1 + mass·A_ij / level_j), and of
    words that saturate a share of what they still have to give.

    A block of atoms at a time: the series for all of them in a loop without branches, which the compiler vectorises,
    then the logarithm of the few that lie outside it, then the sum in the atoms' order.
    """
    start, index, value = rows
    t, level, curves = mixture
    total = 0.0
    at, last = start[row], bend_of(index, start[row], start[row + 1], curves.bend)
    if last < start[row + 1]:
        for place in range(last, start[row + 1]):
            total += level[index[place]]
        total *= curves.worth * (1.0 - factor_left(mass, value[last], curves.rate))
    ratio, term = np.empty(BLOCK), np.empty(BLOCK)
    while at < last:
        size = min(BLOCK, last - at)
        atoms, values = index[at : at + size], value[at : at + size]
        outside = 0
        for k in range(size):
            x = mass * values[k] / level[atoms[k]]
            ratio[k] = x
            term[k] = t[atoms[k]] * series(x)
        for k in range(size):
            outside += (ratio[k] >= SERIES) | (ratio[k] <= -SERIES)
        if outside:
            for k in range(size):
                if not -SERIES < ratio[k] < SERIES:
                    weight = t[atoms[k]]
                    term[k] = weight * np.log(max(1.0 + ratio[k], 1e-12)) if weight > 0 else 0.0
        for k in range(size):
            total += term[k]
        at += size
    return total


@compiled
def row_gains(rows, mixture, documents, which, found, first, last):  # type: ignore[no-untyped-def]
    """Fills found (N,) with the marginal values of the rows which[first:last]: the gain of adding a document, or the
    loss of removing a selected one."""
    mass, linear, selected = documents
    for row in which[first:last]:
        if selected[row]:
            found[row] = linear[row] - row_gain(rows, mixture, -mass[row], row)
        else:
            found[row] = linear[row] + row_gain(rows, mixture, mass[row], row)


@compiled
def move_row(rows, mixture, mass, row):  # type: ignore[no-untyped-def]
    """Adds `mass` of a row to the levels in place (negative mass: removes it)."""
    start, index, value = rows
    _, level, curves = mixture
    last = bend_of(index, start[row], start[row + 1], curves.bend)
    for at in range(start[row], last):
        level[index[at]] += mass * value[at]
    if last < start[row + 1]:
        factor = factor_left(mass, value[last], curves.rate)
        for at in range(last, start[row + 1]):
            level[index[at]] = min(1.0, max(level[index[at]] * factor, SMALLEST))


@compiled
def sweep_swaps(rows, mixture, documents, order, candidates, stale, budget, sums):  # type: ignore[no-untyped-def]
    """Compares each selected document of `order` with the best candidates by exact gains, and swaps where that gains.

    stale: (C,) the candidates' last known gains, descending at first; they are evaluated anew in this order until the
    best is no less than the next stale gain (at most MOST of them). documents: their linear gain is less the budget's
    dual price. budget: what is spent beyond it, how far off it a swap may be, and the least gain of a swap. Returns the
    total gain, the number of swaps and what is spent beyond the budget.
    """
    mass, linear, selected = documents
    weights = sums.weights
    spent, room, least = budget
    total, swaps = 0.0, 0
    for step in range(len(order)):
        out = order[step]
        back = -row_gain(rows, mixture, -mass[out], out) + linear[out]
        move_row(rows, mixture, -mass[out], out)
        best, place = back + least, -1
        tried = 0
        for at in range(len(candidates)):
            if tried >= MOST or stale[at] <= best:
                break
            into = candidates[at]
            if selected[into] or not allowed(out, into, spent, room, sums):
                continue
            stale[at] = linear[into] + row_gain(rows, mixture, mass[into], into)
            tried += 1
            if stale[at] > best:
                best, place = stale[at], at
        if place < 0:
            move_row(rows, mixture, mass[out], out)
        else:
            into = candidates[place]
            move_row(rows, mixture, mass[into], into)
            selected[out], selected[into] = False, True
            spent += weights[into] - weights[out]
            book_row(out, -1.0, sums)
            book_row(into, 1.0, sums)
            total += best - back
            swaps += 1
            candidates[place], stale[place] = out, back
        # gains of the candidates tried have changed: an insertion sort of the front keeps them in order
        for at in range(1, min(len(candidates), 2 * MOST)):
            c, s = candidates[at], stale[at]
            to = at
            while to > 0 and stale[to - 1] < s:
                candidates[to], stale[to] = candidates[to - 1], stale[to - 1]
                to -= 1
            candidates[to], stale[to] = c, s
    return total, swaps, spent


@compiled
def lazy_greedy(rows, mixture, mass, linear, weights, size, ranking):  # type: ignore[no-untyped-def]
    """Fills `ranking` with documents in the order greedy takes them, by gain per unit; returns how many were taken.

    level is that of an empty selection at first. Gains only fall as it grows, so a stale gain is an upper bound (Minoux
    1978), and the rows are kept in a heap by their stale gains, negated.
    """
    heap = [(-(linear[row] + row_gain(rows, mixture, mass[row], row)) / weights[row], row) for row in range(len(mass))]
    heapq.heapify(heap)
    spent, taken = 0.0, 0
    while len(heap) and spent < size - 1e-9:
        _, row = heapq.heappop(heap)
        if spent + weights[row] > size + 1e-9:
            continue
        fresh = -(linear[row] + row_gain(rows, mixture, mass[row], row)) / weights[row]
        if len(heap) and fresh > heap[0][0]:
            heapq.heappush(heap, (fresh, row))
            continue
        move_row(rows, mixture, mass[row], row)
        ranking[taken] = row
        taken += 1
        spent += weights[row]
    return taken


# -- rows copied in one pass


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
