"""The feasible set: 0 ≤ p ≤ 1 within the budget and the limits. Projection on it, best linear response, rounding.

    feasible = Feasible(problem.limits)
    p = feasible.project(z)                    # nearest feasible point, the weights as metric
    s, bound = feasible.respond(price)         # maximises Σ w_i·price_i·s_i; `bound` is never below the maximum
    mask = feasible.round(p, price)            # 0/1, within the budget and the limits to one document

`price` is a gain per unit of budget, gradient_i / weights_i, so that documents of any length compare.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from scipy.optimize import minimize

from datamask.selection.limits import Limits


class Feasible:
    """All (N,) tensors are float64 on the CPU: they are small beside the features."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.weights = torch.from_numpy(limits.weights)
        self.size = limits.size
        self.unit_weights = bool((self.weights == 1).all())
        self.one = 0.0 if self.unit_weights else float(self.weights.max())  # a budget in tokens holds to one document
        self._rows = _Rows(limits) if limits else None

    def project(self, z: torch.Tensor) -> torch.Tensor:
        """The p nearest to z: argmin Σ w_i (p_i − z_i)² over the feasible set."""
        shift = self._rows.shift(z) if self._rows else None
        target = z if shift is None else z - shift
        return (target - self._level(target)).clamp_(0, 1)

    def respond(self, price: torch.Tensor) -> tuple[torch.Tensor, float]:
        """A feasible s that (nearly) maximises Σ w·price·s, and an upper bound on that maximum.

        The bound is the value of a dual point, hence true however well that point was found; it covers every set
        within the budget to one document.
        """
        if self._rows is None:
            s = self._fill(price)
            threshold = self._threshold(price, s)
            return s, self._bound(price, threshold, None, 0.0)
        # a proximal point with a small quadratic term gives dual prices close to the linear programme's
        spread = float(price.std()) or 1.0
        step = 1e-3 * spread
        shift = self._rows.shift(price / step)
        target = price / step - shift
        level = self._level(target)
        s = (target - level).clamp(0, 1)
        return s, self._bound(price, level * step, shift * step, self._rows.cost * step)

    def even(self) -> torch.Tensor:
        """(N,) every document at the budget's share of the pool; limits left aside."""
        return torch.full_like(self.weights, self.size / float(self.weights.sum()))

    def alike(self) -> torch.Tensor:
        """(N,) feasible: every document alike, as far as the limits let it."""
        return self.project(self.even()) if self.limits else self.even()

    def cut(self, price: torch.Tensor) -> float:
        """The price of the last document that the budget has room for, taken by price; limits left aside."""
        return self._threshold(price, self._fill(price))

    def best_fill(self, gain: torch.Tensor) -> torch.Tensor:
        """The budget's greatest gains per unit, limits left aside: (N,) in [0, 1]."""
        return self._fill(gain)

    def round(self, p: torch.Tensor, price: torch.Tensor) -> torch.Tensor:
        """(N,) bool: the documents of greatest p, ties by price then by row, within the budget and the limits."""
        order = np.lexsort((-price.numpy(), -np.round(p.numpy(), 9)))
        return torch.from_numpy(fill_in_order(self.limits, order))

    # -- one budget: closed forms

    def _level(self, z: torch.Tensor) -> float:
        """τ with Σ w·clip(z − τ, 0, 1) = size, by Newton steps kept inside a bracket."""
        low, high = float(z.min()) - 1, float(z.max())
        level = min(max(_quantile(z, 1 - min(self.size / float(self.weights.sum()), 1.0)) - 0.5, low), high)

        def excess(level: float) -> tuple[float, float]:
            shifted = z - level
            over = float((self.weights * shifted.clamp(0, 1)).sum()) - self.size
            return over, float(self.weights[(shifted > 0) & (shifted < 1)].sum())

        return find_level(excess, level, low, high, 1e-9 * self.size)

    def _fill(self, price: torch.Tensor) -> torch.Tensor:
        """Greatest prices first until the budget is spent, the last document in part."""
        s = torch.zeros_like(price)
        if self.unit_weights:
            whole = int(self.size)
            s[torch.topk(price, whole).indices] = 1
            return s
        order = torch.argsort(price, descending=True, stable=True)
        before = self.weights[order].cumsum(0) - self.weights[order]
        s[order] = ((self.size - before) / self.weights[order]).clamp(0, 1)
        return s

    def _threshold(self, price: torch.Tensor, s: torch.Tensor) -> float:
        taken = s > 0
        return float(price[taken].min())

    def _bound(self, price: torch.Tensor, level: float, shift: torch.Tensor | None, cost: float) -> float:
        reduced = price - level if shift is None else price - shift - level
        spent = self.size if level >= 0 else self.size - self.one
        return float((self.weights * reduced.clamp(min=0)).sum()) + level * spent + cost


