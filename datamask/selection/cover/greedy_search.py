"""From a fractional optimum to a mask: local search by exact gains.

    found = improve(joint, linear, limits, selected, scale)

Each document that enters changes the mixture, and with it every other document's marginal value. A round computes all
marginal values at the present mask. It then takes the selected documents in rising order of theirs, removes each from
the mixture, and puts the best candidate in, evaluated at the mixture without it (`compiled.sweep_swaps`). Before these
rounds the fractional optimum is followed to a mask (`sharpen`). Swaps keep quotas and the length bound. Documents
compete by their gain less the budget's dual price for their share of it, and the mask is brought within the budget and
the limits at the end.
"""

from __future__ import annotations

from copy import copy
from dataclasses import dataclass, field

import numpy as np

from datamask.errors import InputError
from datamask.selection.cover import compiled
from datamask.selection.cover.sharpen import sharpen
from datamask.selection.metrics.coverage import SummedCoverage, curve_value
from datamask.selection.problem.feasible import fill_in_order, repair_selection
from datamask.selection.problem.limits import NOTHING, Limits, allowed, book_row, running_sums
from datamask.shares import share_part, tell_share

CANDIDATES = 1024  # to enter in a round
ROUNDS, LEAST = 24, 3e-5  # rounds at most; stop after a round that gains less than this share of the scale
# Between rounds in which all unselected documents are evaluated, so many in all, only the best of the last such are.
EVERY, SCREENED = 6, 8192
MOST_READ = 4_000_000_000  # numbers of rows that rounds read at most: half a minute on one core
ROOM = 0.002  # how far the search may be off a token budget, as a share of it


@dataclass(frozen=True)
class Effort:
    """How long is searched. rounds: of comparing every selected document; search: the sweeps of `sharpen`, of the usual
    number; 0: the rounds begin at the mask that is given."""

    rounds: int = ROUNDS
    search: float = 1.0


@dataclass(frozen=True)
class Optimum:
    """What is known of the fractional optimum, beside which a mask is searched."""

    price: float = 0.0  # the budget's dual price
    above: np.ndarray = field(default_factory=lambda: NOTHING)  # (N,) gains there, less what budget and limits charge
    p: np.ndarray = field(default_factory=lambda: NOTHING)  # (N,) itself
    multipliers: np.ndarray = field(default_factory=lambda: NOTHING)  # (R,) the limits' dual prices


