"""The best swaps within a window of documents, one pair after the other: the compiled loop of `swaps`."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from datamask.compiling import compiled

TRIED = 32  # the best entrants are tried so many at a time, each against every selected document of the window


class SwapBounds(NamedTuple):
    """What swaps must stay within."""

    weights: np.ndarray  # (n,) what each takes of the budget
    budget: np.ndarray  # (3,) what is spent, the least and the most that may be
    codes: np.ndarray  # (G, n) int64, each column's value of a document
    sums: np.ndarray  # (3, G, V) what is spent of each column's values, the least and the most that may be
    length: np.ndarray  # (n,) each document's part of the length bound's sum
    bound: np.ndarray  # (3,) that sum, the least and the most that it may be


@compiled
def swap_best(  # type: ignore[no-untyped-def]
    kernel,  # (n, n) float32 Σ_m c_m w_i w_j ⟨v_i, v_j⟩
    gain,  # (n,) marginal value of taking each document, to first order; written to
    charged,  # (n,) what the limits' dual prices charge for it; the greatest gain − charged is tried first
    inside,  # (n,) bool: which documents are selected; written to
    floor,  # what a swap must gain more than
    ends,  # SwapBounds, written to
):
    """Makes the best swap, one after the other, until none gains more than `floor`."""
    weights, budget, codes, sums, length, bound = ends
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
                if gained[j] > most and _within(i, j, ends):
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
        bound[0] += length[comes] - length[goes]
        for column in range(len(codes)):
            sums[0, column, codes[column, comes]] += weights[comes]
            sums[0, column, codes[column, goes]] -= weights[goes]
        refused[:] = False


@compiled
def _within(comes, goes, ends):  # type: ignore[no-untyped-def]
    """Whether `comes` may replace `goes` within the limits beside the budget."""
    weights, _, codes, sums, length, bound = ends
    change = weights[comes] - weights[goes]
    if not bound[1] <= bound[0] + length[comes] - length[goes] <= bound[2]:
        return False
    for column in range(len(codes)):
        into, out = codes[column, comes], codes[column, goes]
        more = change if into == out else weights[comes]
        less = change if into == out else -weights[goes]
        if sums[0, column, into] + more > sums[2, column, into] or sums[0, column, out] + less < sums[1, column, out]:
            return False
    return True
