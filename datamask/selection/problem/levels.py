"""The dual prices of the budget and the limits: a level τ for the budget and a multiplier ν_r for each limit.

    levels = Levels(limits)
    found = levels.solve(z, CLIPPED)       # p = clip(z − found.lower, 0, 1) holds the budget and the limits
    found.lower                            # (N,) what each document's score is lowered by, the budget's level included

With a rate for each document, p = clip(z − rate · found.lower, 0, 1), and below w is w / rate and φ of what this clips.
They minimise the dual Σ w φ(z − τ − A ν) + τ·size + Σ_r max(ν_r·high_r, ν_r·low_r). With one column of quotas the dual
separates: the level of value v is τ clipped to [a_v, b_v], the levels at which its documents use exactly their greatest
and their least share. These do not depend on τ, so all values are solved at once. Other limits, and those of
several kinds, are solved together, by proximal Newton with a trust region (`solve_jointly`). There are few multipliers,
whatever N is. The dual is smooth in them except at 0, where the multiplier of a limit that does not bind stays. Its
Hessian, [1 A]ᵀ diag(w·slope) [1 A], costs one more set of sums over the documents. A step minimises the quadratic model
plus the exact non-smooth part (proximal Newton; Lee, Sun and Saunders, SIAM J. Optim. 2014). Written with each
multiplier as a difference of two non-negative variables, that is a least-squares problem with bounds.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import linprog, lsq_linear

from datamask.compiling import compiled
from datamask.errors import InputError
from datamask.selection.problem.limits import NO_SELECTION, NOTHING, Limits

STEPS = 60  # Newton steps of the levels of one column's values at most
ENOUGH = 1e-10  # tolerance of the budget and the limits, as a share of the budget
JOINTLY, JOINT_STEPS = 1e-8, 40  # the same where limits are solved together, and Newton steps at most
WIDER = 100.0, 10.0, 1.0  # where the plain solve fails, z is divided by these in turn, each solution starting the next
# Added to the Hessian's diagonal, as a share of each entry: the quotas of each column add up to the budget's row, so
# the Hessian is singular.
RIDGE = 1e-7
ENDED = 1e-6  # where no step helps any more, limits missed by at most this share of the budget count as met
SNAP = 1e-13  # multipliers below this share of the greatest are set to 0
# By the ratio of the true to the predicted gain: below WORSE a step is rejected, above GOOD the region grows.
WORSE, GOOD = 1e-4, 0.7
RUN = 4096  # numbers added before their sum is added to the others', which keeps rounding small

CLIPPED, LOGISTIC = False, True  # links: p = clip(x, 0, 1), or 1 / (1 + e⁻ˣ)


@compiled
def link_at(x, logistic):  # type: ignore[no-untyped-def]
    """p at x: its integral, itself, its slope."""
    if logistic:
        e = np.exp(-abs(x))
        return max(x, 0.0) + np.log1p(e), (1.0 if x >= 0 else e) / (1 + e), e / (1 + e) ** 2
    p = min(max(x, 0.0), 1.0)
    return p * (x - p / 2), p, 1.0 if 0 < x < 1 else 0.0


@compiled
def dual_sums(z, rate, documents, x, logistic, used, hessian, p):  # type: ignore[no-untyped-def]
    """Fills p (N,), adds to used (1 + R,) = [1 A]ᵀ w p and to the dual's Hessian (1 + R, 1 + R), and returns Σ w φ.

    rate: (N,), or empty where it is 1; documents: weights (N,), and codes and charges (N, kinds); x: (1 + R,).
    """
    weights, codes, charges = documents
    kinds, total = codes.shape[1], 0.0
    for first in range(0, len(z), RUN):
        part = 0.0
        for i in range(first, min(first + RUN, len(z))):
            level, each = x[0], rate[i] if len(rate) else 1.0
            for kind in range(kinds):
                level += charges[i, kind] * x[1 + codes[i, kind]]
            integral, p[i], slope = link_at(z[i] - each * level, logistic)
            part += weights[i] / each * integral
            mass, bent = weights[i] * p[i], weights[i] * each * slope
            used[0] += mass
            hessian[0, 0] += bent
            for kind in range(kinds):
                code, charge = 1 + codes[i, kind], charges[i, kind]
                used[code] += mass * charge
                if bent != 0:
                    hessian[0, code] += bent * charge
                    hessian[code, 0] += bent * charge
                    for other in range(kinds):
                        hessian[code, 1 + codes[i, other]] += bent * charge * charges[i, other]
        total += part
    return total


@compiled
def column_sums(z, rate, weights, codes, levels, logistic, used, slopes):  # type: ignore[no-untyped-def]
    """Adds to used (V,) what each value's documents use at its level (V,), and to slopes (V,) how fast that falls."""
    for i in range(len(z)):
        each, code = rate[i] if len(rate) else 1.0, codes[i]
        _, p, slope = link_at(z[i] - each * levels[code], logistic)
        used[code] += weights[i] * p
        slopes[code] += weights[i] * each * slope