def improve(
    joint: SummedCoverage,
    linear: np.ndarray,  # (N,) the linear part of a document's gain
    limits: Limits,
    selected: np.ndarray,  # (N,) bool, within the limits
    scale: float,  # the span of f, which tolerances are relative to
    effort: Effort = Effort(),
    size: float | None = None,  # the whole budget, if these rows and limits are a part of the problem
    optimum: Optimum = Optimum(),
) -> np.ndarray:
    """(N,) bool: a mask whose value is no less than that of `selected`, within the same limits."""
    before, selected = selected, selected.copy()
    mass = (1 - joint.alpha) * limits.weights / (size or limits.size)
    value = linear - optimum.price * limits.weights  # net of the budget's dual price, so that lengths compare
    charged = value - limits.charge(optimum.multipliers) * limits.weights
    if not 0 < selected.sum() < len(selected):
        return selected
    count, each = int(selected.sum()), max(1, len(joint.rows.index) // len(selected))
    rounds = min(effort.rounds, max(2, MOST_READ // (count * compiled.MOST * each)))
    found = [before]

    def reached(mask: np.ndarray) -> float:
        return float(linear[mask].sum()) + curve_value(joint.t, joint.levels(mass * mask), joint.curves)

    def mended(search: Search) -> np.ndarray:
        """The mask (N,) brought within the budget, and if need be the limits."""
        mask = search.within_budget(linear)
        broken = bool(limits and limits.violations(mask))
        if not broken and (limits.counted or not limits):
            return mask
        gain = search.gains(linear=charged) / limits.weights
        try:
            repaired = repair_selection(limits, gain, search.documents.selected)
        except InputError:  # branch and bound ended before it found one: another of the masks is taken
            return mask
        return repaired if broken or reached(repaired) > reached(mask) else mask

    if effort.search:
        with share_part(0, 0.9):
            if joint.curves.worth:  # whole documents: greedy is above what sharpening finds, in a fifth of the time
                selected = fill_in_order(limits, grow_greedily(joint, linear, limits, size))
            else:
                at = optimum.p, optimum.above
                selected = sharpen(joint, mass, charged, *at, limits, optimum.multipliers, effort.search)
        selected = mended(Search(joint, limits, compiled.Documents(mass, value, selected)))
        found.append(selected.copy())
    search = Search(joint, limits, compiled.Documents(mass, value, selected))
    with share_part(0.9 if effort.search else 0, 1):
        search.rounds(scale, rounds)
    found.append(mended(search))
    within = [mask for mask in found if mask is before or not limits.violations(mask)]
    return max(within, key=reached)


def grow_greedily(joint: SummedCoverage, linear: np.ndarray, limits: Limits, size: float | None = None) -> np.ndarray:
    """Row numbers in the order in which exact greedy takes them (cynical selection, arXiv 1709.02279, made lazy)."""
    mass = (1 - joint.alpha) * limits.weights / (size or limits.size)
    ranking = np.empty(len(linear), np.int64)
    level = np.maximum(joint.levels(0.0), 1e-12)
    rows, mixture = joint.rows.arrays, compiled.Mixture(joint.t, level, joint.curves)
    taken = compiled.lazy_greedy(rows, mixture, mass, linear, limits.weights, limits.size, ranking)
    rest = np.ones(len(linear), bool)
    rest[ranking[:taken]] = False
    return np.concatenate([ranking[:taken], np.flatnonzero(rest)])


class Search:
    """A mask whose documents are swapped, in place, and what it spends."""

    def __init__(self, joint: SummedCoverage, limits: Limits, documents: compiled.Documents) -> None:
        self.joint, self.limits, self.documents = joint, limits, documents
        self.sums = running_sums(limits, documents.selected)
        self.spent = float(limits.weights[documents.selected].sum()) - limits.size  # beyond the budget
        # how far off it a mask may be
        self.room = 0.0 if limits.counted else max(ROOM * limits.size, float(np.median(limits.weights)))

    @property
    def mixture(self) -> compiled.Mixture:
        """The mixture at the present mask."""
        joint, documents = self.joint, self.documents
        return compiled.Mixture(joint.t, joint.levels(documents.mass * documents.selected), joint.curves)

    def gains(self, which: np.ndarray | slice = slice(None), linear: np.ndarray | None = None) -> np.ndarray:
        """The marginal values of these documents (row numbers), of all by default. linear: (N,) the linear part of
        these, if it is another."""
        documents = self.documents if linear is None else self.documents._replace(linear=linear)
        rows, found = np.arange(len(documents.selected))[which], np.empty(len(documents.selected))
        self.joint.rows.gains(self.mixture, documents, rows, found)
        return found[rows]

    def rounds(self, scale: float, rounds: int) -> None:
        """Compares the selected documents with the best of the others, so many times at most."""
        selected = self.documents.selected
        gain = np.empty(len(selected))
        near = np.zeros(0, np.int64)
        for number in range(rounds):
            tell_share(1 - 0.75**number)  # rounds end when they gain nothing, mostly long before the last
            inside = np.flatnonzero(selected)
            whole = number % EVERY == 0
            outside = np.flatnonzero(~selected) if whole else near[~selected[near]]
            self.joint.rows.gains(self.mixture, self.documents, np.concatenate([inside, outside]), gain)
            order = inside[np.argsort(gain[inside], kind="stable")]
            if whole:  # documents that leave are looked at too
                near = np.sort(np.concatenate([inside, outside[np.argsort(-gain[outside], kind="stable")[:SCREENED]]]))
            best = outside[np.argsort(-gain[outside], kind="stable")[:CANDIDATES]]
            budget = self.spent, self.room, 1e-9 * scale
            gained, swaps, self.spent = compiled.sweep_swaps(
                self.joint.rows.arrays, self.mixture, self.documents, order, best, gain[best], budget, self.sums
            )
            if not swaps or gained < LEAST * scale:
                break

    def within_budget(self, linear: np.ndarray) -> np.ndarray:
        """A copy of the mask, brought within the budget: the least marginal values per unit of it are removed, then the
        greatest added that still fit. linear: (N,) the linear part of these."""
        selected, weights = self.documents.selected.copy(), self.limits.weights
        if self.limits.counted and not self.spent:
            return selected
        found = copy(self)
        found.documents = self.documents._replace(linear=linear, selected=selected)
        found.sums = self.sums._replace(sums=self.sums.sums.copy())
        for entering in (False, True):
            which = np.flatnonzero(selected != entering)
            least = weights[which].min(initial=np.inf)
            if found.spent + least > 1e-9 if entering else found.spent <= 1e-9:
                continue
            gain = found.gains(which) / weights[which]
            for row in which[np.argsort(-gain if entering else gain, kind="stable")]:
                if not entering and found.spent <= 1e-9:
                    break
                if entering and found.spent + weights[row] > 1e-9:
                    continue
                if allowed(*((-1, row) if entering else (row, -1)), found.spent, np.inf, found.sums):
                    selected[row] = entering
                    sign = 1.0 if entering else -1.0
                    found.spent += sign * weights[row]
                    book_row(row, sign, found.sums)
        return selected
