"""Projected ascent on a concave quadratic: what the relaxation, the calibration and the price sample all run.

Steps are Barzilai and Borwein's (1988), taken whole unless the value would fall below the last few (Birgin, Martínez
and Raydan, "Nonmonotone Spectral Projected Gradient Methods", SIAM J. Optim. 2000): f is quadratic, so what a step
gains, and where on its line f is greatest, is known from the moments of the two ends. At any y, f(S) ≤ f(y) +
max_s ∇f(y)·(s − y) for every feasible S (Frank and Wolfe, 1956): the certificate.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

import torch

from datamask.selection.driver import Iteration, Record
from datamask.selection.solvers.quadratic import Quadratic, weighted_norms

# Stop when bound − value ≤ max(tolerance, min(CLOSE, ROUNDING_SHARE · rounding loss)): rounding the fractional p to a
# mask loses far more than a gap that small, so closing it further does not improve the mask.
ROUNDING_SHARE = 0.01
CLOSE = 5e-4  # absolute; the calibrated objective is about 1
STALL = 30  # stop when the gap fell by at most a tenth of the tolerance over this many steps
MULTILINEAR_STALL = 5  # without a bound: stop when the value rose by at most the tolerance over this many steps
MEMORY = 8  # a full step is accepted if its value is no less than the least of this many latest values


@dataclass
class Ascent:
    """The best iterate of an ascent, with the least upper bound found."""

    p: torch.Tensor  # (N,) float64
    moments: list[torch.Tensor]
    value: float
    price: torch.Tensor  # (N,) gradient per unit of weight, at p
    bound: float
    bound_moments: list[torch.Tensor]  # at which the least bound was attained
    step: float | None = None  # the last step length

    def near(self, quadratic: Quadratic, tolerance: float) -> bool:
        """Whether bound − value is at most `tolerance`, or too small to matter beside the loss by rounding."""
        useful = min(CLOSE, ROUNDING_SHARE * quadratic.rounding(self.p))
        return self.bound - self.value <= max(tolerance, useful)


class Spectral(Iteration[Ascent]):
    """Projected ascent from a feasible `start` until the bound is within `tolerance` (absolute) of the value."""

    patience = STALL

    def __init__(
        self,
        quadratic: Quadratic,
        start: torch.Tensor,  # (N,) float64, feasible
        tolerance: float,
        steps: int,
        length: float | None = None,  # the first step length
        record: Record | None = None,
    ) -> None:
        self.quadratic, self.p, self.tolerance, self.steps = quadratic, start, tolerance, steps
        self.length, self.record = length, record

    def init(self) -> None:
        self.moments = self.quadratic.moments(self.p)
        self.value = self.quadratic.value(self.p, self.moments)
        self.bound, self.at = float("inf"), self.moments
        self.best = Ascent(self.p, self.moments, -torch.inf, self.p, self.bound, self.moments)  # of a value below any
        self.values: deque[float] = deque(maxlen=MEMORY)
        self.previous: tuple[torch.Tensor, torch.Tensor] | None = None
        self.look()

    def look(self) -> None:
        """Evaluates prices, value and bound at the present p."""
        quadratic, p, moments, value = self.quadratic, self.p, self.moments, self.value
        self.price = price = quadratic.price(moments)
        here, self.response = quadratic.bound(moments, price)
        if here < self.bound:
            self.bound, self.at = here, moments
        if value > self.best.value:
            self.best = Ascent(p, moments, value, price, self.bound, self.at)
        self.values.append(value)
        self.best.bound, self.best.bound_moments = self.bound, self.at
        self.missing.append(self.bound - self.best.value)
        if self.record is not None:
            self.record(standing(quadratic, self.best.p, self.best.value, self.bound))

    def step(self) -> None:
        line = self.line()
        if line is None:
            return
        target, ends, slope, bend = line
        share = 1.0 if self.whole(slope, bend) else min(1.0, slope / (2 * bend))
        self.previous = (self.p, self.price)
        self.p = target if share == 1 else self.p + share * (target - self.p)
        pairs = zip(self.moments, ends, strict=True)
        self.moments = ends if share == 1 else [m + share * (e - m) for m, e in pairs]
        self.value = self.quadratic.value(self.p, self.moments)
        self.look()

    def line(self) -> tuple[torch.Tensor, list[torch.Tensor], float, float] | None:
        """A target with its moments, slope and curvature: f(p + t (target − p)) = f(p) + t·slope − t²·curvature.

        None if f rises neither towards the projected step nor towards the tangent's response.
        """
        feasible, self.length = self.quadratic.feasible, self._length()
        for target in (feasible.project(self.p + self.length * self.price), self.response):
            toward = target - self.p
            ends, changes = self.quadratic.moved(self.moments, target, toward)
            slope = float((feasible.weights * self.price) @ toward)
            bend = weighted_norms(self.quadratic.coefficients, changes) - self.spared(toward)
            if self.rises(slope, bend):
                return target, ends, slope, bend
        self.stuck = True
        return None

    def spared(self, toward: torch.Tensor) -> float:
        """What the self-terms take off the curvature in this direction (N,)."""
        return 0.0

    def rises(self, slope: float, bend: float) -> bool:
        """Whether f rises along a line."""
        return slope > 0

    def whole(self, slope: float, bend: float) -> bool:
        """Whether the whole step is taken, instead of one to the greatest f on its line."""
        return self.value + slope - bend >= min(self.values) or bend <= 0

    def _length(self) -> float:
        """Barzilai and Borwein's long and short step lengths in turn; the last one where no curvature was measured."""
        weights = self.quadratic.feasible.weights
        if self.previous is not None:
            moved, turned = self.p - self.previous[0], self.previous[1] - self.price
            curvature = float((weights * moved) @ turned)
            if curvature > 0:
                long = float((weights * moved) @ moved) / curvature
                return curvature / max(float((weights * turned) @ turned), 1e-300) if self.done % 2 else long
        return 1.0 / max(float(self.price.std(correction=0)), 1e-30) if self.length is None else self.length

    def terminate(self) -> bool:
        return self.best.near(self.quadratic, self.tolerance)

    def postprocess(self) -> Ascent:
        """The best iterate, with the least bound."""
        self.best.step = self.length
        return self.best


