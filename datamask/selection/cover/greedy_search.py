"""From a fractional optimum to a mask: local search by exact gains.

    found = improve(joint, linear, limits, selected, scale)

Each document that enters changes the mixture, and with it every other document's marginal value. A round computes all
marginal values at the present mask. It then takes the selected documents in rising order of theirs, removes each from
the mixture, and puts the best candidate in, evaluated at the mixture without it (`compiled.sweep`). Simulated annealing
(`annealing`) continues where these rounds end. Under a token budget, documents compete by their gain less the
budget's dual price for their tokens, and the mask is brought within the budget at the end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from datamask.selection.cover import compiled
from datamask.selection.cover.annealing import Schedule, anneal
from datamask.selection.cover.books import Books
from datamask.selection.cover.summed import SummedCoverage
from datamask.selection.problem.limits import Limits
from datamask.shares import part, tell

CANDIDATES, MOST = 1024, 24  # candidates to enter in a round; how many are evaluated anew for each selected document
ROUNDS, LEAST = 24, 3e-5  # rounds at most; stop after a round that gains less than this share of the scale
# Between rounds in which all unselected documents are evaluated, so many in all, only the best of the last such are.
EVERY, SCREENED = 6, 8192
DRAWS = 115  # random swaps evaluated for each selected document
MOST_READ = 4_000_000_000  # numbers of rows that random swaps, or rounds, read at most: half a minute on one core
NEAR = 4  # random swaps draw from the best unselected documents, so many for each selected one
WARM, COOL = 0.1, 0.01  # first and last temperature, as a multiple of scale / selected documents


@dataclass(frozen=True)
class Effort:
    """How long is searched. rounds: of comparing every selected document; draws: of random swaps, a document."""

    rounds: int = ROUNDS
    draws: int = DRAWS
    seed: int = 0  # of the random swaps


def improve(
    joint: SummedCoverage,
    linear: np.ndarray,  # (N,) the linear part of a document's gain
    limits: Limits,
    selected: np.ndarray,  # (N,) bool, within the limits
    scale: float,  # the span of f, which tolerances and temperatures are relative to
    price: float = 0.0,  # the budget's dual price; 0 where documents are counted
    effort: Effort = Effort(),
    size: float | None = None,  # the whole budget, if these rows and limits are a part of the problem
) -> np.ndarray:
    """(N,) bool: a mask whose value is no less than that of `selected`, within the same limits."""
    before, selected = selected, selected.copy()
    mass = (1 - joint.alpha) * limits.weights / (size or limits.size)
    value = linear - price * limits.weights  # net of the budget's dual price, so that lengths compare
    if not 0 < selected.sum() < len(selected):
        return selected
    books = Books.of(limits, selected)
    count, each = int(selected.sum()), max(1, len(joint.rows.index) // len(selected))
    rounds = min(effort.rounds, max(2, MOST_READ // (count * MOST * each)))
    with part(0, 0.25 if effort.draws else 1):
        _rounds(joint, mass, value, selected, books, scale, rounds)
    found = [before, _mended(joint, mass, linear, limits, selected, books)]
    if effort.draws:
        gain = _gains(joint, mass, value, selected)
        outside = np.flatnonzero(~selected)
        near = outside[np.argsort(-gain[outside], kind="stable")[: NEAR * int(selected.sum())]]
        unit = scale / int(selected.sum())
        pairs = min(effort.draws * int(selected.sum()), MOST_READ // (2 * each))
        schedule = Schedule(pairs, WARM * unit, COOL * unit, effort.seed)
        with part(0.25, 0.9):
            anneal(joint, mass, value, selected, near, gain, books, schedule)
        with part(0.9, 1):
            _rounds(joint, mass, value, selected, books, scale, rounds)
        found.append(_mended(joint, mass, linear, limits, selected, books))
    within = [mask for mask in found if mask is before or not limits.violations(mask)]
    return max(within, key=lambda mask: value_of(joint, linear, mass, mask))


def value_of(joint: SummedCoverage, linear: np.ndarray, mass: np.ndarray, mask: np.ndarray) -> float:
    """The linear part and the coverage of a mask (N,) bool."""
    level = joint.level_of(mass, mask)
    used = joint.t > 0
    return float(linear[mask].sum() + joint.t[used] @ np.log(level[used]))


def grow(joint: SummedCoverage, linear: np.ndarray, limits: Limits, size: float | None = None) -> np.ndarray:
    """Row numbers in the order in which exact greedy takes them (cynical selection, arXiv 1709.02279, made lazy)."""
    mass = (1 - joint.alpha) * limits.weights / (size or limits.size)
    ranking = np.empty(len(linear), np.int64)
    level = np.maximum(joint.floor, 1e-12)
    taken = compiled.lazy_greedy(
        *joint.arrays, level, mass, linear, limits.weights, limits.size,
        np.arange(len(linear)), ranking,
    )  # fmt: skip
    rest = np.ones(len(linear), bool)
    rest[ranking[:taken]] = False
    return np.concatenate([ranking[:taken], np.flatnonzero(rest)])


def _rounds(
    joint: SummedCoverage, mass: np.ndarray, value: np.ndarray, selected: np.ndarray, books: Books,
    scale: float, rounds: int,
) -> None:  # fmt: skip
    gain = np.empty(len(value))
    near = np.zeros(0, np.int64)
    for number in range(rounds):
        tell(number / rounds)
        inside = np.flatnonzero(selected)
        whole = number % EVERY == 0
        outside = np.flatnonzero(~selected) if whole else near[~selected[near]]
        joint.rows.gains(
            joint.t, joint.level_of(mass, selected), mass, value, selected, np.concatenate([inside, outside]), gain
        )
        order = inside[np.argsort(gain[inside], kind="stable")]
        if whole:  # documents that leave are looked at too
            near = np.sort(np.concatenate([inside, outside[np.argsort(-gain[outside], kind="stable")[:SCREENED]]]))
        wanted = min(CANDIDATES, len(outside))
        best = outside[np.argsort(-gain[outside], kind="stable")[:wanted]]
        gained, swaps, books.spent = compiled.sweep(
            *joint.arrays, joint.level_of(mass, selected), mass, value, selected, order, best, gain[best], MOST,
            1e-9 * scale, books.weights, books.spent, books.room, *books.bounds,
        )  # fmt: skip
        if not swaps or gained < LEAST * scale:
            break


def _mended(
    joint: SummedCoverage,
    mass: np.ndarray,
    linear: np.ndarray,
    limits: Limits,
    selected: np.ndarray,
    books: Books,
) -> np.ndarray:
    """A copy of the mask, brought within a token budget: the least marginal values per token are removed, then the
    greatest added that still fit."""
    selected, weights = selected.copy(), limits.weights
    if limits.counted:
        return selected
    books = replace(books, sums=books.sums.copy(), length=books.length.copy())
    for entering in (False, True):
        gain = _gains(joint, mass, linear, selected) / weights
        order = np.argsort(-gain if entering else gain, kind="stable")
        for row in order[selected[order] != entering]:
            if not entering and books.spent <= 1e-9:
                break
            if entering and books.spent + weights[row] > 1e-9:
                continue
            pair = (-1, row) if entering else (row, -1)
            if compiled.allowed(*pair, weights, books.spent, np.inf, *books.bounds):
                selected[row] = entering
                sign = 1.0 if entering else -1.0
                books.spent += sign * weights[row]
                compiled.book(row, sign, weights, *books.bounds[:2], *books.bounds[4:])
    return selected


def _gains(joint: SummedCoverage, mass: np.ndarray, value: np.ndarray, selected: np.ndarray) -> np.ndarray:
    found = np.empty(len(value))
    which = np.arange(len(value))
    joint.rows.gains(joint.t, joint.level_of(mass, selected), mass, value, selected, which, found)
    return found
