"""The feasible set, 0 ≤ p ≤ 1 within the budget and the limits: projection onto it, linear maximisation, rounding.

    feasible = Feasible(problem.limits)
    p = feasible.project(z)                    # nearest feasible point in the norm weighted by w
    s, bound = feasible.respond(price)         # maximises Σ w_i·price_i·s_i; `bound` is never below the maximum
    mask = feasible.round(p, price)            # 0/1, within the budget and the limits

`price` is a gain per unit of budget, gradient_i / weights_i, so that documents of any length compare.
"""

from __future__ import annotations

from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import Bounds, LinearConstraint, milp
from scipy.sparse import csr_array, vstack

from datamask.compiling import compiled
from datamask.errors import InputError
from datamask.selection.problem.levels import CLIPPED, RUN, Levels, find_level
from datamask.selection.problem.limits import GRAIN, NO_SELECTION, NOTHING, Limits

SPENT = 1e-6  # share of the budget by which a projection may miss it
NEAR = 1e-3, 1e-2, 1e-1  # proximal weights of a linear maximisation, in deviations of the prices, tried in this order
PROGRAMME = 256  # documents, up to which maximisation under limits is a linear programme
WINDOW = 512  # documents nearest the cut in the first integer programme; each next one has four times as many
NODES = 2000  # nodes of branch and bound at most; the best selection found by then is taken
MILP_GAP = 1e-3  # relative gap at which branch and bound may stop
# Share of what may be left of a budget in tokens that is left at first: a thousandth of it may be worth .03 of the
# objective's span, which reduced prices do not say.
LEFT = 0.01


class LimitPrices(NamedTuple):
    """Dual prices of the budget and the limits, per unit of the budget."""

    level: float  # the budget's
    lower: torch.Tensor  # (N,) each document's charge, the level included: the price above which it gains
    multipliers: np.ndarray  # (R,) the limits'

    @classmethod
    def of_budget(cls, level: float, price: torch.Tensor) -> LimitPrices:
        """The dual price of a budget without limits; price: (N,)."""
        return cls(level, torch.full_like(price, level), NOTHING)


