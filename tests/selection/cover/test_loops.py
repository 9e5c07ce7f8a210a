"""The compiled loops of coverage: against plain definitions, and shared between cores."""

from __future__ import annotations

import numpy as np
import pytest
from scipy.sparse import csr_array

from datamask.selection.cover import atoms, compiled
from datamask.selection.cover.atoms import AtomRows, beside, hit_rows, shares
from datamask.selection.cover.compiled import Curves, Documents, Mixture
from datamask.selection.metrics.coverage import at_slope, curve_slope, levels


@pytest.mark.parametrize("shared", [0, 1 << 60])
def test_gains_and_scores(shared: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(atoms, "SHARED", shared)
    generator = np.random.default_rng(5)
    dense = generator.pareto(1, (60, 300)) * (generator.random((60, 300)) < 0.6)
    dense[7] = 0
    filled = [np.flatnonzero(row) for row in dense]
    start = np.concatenate([[0], np.cumsum([len(row) for row in filled])])
    value = np.concatenate([dense[row, at] for row, at in enumerate(filled)]).astype(np.float32)
    rows = AtomRows(start, np.concatenate(filled).astype(np.uint16), value, 300)
    t, level = generator.random(300) * (generator.random(300) < 0.8), generator.random(300) + 0.01
    curves = Curves.of(t, 300, 1.0)
    mass, worth = generator.random(60) * 10.0 ** generator.integers(-6, 0, 60), generator.random(60)
    selected, which = np.zeros(60, bool), generator.permutation(60)[:50]
    found = np.full(60, np.nan)
    rows.gains(Mixture(t, level, curves), Documents(mass, worth, selected), which, found)
    exact = worth + np.log1p(mass[:, None] * dense.astype(np.float32) / level) @ t
    assert np.allclose(found[which], exact[which], rtol=1e-9)
    assert np.isnan(np.delete(found, which)).all()
    assert np.allclose(rows.scores(t), dense.astype(np.float32) @ t)


def test_cores_give_the_same_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(6)
    start = np.arange(0, 20_001, 40)
    rows = AtomRows(
        start, generator.integers(0, 500, 20_000).astype(np.uint16), generator.random(20_000).astype("f4"), 500
    )
    price, found = generator.random(500), []
    for shared in (0, 1 << 60):
        monkeypatch.setattr(atoms, "SHARED", shared)
        gains = np.zeros(500)
        mixture = Mixture(price, price + 0.1, Curves.of(price, 500, 1.0))
        rows.gains(mixture, Documents(price, price, price < 0.5), np.arange(500), gains)
        found.append(rows.scores(price).tobytes() + gains.tobytes())
    assert found[0] == found[1]


@pytest.mark.parametrize("seed", range(4))
def test_words_that_saturate_count_documents(seed: int) -> None:
    """Beside words by shares: gains, moves and slopes against 1 − 2^−documents written out; lengths over five
    decades, documents twice, a word that all hold and one that none holds."""
    generator, many = np.random.default_rng(seed), 30
    counts = generator.poisson(0.4, (40, many)).astype(np.float32)
    counts[:, 0], counts[:, 1], counts[5:9] = 1, 0, counts[5]
    weights, sparse = 10.0 ** generator.uniform(0, 5, 40), csr_array(counts)
    size, alpha = float(weights.sum()) / 3, 0.02
    rows = beside(shares(sparse, np.float64), hit_rows(sparse, weights, np.float64))
    held = counts > 0
    t = np.concatenate([generator.random(many), held.any(axis=0) / 29])
    t[1] = 0
    parts = counts / counts.sum(axis=1, keepdims=True)
    mean = rows.state(weights / weights.sum())
    curves, mass = Curves.of(t, many, size / (1 - alpha)), (1 - alpha) * weights / size

    def worth(mask: np.ndarray) -> float:
        mixture = np.maximum(mass @ (parts * mask[:, None]) + alpha * mean[:many], 1e-300)
        return float(t[:many] @ np.log(mixture) + t[many:] @ (1 - 0.5 ** held[mask].sum(axis=0)))

    mask = generator.random(40) < 0.3
    level, found = levels(rows.state(mass * mask), alpha * mean, curves), np.zeros(40)
    mixture = Mixture(t, level, curves)
    rows.gains(mixture, Documents(mass, np.zeros(40), mask), np.arange(40), found)
    flipped = [mask ^ (np.arange(40) == row) for row in range(40)]
    expected = [abs(worth(other) - worth(mask)) for other in flipped]
    assert found == pytest.approx(expected, rel=1e-6, abs=1e-12)
    for row in range(40):  # there and back, past levels of 2^−40
        compiled.move_row(rows.arrays, mixture, (-1) ** mask[row] * mass[row], row)
    assert level == pytest.approx(levels(rows.state(mass * ~mask), alpha * mean, curves), rel=1e-9)
    used, here = t > 0, np.maximum(rows.state(mass * mask), 1e-3)
    slopes, of_used = curve_slope(t, levels(here, alpha * mean, curves), curves), curves._replace(bend=many - 1)
    assert at_slope(t[used], slopes[used], alpha * mean[used], of_used) == pytest.approx(here[used], rel=1e-9)
