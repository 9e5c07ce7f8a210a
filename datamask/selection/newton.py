"""Newton steps for a metric whose moment is a vector (pairwise), where projected ascent converges slowly.

    maximise  Φ(p) = linear·w·p − c‖b + Xᵀ(w p)‖² over the budget, through its dual in the d numbers m:
    Φ(p) ≤ g(m) = c‖m‖² − 2c m·b + max_p Σ w_i price_i(m) p_i,  price(m) = linear − 2c X m

g is convex but has kinks. With ε times the entropy Σ w_i (−p ln p − (1 − p) ln(1 − p)) beside the maximum it is smooth
(Nesterov, "Smooth minimization of non-smooth functions", Math. Program. 2005): p = sigmoid((price − τ)/ε), τ such that
the budget is spent, and the Hessian is 2c·(I + (2c/ε)·Gram), of the rows centred and weighted by w p (1 − p). On a path
of falling ε a few steps each suffice: four reads of the rows and a d × d factorisation a step, and without the entropy
g(m) is a bound, at any m.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import NamedTuple

import torch

from datamask.selection.ascent import Ascent, Record, ascend
from datamask.selection.feasible import find_level
from datamask.selection.quadratic import Quadratic

OPENING = 4  # steps of ascent before Newton's
FIRST = 0.1  # ε: of what would account for the gap at the start, were all documents undecided
SHRINK = 0.25  # ε, from one stage to the next; half as fast where steps are many, and back where they are short
STAGES, STEPS = 24, 12  # at most; steps a stage
SHORT = 0.1  # of a Newton step: shorter, and ε is too small for where m is
CLOSE = 0.02  # of the gap: what a step gains once ε's own optimum is near enough
WHOLE = 1e-3  # a p so near 0 or 1 is that
BLOCK_ROWS = 8192


def climb(
    quadratic: Quadratic, start: torch.Tensor, tolerance: float, iterations: int, record: Record | None = None
) -> Ascent:
    """`ascend`, of whose steps all but the first few are Newton's where those are to be had."""
    vector = len(quadratic.prepared) == 1 and quadratic.prepared[0].metric.vector and not quadratic.feasible.limits
    found = ascend(quadratic, start, tolerance, OPENING if vector else iterations, record=record)
    return newton(quadratic, found, tolerance) if vector and not found.near(quadratic, tolerance) else found


def newton(quadratic: Quadratic, start: Ascent, tolerance: float) -> Ascent:
    """From where an ascent stands, until the bound is within `tolerance` of the value.

    quadratic: of one metric whose moment is a vector, over a budget without other limits.
    """
    weights, size = quadratic.feasible.weights, quadratic.feasible.size
    even = size / float(weights.sum())
    entropy = float(weights.sum()) * -(even * math.log(even) + (1 - even) * math.log(max(1 - even, 1e-12)))
    epsilon = FIRST * (start.bound - start.value) / entropy
    path, best, m = _Path(quadratic), start, start.best[0].double()
    for _ in range(STAGES):
        now, steps, share = path.descend(m, epsilon, max(tolerance / 10, CLOSE * (best.bound - best.value)))
        m = now.m
        bound, _ = quadratic.bound([m.float()], now.price)
        if bound < best.bound:
            best = replace(best, bound=bound, best=[m.float()])
        p = quadratic.feasible.project(torch.where(now.p < WHOLE, 0.0, torch.where(now.p > 1 - WHOLE, 1.0, now.p)))
        moments = quadratic.moments(p)
        value = quadratic.value(p, moments)
        if value > best.value:
            best = replace(best, p=p, moments=moments, value=value)
        if best.bound - best.value <= tolerance:
            break
        epsilon *= 1 / SHRINK if share < SHORT else SHRINK if steps <= 3 else SHRINK**0.5
    return replace(best, price=quadratic.price(best.moments))


class _Point(NamedTuple):
    m: torch.Tensor  # (d,) float64
    value: float  # of the smoothed dual
    price: torch.Tensor  # (N,) float64
    p: torch.Tensor  # (N,) float64
    residual: torch.Tensor  # (d,) m less the moment of p


class _Path:
    """The smoothed dual of a quadratic, at any m and ε."""

    def __init__(self, quadratic: Quadratic) -> None:
        self.quadratic, self.weights = quadratic, quadratic.feasible.weights
        (self.rows,), (self.c,) = quadratic.prepared, quadratic.coefficients
        self.base = None if quadratic.base is None else quadratic.base[0].double()

    def at(self, m: torch.Tensor, epsilon: float) -> _Point:
        price = self.quadratic.price([m.float()])
        z = price / epsilon
        level, p = self._fill(z)
        value = self.c * float(m @ (m if self.base is None else m - 2 * self.base))
        value += epsilon * float((self.weights * torch.nn.functional.softplus(z - level)).sum())
        value += epsilon * level * self.quadratic.feasible.size
        return _Point(m, value, price, p, m - self.quadratic.moments(p)[0].double())

    def descend(self, m: torch.Tensor, epsilon: float, enough: float) -> tuple[_Point, int, float]:
        """Newton steps from m until a whole one gains at most `enough`: where, how many, and the last one's share."""
        now, steps, share = self.at(m, epsilon), 0, 1.0
        while steps < STEPS:
            steps += 1
            step = self.direction(now, epsilon)
            slope, share = 2 * self.c * float(now.residual @ step), 1.0
            then = self.at(now.m - step, epsilon)
            while then.value > now.value - 1e-4 * share * slope and share > SHORT / 2:
                share /= 2
                then = self.at(now.m - share * step, epsilon)
            gained, now = now.value - then.value, then
            if share < SHORT or (share == 1 and gained <= enough):
                break
        return now, steps, share

    def direction(self, now: _Point, epsilon: float) -> torch.Tensor:
        """(d,): the Hessian's inverse times the gradient, over 2c."""
        share = self.weights * now.p * (1 - now.p)
        share[share < 1e-4] = 0
        centre = self.rows.moment(share) / float(share.sum())
        gram = torch.zeros(len(centre), len(centre), device=centre.device)
        for index in share.nonzero()[:, 0].split(BLOCK_ROWS):
            root = share[index].sqrt().to(centre.device, torch.float32)
            low = ((self.rows.rows(index) - centre) * root[:, None]).bfloat16()  # enough for a direction
            gram += (low.T @ low).float()
        hessian = torch.eye(len(gram), dtype=torch.float64) + (2 * self.c / epsilon) * gram.double().cpu()
        factor, _ = torch.linalg.cholesky_ex(hessian)
        return torch.cholesky_solve(now.residual.cpu()[:, None], factor)[:, 0].to(now.residual.device)

    def _fill(self, z: torch.Tensor) -> tuple[float, torch.Tensor]:
        """τ with Σ w sigmoid(z − τ) = size, and these sigmoids."""
        feasible = self.quadratic.feasible

        def excess(level: float) -> tuple[float, float]:
            p = torch.sigmoid(z - level)
            return float(self.weights @ p) - feasible.size, float(self.weights @ (p * (1 - p)))

        low, high = float(z.min()) - 40, float(z.max()) + 40
        level = find_level(excess, feasible.cut(z), low, high, 1e-9 * feasible.size)
        return level, torch.sigmoid(z - level)