class Scores(NamedTuple):
    """What p is made of."""

    z: np.ndarray  # (N,)
    rate: np.ndarray  # (N,), or empty: 1 for each
    link: bool


class DualSolution(NamedTuple):
    """The solution of the dual at one z."""

    level: float  # τ, the budget's dual price
    multipliers: np.ndarray  # (R,) the limits' dual prices
    lower: torch.Tensor  # (N,) level + A·multipliers
    p: torch.Tensor  # (N,)
    value: float  # the dual's value
    found: bool  # False where Newton's steps failed and the solve was not `sure`


class Levels:
    """The dual problem of a set of limits, with warm starts from one `solve` to the next.

    Multipliers are per unit of the budget, of the limits scaled as `Limits.rows` are.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.size = limits, limits.size
        self.weights = torch.from_numpy(limits.weights)
        self.total = float(self.weights.sum())
        codes, charges = limits.charges
        # Units of the level and the multipliers, in which the trust region is measured: one moves no score by more than
        # 1. A bound on length charges a document of a token a million times what it charges one of a million.
        self.unit = np.ones(1 + len(limits.names))
        np.minimum.at(self.unit, 1 + codes, 1 / np.maximum(np.abs(charges), 1e-300))
        self.documents = limits.weights, codes, charges
        self.multipliers = np.zeros(len(limits.names))  # this and the next two are the next solve's start
        self.level = 0.0
        self.bands: tuple[np.ndarray, np.ndarray] | None = None

    def scale_start(self, ratio: float) -> None:
        """Multiplies the next solve's start by `ratio`, for a z that is scaled by it."""
        self.level, self.multipliers = ratio * self.level, ratio * self.multipliers
        self.bands = self.bands and (ratio * self.bands[0], ratio * self.bands[1])

    def columns(self, index: torch.Tensor, multipliers: np.ndarray) -> torch.Tensor:
        """(n, 1 + r) columns of [1 A] for these documents (row numbers), for the r limits whose multiplier is not 0."""
        binding = self.limits.rows[np.flatnonzero(multipliers)][:, index.numpy()].toarray()
        return torch.from_numpy(np.concatenate([np.ones((1, len(index))), binding]).T.copy())

    @cached_property
    def binding(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(R,) bool each: which limits have an upper end, a lower end, and both at one place."""
        most, slack = np.asarray(self.limits.rows @ self.limits.weights), 1e-12 * self.total
        capped, floored = self.limits.ceiling < most - slack, self.limits.floor > slack
        return capped, floored, capped & floored & (self.limits.ceiling - self.limits.floor <= 1e-10 * self.size)

    def programme(self, price: torch.Tensor, unspent: float) -> tuple[torch.Tensor, float, np.ndarray]:
        """Solves max Σ w·price·s within the budget and the limits as a linear programme (HiGHS), in a small pool.

        Returns s (N,), the budget's dual price and the limits' (R,). unspent: what of the budget may be left.

        :raises InputError: not even a fractional selection is within the limits.
        """
        rows = np.concatenate([np.ones((1, len(self.weights))), self.limits.rows.toarray()]) * self.weights.numpy()
        ends = np.concatenate([[self.size], self.limits.ceiling, [unspent - self.size], -self.limits.floor])
        kept = np.abs(ends) < 1e90
        both = np.concatenate([rows, -rows])[kept]
        scale = float(self.weights.max())
        gain = (self.weights * price).numpy()
        unit = max(float(np.abs(gain).max()), 1e-300)
        found = linprog(-gain / unit, both / scale, ends[kept] / scale, bounds=(0, 1), method="highs")
        if found.status == 2:
            raise InputError(NO_SELECTION)
        if found.x is None:
            return torch.full_like(price, self.size / self.total), 0.0, np.zeros(len(self.multipliers))
        duals = np.zeros(len(ends))
        duals[kept] = -found.ineqlin.marginals * unit / scale
        upper, lower = np.split(duals, 2)
        x = upper - lower
        return torch.from_numpy(found.x).clamp(0, 1), float(x[0]), x[1:]

    def solve(self, z: torch.Tensor, link: bool, rate: np.ndarray = NOTHING, sure: bool = True) -> DualSolution:
        """The levels at which p = link(z − rate · lower) spends the budget within the limits, or where no step helps
        any more and the solve is `sure`, comes nearest to that. rate: (N,); empty: 1."""
        scores, done = Scores(z.numpy(), rate, link), True
        if self.limits.one_column:
            x = np.append(*self._column(self.limits.kinds[0].codes, scores))
        else:
            x, done = self.solve_jointly(scores, np.append(self.level, self.multipliers))
        if done or sure:
            self.level, self.multipliers = float(x[0]), x[1:]
        value, _, _, p = self.look(scores, x)
        lower = float(x[0]) + torch.from_numpy(self.limits.charge(x[1:]))
        return DualSolution(float(x[0]), x[1:].copy(), lower, torch.from_numpy(p), value, done or sure)

    def look(self, scores: Scores, x: np.ndarray) -> tuple[float, np.ndarray, np.ndarray, np.ndarray]:
        """The dual's value at x (1 + R,), the use of the budget and of each limit there (1 + R,), the dual's Hessian,
        and p (N,)."""
        used, hessian, p = np.zeros(len(x)), np.zeros((len(x), len(x))), np.empty(len(scores.z))
        total = dual_sums(scores.z, scores.rate, self.documents, x, scores.link, used, hessian, p)
        return total + x[0] * self.size + self.limits.ends(x[1:]), used, hessian, p

    def _column(self, codes: np.ndarray, scores: Scores) -> tuple[float, np.ndarray]:
        """The budget's level, and what each value's own level is above it (V,)."""
        low, high, (z, rate, link) = self.limits.floor, self.limits.ceiling, scores
        width = len(low)
        most = np.bincount(codes, self.limits.weights, minlength=width)
        each = rate if len(rate) else 1.0  # below: all, and none, is selected (to 10⁻¹⁷ by the logistic link)
        ends = float(((z - 40) / each).min()), float(((z + 40) / each).max())

        def sums(levels: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            used, slopes = np.zeros((2, width))
            column_sums(z, rate, self.limits.weights, codes, levels, link, used, slopes)
            return used, slopes

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

        least, greatest = self.bands or (np.full(width, self.level), np.full(width, self.level))
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

        level = find_level(excess, self.level, *ends, 10 * ENOUGH * self.size)
        self.bands = np.where(np.isfinite(least), least, level), np.where(np.isfinite(greatest), greatest, level)
        return level, np.clip(level, least, greatest) - level

    # -- all multipliers together

    def solve_jointly(self, scores: Scores, start: np.ndarray) -> tuple[np.ndarray, bool]:
        """The multipliers (1 + R,), the budget's level first, and whether budget and limits hold to `JOINTLY`.

        Where few documents are fractional the dual has little curvature, and Newton's steps may fail. Then problems
        with z divided by `WIDER`, in which more documents are fractional, are solved first.
        """
        x, done = self._steps(scores, start)
        for wide in WIDER if not done else ():
            x, done = self._steps(scores._replace(z=scores.z / wide), x / wide)
            x = x * wide
        return x, done or self.missed(x, self.look(scores, x)[1]) <= ENDED * self.size

    def _steps(self, scores: Scores, start: np.ndarray) -> tuple[np.ndarray, bool]:
        x, (value, used, hessian, _) = start, self.look(scores, start)
        region = max(1.0, float(scores.z.std()))
        for _ in range(JOINT_STEPS):
            missed = self.missed(x, used)
            if missed <= JOINTLY * self.size:
                return x, True
            then, promised = self.step(x, used, hessian, region)
            if promised <= 1e-15 * (1 + abs(value)):
                break
            other = self.look(scores, then)
            share, length = (value - other[0]) / promised, float((np.abs(then - x) / self.unit).max())
            rounded = promised <= 1e-9 * (1 + abs(value)) and self.missed(then, other[1]) < missed
            if share < WORSE and not rounded:
                region = length / 4
                continue
            if share > GOOD and length > 0.9 * region:
                region *= 4
            elif share < 0.25:
                region = length / 2
            x, (value, used, hessian, _) = then, other
        return x, False

    def missed(self, x: np.ndarray, used: np.ndarray) -> float:
        """The greatest violation of the optimality conditions at x, in the budget's unit.

        That is how far the budget is from being spent, a limit is broken, or a limit with a multiplier is not tight.
        """
        over, under, v = used[1:] - self.limits.ceiling, self.limits.floor - used[1:], x[1:]
        each = np.where(v > 0, np.abs(over), np.where(v < 0, np.abs(under), np.maximum(over, under).clip(0)))
        return float(max(abs(used[0] - self.size), each.max(initial=0.0)))

    def step(self, x: np.ndarray, used: np.ndarray, hessian: np.ndarray, region: float) -> tuple[np.ndarray, float]:
        """The minimiser of the model within the trust region around x, (1 + R,), and the gain it predicts."""
        low, high, v, (capped, floored, tight) = self.limits.floor, self.limits.ceiling, x[1:], self.binding
        up = np.flatnonzero(capped)  # one variable for each upper end, and below one for each lower end
        down = np.flatnonzero(floored & ~tight)
        index = np.concatenate([[0], 1 + up, 1 + down])
        unit = self.unit[index]
        signed = unit * np.repeat([1.0, -1.0], [1 + len(up), len(down)])
        slope = unit * np.concatenate([[self.size - used[0]], high[up] - used[1 + up], used[1 + down] - low[down]])
        now = np.concatenate([[x[0]], v[up], -v[down]]) / unit
        now[1 : 1 + len(up)] = np.where(tight[up], now[1 : 1 + len(up)], now[1 : 1 + len(up)].clip(0))
        now[1 + len(up) :] = now[1 + len(up) :].clip(0)
        least = np.concatenate([[-np.inf], np.where(tight[up], -np.inf, 0.0), np.zeros(len(down))])
        bent = signed[:, None] * hessian[np.ix_(index, index)] * signed
        least_bent = self.total / len(self.weights) * unit**2
        bent[np.diag_indices_from(bent)] += RIDGE * np.maximum(bent.diagonal(), least_bent)
        root = np.linalg.cholesky(bent).T
        target = -np.linalg.solve(root.T, slope)
        ends = np.maximum(least - now, -region), np.full(len(now), region)
        change = lsq_linear(root, target, bounds=ends, method="bvls", tol=1e-16, max_iter=20 * len(now)).x
        then = np.clip(now + change, least, None)
        then[1:][np.abs(then[1:]) < SNAP * max(1.0, float(np.abs(then).max()))] = 0
        moved = np.bincount(index, signed * then, len(x))
        d = moved - x
        promised = float((used - np.append(self.size, np.zeros(len(v)))) @ d) - 0.5 * float(d @ hessian @ d)
        return moved, promised - self.limits.ends(moved[1:]) + self.limits.ends(v)


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
