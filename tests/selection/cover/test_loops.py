"""The compiled loops of coverage: against plain definitions, and shared between cores."""

from __future__ import annotations

import numpy as np
import pytest

from datamask.selection.cover import atoms
from datamask.selection.cover.atoms import AtomRows


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
    mass, worth = generator.random(60) * 10.0 ** generator.integers(-6, 0, 60), generator.random(60)
    selected, which = np.zeros(60, bool), generator.permutation(60)[:50]
    found = np.full(60, np.nan)
    rows.gains(t, level, mass, worth, selected, which, found)
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
        rows.gains(price, price + 0.1, price, price, price < 0.5, np.arange(500), gains)
        found.append(rows.scores(price).tobytes() + gains.tobytes())
    assert found[0] == found[1]
