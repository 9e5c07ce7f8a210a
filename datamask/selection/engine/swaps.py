"""Local search on a mask: swap a selected for an unselected document while that raises the objective.

Only documents whose price is near the cut can gain from a swap. A round takes the best of them, one or two thousand
(the window), computes their kernel ⟨v_i, v_j⟩, and makes the best swaps one pair at a time with exact gains. Then all
prices are computed anew, which reads the pool once. It ends when a round gains less than the tolerance.
"""

from __future__ import annotations

import numpy as np
import torch

from datamask.selection.engine.quadratic import Quadratic
from datamask.selection.engine.swap_loops import SwapBounds, swap_best
from datamask.selection.problem.limits import GRAIN, Limits

# Documents on each side of the window: if all metrics' moments are vectors (rounding loses less there), and otherwise.
WINDOW = {True: 512, False: 1024}
ROUNDS = 40


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
        out = leave.topk(min(side, int(mask.sum()))).indices
        into = enter.topk(min(side, int((~mask).sum()))).indices
        window = torch.cat([out, into])
        kernel = np.zeros((len(window), len(window)), np.float32)
        for rows, c in zip(quadratic.prepared, quadratic.coefficients, strict=True):
            kernel += c * rows.kernel(window).cpu().numpy()
        if not quadratic.feasible.unit_weights:
            kernel *= np.outer(weights[window], weights[window]).astype(np.float32)
        charged = (gain - above)[window].numpy()
        marginal, documents = gain[window].numpy(), window.numpy()
        changed = best_swaps(kernel, marginal, charged, limits, mask.numpy(), documents, tolerance / side)
        if not len(changed):
            break
        moved = torch.from_numpy(changed)
        swapped = mask.clone()
        swapped[moved] = ~mask[moved]
        then, _ = quadratic.moved(moments, swapped.double(), swapped.double() - mask.double())
        gained = quadratic.value(swapped.double(), then) - quadratic.value(mask.double(), moments)
        if gained > 0:  # gains computed from bf16 rows may be wrong, so the true change decides
            mask, moments = swapped, then
        left = left - 1 if gained >= tolerance else 0
    return mask, moments, price


def best_swaps(
    kernel: np.ndarray,  # (n, n) float32 Σ_m c_m w_i w_j ⟨v_i, v_j⟩
    gain: np.ndarray,  # (n,) marginal value of taking each document, to first order
    charged: np.ndarray,  # (n,) what the limits' dual prices charge for it; the greatest gain − charged is tried first
    limits: Limits,
    mask: np.ndarray,  # (N,) bool, what is selected
    window: np.ndarray,  # (n,) row numbers
    least: float,  # the least gain of a swap: tolerance / side, so that the swaps left undone sum to < the tolerance
) -> np.ndarray:
    """The row numbers of the documents that enter or leave by the best swaps of the window, within the limits."""
    spent, grain = limits.spent(mask), GRAIN * max(limits.size, 1.0)
    weights = limits.weights[window].astype(np.float64)
    budget = np.array([spent.weight, limits.size - limits.unspent - grain, limits.size + grain])
    if limits.counted:
        budget[1:] = -np.inf, np.inf  # one for one
    codes = np.zeros((len(limits.groupings), len(window)), np.int64)
    sums = np.zeros((3, len(codes), max([len(each.names) for each in limits.groupings], default=0)))
    for column, (grouping, taken) in enumerate(zip(limits.groupings, spent.groupings, strict=True)):
        codes[column] = grouping.codes[window]
        sums[:, column, : len(taken)] = taken, grouping.low - grain, grouping.high + grain
    each, bound = np.zeros(len(window)), np.array([0.0, -np.inf, np.inf])
    if limits.length is not None:
        each = limits.length.coefficients[window].astype(np.float64)
        bound[:] = spent.length, limits.length.low, limits.length.high
    inside = mask[window]
    floor = max(least, 1e-9 * float(np.abs(gain).max() + kernel.diagonal().max()))
    ends = SwapBounds(weights, budget, codes, sums, each, bound)
    swap_best(kernel, gain.copy(), charged, inside, floor, ends)
    return window[inside != mask[window]]