class _Rows:
    """The limits beside the budget, dualised: `shift` finds what each document's score must be lowered by.

    Minimises the dual of the projection, smooth and convex in one multiplier per limit and side, with L-BFGS-B.
    """

    def __init__(self, limits: Limits) -> None:
        self.weights = limits.weights
        self.size = limits.size
        self.codes = [grouping.codes for grouping in limits.groupings]
        lows = [grouping.low for grouping in limits.groupings]
        highs = [grouping.high for grouping in limits.groupings]
        self.ratio: np.ndarray | None = None
        if limits.length is not None:  # per unit of weight, and scaled to a mean of one
            self.scale = float(limits.length.coefficients.sum() / self.weights.sum())
            self.ratio = limits.length.coefficients / self.weights / self.scale
            lows.append(np.array([limits.length.low / self.scale]))
            highs.append(np.array([limits.length.high / self.scale]))
        self.low, self.high = np.concatenate(lows), np.minimum(np.concatenate(highs), 1e300)
        self.count = len(self.low)
        slack = 0.0 if (self.weights == 1).all() else float(self.weights.max())
        self.slack = slack
        self.multipliers = np.zeros(1 + 2 * self.count)  # level, upper sides, lower sides; kept: the next start
        self.cost = 0.0

    def shift(self, z: torch.Tensor) -> torch.Tensor:
        """(N,) to subtract from z; `cost` is what the limits' ends add to the dual value."""
        values = z.numpy()
        start = self.multipliers.copy()
        start[0] = np.quantile(values, max(0.0, 1 - self.size / self.weights.sum()))
        found = minimize(
            self._dual,
            start,
            args=(values,),
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, None)] + [(0, None)] * (2 * self.count),
            options={"maxiter": 300, "ftol": 1e-13, "gtol": 1e-9, "maxcor": 30},
        )
        self.multipliers = found.x
        upper, lower = self._split(found.x)
        self.cost = float(
            upper @ (np.where(upper > 0, self.high + self.slack, 0)) - lower @ np.maximum(self.low - self.slack, 0)
        )
        return torch.from_numpy(self._lower(upper - lower))

    def _split(self, multipliers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return multipliers[1 : 1 + self.count], multipliers[1 + self.count :]

    def _lower(self, multipliers: np.ndarray) -> np.ndarray:
        total = np.zeros(len(self.weights))
        start = 0
        for codes in self.codes:
            width = int(codes.max()) + 1
            total += multipliers[start : start + width][codes]
            start += width
        if self.ratio is not None:
            total += multipliers[-1] * self.ratio
        return total

    def _dual(self, multipliers: np.ndarray, z: np.ndarray) -> tuple[float, np.ndarray]:
        upper, lower = self._split(multipliers)
        reduced = z - multipliers[0] - self._lower(upper - lower)
        p = reduced.clip(0, 1)
        mass = self.weights * p
        value = float(mass @ (reduced - p / 2)) + multipliers[0] * self.size
        value += float(upper @ np.where(upper > 0, self.high, 0)) - float(lower @ self.low)
        sums = [np.bincount(codes, mass) for codes in self.codes]
        if self.ratio is not None:
            sums.append(np.array([mass @ self.ratio]))
        used = np.concatenate(sums)
        gradient = np.concatenate([[self.size - mass.sum()], self.high - used, used - self.low])
        return value / self.size, gradient / self.size


def fill_in_order(limits: Limits, order: np.ndarray) -> np.ndarray:
    """(N,) bool: documents taken in this order as far as the budget and the limits let them.

    Minimums are met first, then the rest of the budget is spent under the maximums; a length bound is met last, by
    exchanging documents next in order.
    """
    selected = np.zeros(len(order), dtype=bool)
    weights = limits.weights
    if not limits:
        if (weights == 1).all():
            selected[order[: int(limits.size)]] = True
        else:
            spent = np.cumsum(weights[order])
            selected[order[spent <= limits.size]] = True
            _top_up(limits, order, selected)
        return selected
    from datamask.selection.repair import fill_limited

    return fill_limited(limits, order)


def _top_up(limits: Limits, order: np.ndarray, selected: np.ndarray) -> None:
    """Spends what is left of a token budget on the next documents that still fit."""
    weights = limits.weights
    left = limits.size - weights[selected].sum()
    rest = order[~selected[order]]
    while len(rest := rest[weights[rest] <= left]):
        selected[rest[0]] = True
        left -= weights[rest[0]]
        rest = rest[1:]


def find_level(
    excess: Callable[[float], tuple[float, float]], level: float, low: float, high: float, enough: float
) -> float:
    """Where what a budget is overspent by is 0: Newton steps from `level`, kept inside a bracket.

    excess: of a level, that and how fast it falls there. enough: ends within so much of 0.
    """
    for _ in range(100):
        over, slope = excess(level)
        low, high = (level, high) if over > 0 else (low, level)
        if abs(over) <= enough or high - low <= 1e-15 * max(1.0, abs(level)):
            break
        level = level + over / slope if slope else (low + high) / 2
        if not low < level < high:
            level = (low + high) / 2
    return level


def _quantile(z: torch.Tensor, share: float, most: int = 10_000) -> float:
    """About: of every so many values alone. NumPy's selection takes a fiftieth of torch.quantile's sort."""
    thin = z.numpy()[:: max(1, len(z) // most)]
    at = int(share * (len(thin) - 1))
    return float(np.partition(thin, at)[at])
