"""The dual prices of the budget and of several kinds of limits together: proximal Newton with a trust region.

    x, done = solve_jointly(levels, z, link, start, enough)     # x: (1 + R,), the budget's level first

There are few multipliers, whatever N is. The dual of `levels` is smooth in them except at 0, where the multiplier of a
limit that does not bind stays. Its Hessian, [1 A]ᵀ diag(w·slope) [1 A], costs one more set of sums over the documents.
A step minimises the quadratic model plus the exact non-smooth part (proximal Newton; Lee, Sun and Saunders, SIAM J.
Optim. 2014). Written with each multiplier as a difference of two non-negative variables, that is a least-squares
problem with bounds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import torch
from scipy.optimize import lsq_linear

if TYPE_CHECKING:
    from datamask.selection.engine.levels import Levels, Link

STEPS = 40
WIDER = 100.0, 10.0, 1.0  # where the plain solve fails, z is divided by these in turn, each solution starting the next
# Added to the Hessian's diagonal, as a share of its greatest entry: the quotas of each column add up to the budget's
# row, so the Hessian is singular.
RIDGE = 1e-7
ENDED = 1e-6  # where no step helps any more, limits missed by at most this share of the budget count as met
SNAP = 1e-13  # multipliers below this share of the greatest are set to 0
# By the ratio of the true to the predicted gain: below WORSE a step is rejected, above GOOD the region grows.
WORSE, GOOD = 1e-4, 0.7


class JointDual:
    """The dual's value, gradient and Hessian as sums over documents."""

    def __init__(self, levels: Levels) -> None:
        self.levels = levels
        most = levels.used(levels.weights)
        self.mean = levels.total / len(levels.weights)  # a document's mean weight
        slack = 1e-12 * levels.total
        self.capped, self.floored = levels.high < most - slack, levels.low > slack
        self.tight = self.capped & self.floored & (levels.high - levels.low <= 1e-10 * levels.size)

    def look(self, z: torch.Tensor, link: Link, x: np.ndarray) -> tuple[float, np.ndarray, torch.Tensor]:
        """The dual's value at x (1 + R,), the use of the budget and of each limit there (1 + R,), and w·slope (N,)."""
        levels = self.levels
        integral, p, slope = link(z - (x[0] + levels.lowered(x[1:])))
        mass = levels.weights * p
        value = float(levels.weights @ integral) + x[0] * levels.size + levels.ends(x[1:])
        return value, np.append(float(mass.sum()), levels.used(mass)), levels.weights * slope

    def hessian(self, mass: torch.Tensor) -> np.ndarray:
        """[1 A]ᵀ diag(mass) [1 A]: (1 + R, 1 + R)."""
        levels = self.levels
        index = mass.nonzero()[:, 0]
        mass = mass[index]
        codes = [torch.zeros_like(index), *(codes[index] for codes in levels.codes)]
        widths = [1, *levels.widths]
        starts = np.cumsum([0, *widths])
        found = np.zeros((1 + levels.count, 1 + levels.count))

        def sums(codes: torch.Tensor, mass: torch.Tensor, width: int) -> np.ndarray:
            counted: np.ndarray = torch.bincount(codes, mass, minlength=width).numpy()
            return counted

        for a in range(len(codes)):
            rows = slice(starts[a], starts[a + 1])
            for b in range(a, len(codes)):
                columns, width = slice(starts[b], starts[b + 1]), widths[a] * widths[b]
                block = sums(codes[a] * widths[b] + codes[b], mass, width).reshape(widths[a], widths[b])
                found[rows, columns], found[columns, rows] = block, block.T
        if levels.ratio is not None:
            each = mass * levels.ratio[index]
            across = np.concatenate([sums(code, each, width) for code, width in zip(codes, widths, strict=True)])
            found[-1, :-1] = found[:-1, -1] = across
            found[-1, -1] = float(each @ levels.ratio[index])
        return found

    def missed(self, x: np.ndarray, used: np.ndarray) -> float:
        """The greatest violation of the optimality conditions at x, in the budget's unit.

        That is how far the budget is from being spent, a limit is broken, or a limit with a multiplier is not tight.
        """
        low, high = self.levels.low, self.levels.high
        over, under, v = used[1:] - high, low - used[1:], x[1:]
        each = np.where(v > 0, np.abs(over), np.where(v < 0, np.abs(under), np.maximum(over, under).clip(0)))
        return float(max(abs(used[0] - self.levels.size), each.max(initial=0.0)))

    def step(self, x: np.ndarray, used: np.ndarray, hessian: np.ndarray, region: float) -> tuple[np.ndarray, float]:
        """The minimiser of the model within the trust region around x, (1 + R,), and the gain it predicts."""
        low, high, v = self.levels.low, self.levels.high, x[1:]
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
        return moved, promised - self.levels.ends(moved[1:]) + self.levels.ends(v)


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
    for _ in range(STEPS):
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
