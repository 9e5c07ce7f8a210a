"""The compiled loops of coverage: against plain definitions, and shared between cores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache

import numpy as np
import pytest

from datamask import compiling
from datamask.selection.cover import annealing, atoms
from datamask.selection.cover.atoms import AtomRows
from datamask.selection.cover.greedy_search import Effort, improve, value_of
from datamask.selection.cover.summed import SummedCoverage
from datamask.selection.problem.feasible import fill_in_order
from datamask.selection.problem.limits import Limits


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


def covered(count: int, tokens: bool = False) -> tuple[SummedCoverage, np.ndarray, Limits, np.ndarray]:
    """Documents of few atoms each, what each adds by itself, a budget of a tenth, and a random mask within it."""
    generator = np.random.default_rng(count)
    index = np.sort(generator.integers(0, 300, (count, 20)), axis=1).astype(np.uint16).ravel()
    rows = AtomRows(np.arange(count + 1) * 20, index, generator.pareto(2, 20 * count).astype(np.float32), 300)
    t = generator.dirichlet(np.ones(300))
    joint = SummedCoverage(rows, t, rows.state(np.full(count, 1 / count)), 0.01, 0.0)
    weights = np.exp(generator.normal(4, 1, count)).round() if tokens else np.ones(count)
    limits = Limits(weights, float(weights.sum() // 10))
    return joint, np.zeros(count), limits, fill_in_order(limits, generator.permutation(count))


@pytest.mark.parametrize("tokens", [False, True])
def test_lanes_find_what_one_lane_finds_whatever_the_cores(tokens: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    joint, linear, limits, mask = covered(6000, tokens)
    mass = (1 - joint.alpha) * limits.weights / limits.size
    monkeypatch.setattr(annealing, "LANED", 100)
    values, masks = [], []
    for lanes, cores in ((1, 2), (4, 2), (4, 1)):
        monkeypatch.setattr(annealing, "LANES", lanes)
        monkeypatch.setattr(compiling, "_pool", lru_cache(lambda process, cores=cores: ThreadPoolExecutor(cores)))
        masks.append(improve(joint, linear, limits, mask, 1.0, effort=Effort(rounds=2, draws=40)))
        values.append(value_of(joint, linear, mass, masks[-1]))
        assert not limits.violations(masks[-1])
        assert limits.weights[masks[-1]].sum() <= limits.size + 1e-6
    assert (masks[1] == masks[2]).all()
    start, best = value_of(joint, linear, mass, mask), max(values)
    assert min(values) - start > 0.99 * (best - start)