class Feasible:
    """The feasible set of some limits. All (N,) tensors are float64 on the CPU."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.weights = torch.from_numpy(limits.weights)
        self.size = limits.size
        self.levels = Levels(limits) if limits else None
        self.answers = Levels(limits) if limits else None  # apart: its warm starts have another scale of prices

    @cached_property
    def total(self) -> float:
        """The whole pool's weight, in the budget's unit."""
        return float(self.weights.sum())

    @property
    def everything(self) -> bool:
        """Whether the budget has room for the whole pool."""
        return self.size >= self.total * (1 - 1e-12)

    def project(self, z: torch.Tensor, scale: torch.Tensor | None = None) -> torch.Tensor:
        """The p nearest to z: argmin Σ w_i scale_i (p_i − z_i)² over the feasible set; scale (N,), positive, is 1 where
        it is None."""
        if self.levels is not None:
            return self.levels.solve(z, CLIPPED, NOTHING if scale is None else 1 / scale.numpy()).p
        level = self._level(z, scale)
        p = (z - (level if scale is None else level / scale)).clamp_(0, 1)
        if abs(spent_at(p.numpy(), np.zeros(0), self.limits.weights, 0.0)[0] - self.size) > SPENT * self.size:
            # z is so large that no float64 level splits the last document: take the vertex
            return self.fill_budget(z if scale is None else scale * z)
        return p

    def respond(self, price: torch.Tensor) -> tuple[torch.Tensor, float]:
        """A feasible s that (nearly) maximises Σ w·price·s, and an upper bound on that maximum."""
        s, dual = self.answer(price)
        return s, self.most(price, dual)

    def answer(self, price: torch.Tensor) -> tuple[torch.Tensor, LimitPrices]:
        """A feasible s that (nearly) maximises Σ w·price·s, and dual prices that prove it by `most`."""
        if self.answers is None:
            cut = self.cut(price)
            return self.fill_budget(price, cut), LimitPrices.of_budget(cut, price)
        if len(price) <= PROGRAMME:
            s, level, multipliers = self.answers.programme(price, self.limits.unspent)
            return s, LimitPrices(level, level + torch.from_numpy(self.limits.charge(multipliers)), multipliers)
        # a proximal point with a small quadratic term gives dual prices close to the linear programme's
        middle, deviation = float(price.mean()), float(price.std(correction=0)) or 1.0
        for near in NEAR:
            step = near * deviation
            found = self.answers.solve((price - middle) / step, CLIPPED, sure=near == NEAR[-1])
            if found.found:
                break
        multipliers = step * found.multipliers
        level, lower = middle + step * found.level, middle + step * found.lower
        return found.p, LimitPrices(level, lower, multipliers)

    def dual(self, price: torch.Tensor) -> LimitPrices:
        """The dual prices of the budget and the limits at these prices: of the budget alone, its cut."""
        return self.answer(price)[1] if self.limits else LimitPrices.of_budget(self.cut(price), price)

    def most(self, price: torch.Tensor, dual: LimitPrices) -> float:
        """An upper bound on Σ w·price·s over all selections within the budget and the limits, valid for any dual."""
        reduced = (price - dual.lower).numpy()
        over = float(triple(self.limits.weights, reduced, reduced > 0))
        return over + self.limits.held(dual.level, dual.multipliers)

    def reduced(self, price: torch.Tensor) -> torch.Tensor:
        """(N,) reduced prices: each price less what the dual prices of the budget and the limits charge."""
        return price - self.dual(price).lower

    def near_cut(
        self, p: torch.Tensor, price: torch.Tensor, decided: float, wider: float, fewest: float, most: float
    ) -> torch.Tensor | None:
        """(N,) bool: the undecided documents: those that are fractional, or on the wrong side of the cut, and those
        nearest to it; `wider` times the former, or `fewest`. None where these are more than the share `most` of all.

        decided: how near to 0 or 1 a p (N,) counts as that.
        """
        above = self.reduced(price)
        free = (p > decided) & (p < 1 - decided) | (p <= decided) & (above > 0) | (p >= 1 - decided) & (above < 0)
        wanted = int(max(wider * int(free.sum()), fewest))
        if wanted > most * len(p):
            return None
        free[above.abs().topk(wanted, largest=False).indices] = True
        return free

    def uniform(self) -> torch.Tensor:
        """(N,) the uniform p that spends the budget, ignoring limits."""
        return torch.full_like(self.weights, min(1.0, self.size / self.total))

    def uniform_start(self) -> torch.Tensor:
        """(N,) the uniform start: the feasible p nearest to the uniform one."""
        return self.project(self.uniform()) if self.limits else self.uniform()

    def cut(self, prices: torch.Tensor) -> float:
        """The price of the last document taken when the budget is filled by falling price, ignoring limits.

        Sorts only the prices near it. In NumPy, on one core: PyTorch's cores wait for one another longer than such
        short arrays take.
        """
        price, weights = prices.numpy(), self.limits.weights
        low, high = price.min(), price.max()
        if len(price) > 4096:
            thin, of = price[:: len(price) // 2048], weights[:: len(price) // 2048]
            order = np.argsort(-thin, kind="stable")
            spent = np.cumsum(of[order]) * (weights.sum() / of.sum())
            at = int(np.searchsorted(spent, self.size))
            first, last = thin[order[max(0, at - 160)]], thin[order[min(len(order) - 1, at + 160)]]
            above = weights[price > first].sum()
            if above < self.size and above + weights[(price <= first) & (price >= last)].sum() >= self.size:
                low, high = last, first
        inside = (price >= low) & (price <= high)
        values, of = price[inside], weights[inside]
        order = np.argsort(-values, kind="stable")
        spent = np.cumsum(of[order]) + weights[price > high].sum()
        at = min(int(np.searchsorted(spent, self.size * (1 - 1e-15))), len(order) - 1)
        return float(values[order[at]])

    def round(self, p: torch.Tensor, price: torch.Tensor) -> torch.Tensor:
        """(N,) bool: the documents of greatest p within the budget and the limits; ties go to the greater price, then
        to the lower row."""
        order = np.lexsort((-price.numpy(), -np.round(p.numpy(), 9)))
        if not self.limits:
            return torch.from_numpy(fill_in_order(self.limits, order))
        above = self.reduced(price).numpy()
        kept = float(np.median(np.abs(above))) or 1.0
        return torch.from_numpy(repair_selection(self.limits, above / kept + 2 * p.numpy() - 1, p.numpy() > 0.5))

    # -- one budget: closed forms

    def _level(self, z: torch.Tensor, scale: torch.Tensor | None = None) -> float:
        """τ with Σ w·clip(z − τ / scale, 0, 1) = size, by Newton steps kept inside a bracket."""
        rate = None if scale is None else 1 / scale
        middle, low, high = (z, z, z) if scale is None else (scale * (z - 0.5) + 0.5, scale * (z - 1) + 1, scale * z)
        least, most = float(low.min()) - 1, float(high.max())
        share = 1 - min(self.size / float(self.weights.sum()), 1.0)
        thin = middle.numpy()[:: max(1, len(middle) // 10_000)]
        at = int(share * (len(thin) - 1))  # by NumPy: a fiftieth of the time of torch.quantile's sort
        level = min(max(float(np.partition(thin, at)[at]) - 0.5, least), most)
        arrays = z.numpy(), np.zeros(0) if rate is None else rate.numpy(), self.limits.weights

        def excess(level: float) -> tuple[float, float]:
            spent, falls = spent_at(*arrays, level)
            return spent - self.size, falls

        return find_level(excess, level, least, most, 1e-9 * self.size)

    def fill_budget(self, price: torch.Tensor, cut: float | None = None) -> torch.Tensor:
        """(N,) in [0, 1]: the budget filled by falling price, the last document in part, ignoring limits. cut: that of
        these prices, where it is known."""
        prices, weights, cut = price.numpy(), self.limits.weights, self.cut(price) if cut is None else cut
        above, at = prices > cut, np.flatnonzero(prices == cut)
        filled, before = above.astype(np.float64), np.cumsum(weights[at]) - weights[at]
        filled[at] = ((self.size - weights[above].sum() - before) / weights[at]).clip(0, 1)
        return torch.from_numpy(filled)


def fill_in_order(limits: Limits, order: np.ndarray) -> np.ndarray:
    """(N,) bool: documents taken in this order as far as the budget and the limits allow.

    order: (N,) row numbers, best first.

    :raises InputError: no selection holds the limits.
    """
    if limits.counted and limits.one_column:
        return fill_one(limits, order)
    if limits:
        value = np.empty(len(order))
        value[order] = 1 - np.arange(len(order)) / len(order)
        above = Feasible(limits).reduced(torch.from_numpy(value)).numpy()
        return repair_selection(limits, above, above > 0)
    selected = np.zeros(len(order), dtype=bool)
    top_up(limits, order, selected)
    return selected


def top_up(limits: Limits, order: np.ndarray, selected: np.ndarray) -> None:
    """Spends what is left of a budget on the next documents in order that fit, until none does.

    order: row numbers; selected: (N,) bool, changed in place.
    """
    weights = limits.weights
    left = limits.size * (1 + GRAIN) - weights[selected].sum()
    rest = order[~selected[order]]
    while len(rest := rest[weights[rest] <= left]):
        taken = rest[np.cumsum(weights[rest]) <= left]  # the longest run from the front that fits
        selected[taken] = True
        left -= weights[taken].sum()
        rest = rest[len(taken) :]


# -- from an order of preference to a mask within the limits
#
# One column of quotas over a budget in documents is filled in order. Everything else is a small integer programme over
# the documents nearest the cut, with the others fixed (HiGHS, through SciPy; Huangfu and Hall, Math. Program. Comput.
# 2018). Where that is infeasible, more documents are freed, finally all of them, so that only infeasible limits fail.


def fill_one(limits: Limits, order: np.ndarray) -> np.ndarray:
    """One column of quotas, documents counted: first each value's minimum in order, then the rest in order."""
    value = limits.kinds[0].codes
    by_value = order[np.argsort(value[order], kind="stable")]
    codes = value[by_value]
    within = np.empty(len(order))
    within[by_value] = np.arange(len(order)) - np.searchsorted(codes, np.arange(len(limits.names)))[codes]
    selected = within < limits.low[value] - GRAIN
    rest = order[(~selected & (within < limits.high[value] - GRAIN))[order]]
    selected[rest[: max(0, round(limits.size - selected.sum()))]] = True
    return selected


