"""The swaps of a window: within the limits, of the gain they claim, and none left that gains."""

import numpy as np
import pytest

from datamask.selection.problem.limits import LimitKind, Limits
from datamask.selection.solvers.quadratic import best_swaps


def problem(seed: int, tokens: bool, limited: bool) -> tuple[np.ndarray, np.ndarray, Limits, np.ndarray]:
    """A kernel (N, N), gains (N,), limits and a mask within them."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(6, 40))
    rows = rng.normal(size=(count, 5)) * rng.choice([0.1, 1.0], size=(count, 1))
    kernel = (rows @ rows.T).astype(np.float32)
    mask = rng.random(count) < 0.4
    mask[:2] = True, False
    weights = rng.integers(1, 9, count).astype(float) if tokens else np.ones(count)
    size, unspent = float((weights * mask).sum()), 3.0 if tokens else 0.0
    limits = Limits(weights, size, slack=unspent)
    if limited:
        codes = rng.integers(3, size=count)
        sums = np.bincount(codes, weights * mask, minlength=3)
        each = rng.integers(1, 5, count).astype(float)
        length = each[mask].sum()
        low, high = np.append(np.maximum(sums - 2, 0), length - 2), np.append(sums + 2, length + 2)
        kinds = (LimitKind(codes, weights), LimitKind(np.full(count, 3), each))
        limits = Limits(weights, size, ("a", "b", "c", "length"), low, high, np.ones(4), kinds, unspent)
    return kernel, rng.normal(size=count), limits, mask


@pytest.mark.parametrize("limited", [False, True])
@pytest.mark.parametrize("tokens", [False, True])
def test_swaps_end_where_none_within_the_limits_gains(tokens: bool, limited: bool) -> None:
    moved = 0
    for seed in range(200):
        kernel, gain, limits, mask = problem(seed, tokens, limited)
        window = np.concatenate([np.flatnonzero(mask), np.flatnonzero(~mask)])
        part, there = kernel[np.ix_(window, window)], gain[window]
        changed = best_swaps(part, there, np.zeros(len(window)), limits, mask, window, 1e-6)
        after = mask.copy()
        after[changed] = ~mask[changed]
        assert not limits.violations(after) and (not limits.counted or after.sum() == mask.sum())
        moved += len(changed)

        change = after.astype(float) - mask
        slope = gain - 2 * kernel.astype(float) @ change
        assert gain @ change - change @ kernel.astype(float) @ change >= 0
        for enter in np.flatnonzero(~after):
            for leave in np.flatnonzero(after):
                gained = slope[enter] - slope[leave] - kernel[enter, enter] - kernel[leave, leave]
                other = after.copy()
                other[[enter, leave]] = True, False
                if gained + 2 * kernel[enter, leave] > 2e-4:
                    assert limits.violations(other)
    assert moved > 200
