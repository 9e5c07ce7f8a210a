"""The dual prices of the budget and the limits: a level τ for the budget and a multiplier ν_r for each limit.

    levels = Levels(limits)
    found = levels.solve(z, clipped)       # p = clip(z − found.lower, 0, 1) holds the budget and the limits
    found.lower                            # (N,) what each document's score is lowered by, the budget's level included

They minimise the dual Σ w φ(z − τ − A ν) + τ·size + Σ_r max(ν_r·high_r, ν_r·low_r). With one column of quotas the dual
separates: the level of value v is τ clipped to [a_v, b_v], the levels at which its documents use exactly their greatest
and their least share. These do not depend on τ, so all values are solved at once. Other limits, and those of
several kinds, are solved together, by proximal Newton with a trust region (`JointDual`). There are few multipliers,
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
from scipy.sparse import csr_array, vstack

from datamask.errors import InputError
from datamask.selection.problem.limits import Limits

STEPS = 60  # Newton steps of the levels of one column's values at most
ENOUGH = 1e-10  # tolerance of the budget and the limits, as a share of the budget
JOINTLY, JOINT_STEPS = 1e-8, 40  # the same where limits are solved together, and Newton steps at most
WIDER = 100.0, 10.0, 1.0  # where the plain solve fails, z is divided by these in turn, each solution starting the next
# Added to the Hessian's diagonal, as a share of its greatest entry: the quotas of each column add up to the budget's
# row, so the Hessian is singular.
RIDGE = 1e-7
ENDED = 1e-6  # where no step helps any more, limits missed by at most this share of the budget count as met
SNAP = 1e-13  # multipliers below this share of the greatest are set to 0
# By the ratio of the true to the predicted gain: below WORSE a step is rejected, above GOOD the region grows.
WORSE, GOOD = 1e-4, 0.7

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

    Multipliers are per unit of the budget, of the limits scaled as `Limits.rows` are.
    """

    def __init__(self, limits: Limits) -> None:
        self.limits, self.size = limits, limits.size
        self.weights = torch.from_numpy(limits.weights)
        self.total = float(self.weights.sum())
        self.multipliers = np.zeros(len(limits.names))  # this and the next two are the next solve's start
        self.level = 0.0
        self.bands: tuple[np.ndarray, np.ndarray] | None = None

    def scale_start(self, ratio: float) -> None:
        """Multiplies the next solve's start by `ratio`, for a z that is scaled by it."""
        self.level, self.multipliers = ratio * self.level, ratio * self.multipliers
        self.bands = self.bands and (ratio * self.bands[0], ratio * self.bands[1])

    def lowered(self, multipliers: np.ndarray) -> torch.Tensor:
        """A·multipliers: (N,)."""
        return torch.from_numpy(self.limits.charge(multipliers))

    def used(self, mass: torch.Tensor) -> np.ndarray:
        """Aᵀ·mass: (R,)."""
        return np.asarray(self.limits.rows @ mass.numpy())

    def columns(self, index: torch.Tensor, multipliers: np.ndarray) -> torch.Tensor:
        """(n, 1 + r) columns of [1 A] for these documents (row numbers), for the r limits whose multiplier is not 0."""
        binding = self.limits.rows[np.flatnonzero(multipliers)][:, index.numpy()].toarray()
        return torch.from_numpy(np.concatenate([np.ones((1, len(index))), binding]).T.copy())

    @cached_property
    def joint(self) -> JointDual:
        """The solver of all multipliers together."""
        return JointDual(self)

    @cached_property
    def dense(self) -> np.ndarray:
        """[1 A]ᵀ: (1 + R, N), of a small pool."""
        return np.concatenate([np.ones((1, len(self.weights))), self.limits.rows.toarray()])

    def programme(self, price: torch.Tensor, unspent: float) -> tuple[torch.Tensor, float, np.ndarray]:
        """Solves max Σ w·price·s within the budget and the limits as a linear programme (HiGHS), in a small pool.

        Returns s (N,), the budget's dual price and the limits' (R,). unspent: what of the budget may be left.

        :raises InputError: not even a fractional selection is within the limits.
        """
        rows = self.dense * self.weights.numpy()
        ends = np.concatenate([[self.size], self.limits.ceiling, [unspent - self.size], -self.limits.floor])
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
            return torch.full_like(price, self.size / self.total), 0.0, np.zeros(len(self.multipliers))
        duals = np.zeros(len(ends))
        duals[kept] = -found.ineqlin.marginals * unit / scale
        upper, lower = np.split(duals, 2)
        x = upper - lower
        return torch.from_numpy(found.x).clamp(0, 1), float(x[0]), x[1:]

    def solve(self, z: torch.Tensor, link: Link) -> DualSolution:
        """The levels at which p = link(z − lower) spends the budget within the limits, or where no step helps any more,
        comes nearest to that."""
        return self.solve_quickly(z, link, sure=True)  # type: ignore[return-value]

    def solve_quickly(self, z: torch.Tensor, link: Link, sure: bool = False) -> DualSolution | None:
        """As `solve`, but None where limits of several kinds are solved together and Newton's steps fail (unless
        `sure`)."""
        if self.limits.one_column:
            self.level, self.multipliers = self._column(self.limits.kinds[0].codes, z, link)
        else:
            x, done = solve_jointly(self, z, link, np.append(self.level, self.multipliers), JOINTLY)
            if not (done or sure):
                return None
            self.level, self.multipliers = float(x[0]), x[1:]
        lower = self.level + self.lowered(self.multipliers)
        integral, p, _ = link(z - lower)
        value = float(self.weights @ integral) + self.level * self.size + self.limits.ends(self.multipliers)
        return DualSolution(self.level, self.multipliers.copy(), lower, p, value)

    def _column(self, numbers: np.ndarray, z: torch.Tensor, link: Link) -> tuple[float, np.ndarray]:
        """The budget's level, and what each value's own level is above it (V,)."""
        codes, low, high = torch.from_numpy(numbers), self.limits.floor, self.limits.ceiling
        width = len(low)
        most = torch.bincount(codes, self.weights, minlength=width).numpy()
        ends = float(z.min()) - 40, float(z.max()) + 40  # all, and none, is selected (to 10⁻¹⁷ by the logistic link)

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


