"""Swaps of a selected for an unselected document, while they raise the objective: what a rounded mask still lacks.

Only documents near the price at which the selection is cut can be worth a swap. So the best few thousand of them, the
window, are taken out, and swapped one pair at a time with exact gains from their kernel, ⟨v_i, v_j⟩ for every two;
then all prices are brought up to date, until a round gains next to nothing. A round reads the pool once.
"""

from __future__ import annotations

import numpy as np
import torch

from datamask.selection.feasible import Feasible
from datamask.selection.quadratic import Quadratic

WINDOW = {True: 512, False: 1024}  # documents a side; of vector metrics, whose rounding leaves less to mend, and others
ROUNDS = 40
TRIED = 32  # entrants at a time, each with everything that may leave


def improve(
    quadratic: Quadratic, selected: torch.Tensor, tolerance: float
) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    """A mask (N,) no worse than `selected` (N,) bool and within the same limits, its moments, and all prices (N,).

    Stops when a round gains less than `tolerance` (absolute), after `ROUNDS`, or where no swap gains.
    """
    mask, weights, own = selected.clone(), quadratic.feasible.weights, quadratic.own
    moments = quadratic.moments(mask.double())
    allowed = _Allowed(quadratic.feasible)
    left, side = ROUNDS, WINDOW[all(rows.metric.vector for rows in quadratic.prepared)]
    while True:
        price = quadratic.price(moments)
        if not left:
            break
        gain = weights * price  # of taking a document, or giving it up, to first order
        enter = torch.where(mask, -torch.inf, gain - own) / weights
        leave = torch.where(mask, -gain - own, -torch.inf) / weights
        out = leave.topk(min(side, int(mask.sum()))).indices
        into = enter.topk(min(side, int((~mask).sum()))).indices
        window = torch.cat([out, into])
        kernel = np.zeros((len(window), len(window)), np.float32)
        for rows, c in zip(quadratic.prepared, quadratic.coefficients, strict=True):
            kernel += c * rows.kernel(window).cpu().numpy()
        if not quadratic.feasible.unit_weights:
            kernel *= np.outer(weights[window], weights[window]).astype(np.float32)
        changed = _swap(kernel, gain[window].numpy(), len(out), allowed, window.numpy(), mask.numpy(), tolerance / side)
        if not len(changed):
            break
        moved = torch.from_numpy(changed)
        swapped = mask.clone()
        swapped[moved] = ~mask[moved]
        change = (swapped.double() - mask.double()) * weights
        shifts = [rows.moment(change) for rows in quadratic.prepared]
        then = [moment + shift for moment, shift in zip(moments, shifts, strict=True)]
        gained = quadratic.value(swapped.double(), then) - quadratic.value(mask.double(), moments)
        if gained > 0:  # rows in bf16 can deceive a swap
            mask, moments = swapped, then
        left = left - 1 if gained >= tolerance else 0
    return mask, moments, price


class _Allowed:
    """Which swaps keep the budget and the limits: within a cell of equal group values, and room for the weights."""

    def __init__(self, feasible: Feasible) -> None:
        limits = feasible.limits
        self.size, self.weights, self.length = limits.size, limits.weights, limits.length
        self.unit, self.one = feasible.unit_weights, feasible.one
        self.cells: np.ndarray | None = None
        for grouping in limits.groupings:
            before = 0 if self.cells is None else self.cells * (len(grouping.names) + 1)
            self.cells = before + grouping.codes

    @property
    def every(self) -> bool:
        return self.unit and self.cells is None and self.length is None

    def partners(self, enters: int, leaves: np.ndarray, left: float, length: float) -> np.ndarray:
        """Which of `leaves` may make room for `enters`. left: budget unspent; length: the selection's length sum."""
        fits = np.ones(len(leaves), bool)
        if self.cells is not None:
            fits &= self.cells[leaves] == self.cells[enters]
        if not self.unit:
            spare = self.weights[leaves] + left - self.weights[enters]  # what is left unspent: under one document
            fits &= (spare >= -1e-9) & (spare < self.one)
            if self.cells is not None:  # no group outgrows its share, and together they lose no more than is left
                fits &= self.weights[leaves] >= self.weights[enters]
        if self.length is not None:
            total = length + self.length.coefficients[enters] - self.length.coefficients[leaves]
            fits &= (total >= self.length.low - 1e-9) & (total <= self.length.high + 1e-9)
        return fits


def _swap(
    kernel: np.ndarray,  # (n, n) Σ_m c_m w_i w_j ⟨v_i, v_j⟩
    gain: np.ndarray,  # (n,) of taking a document, to first order
    out: int,  # the first so many are selected
    allowed: _Allowed,
    window: np.ndarray,  # (n,) row numbers
    mask: np.ndarray,
    least: float,  # a swap must gain: so many as a side has documents then leave less than the tolerance behind
) -> np.ndarray:
    """The best swaps one after the other, until none gains. Returns the rows that changed sides."""
    inside = np.arange(len(window)) < out
    first = inside.copy()
    own = kernel.diagonal().astype(np.float64)
    gain = gain.copy()
    left = allowed.size - float(allowed.weights[mask].sum())
    length = 0.0 if allowed.length is None else float(allowed.length.coefficients[mask].sum())
    refused = np.zeros(len(window), bool)  # as entrants, since the last swap
    floor = max(least, 1e-9 * float(np.abs(gain).max() + own.max()))
    for _ in range(8 * len(window)):
        enters = np.where(inside | refused, -np.inf, gain - own)
        best = np.argpartition(-enters, TRIED)[:TRIED] if len(enters) > TRIED else np.arange(len(enters))
        leaves = np.where(inside, -gain - own, -np.inf)
        if enters[best].max() + leaves.max() + 2 * own.max() <= floor:
            break
        pair = enters[best, None] + leaves + 2 * kernel[best]
        if not allowed.every:
            for row, i in zip(pair, best, strict=True):
                row[~allowed.partners(window[i], window, left, length)] = -np.inf
        row, j = divmod(int(pair.argmax()), len(window))
        if pair[row, j] <= floor:
            refused[best] = True
            continue
        i = int(best[row])
        inside[i], inside[j] = True, False
        gain -= 2 * (kernel[i] - kernel[j])
        left += float(allowed.weights[window[j]] - allowed.weights[window[i]])
        if allowed.length is not None:
            length += float(allowed.length.coefficients[window[i]] - allowed.length.coefficients[window[j]])
        refused[:] = False
    return window[inside != first]
