"""The relaxation of a metric whose moment is a vector (pairwise), where projected ascent converges slowly.

    maximise  Φ(p) = linear·w·p − c‖b + Xᵀ(w p)‖² over the budget, through its dual in the d numbers m:
    Φ(p) ≤ g(m) = c‖m‖² − 2c m·b + max_p Σ w_i price_i(m) p_i,  price(m) = linear − 2c X m

g is convex but has kinks. With ε times the entropy Σ w_i (−p ln p − (1 − p) ln(1 − p)) beside the maximum it is smooth
(Nesterov, "Smooth minimization of non-smooth functions", Math. Program. 2005): p = sigmoid((price − τ)/ε), τ such that
the budget is spent, and the Hessian is 2c·(I + (2c/ε)·Gram), where Gram is that of the rows centred and weighted by
w p (1 − p). ε falls in stages, and a few Newton steps suffice at each: a step reads the rows four times and factorises
a d × d matrix. Without the entropy, g(m) is an upper bound at any m. Because m has d numbers whatever N is, the path
on the whole pool starts where the path on a sample ended.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch

from datamask.selection.driver import Iteration, Record
from datamask.selection.metrics.moments import gram_of
from datamask.selection.problem.levels import LOGISTIC, Levels, find_level
from datamask.selection.solvers.ascent import Ascent, Spectral, standing
from datamask.selection.solvers.quadratic import Quadratic, weighted_norms

FIRST = 0.1  # the first ε is FIRST · gap / entropy, with the gap at the start and the entropy of a uniform p
SHRINK = 0.25  # factor on ε from one stage to the next; its square root where a stage took more than 3 steps
# The gap is about proportional to ε, so ε·tolerance/gap would just reach the tolerance: one stage never multiplies ε by
# less than ENOUGH · tolerance / gap.
ENOUGH = 0.7
NEAR = 0.6  # a failed ε above this share of the last that worked counts as close to it
STAYS = 0.9  # if more than this share of the gap is left after a stage, ε is kept for one more stage
STAGES, STEPS = 24, 12  # stages at most; Newton steps in each at most
SHORT = 0.1  # if only steps shorter than this share of a Newton step help, ε is too small for the present m
CLOSE = 0.1  # a stage ends when a full step gains at most this share of the gap (but at least a tenth of the tolerance)
FLAT_SLOPE = 1e-3  # a stage also ends when the step's directional derivative is at most this share of that gain
WHOLE = 1e-3  # a p this close to 0 or 1 is set to it
FLAT = 0.01  # share of Σ w p (1 − p) left out of the Hessian: that of the documents with least of it, often half of all
NONE = 1e-8  # w p (1 − p) below this share of the mean w is rounding: a document that is in or out
WIDER = 2.0  # factor on ε when the path goes on from a sample to the whole pool
BLOCK_ROWS = 8192  # rows read at a time for the Hessian


class DualPoint(NamedTuple):
    """A point on the path of falling ε: the dual variables m and the smoothing ε."""

    m: torch.Tensor  # (d,) float64
    epsilon: float

    def beyond(self, share: float) -> DualPoint:
        """The start for the whole pool, of whose weight this point's sample is the given share."""
        return DualPoint(self.m / share, WIDER * share * self.epsilon)


def suits_newton(quadratic: Quadratic) -> bool:
    """Whether `Newton` can solve it: one metric, its moment a vector."""
    return len(quadratic.prepared) == 1 and quadratic.prepared[0].metric.vector


