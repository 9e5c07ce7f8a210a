"""The centred, truncated SVD against numpy's on the matrix written out."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from datamask.encoders.svd import Centred, orthonormal, right_singular


@pytest.mark.parametrize(("rows", "columns", "rank"), [(30, 80, 12), (300, 90, 20), (90, 300, 8), (60, 300, 24)])
def test_it_is_the_svd_of_the_centred_matrix(rows: int, columns: int, rank: int) -> None:
    generator = np.random.default_rng(0)
    sizes = 0.85 ** np.arange(min(rows, columns))
    left, right = (np.linalg.qr(generator.standard_normal((size, len(sizes))))[0] for size in (rows, columns))
    dense = (left * sizes) @ right.T + 0.3
    groups = generator.integers(4, size=rows)
    weights = generator.uniform(0.5, 2, rows)
    centred = dense.copy()
    for group in range(4):
        of = groups == group
        centred[of] -= np.average(dense[of], axis=0, weights=weights[of] ** 2)
    centred *= weights[:, None]
    weighted = scipy.sparse.csr_array((dense * weights[:, None]).astype(np.float32))
    found = right_singular(Centred(weighted, groups, weights), rank, generator)
    expected = np.linalg.svd(centred)[2][:rank]
    assert np.allclose(found.T @ found, np.eye(rank), atol=1e-3)
    leading = np.linalg.svd(expected[: rank // 2] @ found, compute_uv=False)  # cosines of angles between the spans
    assert leading.min() > 0.999


def test_rows_of_weight_nought_stay_as_they_are() -> None:
    dense = np.arange(12, dtype=np.float32).reshape(4, 3)
    matrix = Centred(scipy.sparse.csr_array(dense), np.array([0, 0, 1, 1]), np.array([1.0, 1, 0, 0]))
    found = matrix.times(np.eye(3, dtype=np.float32))
    assert np.allclose(found, [[-1.5] * 3, [1.5] * 3, dense[2], dense[3]])


def test_nothing_left_is_no_direction() -> None:
    same = scipy.sparse.csr_array(np.ones((50, 7), np.float32))
    assert right_singular(Centred(same, np.zeros(50, int), np.ones(50)), 3, np.random.default_rng(0)).shape == (7, 0)
    assert orthonormal(np.zeros((5, 2), np.float32)).shape == (5, 0)
