"""The loops over a step's documents against NumPy, over values of many magnitudes."""

from __future__ import annotations

import numpy as np
import pytest

from datamask.selection.problem.feasible import RUN, spent_at, triple


@pytest.mark.parametrize("count", [1, RUN, 3 * RUN + 5])
@pytest.mark.parametrize("spread", [0, 12])
def test_sums(count: int, spread: int) -> None:
    generator = np.random.default_rng(count)
    a, b, c = generator.normal(size=(3, count)) * 10.0 ** generator.uniform(-spread, spread, (3, count))
    weights, rate = abs(b), abs(c)
    scale = np.abs(a * b * c).sum()
    assert triple(a, b, c) == pytest.approx((a * b * c).sum(), abs=1e-13 * scale)
    for rates in (rate, np.zeros(0)):
        each = rates if len(rates) else 1.0
        spent, falls = spent_at(a, rates, weights, 0.3)
        p = a - 0.3 * each
        assert spent == pytest.approx(weights @ p.clip(0, 1), rel=1e-12)
        assert falls == pytest.approx((weights * each)[(p > 0) & (p < 1)].sum(), rel=1e-12)
    assert triple(weights, a - 0.1, a > 0.1) == pytest.approx(weights @ (a - 0.1).clip(0), rel=1e-12)
