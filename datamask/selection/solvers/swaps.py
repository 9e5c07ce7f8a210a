"""Local search on a mask: swap a selected for an unselected document while that raises the objective.

Only documents whose price is near the cut can gain from a swap. A round takes the best of them, one or two thousand
(the window), computes their kernel ⟨v_i, v_j⟩, and makes the best swaps one pair at a time with exact gains. Then all
prices are computed anew, which reads the pool once. It ends when a round gains less than the tolerance.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor

from datamask.compiling import compiled
from datamask.selection.problem.limits import GRAIN, Limits, allowed, book_row, running_sums
from datamask.selection.solvers.quadratic import Quadratic

# Documents on each side of the window: if all metrics' moments are vectors (rounding loses less there), and otherwise.
WINDOW = {True: 512, False: 1024}
ROUNDS = 40
TRIED = 32  # the best entrants are tried so many at a time, each against every selected document of the window
SIDE, TRIAL_ROUNDS = 8, 50  # by value: candidates to leave, and as many to enter, every pair of which is tried; rounds


def swap_by_kernel(
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
    grain, spent = GRAIN * max(limits.size, 1.0), float(limits.weights[mask].sum())
    budget = np.array([spent, limits.size - limits.unspent - grain, limits.size + grain])
    if limits.counted:
        budget[1:] = -np.inf, np.inf  # one for one
    inside = mask[window]
    floor = max(least, 1e-9 * float(np.abs(gain).max() + kernel.diagonal().max()))
    swap_best(kernel, gain.copy(), charged, inside, floor, budget, running_sums(limits, mask, window))
    return window[inside != mask[window]]


def swap_by_value(
    limits: Limits,
    selected: Tensor,  # (N,) bool
    values: Callable[[Tensor], Tensor],  # masks (G, N) bool -> (G,), the objective
    gradient: Callable[[Tensor], Tensor],  # mask (N,) float64 -> (N,), the objective's, which picks what is tried
) -> Tensor:
    """Local search by the objective of trial masks, where only values and gradients are known.

    A mask (N,) bool whose objective is no less than that of `selected`, within the same limits. Tried are swaps, and
    one document more or less.
    """
    value = float(values(selected[None])[0])
    for _ in range(TRIAL_ROUNDS):
        slope = gradient(selected.double())
        out = torch.where(selected, -slope, -torch.inf).topk(min(SIDE, int(selected.sum()))).indices
        into = torch.where(selected, -torch.inf, slope).topk(min(SIDE, int((~selected).sum()))).indices
        trials = selected.repeat(len(out) + 1, len(into) + 1, 1)
        trials[torch.arange(len(out)), :, out] = False
        trials[:, torch.arange(len(into)), into] = True
        trials = trials.flatten(0, 1)
        trials = trials[[bool(mask.any()) and not limits.violations(mask) for mask in trials.numpy()]]
        if not len(trials):
            break
        found = values(trials).cpu()
        if float(found.max()) <= value + 1e-9 * (1 + abs(value)):
            break
        selected, value = trials[int(found.argmax())], float(found.max())
    return selected


@compiled
def swap_best(kernel, gain, charged, inside, floor, budget, sums):  # type: ignore[no-untyped-def]
    """Makes the best swap, one after the other, until none gains more than `floor`. The first three as `best_swaps` has
    them; inside: (n,) bool, which are selected; budget: (3,) what is spent, the least and the most that may be.

    gain, inside, budget and sums are written to.
    """
    weights = sums.weights
    n = len(gain)
    self_terms = np.empty(n, np.float64)
    for i in range(n):
        self_terms[i] = kernel[i, i]
    steepest = self_terms.max()
    refused = np.zeros(n, np.bool_)  # entrants with which no swap has gained since the last swap
    best = np.empty(TRIED, np.int64)
    score = np.empty(TRIED, np.float64)
    leaves, gained = np.empty(n, np.float64), np.empty(n, np.float64)
    for _ in range(8 * n):
        found = 0
        highest = -np.inf
        cheapest = -np.inf
        for i in range(n):
            leaves[i] = -gain[i] - self_terms[i] if inside[i] else -np.inf
            cheapest = max(cheapest, leaves[i])
            if not (inside[i] or refused[i]):
                highest = max(highest, gain[i] - self_terms[i])
                tried = gain[i] - self_terms[i] - charged[i]
                if found < TRIED or tried > score[found - 1]:
                    place = found if found < TRIED else TRIED - 1
                    found = place + 1
                    while place and score[place - 1] < tried:
                        score[place] = score[place - 1]
                        best[place] = best[place - 1]
                        place -= 1
                    score[place] = tried
                    best[place] = i
        if highest + cheapest + 2 * steepest <= floor:
            break
        most = floor
        comes, goes = -1, -1
        least, largest = budget[1] - budget[0], budget[2] - budget[0]
        for i in best[:found]:
            enters = gain[i] - self_terms[i]
            if enters + cheapest + 2 * steepest <= most:
                continue
            row, comer = kernel[i], weights[i]
            for j in range(n):  # without a branch, so that the processor takes several at a time
                change = comer - weights[j]
                fits = (change >= least) & (change <= largest)
                gained[j] = enters + leaves[j] + 2 * row[j] if fits else -np.inf
            for j in range(n):
                if gained[j] > most and allowed(j, i, 0.0, np.inf, sums):
                    most = gained[j]
                    comes, goes = i, j
        if comes < 0:
            for i in best[:found]:
                refused[i] = True
            continue
        inside[comes], inside[goes] = True, False
        for i in range(n):
            gain[i] -= 2 * (kernel[comes, i] - kernel[goes, i])
        budget[0] += weights[comes] - weights[goes]
        book_row(comes, 1.0, sums)
        book_row(goes, -1.0, sums)
        refused[:] = False
