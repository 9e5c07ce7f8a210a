"""Projected ascent on a concave quadratic: what the relaxation, the calibration and the price sample all run.

Steps are Barzilai and Borwein's (1988), taken whole unless the value would fall below the last few (Birgin, Martínez
and Raydan, "Nonmonotone Spectral Projected Gradient Methods", SIAM J. Optim. 2000): f is quadratic, so what a step
gains, and where on its line f is greatest, is known from the moments of the two ends. At any y, f(S) ≤ f(y) +
max_s ∇f(y)·(s − y) for every feasible S (Frank and Wolfe, 1956): the certificate.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import minimize

from datamask.selection.engine.quadratic import Quadratic

# Stop when bound − value ≤ max(tolerance, min(CLOSE, ROUNDING_SHARE · rounding loss)): rounding the fractional p to a
# mask loses far more than a gap that small, so closing it further does not improve the mask.
ROUNDING_SHARE = 0.01
CLOSE = 5e-4  # absolute; the calibrated objective is about 1
STALL = 30  # stop when the gap fell by at most a tenth of the tolerance over this many steps
MULTILINEAR_STALL = 5  # without a bound: stop when the value rose by at most the tolerance over this many steps
MEMORY = 8  # a full step is accepted if its value is no less than the least of this many latest values
SPAN = 12  # every so many steps, the bound is minimised over combinations of the latest so many iterates' moments
FITS = {False: 30, True: 8}  # BFGS iterations of that minimisation: without limits, and with (each costs more)
LOOKS = 16  # evaluations of the bound at most in that minimisation when each solves a linear programme

Record = Callable[[dict[str, float]], None]


@dataclass
class Ascent:
    """The best iterate of an ascent, with the least upper bound found."""

    p: torch.Tensor  # (N,) float64
    moments: list[torch.Tensor]
    value: float
    price: torch.Tensor  # (N,) gradient per unit of weight, at p
    bound: float
    best: list[torch.Tensor]  # the moments at which the least bound was attained
    step: float | None = None  # the last step length

    def near(self, quadratic: Quadratic, tolerance: float) -> bool:
        """Whether bound − value is at most `tolerance`, or too small to matter beside the loss by rounding."""
        useful = min(CLOSE, ROUNDING_SHARE * quadratic.rounding(self.p))
        return self.bound - self.value <= max(tolerance, useful)


class _Place(NamedTuple):
    moments: list[torch.Tensor]
    price: torch.Tensor


def ascend(
    quadratic: Quadratic,
    start: torch.Tensor,  # (N,) float64, feasible
    tolerance: float,
    iterations: int,
    step: float | None = None,  # the first step length
    record: Record | None = None,
) -> Ascent:
    """Projected ascent from a feasible `start` until the bound is within `tolerance` (absolute) of the value.

    Also ends after `iterations` steps, or when the gap no longer shrinks (`STALL`).
    """
    weights, feasible = quadratic.feasible.weights, quadratic.feasible
    p, moments = start, quadratic.moments(start)
    value, best = quadratic.value(p, moments), None
    bound, at = float("inf"), moments
    places: deque[_Place] = deque(maxlen=SPAN)
    values: deque[float] = deque(maxlen=MEMORY)
    gaps: list[float] = []
    previous: tuple[torch.Tensor, torch.Tensor] | None = None
    for iteration in range(iterations + 1):
        price = quadratic.price(moments)
        here, response = quadratic.bound(moments, price)
        if here < bound:
            bound, at = here, moments
        if best is None or value > best.value:
            best = Ascent(p, moments, value, price, bound, at)
        places.append(_Place(moments, price))
        values.append(value)
        last = iteration == iterations
        if len(places) > 1 and (last or iteration % SPAN == SPAN - 1):
            fitted, middle = _fit(quadratic, places)
            if fitted < bound:
                bound, at = fitted, middle
        best.bound, best.best = bound, at
        gaps.append(bound - best.value)
        if record is not None:
            record(standing(quadratic, best.p, best.value, bound))
        stalled = iteration >= STALL and gaps[-1 - STALL] - gaps[-1] <= tolerance / 10
        if last or stalled or best.near(quadratic, tolerance):
            break
        step = _spectral(weights, previous, (p, price), step, iteration)
        line = _line(quadratic, p, moments, price, (feasible.project(p + step * price), response))
        if line is None:
            break
        target, ends, slope, bend = line
        whole = value + slope - bend >= min(values) or bend <= 0
        share = 1.0 if whole else min(1.0, slope / (2 * bend))
        previous = (p, price)
        p = target if share == 1 else p + share * (target - p)
        moments = ends if share == 1 else [m + share * (e - m) for m, e in zip(moments, ends, strict=True)]
        value = quadratic.value(p, moments)
    assert best is not None
    best.step = step
    return best


def ascend_multilinear(
    quadratic: Quadratic,
    start: torch.Tensor,  # (N,) float64, feasible
    tolerance: float,
    iterations: int,
    copies: float = 1.0,  # how many documents of the whole pool one document of a sample represents
    record: Record | None = None,
) -> Ascent:
    """Projected ascent on f's multilinear extension, f(p) − Σ own_i (p_i − p_i²), by exact line search.

    The extension is the expected f of a random mask that draws each document independently with probability p_i. A
    mask pays each document's self-term own_i in full, a fractional p only p_i² of it; the extension charges own_i·p_i,
    so its ascent ends close to a mask. It is not concave, so there is no bound (the result's is infinite). In a sample
    where each document stands for `copies` similar ones, the self-term charged is own_i·p_i / copies.
    """
    weights, self_terms = quadratic.feasible.weights, quadratic.self_terms
    p, moments, step = start, quadratic.moments(start), None
    reached: list[float] = []
    previous: tuple[torch.Tensor, torch.Tensor] | None = None
    for iteration in range(iterations + 1):
        price = quadratic.price(moments) - self_terms * (1 / copies - 2 * p) / weights
        value = quadratic.value(p, moments) - float(self_terms @ (p / copies - p * p))
        reached.append(value)
        if record is not None:
            record({"objective": value})
        response, most = quadratic.feasible.respond(price)
        stalled = iteration >= MULTILINEAR_STALL and value - reached[-1 - MULTILINEAR_STALL] <= tolerance
        if most - float((weights * price) @ p) <= tolerance or stalled or iteration == iterations:
            break
        step = _spectral(weights, previous, (p, price), step, iteration)
        line = _line(quadratic, p, moments, price, (quadratic.feasible.project(p + step * price), response), self_terms)
        if line is None:
            break
        target, ends, slope, bend = line
        previous = (p, price)
        share = 1.0 if bend <= 0 else min(1.0, slope / (2 * bend))
        p = p + share * (target - p)
        moments = [m + share * (e - m) for m, e in zip(moments, ends, strict=True)]
    return Ascent(p, moments, value, price, float("inf"), moments)


def standing(quadratic: Quadratic, p: torch.Tensor, value: float, bound: float) -> dict[str, float]:
    """The facts recorded for a fractional p of this value: expected objective, relaxed value and upper bound.

    The bound is left out when `quadratic` is a part of a larger problem, which it does not bound.
    """
    facts = {"objective": value - quadratic.rounding(p), "relaxed": value}
    return facts if quadratic.base is not None else {**facts, "upper_bound": bound}


def _spectral(
    weights: torch.Tensor,
    before: tuple[torch.Tensor, torch.Tensor] | None,  # p and price one step earlier
    now: tuple[torch.Tensor, torch.Tensor],
    step: float | None,
    iteration: int,
) -> float:
    """Barzilai and Borwein's long and short step lengths in turn; the previous one where no curvature was measured."""
    if before is not None:
        moved, turned = now[0] - before[0], before[1] - now[1]
        curvature = float((weights * moved) @ turned)
        if curvature > 0:
            long = float((weights * moved) @ moved) / curvature
            return curvature / max(float((weights * turned) @ turned), 1e-300) if iteration % 2 else long
    return 1.0 / max(float(now[1].std(correction=0)), 1e-30) if step is None else step


def _line(
    quadratic: Quadratic,
    p: torch.Tensor,
    moments: list[torch.Tensor],
    price: torch.Tensor,
    targets: tuple[torch.Tensor, torch.Tensor],  # the second is used if f does not rise towards the first
    self_terms: torch.Tensor | None = None,  # (N,) self-terms, for the multilinear extension
) -> tuple[torch.Tensor, list[torch.Tensor], float, float] | None:
    """A target with its moments, slope and curvature: f(p + t (target − p)) = f(p) + t·slope − t²·curvature.

    None if f rises towards neither target.
    """
    for target in targets:
        toward = target - p
        ends, changes = quadratic.moved(moments, target, toward)
        slope = float((quadratic.feasible.weights * price) @ toward)
        bend = quadratic.weighted_norms(changes)
        if self_terms is not None:
            bend -= float(self_terms @ toward.square())
        if slope > 0 or (self_terms is not None and bend <= 0):
            return target, ends, slope, bend
    return None


def _fit(quadratic: Quadratic, places: Sequence[_Place]) -> tuple[float, list[torch.Tensor]]:
    """The least bound over affine combinations of these iterates' moments, and the moments that attain it.

    The bound is convex in the moments and prices are linear in them, so no row of the pool is read.
    """
    rows = torch.stack([place.price for place in places])
    stacks = [torch.stack(each) for each in zip(*(place.moments for place in places), strict=True)]
    gram, held = torch.zeros(len(rows), len(rows), dtype=torch.float64), torch.zeros(len(rows), dtype=torch.float64)
    for number, (c, stack) in enumerate(zip(quadratic.coefficients, stacks, strict=True)):
        flat = stack.flatten(1)
        gram += c * (flat @ flat.T).double().cpu()
        if quadratic.base is not None:
            held += 2 * c * (flat @ quadratic.base[number].flatten().to(flat)).double().cpu()
    feasible = quadratic.feasible  # SciPy keeps the function it minimises alive: it must not hold the prepared rows

    def bound(free: np.ndarray) -> tuple[float, np.ndarray]:
        shares = torch.from_numpy(np.append(free, 1 - free.sum()))
        response, most = feasible.respond(shares @ rows)
        slope = 2 * (gram @ shares) - held + rows @ (feasible.weights * response)
        value = most + float(shares @ (gram @ shares) - held @ shares)
        return value, (slope[:-1] - slope[-1]).numpy()

    found = minimize(
        bound,
        np.full(len(places) - 1, 1 / len(places)),
        jac=True,
        method="L-BFGS-B" if feasible.is_programme else "BFGS",
        options={"maxfun": LOOKS} if feasible.is_programme else {"maxiter": FITS[bool(feasible.limits)]},
    )
    shares = torch.from_numpy(np.append(found.x, 1 - found.x.sum()))
    middle = [torch.einsum("t,t...->...", shares.to(stack), stack) for stack in stacks]
    return quadratic.bound(middle, shares @ rows)[0], middle
