"""Copied rows against scipy's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import random_array

from datamask.selection.cover.compiled import csr_of, taken_rows


@given(st.integers(0, 99), st.integers(1, 12), st.sampled_from([0.0, 0.3, 1.0]), st.data())
def test_rows_are_those_of_the_matrix(seed: int, rows: int, density: float, data: st.DataObject) -> None:
    generator = np.random.default_rng(seed)
    matrix = random_array((rows, 9), density=density, format="csr", rng=generator, dtype=np.float32)
    places = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=20)), np.int64)
    taken = taken_rows((matrix.indptr.astype(np.int64), matrix.indices, matrix.data), places)
    found = csr_of(*taken, 9)
    assert (found.toarray() == matrix.toarray()[places]).all() and found.dtype == np.float32
