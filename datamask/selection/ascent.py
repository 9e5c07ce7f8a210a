"""Projected ascent on a concave quadratic: what the relaxation, the calibration and the price sample all run.

f is quadratic, so along a line it is known from the moments of the two ends: every step is an exact line search, with
the step to project from by Barzilai and Borwein (1988). At any point y, f(S) ≤ f(y) + max_s ∇f(y)·(s − y) for every
feasible S (Frank and Wolfe, 1956): the certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from datamask.selection.quadratic import Quadratic

ROUNDING_SHARE = 0.01  # of what rounding costs: no use in bringing the bound nearer to a fractional value than that
STALL = 5  # steps without gaining the tolerance (a tenth of it, where a bound is sought) after which it ends

Record = Callable[[dict[str, float]], None]


@dataclass
class Ascent:
    """Where an ascent stands."""

    p: torch.Tensor  # (N,) float64
    moments: list[torch.Tensor]
    value: float
    price: torch.Tensor  # (N,) gradient per unit of weight, at p
    bound: float
    best: list[torch.Tensor]  # the moments at which the bound was least

    def near(self, quadratic: Quadratic, tolerance: float) -> bool:
        """Whether the bound is within `tolerance` of the value, or as near as is of use to a mask."""
        return self.bound - self.value <= max(tolerance, ROUNDING_SHARE * quadratic.rounding(self.p))


def ascend(
    quadratic: Quadratic,
    start: torch.Tensor,  # (N,) float64, feasible
    tolerance: float,
    iterations: int,
    multilinear: bool = False,
    copies: float = 1.0,  # documents of the whole pool that a document of a sample stands for
    record: Record | None = None,
) -> Ascent:
    """From a feasible `start` until the bound is within `tolerance` (absolute) of the value, or for `iterations`.

    `multilinear` replaces f by its multilinear extension, f(p) − Σ own_i (p_i − p_i²): what f is on average when each
    document is drawn with its p_i. A mask pays for each document's likeness to itself, a fractional p only p_i² of it;
    the extension charges the mask's price, and its ascent (no longer concave: no bound) ends close to a mask.
    In a sample, one of `copies` documents alike, the mask's price is own_i·p_i / copies.
    """
    weights = quadratic.feasible.weights
    own = quadratic.own if multilinear else None

    def value_of(p: torch.Tensor, moments: list[torch.Tensor]) -> float:
        return quadratic.value(p, moments) - (float(own @ (p / copies - p * p)) if own is not None else 0.0)

    def bend_of(toward: torch.Tensor, moments: list[torch.Tensor], ends: list[torch.Tensor]) -> float:
        bend = quadratic.spread([end - moment for moment, end in zip(moments, ends, strict=True)])
        return bend - (float(own @ toward.square()) if own is not None else 0.0)

    p, moments = start, quadratic.moments(start)
    value, bound, best, step = value_of(p, moments), float("inf"), moments, 0.0
    reached: list[float] = []
    previous: tuple[torch.Tensor, torch.Tensor] | None = None
    for iteration in range(iterations + 1):
        price = quadratic.price(moments)
        if own is not None:
            price -= own * (1 / copies - 2 * p) / weights
            response, most = quadratic.feasible.respond(price)
            ahead = most - float((weights * price) @ p)
        else:
            here, response = quadratic.bound(moments, price)
            ahead = here - value
            if here < bound:
                bound, best = here, moments
        reached.append(value)
        if record is not None:
            record({"objective": value} if own is not None else standing(quadratic, p, value, bound))
        near = ROUNDING_SHARE * quadratic.rounding(p) if own is None else 0.0
        least = tolerance if own is not None else tolerance / 10
        stalled = iteration >= STALL and value - reached[-1 - STALL] <= least
        if ahead <= tolerance or bound - value <= max(tolerance, near) or stalled or iteration == iterations:
            break
        if previous is None:
            step = 1.0 / max(float(price.std(correction=0)), 1e-30)
        else:
            moved, turned = p - previous[0], price - previous[1]
            curvature = -float((weights * moved) @ turned)
            if curvature > 0:
                long = float((weights * moved) @ moved) / curvature
                short = curvature / max(float((weights * turned) @ turned), 1e-300)
                step = short if iteration % 2 else long
        target = quadratic.feasible.project(p + step * price)
        toward = target - p
        ends = quadratic.moments(target)
        slope = float((weights * price) @ toward)
        bend = bend_of(toward, moments, ends)
        share = (1.0 if slope > 0 or own is not None else 0.0) if bend <= 0 else min(1.0, slope / (2 * bend))
        if share <= 0:  # the projection no longer ascends: towards the best response instead
            target, toward = response, response - p
            ends = quadratic.moments(target)
            slope = float((weights * price) @ toward)
            bend = bend_of(toward, moments, ends)
            share = 1.0 if bend <= 0 else min(1.0, max(slope, 0.0) / (2 * bend))
            if share <= 0:
                break
        previous = (p, price)
        p = target if share == 1.0 else p + share * toward
        moments = [m + share * (e - m) for m, e in zip(moments, ends, strict=True)]
        value = value_of(p, moments)
    return Ascent(p, moments, value, price, bound, best)


def standing(quadratic: Quadratic, p: torch.Tensor, value: float, bound: float) -> dict[str, float]:
    """What to record of a fractional p of this value. Of a part of a problem, the bound is none of the whole."""
    facts = {"objective": value - quadratic.rounding(p), "relaxed": value}
    return facts if quadratic.base is not None else {**facts, "upper_bound": bound}
