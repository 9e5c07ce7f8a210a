"""Metrics and calibration against plain float64 code."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest

from datamask import select
from datamask.config import Select
from datamask.selection import calibration
from datamask.selection.calibration import make_problem
from datamask.selection.problem.pool import Pool

from .instances import FAMILIES, instance


def unit(rows: np.ndarray) -> np.ndarray:
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


@pytest.fixture
def pool() -> tuple[np.ndarray, np.ndarray]:
    generator = np.random.default_rng(5)
    centres = generator.standard_normal((6, 10))
    features = centres[generator.integers(0, 6, 60)] + 0.5 * generator.standard_normal((60, 10))
    return features * generator.uniform(0.5, 2, (60, 1)), generator.random(60)


def plain(name: str, x: np.ndarray, chosen: np.ndarray) -> float:
    if name == "pairwise":
        return -float((x[chosen] @ x[chosen].T).mean())
    if name == "facility":
        return float((x @ x[chosen].T).max(axis=1).mean())
    z = (x - x.mean(axis=0)) / np.sqrt(x.var(axis=0, ddof=1) + 1e-8)
    z = unit(z) * z.shape[1] ** 0.5
    c = z[chosen].T @ z[chosen] / len(chosen)
    return -float((c**2).sum() - (np.diag(c) ** 2).sum()) / 10_000


@pytest.mark.parametrize("name", ["pairwise", "disf", "facility"])
@pytest.mark.parametrize("lamb", [0.0, 0.3, 1.0])
def test_raw_objective_is_the_plain_sum(pool, name, lamb):
    features, quality = pool
    found = select(features, quality, algorithm=name, solver="random", calibrate=False, lamb=lamb, select_ratio=0.25)
    chosen = found.indices
    expected = lamb * quality[chosen].mean() + (1 - lamb) * plain(name, unit(features), chosen)
    assert len(chosen) == 15
    assert found.objective == pytest.approx(expected, rel=1e-6)


@pytest.mark.parametrize("name", ["pairwise", "disf"])
def test_zero_is_the_mean_of_random_selections(pool, name):
    features, quality = pool
    problem = make_problem(Pool(features, quality), Select(algorithm=name, select_ratio=0.2))
    generator = np.random.default_rng(0)
    x = unit(features)
    values = [plain(name, x, generator.choice(60, 12, replace=False)) for _ in range(4000)]
    term = problem.objective.diversity[0]
    assert term.zero == pytest.approx(np.mean(values), abs=4 * np.std(values) / np.sqrt(4000))


def test_exact_disf_is_the_published_statistic(pool):
    features, quality = pool
    found = select(features, quality, algorithm="DiSF", solver="top-quality", select_ratio=0.4)
    s = unit(features)[found.selected]
    z = (s - s.mean(axis=0)) / np.sqrt(s.var(axis=0, ddof=1) + 1e-8)
    c = z.T @ z / (len(s) - 1)
    assert found.statistics["disf_exact"] == pytest.approx(-((c**2).sum() - (np.diag(c) ** 2).sum()) / 10_000, rel=1e-6)


def test_disf_is_not_had_cheaply_by_short_rows():
    """Half the pool near its mean in a narrow cone, half spread out: a diverse choice is of the spread half."""
    generator = np.random.default_rng(2)
    axis = generator.standard_normal(16)
    near = axis + 0.2 * np.outer(generator.standard_normal(300), generator.standard_normal(16))
    spread = axis + 1.5 * generator.standard_normal((300, 16))
    features = np.concatenate([near, spread])
    found, chance = (
        select(features, np.ones(600), algorithm="DiSF", lamb=0.0, solver=solver) for solver in ("relaxation", "random")
    )
    assert found.statistics["disf_exact"] > chance.statistics["disf_exact"]
    assert found.selected[300:].sum() > 45  # of 60


def test_calibration_of_a_large_pool_does_not_depend_on_the_order():
    generator = np.random.default_rng(8)
    features, quality = generator.standard_normal((40_000, 12)), generator.random(40_000)
    order = generator.permutation(40_000)
    spans = []
    for rows in (np.arange(40_000), order):
        term = make_problem(Pool(features[rows], quality[rows]), Select(algorithm="Pair_simi")).objective.diversity[0]
        spans.append((term.zero, term.one))
    assert spans[0] == pytest.approx(spans[1], rel=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("name", ["pairwise", "disf"])
def test_one_is_the_best_of_all_selections(name, family):
    """In pools small enough to try every selection: never more, and most of the way from random."""
    features, quality = instance(family, 3, 14, 5)
    term = make_problem(Pool(features, quality), Select(algorithm=name, select_ratio=0.3)).objective.diversity[0]
    best = max(plain(name, unit(features), np.array(chosen)) for chosen in combinations(range(14), 4))
    assert term.one <= best + 1e-6
    assert term.one - term.zero >= 0.8 * (best - term.zero) - 1e-6


@pytest.mark.parametrize("ratio", [0.1, 0.3])
@pytest.mark.parametrize("name", ["pairwise", "disf"])
def test_one_of_a_large_pool_is_told_by_samples(name, ratio, monkeypatch):
    """From an eighth and a sixteenth of the documents, near what all of them give; unlike the eighth's own best."""
    generator = np.random.default_rng(4)
    centres = generator.standard_normal((40, 24))
    features = centres[generator.integers(0, 40, 8000)] + generator.standard_normal((8000, 24))
    ones = {}
    for count in (8000, 1000):
        monkeypatch.setattr(calibration, "best_on", lambda metric: count)
        problem = make_problem(Pool(features, np.ones(8000)), Select(algorithm=name, select_ratio=ratio))
        ones[count] = problem.objective.diversity[0]
    zero, whole = ones[8000].zero, ones[8000].one
    assert (ones[1000].one - zero) / (whole - zero) == pytest.approx(1, abs=0.1)
    problem = make_problem(Pool(features[:1000], np.ones(1000)), Select(algorithm=name, select_ratio=ratio))
    monkeypatch.setattr(calibration, "best_on", lambda metric: 1000)
    assert problem.objective.diversity[0].one < ones[1000].one  # such a sample's own best is not the pool's