def repair_selection(limits: Limits, value: np.ndarray, start: np.ndarray) -> np.ndarray:
    """(N,) bool: a selection within the limits that maximises Σ w·value, documents whose value is far from 0 fixed.

    value: (N,) reduced prices, per unit of the budget. start: (N,) bool, the selection that fixes the far documents.

    :raises InputError: no selection is within the limits.
    """
    if limits.counted and limits.one_column:
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
            raise InputError(NO_SELECTION)
        window *= 4


def _best(limits: Limits, value: np.ndarray) -> np.ndarray | None:
    """(n,) bool: the selection of greatest Σ w·value within the limits, up to `MILP_GAP`; None if none is found."""
    gain = limits.weights * value
    gain /= max(float(np.abs(gain).max()), 1e-300)
    # The solver's 0 and 1 are inexact, so a sum may end just beyond a limit: limits tightened by several margins are
    # tried until the rounded selection holds the true ones.
    for left in sorted({LEFT * limits.unspent, limits.unspent}):
        rows, low, high = _rows(limits, left)
        for tighten in (1e-7, 0.0, 1e-6, 1e-5):
            room = np.minimum(tighten, (high - low) / 4).clip(0)
            found = milp(
                -gain,
                integrality=np.ones(len(gain)),
                bounds=Bounds(0, 1),
                constraints=LinearConstraint(rows, low + room, high - room),
                options={"node_limit": NODES, "mip_rel_gap": MILP_GAP, "presolve": True},
            )
            if found.x is not None:
                selected: np.ndarray = found.x > 0.5
                if not limits.violations(selected):
                    return selected
    return None