class JointDual:
    """The dual's value, gradient and Hessian as sums over documents."""

    def __init__(self, levels: Levels) -> None:
        self.levels, self.low, self.high = levels, levels.limits.floor, levels.limits.ceiling
        self.rows = vstack([csr_array(np.ones((1, len(levels.weights)))), levels.limits.rows]).tocsr()
        most = levels.used(levels.weights)
        self.mean = levels.total / len(levels.weights)  # a document's mean weight
        slack = 1e-12 * levels.total
        self.capped, self.floored = self.high < most - slack, self.low > slack
        self.tight = self.capped & self.floored & (self.high - self.low <= 1e-10 * levels.size)

    def look(self, z: torch.Tensor, link: Link, x: np.ndarray) -> tuple[float, np.ndarray, torch.Tensor]:
        """The dual's value at x (1 + R,), the use of the budget and of each limit there (1 + R,), and w·slope (N,)."""
        levels = self.levels
        integral, p, slope = link(z - (x[0] + levels.lowered(x[1:])))
        mass = levels.weights * p
        value = float(levels.weights @ integral) + x[0] * levels.size + levels.limits.ends(x[1:])
        return value, np.append(float(mass.sum()), levels.used(mass)), levels.weights * slope

    def hessian(self, mass: torch.Tensor) -> np.ndarray:
        """[1 A]ᵀ diag(mass) [1 A]: (1 + R, 1 + R)."""
        index = mass.nonzero()[:, 0].numpy()
        rows = self.rows[:, index]
        return (rows * mass.numpy()[index] @ rows.T).toarray()

    def missed(self, x: np.ndarray, used: np.ndarray) -> float:
        """The greatest violation of the optimality conditions at x, in the budget's unit.

        That is how far the budget is from being spent, a limit is broken, or a limit with a multiplier is not tight.
        """
        low, high = self.low, self.high
        over, under, v = used[1:] - high, low - used[1:], x[1:]
        each = np.where(v > 0, np.abs(over), np.where(v < 0, np.abs(under), np.maximum(over, under).clip(0)))
        return float(max(abs(used[0] - self.levels.size), each.max(initial=0.0)))

    def step(self, x: np.ndarray, used: np.ndarray, hessian: np.ndarray, region: float) -> tuple[np.ndarray, float]:
        """The minimiser of the model within the trust region around x, (1 + R,), and the gain it predicts."""
        low, high, v = self.low, self.high, x[1:]
        up = np.flatnonzero(self.capped)  # one variable for each upper end, and below one for each lower end
        down = np.flatnonzero(self.floored & ~self.tight)
        basis = np.zeros((len(x), 1 + len(up) + len(down)))
        basis[0, 0] = 1
        basis[1 + up, 1 + np.arange(len(up))] = 1
        basis[1 + down, 1 + len(up) + np.arange(len(down))] = -1
        slope = np.concatenate([[self.levels.size - used[0]], high[up] - used[1 + up], used[1 + down] - low[down]])
        now = np.concatenate([[x[0]], v[up], -v[down]])
        now[1 : 1 + len(up)] = np.where(self.tight[up], v[up], v[up].clip(0))
        now[1 + len(up) :] = now[1 + len(up) :].clip(0)
        least = np.concatenate([[-np.inf], np.where(self.tight[up], -np.inf, 0.0), np.zeros(len(down))])
        bent = basis.T @ hessian @ basis
        bent[np.diag_indices_from(bent)] += RIDGE * max(float(hessian.diagonal().max()), self.mean)
        root = np.linalg.cholesky(bent).T
        target = -np.linalg.solve(root.T, slope)
        ends = np.maximum(least - now, -region), np.full(len(now), region)
        change = lsq_linear(root, target, bounds=ends, method="bvls", tol=1e-16, max_iter=20 * len(now)).x
        then = np.clip(now + change, least, None)
        then[1:][np.abs(then[1:]) < SNAP * max(1.0, float(np.abs(then).max()))] = 0
        moved = basis @ then
        d = moved - x
        promised = float((used - np.append(self.levels.size, np.zeros(len(v)))) @ d) - 0.5 * float(d @ hessian @ d)
        return moved, promised - self.levels.limits.ends(moved[1:]) + self.levels.limits.ends(v)


