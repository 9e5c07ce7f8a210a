"""Projected ascent where the moment is a matrix, against SciPy's optimum; the bound from several places together."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from datamask.selection.metrics.moments import DiSF
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool
from datamask.selection.solvers import ascent
from datamask.selection.solvers.quadratic import Quadratic, prepare

from .instances import FAMILIES, instance, optimum

COUNT, WIDTH = 50, 5


def programme(family: str, seed: int, tokens: bool, based: bool) -> tuple[Quadratic, np.ndarray, np.ndarray]:
    """With its v (N, d²), written plainly, and its base (d²,)."""
    features, quality = instance(family, seed, COUNT, WIDTH)
    generator = np.random.default_rng(seed)
    weights = generator.integers(1, 9, COUNT).astype(float) if tokens else np.ones(COUNT)
    size = 0.3 * weights.sum()
    metric = DiSF(Pool(features, quality), torch.from_numpy(weights), size)
    z = metric.prepare(metric.pool.rows(slice(None), torch.float64)).numpy()
    products = z[:, :, None] * z[:, None, :] * (1 - np.eye(WIDTH))
    half = generator.standard_normal((WIDTH, WIDTH)) * (1 - np.eye(WIDTH))
    base = 0.1 * size * (half + half.T) if based else np.zeros((WIDTH, WIDTH))
    linear = torch.from_numpy((quality - quality.mean()) / (quality.std() + 1e-9) / size)
    quadratic = Quadratic(
        [prepare(metric)],
        [0.1 / size**2],
        linear,
        Feasible(Limits(weights, size)),
        [torch.from_numpy(base).float()] if based else None,
    )
    return quadratic, products.reshape(COUNT, -1), base.reshape(-1)


@pytest.mark.parametrize(
    ("tokens", "based"),
    [(False, False), (True, True), *(pytest.param(tokens, not tokens, marks=pytest.mark.slow) for tokens in (0, 1))],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_reaches_the_optimum_that_scipy_finds(family, tokens, based, monkeypatch):
    monkeypatch.setattr(ascent, "ROUNDING_SHARE", 0)
    for seed in range(2):
        quadratic, v, base = programme(family, seed, tokens, based)
        best = optimum(quadratic, v, base)
        found = ascent.Spectral(quadratic, quadratic.feasible.uniform(), 1e-5, 300).run()
        p, weights = found.p.numpy(), quadratic.feasible.weights.numpy()
        assert p.min() >= 0 and p.max() <= 1 and weights @ p == pytest.approx(quadratic.feasible.size)
        assert found.value == pytest.approx(quadratic.value(found.p, quadratic.moments(found.p)), abs=1e-5)
        assert best - 1e-3 <= found.value <= best + 1e-5, (seed, found.value, best)
        assert found.bound >= best - 1e-5
        again, _ = quadratic.bound(found.bound_moments, quadratic.price(found.bound_moments))
        assert again == pytest.approx(found.bound, abs=1e-5)  # what is said of the bound holds where it was taken