class Newton(Iteration[tuple[Ascent, DualPoint]]):
    """The relaxation solved until the bound is within `tolerance` of the value; a step is a stage, at one ε.

    The result is the best iterate and the point at which the path ended.
    """

    steps = STAGES

    def __init__(
        self, quadratic: Quadratic, start: torch.Tensor | DualPoint, tolerance: float, record: Record | None = None
    ) -> None:
        """quadratic: one for which `suits_newton` is true. start: a feasible p (N,), or the end of an earlier path."""
        self.quadratic, self.start, self.tolerance, self.record = quadratic, start, tolerance, record
        self.weights = quadratic.feasible.weights
        (self.rows,), (self.c,) = quadratic.prepared, quadratic.coefficients
        self.base = None if quadratic.base is None else quadratic.base[0].double()
        limits = quadratic.feasible.limits
        self.levels = Levels(limits) if limits else None  # separate from `feasible`'s: warm starts at z's own scale
        self.multipliers = np.zeros(0)  # dual prices of the limits at the last point
        self.scaled = 0.0  # ε of the last point

    def init(self) -> None:
        self.best: Ascent | None = None
        self.gap = self.lowest = math.inf
        self.worked, self.shrink, self.stayed = 0.0, SHRINK, False
        if isinstance(self.start, DualPoint):
            self.m, self.epsilon = self.start
            return
        self.best = Spectral(self.quadratic, self.start, self.tolerance, 0).run()  # value and bound at the start
        self.gap = self.best.bound - self.best.value
        total = float(self.weights.sum())
        part = min(1.0, self.quadratic.feasible.size / total)  # entropy: of the uniform p that spends the budget
        entropy = total * -(part * math.log(max(part, 1e-12)) + (1 - part) * math.log(max(1 - part, 1e-12)))
        self.stuck = entropy <= 0
        self.m, self.epsilon = self.best.moments[0].double(), FIRST * self.gap / entropy if entropy > 0 else 1.0

    def step(self) -> None:
        before, least = self.gap, self.tolerance / 10
        now, steps, share = self.descend(
            self.m, self.epsilon, least if before == math.inf else max(least, CLOSE * before)
        )
        self.m = now.m
        whole = torch.where(now.p < WHOLE, 0.0, torch.where(now.p > 1 - WHOLE, 1.0, now.p))
        best = self.best = _better(self.quadratic, self.best, self.quadratic.feasible.project(whole), now, least)
        self.lowest = min(self.lowest, self.dual(now))
        self.gap = self.lowest - best.value
        if self.record is not None:
            self.record(standing(self.quadratic, best.p, best.value, best.bound))
        if self.gap > self.tolerance:
            self._next(before, steps, share)

    def _next(self, before: float, steps: int, share: float) -> None:
        """The next stage's ε, after one of so many steps, the last of this share of a full one."""
        epsilon, worked = self.epsilon, self.worked
        if share < SHORT and epsilon != worked:  # ε was too small
            # Try the geometric mean with the last ε that worked; if they are already close, an ε greater than both.
            near = epsilon > NEAR * worked
            self.epsilon = max(epsilon, worked) / SHRINK if near else (epsilon * worked) ** 0.5
            self.shrink, self.worked = self.shrink**0.5, 0.0 if near else worked
            return
        self.worked, self.stayed = epsilon, self.gap > STAYS * before and not self.stayed
        if not self.stayed:
            shrink = self.shrink if steps <= 3 else self.shrink**0.5
            self.epsilon *= max(shrink, ENOUGH * self.tolerance / self.gap)

    def terminate(self) -> bool:
        return self.gap <= self.tolerance

    def postprocess(self) -> tuple[Ascent, DualPoint]:
        assert self.best is not None
        best = replace(self.best, price=self.quadratic.price(self.best.moments))
        return best, DualPoint(self.m, self.epsilon)

    def at(self, m: torch.Tensor, epsilon: float) -> _Point:
        price = self.quadratic.price([m.float()])
        z = price / epsilon
        if self.levels is not None:
            if self.scaled:
                self.levels.scale_start(self.scaled / epsilon)
            found, self.scaled = self.levels.solve(z, LOGISTIC), epsilon
            self.multipliers = found.multipliers
            p, value = found.p, epsilon * found.value + self._square(m)
        else:
            level, p = self._fill(z)
            value = self._square(m)
            value += epsilon * float((self.weights * torch.nn.functional.softplus(z - level)).sum())
            value += epsilon * level * self.quadratic.feasible.size
        return _Point(m, value, price, p, m - self.quadratic.moments(p)[0].double())

    def dual(self, now: _Point) -> float:
        """g(m) without the entropy, for a budget that is spent in full.

        `Quadratic.bound` also allows for what a token budget may leave unspent, and is greater where the budget's dual
        price is negative.
        """
        feasible = self.quadratic.feasible
        _, dual = feasible.answer(now.price)
        over = float(self.weights @ (now.price - dual.lower).clamp(min=0))
        held = dual.level * feasible.size + feasible.limits.ends(dual.multipliers)
        return self.quadratic.offset + over + held + self._square(now.m)

    def _square(self, m: torch.Tensor) -> float:
        """c‖m‖² − 2c m·b."""
        return self.c * float(m @ (m if self.base is None else m - 2 * self.base))

    def descend(self, m: torch.Tensor, epsilon: float, enough: float) -> tuple[_Point, int, float]:
        """Newton steps from m until a full step gains at most `enough`, or only steps shorter than `SHORT` gain.

        Returns the last point, the number of steps, and the last step's length as a share of a full step.
        """
        now, steps, share = self.at(m, epsilon), 0, 1.0
        while steps < STEPS:
            steps += 1
            step = self.direction(now, epsilon)
            slope, share = 2 * self.c * float(now.residual @ step), 1.0
            if slope <= FLAT_SLOPE * enough:
                return now, steps, share
            then = self.at(now.m - step, epsilon)
            while then.value > now.value - 1e-4 * share * slope:
                share /= 2
                if share < SHORT:
                    return now, steps, share
                then = self.at(now.m - share * step, epsilon)
            gained, now = now.value - then.value, then
            if share == 1 and gained <= enough:
                break
        return now, steps, share

    def direction(self, now: _Point, epsilon: float) -> torch.Tensor:
        """(d,) the Newton direction: the inverse Hessian times the gradient (their common factor 2c cancels)."""
        share = _steep(self.weights * now.p * (1 - now.p), NONE * float(self.weights.mean()))
        centre, columns = self._centre(share)
        gram = torch.zeros(centre.shape[1], centre.shape[1], device=centre.device)
        for index in share.nonzero()[:, 0].split(BLOCK_ROWS):
            root = share[index].sqrt().to(centre.device, torch.float32)
            fitted = centre[0] if columns is None else columns(index).to(centre) @ centre
            low = ((self.rows.rows(index) - fitted) * root[:, None]).bfloat16()  # precise enough for a direction
            gram += gram_of(low, low).float()
        hessian = torch.eye(len(gram), dtype=torch.float64) + (2 * self.c / epsilon) * gram.double().cpu()
        factor, _ = torch.linalg.cholesky_ex(hessian)
        return torch.cholesky_solve(now.residual.cpu()[:, None], factor)[:, 0].to(now.residual.device)

    def _centre(self, share: torch.Tensor) -> tuple[torch.Tensor, Callable[[torch.Tensor], torch.Tensor] | None]:
        """The part of the rows that the budget and the r binding limits explain, by weighted least squares.

        Returns coefficients (1 + r, d) and a function giving the documents' columns (n, 1 + r); their product is to be
        subtracted from the rows. Without binding limits: the weighted mean (1, d), and None.
        """
        if self.levels is None or not self.multipliers.any():
            return (self.rows.moment(share) / float(share.sum()))[None], None
        levels, multipliers = self.levels, self.multipliers

        def columns(index: torch.Tensor) -> torch.Tensor:
            return levels.columns(index.cpu(), multipliers)

        gram, cross = torch.zeros(2, dtype=torch.float64)  # to which the blocks are added
        for index in share.nonzero()[:, 0].split(BLOCK_ROWS):
            part = columns(index)
            weighted = (part * share[index].cpu()[:, None]).T
            gram, cross = gram + weighted @ part, cross + weighted @ self.rows.rows(index).cpu().double()
        found = torch.linalg.pinv(gram, hermitian=True, rtol=1e-10) @ cross
        return found.float().to(self.rows.z.device), columns

    def _fill(self, z: torch.Tensor) -> tuple[float, torch.Tensor]:
        """The τ with Σ w sigmoid(z − τ) = size, and those sigmoids (N,)."""
        feasible = self.quadratic.feasible

        def excess(level: float) -> tuple[float, float]:
            p = torch.sigmoid(z - level)
            return float(self.weights @ p) - feasible.size, float(self.weights @ (p * (1 - p)))

        low, high = float(z.min()) - 40, float(z.max()) + 40
        level = find_level(excess, feasible.cut(z), low, high, 1e-9 * feasible.size)
        return level, torch.sigmoid(z - level)


