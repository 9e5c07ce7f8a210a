"""Values of our masks as submodlib's `evaluate()` gives them."""

import numpy as np
import pytest
import torch

from datamask.selection.metrics.moments import Pairwise
from datamask.selection.paper.facility import FacilityLocation
from datamask.selection.problem.pool import Pool

submodlib = pytest.importorskip("submodlib")
N, K = 60, 9


@pytest.fixture(scope="module")
def instance():
    generator = np.random.default_rng(0)
    pool = Pool(generator.normal(size=(N, 5)), generator.random(N))
    masks = torch.zeros(6, N, dtype=torch.bool)
    for mask in masks:
        mask[torch.from_numpy(generator.permutation(N)[:K])] = True
    unit = pool.rows(slice(None)).numpy()
    return pool, masks, (unit @ unit.T).astype(np.float32)


def test_facility_location(instance):
    pool, masks, kernel = instance
    oracle = submodlib.FacilityLocationFunction(n=N, mode="dense", sijs=kernel, separate_rep=False)
    ours = FacilityLocation(pool, torch.ones(N, dtype=torch.float64), K).value(masks) * N
    assert ours.tolist() == pytest.approx([oracle.evaluate(set(mask.nonzero()[:, 0].tolist())) for mask in masks])


def test_pairwise_is_disparity_sum_rescaled(instance):
    """Disparity-sum adds 1 − cosine over the K(K − 1)/2 pairs; pairwise is minus the mean cosine over all K²."""
    pool, masks, kernel = instance
    oracle = submodlib.DisparitySumFunction(n=N, mode="dense", sijs=kernel)
    disparity = np.array([oracle.evaluate(set(mask.nonzero()[:, 0].tolist())) for mask in masks])
    cosines = K * (K - 1) / 2 - disparity
    ours = Pairwise(pool, torch.ones(N, dtype=torch.float64), K).value(masks)
    assert ours.tolist() == pytest.approx((-(K + 2 * cosines) / K**2).tolist())
