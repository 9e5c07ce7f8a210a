"""Products by blocks: numpy's, and the same bytes whatever the number of threads."""

from __future__ import annotations

import os
from collections.abc import Callable

import numpy as np
import pytest
import scipy.sparse

from datamask.compiling import BLOCKS
from datamask.encoders.svd import gram_matrix, product

GENERATOR = np.random.default_rng(0)


@pytest.mark.parametrize("rows", [0, 1, BLOCKS - 1, BLOCKS, 301])
def test_they_are_numpys(rows: int) -> None:
    dense = GENERATOR.standard_normal((rows, 40)).astype(np.float32)
    dense[dense < 0.5] = 0
    right = GENERATOR.standard_normal((40, 17)).astype(np.float32)
    assert np.allclose(product(dense, right), dense @ right, atol=1e-4)
    sparse = scipy.sparse.csr_array(dense)
    assert np.array_equal(product(sparse, right), sparse @ right)  # in the same order
    assert np.allclose(gram_matrix(dense), dense.T.astype(np.float64) @ dense)
    assert product(dense, right).dtype == np.float32
    assert gram_matrix(dense).dtype == np.float64
    assert np.array_equal(gram_matrix(dense), gram_matrix(dense).T)


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this platform cannot be told which cores to use")
def test_one_core_gives_the_bytes_of_all() -> None:
    dense = GENERATOR.standard_normal((500, 300)).astype(np.float32)
    sparse = scipy.sparse.random_array((400, 500), density=0.1, rng=GENERATOR, dtype=np.float32).tocsr()
    whole = os.sched_getaffinity(0)
    found: list[Callable[[], np.ndarray]] = [lambda: gram_matrix(dense), lambda: product(sparse, dense)]
    expected = [call().tobytes() for call in found]
    try:
        os.sched_setaffinity(0, {min(whole)})
        assert [call().tobytes() for call in found] == expected
    finally:
        os.sched_setaffinity(0, whole)
