"""Local search on a mask: swap a selected for an unselected document while that raises the objective.

Only documents whose price is near the cut can gain from a swap. A round takes the best of them, one or two thousand
(the window), computes their kernel ⟨v_i, v_j⟩, and makes the best swaps one pair at a time with exact gains. Then all
prices are computed anew, which reads the pool once. It ends when a round gains less than the tolerance.
"""

from __future__ import annotations

import numpy as np
import torch

from datamask.selection.engine.quadratic import Quadratic
from datamask.selection.problem.limits import GRAIN, Limits

# Documents on each side of the window: if all metrics' moments are vectors (rounding loses less there), and otherwise.
WINDOW = {True: 512, False: 1024}
ROUNDS = 40
TRIED = 32  # the best entrants are tried so many at a time, each against every selected document of the window


def improve(
    quadratic: Quadratic, selected: torch.Tensor, tolerance: float
) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    """A mask (N,) no worse than `selected` (N,) bool and within the same limits, its moments, and all prices (N,).

    Stops when a round gains less than `tolerance` (absolute), after `ROUNDS`, or where no swap gains.
    """
    mask, weights, self_terms = selected.clone(), quadratic.feasible.weights, quadratic.self_terms
    moments = quadratic.moments(mask.double())
    limits = quadratic.feasible.limits
    left, side = ROUNDS, WINDOW[all(rows.metric.vector for rows in quadratic.prepared)]
    while True:
        price = quadratic.price(moments)
        if not left:
            break
        gain = weights * price  # the marginal value of taking a document, to first order
        above = weights * quadratic.feasible.reduced(price) if limits else gain  # net of the limits' dual prices
        enter = torch.where(mask, -torch.inf, above - self_terms) / weights
        leave = torch.where(mask, -above - self_terms, -torch.inf) / weights
        allowed = _Allowed(limits, mask.numpy())
        out = leave.topk(min(side, int(mask.sum()))).indices
        into = enter.topk(min(side, int((~mask).sum()))).indices
        window = torch.cat([out, into])
        kernel = np.zeros((len(window), len(window)), np.float32)
        for rows, c in zip(quadratic.prepared, quadratic.coefficients, strict=True):
            kernel += c * rows.kernel(window).cpu().numpy()
        if not quadratic.feasible.unit_weights:
            kernel *= np.outer(weights[window], weights[window]).astype(np.float32)
        charged = (gain - above)[window].numpy()
        changed = _swap(kernel, gain[window].numpy(), charged, len(out), allowed, window.numpy(), tolerance / side)
        if not len(changed):
            break
        moved = torch.from_numpy(changed)
        swapped = mask.clone()
        swapped[moved] = ~mask[moved]
        change = (swapped.double() - mask.double()) * weights
        shifts = [rows.moment(change) for rows in quadratic.prepared]
        then = [moment + shift for moment, shift in zip(moments, shifts, strict=True)]
        gained = quadratic.value(swapped.double(), then) - quadratic.value(mask.double(), moments)
        if gained > 0:  # gains computed from bf16 rows may be wrong, so the true change decides
            mask, moments = swapped, then
        left = left - 1 if gained >= tolerance else 0
    return mask, moments, price


class _Allowed:
    """Which swaps keep the selection, as it stands, within the budget and the limits."""

    def __init__(self, limits: Limits, mask: np.ndarray) -> None:
        self.limits, self.weights = limits, limits.weights
        self.spent = float(self.weights[mask].sum())
        self.sums = [np.bincount(g.codes[mask], self.weights[mask], minlength=len(g.names)) for g in limits.groupings]
        self.length = 0.0 if limits.length is None else float(limits.length.coefficients[mask].sum())

    @property
    def every(self) -> bool:
        return self.limits.counted and not self.limits

    def pairs(self, enter: np.ndarray, leave: np.ndarray) -> np.ndarray:
        """(e, l) bool: whether entrant e may replace leaver l. enter (e,) and leave (l,) are row numbers."""
        limits, grain = self.limits, GRAIN * max(self.limits.size, 1.0)
        comes, goes = self.weights[enter][:, None], self.weights[leave][None]
        change = comes - goes
        fits = np.ones(change.shape, bool)
        if not limits.counted:
            spent = self.spent + change
            fits &= (spent <= limits.size + grain) & (spent >= limits.size - limits.unspent - grain)
        for grouping, sums in zip(limits.groupings, self.sums, strict=True):
            into, out = grouping.codes[enter][:, None], grouping.codes[leave][None]
            same = into == out
            fits &= sums[into] + np.where(same, change, comes) <= grouping.high[into] + grain
            fits &= sums[out] + np.where(same, change, -goes) >= grouping.low[out] - grain
        if limits.length is not None:
            each = limits.length.coefficients
            total = self.length + each[enter][:, None] - each[leave][None]
            fits &= (total >= limits.length.low) & (total <= limits.length.high)
        return fits

    def swap(self, enter: int, leave: int) -> None:
        self.spent += float(self.weights[enter] - self.weights[leave])
        for grouping, sums in zip(self.limits.groupings, self.sums, strict=True):
            sums[grouping.codes[enter]] += self.weights[enter]
            sums[grouping.codes[leave]] -= self.weights[leave]
        if self.limits.length is not None:
            each = self.limits.length.coefficients
            self.length += float(each[enter] - each[leave])


def _swap(
    kernel: np.ndarray,  # (n, n) Σ_m c_m w_i w_j ⟨v_i, v_j⟩
    gain: np.ndarray,  # (n,) marginal value of taking each document, to first order
    charged: np.ndarray,  # (n,) what the limits' dual prices charge for it; the greatest gain − charged is tried first
    out: int,  # the first `out` documents of the window are selected
    allowed: _Allowed,
    window: np.ndarray,  # (n,) row numbers
    least: float,  # the least gain of a swap: tolerance / side, so that the swaps left undone sum to < the tolerance
) -> np.ndarray:
    """Makes the best swap, one after the other, until none gains more than `least`.

    Returns the row numbers of the documents that entered or left.
    """
    inside = np.arange(len(window)) < out
    first = inside.copy()
    self_terms = kernel.diagonal().astype(np.float64)
    gain = gain.copy()
    refused = np.zeros(len(window), bool)  # entrants with which no swap has gained since the last swap
    floor = max(least, 1e-9 * float(np.abs(gain).max() + self_terms.max()))
    for _ in range(8 * len(window)):
        enters = np.where(inside | refused, -np.inf, gain - self_terms)
        tried = enters - charged
        best = np.argpartition(-tried, TRIED)[:TRIED] if len(enters) > TRIED else np.arange(len(enters))
        leaves = np.where(inside, -gain - self_terms, -np.inf)
        if enters.max() + leaves.max() + 2 * self_terms.max() <= floor:
            break
        pair = enters[best, None] + leaves + 2 * kernel[best]
        if not allowed.every:
            pair[~allowed.pairs(window[best], window)] = -np.inf
        row, j = divmod(int(pair.argmax()), len(window))
        if pair[row, j] <= floor:
            refused[best] = True
            continue
        i = int(best[row])
        inside[i], inside[j] = True, False
        gain -= 2 * (kernel[i] - kernel[j])
        if not allowed.every:
            allowed.swap(int(window[i]), int(window[j]))
        refused[:] = False
    return window[inside != first]
