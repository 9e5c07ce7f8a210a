"""Loops over the documents of a step, compiled by Numba: one pass and one thread each.

The arrays are too short to be worth sharing: torch shares sums of 33,000 numbers between cores, and where these have
other work, its threads wait for each other longer than the sum takes.
"""

from __future__ import annotations

import numpy as np

from datamask.compiling import compiled

RUN = 4096  # numbers added before their sum is added to the others', which keeps rounding small


@compiled
def triple(a, b, c):  # type: ignore[no-untyped-def]
    """Σ a_i b_i c_i. (N,) float64 each, or bool."""
    total = 0.0
    for first in range(0, len(a), RUN):
        part = 0.0
        for i in range(first, min(first + RUN, len(a))):
            part += a[i] * b[i] * c[i]
        total += part
    return total


@compiled
def spent_at(z, rate, weights, level):  # type: ignore[no-untyped-def]
    """Σ w·clip(z − level·rate, 0, 1), and the rate at which it falls with the level. rate: (N,), or empty where it is 1
    for each."""
    total, slope = 0.0, 0.0
    for first in range(0, len(z), RUN):
        part, falls = 0.0, 0.0
        for i in range(first, min(first + RUN, len(z))):
            each = rate[i] if len(rate) else 1.0
            p = z[i] - level * each
            if p >= 1:
                part += weights[i]
            elif p > 0:
                part += weights[i] * p
                falls += weights[i] * each
        total += part
        slope += falls
    return total, slope


@compiled
def least_taken(price, taken):  # type: ignore[no-untyped-def]
    """The least price of the documents that are `taken` (N,) in part or whole; without any, the greatest price."""
    least, most = np.inf, -np.inf
    for i in range(len(price)):
        most = max(most, price[i])
        if taken[i] > 0:
            least = min(least, price[i])
    return least if least < np.inf else most