def _steep(share: torch.Tensor, least: float) -> torch.Tensor:
    """(N,) the same, but 0 for the documents of least share that have `FLAT` of the sum together, and below `least`."""
    # The documents below FLAT / 10 of the mean have a tenth of `FLAT` at most.
    some = (share > max(least, FLAT / 10 * float(share.mean()))).nonzero()[:, 0]
    ascending, order = share[some].sort(stable=True)
    kept = some[order[ascending.cumsum(0) > FLAT * ascending.sum()]]
    return torch.zeros_like(share).index_copy_(0, kept, share[kept])


def _better(quadratic: Quadratic, best: Ascent | None, p: torch.Tensor, now: _Point, least: float) -> Ascent:
    """The best iterate so far, improved by a point on the path: the lesser bound, and the best p on the line to it.

    p: the point's own feasible selection. least: how much a p strictly between `best.p` and p must gain over p itself
    to be preferred, since more of its entries are fractional.
    """
    moments, at = quadratic.moments(p), [now.m.float()]
    value, (bound, _) = quadratic.value(p, moments), quadratic.bound(at, now.price)
    if best is None:
        return Ascent(p, moments, value, now.price, bound, at)
    toward, turn = p - best.p, moments[0] - best.moments[0]
    slope = float((quadratic.feasible.weights * quadratic.linear) @ toward)
    slope -= 2 * quadratic.coefficients[0] * float(best.moments[0].double() @ turn.double())
    bend = weighted_norms(quadratic.coefficients, [turn])
    share = min(1.0, max(0.0, slope / (2 * bend))) if bend > 0 else float(slope > 0)
    between = best.value + share * (slope - share * bend)
    if between > value + least:
        p, moments, value = best.p + share * toward, [best.moments[0] + share * turn], between
    bound, at = min((bound, at), (best.bound, best.bound_moments), key=lambda pair: pair[0])
    return Ascent(p, moments, value, best.price, bound, at)


class _Point(NamedTuple):
    m: torch.Tensor  # (d,) float64
    value: float  # of the smoothed dual
    price: torch.Tensor  # (N,) float64
    p: torch.Tensor  # (N,) float64
    residual: torch.Tensor  # (d,) m − moment of p
