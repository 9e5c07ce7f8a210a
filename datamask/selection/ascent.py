"""Projected ascent on quality plus moment metrics: what the relaxation, the calibration and the price sample all run.

    problem: maximise  f(p) = linear·p − Σ_m c_m ‖M_m(p)‖²   over the feasible set

f is concave and quadratic, so along a line it is known from the moments of the two ends: every step is an exact line
search, with the step to project from by Barzilai and Borwein (1988). At any point y,
f(S) ≤ f(y) + max_s ∇f(y)·(s − y) for every feasible S (Frank and Wolfe, 1956): the certificate.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from datamask.selection.feasible import Feasible
from datamask.selection.metrics.base import MomentMetric

BLOCK_ROWS = 8192
ROUNDING_SHARE = 0.1  # of what rounding costs: no use in bringing the bound nearer to a fractional value than that


class Prepared:
    """A metric's prepared rows, held once in `dtype` (bf16: half the memory of float32, four times its speed)."""

    def __init__(self, metric: MomentMetric, dtype: torch.dtype = torch.float32, z: torch.Tensor | None = None) -> None:
        self.metric = metric
        pool = metric.pool
        if z is not None:
            self.z = z.to(dtype)
            return
        self.z = torch.empty(len(pool), pool.dimensions, dtype=dtype, device=pool.device)
        for part, block in pool.blocks(BLOCK_ROWS):
            self.z[part] = metric.prepare(block).to(dtype)

    def take(self, index: torch.Tensor) -> Prepared:
        """These rows alone (copied)."""
        return Prepared(self.metric, self.z.dtype, z=self.z[index.to(self.z.device)])

    def moment(self, mask: torch.Tensor) -> torch.Tensor:
        """Σ_i mask_i v_i, float32 sums over blocks. mask: (N,), zero rows are not touched."""
        index = mask.nonzero()[:, 0]
        values = mask[index].to(self.z.device, torch.float32)
        total: torch.Tensor | None = None
        dense = len(index) > 0.7 * len(mask)
        source = torch.arange(len(mask)) if dense else index
        values = mask.to(self.z.device, torch.float32) if dense else values
        for start in range(0, max(len(source), 1), BLOCK_ROWS):
            part = source[start : start + BLOCK_ROWS]
            rows = self.z[start : start + BLOCK_ROWS] if dense else self.z[part.to(self.z.device)]
            moment = self.metric.moment(rows, values[start : start + BLOCK_ROWS]).float()
            total = moment if total is None else total.add_(moment)
        assert total is not None
        return total

    def squares(self) -> torch.Tensor:
        """‖v_i‖² of every row: (N,) float64 on the CPU."""
        parts = [self.metric.squares(part.float()).cpu() for part in self.z.split(BLOCK_ROWS)]
        return torch.cat(parts).double()

    def kernel(self, index: torch.Tensor) -> torch.Tensor:
        """⟨v_i, v_j⟩ of these rows with one another: (n, n) float32."""
        return self.metric.kernel(self.z[index.to(self.z.device)]).float()

    def products(self, moment: torch.Tensor) -> torch.Tensor:
        """⟨moment, v_i⟩ of every row: (N,) float64 on the CPU."""
        parts = [self.metric.products(part, moment).float().cpu() for part in self.z.split(BLOCK_ROWS)]
        return torch.cat(parts).double()


@dataclass
class Ascent:
    """Where an ascent stands."""

    p: torch.Tensor  # (N,) float64
    moments: list[torch.Tensor]
    value: float
    price: torch.Tensor  # (N,) gradient per unit of weight, at p
    bound: float
    history: list[dict[str, float]] = field(default_factory=list)


