"""Products with symmetric matrices by blocks, against the plain ones."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from datamask.selection.metrics.moments import BLOCK, DiSF, gram_of
from datamask.selection.problem.pool import Pool


@pytest.mark.parametrize("d", [3, 2 * BLOCK - 1, 2 * BLOCK, 2 * BLOCK + 7, 5 * BLOCK - 1])
def test_blocks_are_the_whole_matrix(d: int) -> None:
    generator = torch.Generator().manual_seed(d)
    z = torch.randn(50, d, generator=generator, dtype=torch.float64)
    weights = torch.randn(50, 1, generator=generator, dtype=torch.float64)  # of either sign, as a change has
    plain = (z * weights).T @ z
    assert torch.allclose(gram_of(z * weights, z), plain, rtol=0, atol=1e-12)

    features = np.random.default_rng(d).standard_normal((20, d))
    metric = DiSF(Pool(features, np.zeros(20)), torch.ones(20, dtype=torch.float64), 5.0)
    held = plain.clone()
    products = metric.row_products(z, plain)
    assert torch.allclose(products, ((z @ plain) * z).sum(dim=1), rtol=1e-12, atol=1e-9)
    assert torch.equal(plain, held)  # what is given is not written to