def solve_jointly(
    levels: Levels, z: torch.Tensor, link: Link, start: np.ndarray, enough: float
) -> tuple[np.ndarray, bool]:
    """The multipliers (1 + R,), the budget's level first, and whether budget and limits hold to `enough` of the budget.

    Where few documents are fractional the dual has little curvature, and Newton's steps may fail. Then problems with
    z divided by `WIDER`, in which more documents are fractional, are solved first.
    """
    x, done = _steps(levels, z, link, start, enough)
    for wide in WIDER if not done else ():
        x, done = _steps(levels, z / wide, link, x / wide, enough)
        x = x * wide
    return x, done or levels.joint.missed(x, levels.joint.look(z, link, x)[1]) <= ENDED * levels.size


def _steps(levels: Levels, z: torch.Tensor, link: Link, start: np.ndarray, enough: float) -> tuple[np.ndarray, bool]:
    joint, x = levels.joint, start
    value, used, mass = joint.look(z, link, x)
    region, hessian = max(1.0, float(z.std(correction=0))), None
    for _ in range(JOINT_STEPS):
        missed = joint.missed(x, used)
        if missed <= enough * levels.size:
            return x, True
        if hessian is None:
            hessian = joint.hessian(mass)
        then, promised = joint.step(x, used, hessian, region)
        if promised <= 1e-15 * (1 + abs(value)):
            break
        other = joint.look(z, link, then)
        share, length = (value - other[0]) / promised, float(np.abs(then - x).max())
        rounded = promised <= 1e-9 * (1 + abs(value)) and joint.missed(then, other[1]) < missed
        if share < WORSE and not rounded:
            region = length / 4
            continue
        if share > GOOD and length > 0.9 * region:
            region *= 4
        elif share < 0.25:
            region = length / 2
        x, (value, used, mass), hessian = then, other, None
    return x, False


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