def _rows(limits: Limits, left: float) -> tuple[csr_array, np.ndarray, np.ndarray]:
    """Budget and limits as rows of coefficients with lower and upper ends, so that the budget's greatest one is 1.

    left: of the budget, at most.
    """
    grain, most = GRAIN * max(limits.size, 1.0), float(limits.weights.max())
    rows = [csr_array(limits.weights[None]), *([limits.rows * limits.weights] if limits else [])]
    low = np.append(limits.size - left, limits.floor) - grain
    high = np.append(limits.size, limits.ceiling) + grain
    return csr_array(vstack(rows)) / most, low / most, np.minimum(high, 1e18) / most


# -- loops over the documents of a step: one thread each, as the arrays are too short to be worth sharing between cores


@compiled
def triple(a, b, c):  # type: ignore[no-untyped-def]
    """Σ a_i b_i c_i. (N,) float64 each, or bool."""
    total = 0.0
    for first in range(0, len(a), RUN):
        part = 0.0
        for i in range(first, min(first + RUN, len(a))):
            part += a[i] * b[i] * c[i]
        total += part
    return total


@compiled
def spent_at(z, rate, weights, level):  # type: ignore[no-untyped-def]
    """Σ w·clip(z − level·rate, 0, 1), and the rate at which it falls with the level. rate: (N,), or empty where it is 1
    for each."""
    total, slope = 0.0, 0.0
    for first in range(0, len(z), RUN):
        part, falls = 0.0, 0.0
        for i in range(first, min(first + RUN, len(z))):
            each = rate[i] if len(rate) else 1.0
            p = z[i] - level * each
            if p >= 1:
                part += weights[i]
            elif p > 0:
                part += weights[i] * p
                falls += weights[i] * each
        total += part
        slope += falls
    return total, slope
