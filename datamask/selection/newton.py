"""Semismooth Newton steps for a metric whose moment is a vector (pairwise): where projected ascent converges slowly.

    maximise  Φ(p) = linear·w·p − c‖b + Xᵀ(w p)‖² over the budget, by proximal points: each maximises
    Φ(p) − ε/2 Σ w_i (p_i − a_i)² around the last, a, through its dual in the d numbers m = b + Xᵀ(w p)

At a given m the p of the dual is a projection, p = clip(a + (linear − 2c X m)/ε − τ); the residual m − b − Xᵀ(w p) has
the generalised Jacobian I + (2c/ε)·(the centred Gram matrix of the rows with 0 < p < 1), so that a step costs two reads
of the rows and one d × d solve (Li, Sun & Toh, "A highly efficient semismooth Newton augmented Lagrangian method", SIAM
J. Optim. 2018).
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from datamask.selection.ascent import Ascent, Record, ascend
from datamask.selection.quadratic import Quadratic

PROXIMAL_STEPS = 6
NEWTON_STEPS = 10
FIRST, SHRINK = 0.3, 0.2  # ε: of the prices' deviation at first, then from one proximal step to the next
OPENING = 8  # steps of ascent before Newton's


def climb(
    quadratic: Quadratic, start: torch.Tensor, tolerance: float, iterations: int, record: Record | None = None
) -> Ascent:
    """`ascend`, of whose steps all but the first few are Newton's where those are to be had."""
    vector = len(quadratic.prepared) == 1 and quadratic.prepared[0].metric.vector and not quadratic.feasible.limits
    found = ascend(quadratic, start, tolerance, OPENING if vector else iterations, record=record)
    return newton(quadratic, found, tolerance) if vector and not found.near(quadratic, tolerance) else found


def newton(quadratic: Quadratic, start: Ascent, tolerance: float) -> Ascent:
    """From where an ascent stands, until the bound is within `tolerance` of the value or float32 gives no more.

    quadratic: of one metric whose moment is a vector, over a budget without other limits. Memory: the fractional rows
    once more.
    """
    feasible, weights = quadratic.feasible, quadratic.feasible.weights
    (rows,), (c,) = quadratic.prepared, quadratic.coefficients
    best, m = start, start.moments[0].double()
    fixed = torch.zeros_like(m) if quadratic.base is None else quadratic.base[0].double()
    epsilon = FIRST * float(start.price.std(correction=0)) or 1.0
    for _ in range(PROXIMAL_STEPS):
        anchor = best.p

        def dual(m: torch.Tensor, anchor: torch.Tensor = anchor, epsilon: float = epsilon) -> _Dual:
            price = quadratic.price([m.float()])
            p = feasible.project(anchor + price / epsilon)
            value = c * float(m @ (m - 2 * fixed)) + float((weights * price) @ p)
            value -= epsilon / 2 * float((weights * (p - anchor).square()).sum())
            return _Dual(value, p, m - quadratic.moments(p)[0].double())

        now = dual(m)
        for _ in range(NEWTON_STEPS):
            active = ((now.p > 0) & (now.p < 1)).nonzero()[:, 0]
            kept, mass = rows.rows(active), weights[active].to(rows.z.device).float()
            sums = mass @ kept
            low = (kept * mass.sqrt()[:, None]).bfloat16()  # three digits are enough for a direction
            gram = (low.T @ low).float() - torch.outer(sums, sums) / mass.sum().clamp(min=1e-12)
            jacobian = torch.eye(len(m), dtype=torch.float64) + (2 * c / epsilon) * gram.double().cpu()
            step = torch.linalg.solve(jacobian, now.residual.cpu()).to(m.device)
            slope = 2 * c * float(now.residual @ step)
            share = 1.0
            while (then := dual(m - share * step)).value > now.value - 1e-4 * share * slope and share > 0.01:
                share /= 2
            gained = now.value - then.value
            m, now = m - share * step, then
            if gained <= tolerance / 10:
                break
        m = m - now.residual  # the moment of p itself
        moments = [m.float()]
        value = quadratic.value(now.p, moments)
        if value <= best.value:
            break
        price = quadratic.price(moments)
        bound, _ = quadratic.bound(moments, price)
        best = Ascent(now.p, moments, value, price, bound, moments)
        if bound - value <= tolerance:
            break
        epsilon *= SHRINK
    return best


class _Dual(NamedTuple):
    value: float
    p: torch.Tensor  # (N,) float64
    residual: torch.Tensor  # (d,) m less the moment of p