def ascend(
    prepared: list[Prepared],
    coefficients: list[float],  # c_m
    linear: torch.Tensor,  # (N,) float64, per unit of weight
    feasible: Feasible,
    start: torch.Tensor,
    tolerance: float = 1e-4,
    iterations: int = 60,
    own: torch.Tensor | None = None,  # (N,) Σ_m c_m w_i² ‖v_i‖²: ascend the multilinear extension
    copies: float = 1.0,  # documents of the whole pool that a document of a sample stands for
    charge: torch.Tensor | None = None,  # (N,) own_i, for the history alone: what rounding p is worth on average
    report: Callable[[dict[str, float]], None] | None = None,
) -> Ascent:
    """From a feasible `start` until the bound is within `tolerance` (absolute) of the value, or for `iterations`.

    With `own`, f is replaced by its multilinear extension, f(p) − Σ own_i (p_i − p_i²): what f is on average when each
    document is drawn with its p_i. A mask pays for each document's likeness to itself, a fractional p only p_i² of it;
    the extension charges the mask's price, and its ascent (no longer concave: no bound) ends close to a mask.
    In a sample, one of `copies` documents alike, the mask's price is own_i·p_i / copies.
    """
    weights = feasible.weights
    linear_total = weights * linear

    def moments_of(p: torch.Tensor) -> list[torch.Tensor]:
        return [rows.moment(p * weights) for rows in prepared]

    def value_of(p: torch.Tensor, moments: list[torch.Tensor]) -> float:
        spread = sum(c * float(m.double().square().sum()) for c, m in zip(coefficients, moments, strict=True))
        return float(linear_total @ p) - spread - (float(own @ (p / copies - p * p)) if own is not None else 0.0)

    def bend_of(toward: torch.Tensor, moments: list[torch.Tensor], ends: list[torch.Tensor]) -> float:
        pairs = zip(coefficients, moments, ends, strict=True)
        bend = sum(c * float((end - moment).double().square().sum()) for c, moment, end in pairs)
        return bend - (float(own @ toward.square()) if own is not None else 0.0)

    def price_of(p: torch.Tensor, moments: list[torch.Tensor]) -> torch.Tensor:
        price = linear - own * (1 / copies - 2 * p) / weights if own is not None else linear.clone()
        for rows, c, moment in zip(prepared, coefficients, moments, strict=True):
            price -= 2 * c * rows.products(moment)
        return price

    p, moments = start, moments_of(start)
    value, best_bound, step = value_of(p, moments), float("inf"), 0.0
    history: list[dict[str, float]] = []
    previous: tuple[torch.Tensor, torch.Tensor] | None = None
    for iteration in range(iterations + 1):
        price = price_of(p, moments)
        response, most = feasible.respond(price)
        ahead = most - float((weights * price) @ p)
        best_bound = min(best_bound, value + ahead) if own is None else float("inf")
        charged = value - (float(charge @ (p - p * p)) if charge is not None else 0.0)
        history.append({"step": iteration, "objective": charged})
        if own is None:
            history[-1] |= {"relaxed": value, "upper_bound": best_bound}
        if report is not None:
            report(history[-1])
        near = max(tolerance, ROUNDING_SHARE * (value - charged))
        stalled = own is not None and iteration >= 5 and value - history[-6]["objective"] <= tolerance
        if ahead <= tolerance or best_bound - value <= near or stalled or iteration == iterations:
            break
        if previous is None:
            step = 1.0 / max(float(price.std()), 1e-30)
        else:
            moved, turned = p - previous[0], price - previous[1]
            curvature = -float((weights * moved) @ turned)
            if curvature > 0:
                long = float((weights * moved) @ moved) / curvature
                short = curvature / max(float((weights * turned) @ turned), 1e-300)
                step = short if iteration % 2 else long
        target = feasible.project(p + step * price)
        toward = target - p
        ends = moments_of(target)
        slope = float((weights * price) @ toward)
        bend = bend_of(toward, moments, ends)
        share = (1.0 if slope > 0 or own is not None else 0.0) if bend <= 0 else min(1.0, slope / (2 * bend))
        if share <= 0:  # the projection no longer ascends: towards the best response instead
            target, toward = response, response - p
            ends = moments_of(target)
            slope = float((weights * price) @ toward)
            bend = bend_of(toward, moments, ends)
            share = 1.0 if bend <= 0 else min(1.0, max(slope, 0.0) / (2 * bend))
            if share <= 0:
                break
        previous = (p, price)
        p = target if share == 1.0 else p + share * toward
        moments = [m + share * (e - m) for m, e in zip(moments, ends, strict=True)]
        value = value_of(p, moments)
    return Ascent(p, moments, value, price, best_bound, history)
