"""Newton on the smoothed dual, against SciPy's optimum of the same quadratic programme."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from datamask.selection.metrics.moments import Pairwise
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool
from datamask.selection.solvers.newton import FLAT, Newton, _steep
from datamask.selection.solvers.quadratic import Quadratic, prepare

from .instances import FAMILIES, instance, optimum, plain_loss

COUNT, WIDTH = 60, 6


def programme(family: str, seed: int, tokens: bool, based: bool) -> tuple[Quadratic, np.ndarray, np.ndarray]:
    """With its unit rows and its base (d,)."""
    features, quality = instance(family, seed, COUNT, WIDTH)
    generator = np.random.default_rng(seed)
    weights = generator.integers(1, 9, COUNT).astype(float) if tokens else np.ones(COUNT)
    pool = Pool(features, quality)
    size = 0.3 * weights.sum()
    base = 0.1 * size * generator.standard_normal(WIDTH) if based else np.zeros(WIDTH)
    metric = Pairwise(pool, torch.from_numpy(weights), size)
    linear = torch.from_numpy((quality - quality.mean()) / (quality.std() + 1e-9) / size)
    moments = [torch.from_numpy(base).float()] if based else None
    quadratic = Quadratic([prepare(metric)], [2.0 / size**2], linear, Feasible(Limits(weights, size)), moments)
    return quadratic, pool.rows(slice(None), torch.float64).numpy(), base


@pytest.mark.parametrize(
    ("tokens", "based"),
    [(False, False), (True, True), *(pytest.param(tokens, not tokens, marks=pytest.mark.slow) for tokens in (0, 1))],
)
@pytest.mark.parametrize("family", FAMILIES)
def test_reaches_the_optimum_that_scipy_finds(family, tokens, based):
    for seed in range(2):
        quadratic, rows, base = programme(family, seed, tokens, based)
        best, loss = optimum(quadratic, rows, base), plain_loss(quadratic, rows, base)
        found, _ = Newton(quadratic, quadratic.feasible.uniform(), 1e-5).run()
        p, weights = found.p.numpy(), quadratic.feasible.weights.numpy()
        assert p.min() >= 0 and p.max() <= 1 and weights @ p == pytest.approx(quadratic.feasible.size)
        assert found.value == pytest.approx(-loss(p)[0], abs=1e-5)  # what it says is what its p is worth
        assert best - 1e-3 <= found.value <= best + 1e-5, (seed, found.value, best)
        assert found.bound >= best - 1e-5


@pytest.mark.parametrize("spread", [0.0, 1.0, 4.0])
def test_what_the_hessian_leaves_out_is_the_least_and_a_hundredth_of_all_at_most(spread):
    generator = torch.Generator().manual_seed(int(spread))
    share = torch.exp(spread * torch.randn(5000, generator=generator, dtype=torch.float64))
    kept = _steep(share, 0.0)
    out = share[kept == 0]
    assert torch.equal(kept[kept > 0], share[kept > 0])
    least = kept[kept > 0].min()
    assert 0.99 * FLAT * share.sum() < out.sum() + least and out.sum() <= 1.1 * FLAT * share.sum()
    assert len(out) and out.max() <= least


def test_where_no_document_is_in_part_the_hessian_has_none():
    share = torch.tensor([0.0, 1e-125, 0.0], dtype=torch.float64)
    assert not _steep(share, 1e-8).any()