class Multilinear(Spectral):
    """The ascent of f's multilinear extension, f(p) − Σ own_i (p_i − p_i²), by exact line search.

    The extension is the expected f of a random mask that draws each document independently with probability p_i. A
    mask pays each document's self-term own_i in full, a fractional p only p_i² of it; the extension charges own_i·p_i,
    so its ascent ends close to a mask. It is not concave, so there is no bound (the result's is infinite). In a sample
    where each document stands for `copies` similar ones, the self-term charged is own_i·p_i / copies.
    """

    patience, least = MULTILINEAR_STALL, 1.0
    copies = 1.0  # how many documents of the whole pool one document of a sample represents

    def representing(self, copies: float) -> Multilinear:
        """The same, of a sample."""
        self.copies = copies
        return self

    def look(self) -> None:
        """Evaluates prices and value at the present p."""
        quadratic, p, own = self.quadratic, self.p, self.quadratic.self_terms
        self.price = quadratic.price(self.moments) - own * (1 / self.copies - 2 * p) / quadratic.feasible.weights
        self.value = quadratic.value(p, self.moments) - float(own @ (p / self.copies - p * p))
        self.missing.append(-self.value)
        if self.record is not None:
            self.record({"objective": self.value})
        self.response, self.most = quadratic.feasible.respond(self.price)

    def spared(self, toward: torch.Tensor) -> float:
        return float(self.quadratic.self_terms @ toward.square())

    def rises(self, slope: float, bend: float) -> bool:
        return slope > 0 or bend <= 0

    def whole(self, slope: float, bend: float) -> bool:
        return bend <= 0

    def terminate(self) -> bool:
        return self.most - float((self.quadratic.feasible.weights * self.price) @ self.p) <= self.tolerance

    def postprocess(self) -> Ascent:
        """The last iterate."""
        return Ascent(self.p, self.moments, self.value, self.price, float("inf"), self.moments)


def standing(quadratic: Quadratic, p: torch.Tensor, value: float, bound: float) -> dict[str, float]:
    """The facts recorded for a fractional p of this value: expected objective, relaxed value and upper bound.

    The bound is left out when `quadratic` is a part of a larger problem, which it does not bound.
    """
    facts = {"objective": value - quadratic.rounding(p), "relaxed": value}
    return facts if quadratic.base is not None else {**facts, "upper_bound": bound}
