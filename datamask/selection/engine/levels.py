"""The dual prices of the budget and the limits: a level τ for the budget and a multiplier ν_r for each limit.

    levels = Levels(limits)
    found = levels.solve(z, clipped)       # p = clip(z − found.lower, 0, 1) holds the budget and the limits
    found.lower                            # (N,) what each document's score is lowered by, the budget's level included

They minimise the dual Σ w φ(z − τ − A ν) + τ·size + Σ_r max(ν_r·high_r, ν_r·low_r). With one column of quotas the dual
separates: the level of value v is τ clipped to [a_v, b_v], the levels at which its documents use exactly their greatest
and their least share. These do not depend on τ, so all values are solved at once. Several columns are solved in turn
(as in iterative proportional fitting), and the multiplier of a length bound by an outer root search.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog

from datamask.errors import InputError
from datamask.selection.engine.joint_levels import JointDual, solve_jointly
from datamask.selection.problem.limits import Limits

STEPS = 60  # Newton steps of the levels of one column's values at most
CYCLES = 8  # passes over several columns at most
LENGTHS = 20  # steps of the root search for the length bound's multiplier at most
UNCHANGED = 1e-9  # passes over the columns stop when no multiplier changes by more than this, relatively
ENOUGH = 1e-10  # tolerance of the budget and the limits, as a share of the budget
JOINTLY = 1e-8  # the same in `solve_jointly`

Link = Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor, torch.Tensor]]


def clipped(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """p = clip(x, 0, 1): its integral, itself, its slope. (N,) each."""
    p = x.clamp(0, 1)
    return p * (x - p / 2), p, ((x > 0) & (x < 1)).to(x.dtype)


def logistic(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """p = 1 / (1 + e⁻ˣ): its integral, itself, its slope. (N,) each."""
    p = torch.sigmoid(x)
    return torch.nn.functional.softplus(x), p, p * (1 - p)


class DualSolution(NamedTuple):
    """The solution of the dual at one z."""

    level: float  # τ, the budget's dual price
    multipliers: np.ndarray  # (R,) the limits' dual prices
    lower: torch.Tensor  # (N,) level + A·multipliers
    p: torch.Tensor  # (N,)
    value: float  # the dual's value


class Levels:
    """The dual problem of a set of limits, with warm starts from one `solve` to the next.

    Multipliers are per unit of the budget; the length bound's coefficients are scaled to a mean of one (`ratio`).
    """

    def __init__(self, limits: Limits) -> None:
        self.weights = torch.from_numpy(limits.weights)
        self.size = limits.size
        self.total = float(self.weights.sum())
        self.codes = [torch.from_numpy(grouping.codes) for grouping in limits.groupings]
        self.widths = [len(grouping.names) for grouping in limits.groupings]
        lows = [grouping.low for grouping in limits.groupings]
        highs = [grouping.high for grouping in limits.groupings]
        self.ratio: torch.Tensor | None = None
        self.scale = 1.0  # mean of the length bound's coefficients per unit of the budget
        if limits.length is not None:  # per unit of weight, scaled to a mean of one
            self.scale = float(limits.length.coefficients.sum() / limits.weights.sum())
            self.ratio = torch.from_numpy(limits.length.coefficients / limits.weights / self.scale)
            lows.append(np.array([limits.length.low / self.scale]))
            highs.append(np.array([limits.length.high / self.scale]))
        self.low, self.high = np.concatenate(lows), np.minimum(np.concatenate(highs), 1e100)
        self.count = len(self.low)
        self.multipliers = np.zeros(self.count)  # this and the next two are the next solve's start
        self.level = 0.0
        self.bands: dict[int, tuple[np.ndarray, np.ndarray]] = {}

    def scale_start(self, ratio: float) -> None:
        """Multiplies the next solve's start by `ratio`, for a z that is scaled by it."""
        self.level, self.multipliers = ratio * self.level, ratio * self.multipliers
        self.bands = {column: (ratio * least, ratio * greatest) for column, (least, greatest) in self.bands.items()}

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

    def columns(self, index: torch.Tensor, multipliers: np.ndarray) -> torch.Tensor:
        """(n, 1 + r) columns of [1 A] for these documents (row numbers), for the r limits whose multiplier is not 0."""
        parts, start = [torch.ones(len(index), 1, dtype=torch.float64)], 0
        for codes, width in zip(self.codes, self.widths, strict=True):
            binding = torch.from_numpy(np.flatnonzero(multipliers[start : start + width]))
            parts.append((codes[index][:, None] == binding).double())
            start += width
        if self.ratio is not None and multipliers[-1]:
            parts.append(self.ratio[index][:, None])
        return torch.cat(parts, dim=1)

    def ends(self, multipliers: np.ndarray) -> float:
        """Σ_r max(ν_r·high_r, ν_r·low_r): what the limits' ends add to the dual's value."""
        return float(multipliers.clip(0) @ self.high - (-multipliers).clip(0) @ self.low)

    def programme(self, price: torch.Tensor, unspent: float) -> tuple[torch.Tensor, float, np.ndarray]:
        """Solves max Σ w·price·s within the budget and the limits as a linear programme (HiGHS), in a small pool.

        Returns s (N,), the budget's dual price and the limits' (R,). unspent: what of the budget may be left.

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
    def joint(self) -> JointDual:
        """The solver of all multipliers together."""
        return JointDual(self)

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

    def solve(self, z: torch.Tensor, link: Link) -> DualSolution:
        """The levels at which p = link(z − lower) spends the budget within the limits."""
        return self.solve_quickly(z, link) or self._solve_in_turn(z, link)

    def solve_quickly(self, z: torch.Tensor, link: Link) -> DualSolution | None:
        """As `solve`, but None where limits of several kinds are solved together and Newton's steps fail."""
        if len(self.codes) + (self.ratio is not None) > 1:
            begin = np.append(self.level, self.multipliers)
            x, done = solve_jointly(self, z, link, begin, JOINTLY)
            if done:
                self.level, self.multipliers = float(x[0]), x[1:]
                lower = self.level + self.lowered(self.multipliers)
                integral, p, _ = link(z - lower)
                value = float(self.weights @ integral) + self.level * self.size + self.ends(self.multipliers)
                return DualSolution(self.level, self.multipliers.copy(), lower, p, value)
            return None
        return self._solve_in_turn(z, link)

    def _solve_in_turn(self, z: torch.Tensor, link: Link) -> DualSolution:
        """Solves one kind of limit after the other: the length bound in an outer root search, the quotas inside it."""
        if self.ratio is None:
            return self._within(z, link)
        ratio, start = self.ratio, self.multipliers.copy()

        def at(multiplier: float) -> DualSolution:
            self.multipliers = np.append(self.multipliers[:-1], multiplier)
            return self._within(z, link)

        def used(found: DualSolution) -> float:
            return float((self.weights * found.p) @ ratio)

        found = at(0.0)
        low, high = float(self.low[-1]), float(self.high[-1])
        if not (over := used(found) > high) and used(found) >= low:
            return found
        target, last = (high, found) if over else (low, found)

        def excess(multiplier: float) -> tuple[float, float]:
            nonlocal last
            last = at(multiplier)
            mass = self.weights * link(z - last.lower)[2]
            total = float(mass.sum())
            middle = float(mass @ ratio) / total if total else 0.0
            return used(last) - target, float(mass @ (ratio - middle).square())

        far = 1e3 * (float(z.max() - z.min()) + 1.0)
        first = start[-1] if start[-1] and (start[-1] > 0) == over else 0.0
        find_level(excess, first, 0.0 if over else -far, far if over else 0.0, 1e3 * ENOUGH * self.size, LENGTHS)
        return last

    def _within(self, z: torch.Tensor, link: Link) -> DualSolution:
        """The budget's level and the quotas' multipliers, for the present multiplier of the length bound."""
        x, starts = self.multipliers, np.cumsum([0, *self.widths])
        length = 0.0 if self.ratio is None else float(x[-1])
        base = z if not length else z - length * self.ratio  # type: ignore[operator]
        level = self._level_of(base, link) if not self.codes else 0.0
        for _ in range(CYCLES if len(self.codes) > 1 else min(1, len(self.codes))):
            before = x.copy()
            for column, codes in enumerate(self.codes):
                mine = slice(starts[column], starts[column + 1])
                others = x.copy()
                others[mine] = 0
                rest = base if len(self.codes) == 1 else z - self.lowered(others)
                level, x[mine] = self._column(column, codes, rest, link, mine)
            if np.abs(x - before).max() <= UNCHANGED * (1 + np.abs(x).max()):
                break
        lower = level + self.lowered(x)
        integral, p, _ = link(z - lower)
        value = float(self.weights @ integral) + level * self.size + self.ends(x)
        return DualSolution(level, x.copy(), lower, p, value)

    def _level_of(self, z: torch.Tensor, link: Link) -> float:
        """The budget's level where there are no quotas."""

        def excess(level: float) -> tuple[float, float]:
            _, p, slope = link(z - level)
            return float(self.weights @ p) - self.size, float(self.weights @ slope)

        self.level = find_level(excess, self.level, *_ends(z), ENOUGH * self.size)
        return self.level

    def _column(
        self, column: int, codes: torch.Tensor, z: torch.Tensor, link: Link, mine: slice
    ) -> tuple[float, np.ndarray]:
        """The budget's level, and what each value's own level is above it (V,)."""
        low, high, width = self.low[mine], self.high[mine], self.widths[column]
        most = torch.bincount(codes, self.weights, minlength=width).numpy()
        ends = _ends(z)

        def sums(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            _, p, slope = link(z - torch.from_numpy(levels)[codes])
            used = torch.bincount(codes, self.weights * p, minlength=width).numpy()
            return used, torch.bincount(codes, self.weights * slope, minlength=width).numpy()

        def level_of_value(targets: np.ndarray, start: np.ndarray, wanted: np.ndarray) -> np.ndarray:
            """The levels (V,) at which each value uses its target: Newton's steps, each kept in its bracket."""
            levels = np.clip(start, *ends)
            below, above = np.full(width, ends[0]), np.full(width, ends[1])
            for _ in range(STEPS):
                used, slope = sums(levels)
                over = used - targets
                below, above = np.where(over > 0, levels, below), np.where(over > 0, above, levels)
                open_ = (
                    wanted & (np.abs(over) > ENOUGH * self.size / width) & (above - below > 1e-13 * (ends[1] - ends[0]))
                )
                if not open_.any():
                    break
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    then = levels + over / slope
                middle = (below + above) / 2
                then = np.where((slope > 0) & (then > below) & (then < above), then, middle)
                levels = np.where(open_, then, levels)
            return levels

        least, greatest = self.bands.get(column, (np.full(width, self.level), np.full(width, self.level)))
        capped, floored = high < most * (1 - 1e-12), low > 0
        least = np.where(capped, level_of_value(high, least, capped) if capped.any() else least, -np.inf)
        tight = high - low <= ENOUGH * self.size
        begin = np.where(capped & np.isfinite(least), least, greatest)
        greatest = np.where(
            floored, level_of_value(low, begin, floored & ~(tight & capped)) if floored.any() else greatest, np.inf
        )
        greatest = np.where(tight & capped, least, np.maximum(greatest, least))

        def excess(level: float) -> tuple[float, float]:
            used, slope = sums(np.clip(level, least, greatest))
            inside = (level > least) & (level < greatest)
            return float(used.sum()) - self.size, float(slope[inside].sum())

        self.level = find_level(excess, self.level, *ends, 10 * ENOUGH * self.size)
        levels = np.clip(self.level, least, greatest)
        self.bands[column] = (
            np.where(np.isfinite(least), least, self.level),
            np.where(np.isfinite(greatest), greatest, self.level),
        )
        return self.level, levels - self.level


def find_level(
    excess: Callable[[float], tuple[float, float]],
    level: float,
    low: float,
    high: float,
    enough: float,
    steps: int = 100,
) -> float:
    """The level at which the overspending of a budget is 0: Newton steps from `level`, kept inside [low, high].

    excess: level -> (overspending, the rate at which it falls). enough: stop when |overspending| is at most this.
    """
    level = min(max(level, low), high)
    for _ in range(steps):
        over, slope = excess(level)
        low, high = (level, high) if over > 0 else (low, level)
        if abs(over) <= enough or high - low <= 1e-15 * max(1.0, abs(level)):
            break
        level = level + over / slope if slope else (low + high) / 2
        if not low < level < high:
            level = (low + high) / 2
    return level


def _ends(z: torch.Tensor) -> tuple[float, float]:
    """Levels at which everything, and nothing, is selected (to within 10⁻¹⁷ where the link is logistic)."""
    return float(z.min()) - 40, float(z.max()) + 40
