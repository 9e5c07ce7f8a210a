"""Near-duplicates against plain float64 code, and SemDeDup's own oracle."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from datamask.encoders import clusters
from datamask.encoders.clusters import spherical_kmeans
from datamask.selection.problem.pool import BF16_MARGIN, max_earlier_similarity, repeats_kept


@pytest.mark.parametrize("block", [1, 2, 3, 100])
def test_semdedup_oracle(block):
    """SemDeDup's published test values: its pairwise step on six small rows."""
    rows = torch.tensor([[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12], [1, 2, 3], [1, 2, 3]])
    expected = [0, 0.974631, 0.998190, 0.999618, 1, 1]
    assert max_earlier_similarity(rows, block).tolist() == pytest.approx(expected, abs=1e-5)


def clustered(n: int, d: int, seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    centres = torch.randn(max(1, n // 4), d, generator=generator)
    rows = centres[torch.randint(len(centres), (n,), generator=generator)]
    return torch.nn.functional.normalize(rows + 0.25 * torch.randn(n, d, generator=generator), dim=1)


def plainly(rows: np.ndarray, threshold: float) -> list[bool]:
    repeats: list[bool] = []
    for i, row in enumerate(rows):
        repeats.append(any(row @ rows[j] > threshold for j in range(i) if not repeats[j]))
    return repeats


@settings(max_examples=40, deadline=None)
@given(n=st.integers(1, 60), seed=st.integers(0, 999), block=st.sampled_from([1, 7, 64]))
def test_repeats_are_those_of_the_plain_loop_at_any_block_size(n, seed, block):
    rows = clustered(n, 16, seed)
    found = repeats_kept(rows, 0.9, block=block)
    assert found.tolist() == plainly(rows.double().numpy(), 0.9)


def test_kmeans_finds_separate_clusters_and_repeats_itself():
    rows = torch.cat(
        [torch.nn.functional.normalize(torch.eye(8)[i] + 0.05 * torch.randn(50, 8), dim=1) for i in range(4)]
    )
    one, two = (spherical_kmeans(rows, 4, torch.Generator().manual_seed(3)) for _ in range(2))
    assert torch.equal(one, two)
    assert torch.allclose(one.norm(dim=1), torch.ones(4))


def test_a_fit_in_blocks_is_the_fit_of_the_whole(monkeypatch):
    rows = clustered(300, 16, seed=2)
    whole = spherical_kmeans(rows, 5, torch.Generator().manual_seed(1))
    monkeypatch.setattr(clusters, "BLOCK_ROWS", 37)
    assert torch.allclose(whole, spherical_kmeans(rows, 5, torch.Generator().manual_seed(1)), atol=1e-6)


def test_the_margin_covers_bfloat16():
    rows = clustered(2000, 768, seed=9)
    error = (rows.bfloat16() @ rows.bfloat16().T).float() - rows @ rows.T
    assert error.abs().max() < BF16_MARGIN
