"""The limits beside the budget as prices: a level for the budget and one for each limit, found by Newton steps.

    levels = Levels(limits)
    found = levels.solve(z, CLIPPED)       # p = clip(z − found.lower, 0, 1) holds the budget and the limits
    found.lower                            # (N,) what each document's score is lowered by, the budget's level included

Minimised is the dual Σ w φ(z − τ − A ν) + τ·size + Σ_r max(ν_r·high_r, ν_r·low_r): smooth and convex but for the kink of
each limit at ν_r = 0, where a multiplier rests while its limit has room (steps stay in an orthant, as in Andrew and
Gao's OWL-QN, ICML 2007). Few multipliers, however many documents: a step costs two looks at N numbers.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog, minimize

from datamask.errors import InputError
from datamask.selection.limits import Limits

STEPS = 40
ENOUGH = 1e-9  # of the budget: how exactly it and the limits are met

Link = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


def clipped(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """p = clip(x, 0, 1): its integral, itself, its slope. (N,) each."""
    p = x.clamp(0, 1)
    return p * (x - p / 2), p, ((x > 0) & (x < 1)).to(x.dtype)


def logistic(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """p = 1 / (1 + e⁻ˣ): its integral, itself, its slope. (N,) each."""
    p = torch.sigmoid(x)
    return torch.nn.functional.softplus(x), p, p * (1 - p)


class Found(NamedTuple):
    level: float  # of the budget
    multipliers: np.ndarray  # (R,) of the limits
    lower: torch.Tensor  # (N,) level + A·multipliers
    p: torch.Tensor  # (N,)
    value: float  # of the dual


class Levels:
    """The rows of all limits. Multipliers are per unit of the budget, those of the length bound per its mean ratio."""

    def __init__(self, limits: Limits) -> None:
        self.weights = torch.from_numpy(limits.weights)
        self.size = limits.size
        self.total = float(self.weights.sum())
        self.codes = [torch.from_numpy(grouping.codes) for grouping in limits.groupings]
        self.widths = [len(grouping.names) for grouping in limits.groupings]
        lows = [grouping.low for grouping in limits.groupings]
        highs = [grouping.high for grouping in limits.groupings]
        self.ratio: torch.Tensor | None = None
        if limits.length is not None:  # per unit of weight, scaled to a mean of one
            scale = float(limits.length.coefficients.sum() / limits.weights.sum())
            self.ratio = torch.from_numpy(limits.length.coefficients / limits.weights / scale)
            lows.append(np.array([limits.length.low / scale]))
            highs.append(np.array([limits.length.high / scale]))
        self.low, self.high = np.concatenate(lows), np.minimum(np.concatenate(highs), 1e100)
        self.count = len(self.low)
        self.multipliers = np.zeros(self.count)  # kept: the next start

    def lowered(self, multipliers: np.ndarray) -> torch.Tensor:
        """A·multipliers: (N,)."""
        total, start = torch.zeros_like(self.weights), 0
        values = torch.from_numpy(multipliers)
        for codes, width in zip(self.codes, self.widths, strict=True):
            total += values[start : start + width][codes]
            start += width
        return total if self.ratio is None else total.add_(self.ratio, alpha=float(multipliers[-1]))

    def used(self, mass: torch.Tensor) -> np.ndarray:
        """Aᵀ·mass: (R,)."""
        pairs = zip(self.codes, self.widths, strict=True)
        sums = [torch.bincount(codes, mass, minlength=width).numpy() for codes, width in pairs]
        if self.ratio is not None:
            sums.append(np.array([float(mass @ self.ratio)]))
        return np.concatenate(sums)

    def gram(self, mass: torch.Tensor) -> np.ndarray:
        """[1 A]ᵀ diag(mass) [1 A]: (1 + R, 1 + R)."""
        found = np.zeros((1 + self.count, 1 + self.count))
        found[0, 0] = float(mass.sum())
        found[0, 1:] = found[1:, 0] = self.used(mass)
        starts = np.concatenate([[1], 1 + np.cumsum(self.widths)]).astype(int)
        for a, (codes, width) in enumerate(zip(self.codes, self.widths, strict=True)):
            rows = slice(starts[a], starts[a] + width)
            found[rows, rows] = np.diag(found[0, rows])
            for b in range(a):
                joined = torch.bincount(codes * self.widths[b] + self.codes[b], mass, minlength=width * self.widths[b])
                columns = slice(starts[b], starts[b] + self.widths[b])
                found[rows, columns] = joined.numpy().reshape(width, -1)
                found[columns, rows] = found[rows, columns].T
            if self.ratio is not None:
                found[rows, -1] = found[-1, rows] = torch.bincount(codes, mass * self.ratio, minlength=width).numpy()
        if self.ratio is not None:
            found[-1, -1] = float(mass @ self.ratio.square())
        return found

    def columns(self, index: torch.Tensor, multipliers: np.ndarray) -> torch.Tensor:
        """(n, 1 + r) of [1 A] for some documents: the limits that bind alone, those with a multiplier."""
        parts, start = [torch.ones(len(index), 1, dtype=torch.float64)], 0
        for codes, width in zip(self.codes, self.widths, strict=True):
            binding = torch.from_numpy(np.flatnonzero(multipliers[start : start + width]))
            parts.append((codes[index][:, None] == binding).double())
            start += width
        if self.ratio is not None and multipliers[-1]:
            parts.append(self.ratio[index][:, None])
        return torch.cat(parts, dim=1)

    def ends(self, multipliers: np.ndarray) -> float:
        """Σ_r max(ν_r·high_r, ν_r·low_r): what the limits' ends add to a dual value."""
        return float(multipliers.clip(0) @ self.high - (-multipliers).clip(0) @ self.low)

    def programme(self, price: torch.Tensor, unspent: float) -> tuple[torch.Tensor, float, np.ndarray]:
        """In a small pool: the s within the budget and the limits that maximises Σ w·price·s, the budget's level and
        the multipliers, by HiGHS.

        :raises InputError: not even a fractional selection is within the limits.
        """
        rows = self.dense * self.weights.numpy()
        ends = np.concatenate([[self.size], self.high, [unspent - self.size], -self.low])
        kept = np.abs(ends) < 1e90
        both = np.concatenate([rows, -rows])[kept]
        scale = float(self.weights.max())
        gain = (self.weights * price).numpy()
        unit = max(float(np.abs(gain).max()), 1e-300)
        found = linprog(-gain / unit, both / scale, ends[kept] / scale, bounds=(0, 1), method="highs")
        if found.status == 2:
            raise InputError(
                "no selection holds all limits at once (budget, quotas, length_tolerance); loosen one of them"
            )
        if found.x is None:
            return torch.full_like(price, self.size / self.total), 0.0, np.zeros(self.count)
        duals = np.zeros(len(ends))
        duals[kept] = -found.ineqlin.marginals * unit / scale
        upper, lower = np.split(duals, 2)
        x = upper - lower
        return torch.from_numpy(found.x).clamp(0, 1), float(x[0]), x[1:]

    @cached_property
    def dense(self) -> np.ndarray:
        """[1 A]ᵀ: (1 + R, N), of a small pool."""
        rows = np.zeros((1 + self.count, len(self.weights)))
        rows[0] = 1
        start = 1
        for codes, width in zip(self.codes, self.widths, strict=True):
            rows[start + codes.numpy(), np.arange(len(codes))] = 1
            start += width
        if self.ratio is not None:
            rows[-1] = self.ratio.numpy()
        return rows

    def solve(self, z: torch.Tensor, link: Link, start: np.ndarray | None = None) -> Found:
        """The levels at which p = link(z − lower) spends the budget within the limits, nearly.

        start: (1 + R,) level and multipliers to begin at; the last call's multipliers without.
        """
        if start is None:
            share = max(0.0, 1 - self.size / self.total)
            start = np.append(float(torch.quantile(z[:: max(1, len(z) // 10_000)], share)) - 0.5, self.multipliers)
        x, value, gradient, mass = self._at(start, z, link)
        spread = float(z.max() - z.min()) + 1.0
        for _ in range(STEPS):
            slope = self._slope(x, gradient)
            if np.abs(slope).max() <= ENOUGH * self.size:
                break
            free = np.flatnonzero((slope != 0) | (x != 0))
            free = free if 0 in free else np.append(0, free)
            orthant = np.where(x != 0, np.sign(x), -np.sign(slope))
            hessian = self.gram(mass)[np.ix_(free, free)]
            hessian[np.diag_indices(len(free))] += 1e-9 * hessian.diagonal().max() + 1e-9 * self.size / spread
            step = np.zeros(len(x))
            step[free] = np.linalg.lstsq(hessian, -slope[free], rcond=1e-12)[0]
            step *= min(1.0, spread / max(float(np.abs(step).max()), 1e-300))
            share = 1.0
            while True:
                then = x + share * step
                then[1:] = np.where(then[1:] * orthant[1:] < 0, 0.0, then[1:])  # stays in the orthant
                found = self._at(then, z, link)
                if found[1] < value - 1e-4 * share * abs(float(slope @ (then - x))) / max(share, 1e-12) or share < 1e-6:
                    break
                share /= 2
            if found[1] >= value:
                x, value = self._slowly(x, z, link)
                break
            x, value, gradient, mass = found
        self.multipliers = x[1:].copy()
        lower = x[0] + self.lowered(x[1:])
        return Found(float(x[0]), x[1:], lower, link(z - lower)[1], value)

    def _at(
        self, x: np.ndarray, z: torch.Tensor, link: Link
    ) -> tuple[np.ndarray, float, tuple[np.ndarray, np.ndarray], torch.Tensor]:
        """x, the dual's value, its gradient just above and just below each kink, and the weights of its Hessian."""
        integral, p, slope = link(z - (x[0] + self.lowered(x[1:])))
        mass = self.weights * p
        value = float(self.weights @ integral) + x[0] * self.size + self.ends(x[1:])
        used = self.used(mass)
        over = self.size - float(mass.sum())
        gradient = np.append(over, self.high - used), np.append(over, self.low - used)
        return x, value, gradient, self.weights * slope

    def _slope(self, x: np.ndarray, gradient: tuple[np.ndarray, np.ndarray]) -> np.ndarray:
        """The gradient; at a kink the least of its subgradients: 0 where a limit has room."""
        above, below = gradient
        at_kink = np.where(above < 0, above, np.where(below > 0, below, 0.0))
        found = np.where(x > 0, above, np.where(x < 0, below, at_kink))
        found[0] = above[0]
        return found

    def _slowly(self, x: np.ndarray, z: torch.Tensor, link: Link) -> tuple[np.ndarray, float]:
        """Where Newton's steps end short (few documents, or none, are between 0 and 1): L-BFGS-B, each multiplier in
        two parts that are not negative."""

        def dual(split: np.ndarray) -> tuple[float, np.ndarray]:
            upper, lower = split[1 : 1 + self.count], split[1 + self.count :]
            point = np.append(split[0], upper - lower)
            integral, p, _ = link(z - (point[0] + self.lowered(point[1:])))
            mass = self.weights * p
            value = float(self.weights @ integral) + split[0] * self.size
            value += float(upper @ np.where(upper > 0, self.high, 0.0) - lower @ self.low)
            used = self.used(mass)
            slope = np.concatenate([[self.size - float(mass.sum())], self.high - used, used - self.low])
            return value / self.size, slope / self.size

        split = np.concatenate([x[:1], np.maximum(x[1:], 0), np.maximum(-x[1:], 0)])
        found = minimize(
            dual,
            split,
            jac=True,
            method="L-BFGS-B",
            bounds=[(None, None)] + [(0, None)] * (2 * self.count),
            options={"maxiter": 200, "ftol": 1e-14, "gtol": 1e-10, "maxcor": 30},
        )
        point = np.append(found.x[0], found.x[1 : 1 + self.count] - found.x[1 + self.count :])
        return point, float(found.fun) * self.size
