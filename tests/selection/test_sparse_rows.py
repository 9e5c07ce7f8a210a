"""Copied rows against scipy's."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array, random_array, vstack

from datamask.selection.sparse_rows import stack_rows, take_rows


def made(seed: int, rows: int, density: float) -> csr_array:
    return random_array((rows, 9), density=density, format="csr", rng=np.random.default_rng(seed), dtype=np.float32)


@given(st.integers(0, 99), st.integers(1, 12), st.sampled_from([0.0, 0.3, 1.0]), st.data())
def test_rows_are_those_of_the_matrix(seed: int, rows: int, density: float, data: st.DataObject) -> None:
    matrix = made(seed, rows, density)
    places = np.array(data.draw(st.lists(st.integers(0, rows - 1), max_size=20)), np.int64)
    assert (take_rows(matrix, places).toarray() == matrix.toarray()[places]).all()
    chosen = np.random.default_rng(seed).random(rows) < 0.5
    assert (take_rows(matrix, chosen).toarray() == matrix.toarray()[chosen]).all()
    others = [matrix, made(seed + 1, 3, density), made(seed + 2, 1, 0.0)]
    assert (stack_rows(others).toarray() == vstack(others).toarray()).all()
    assert take_rows(matrix, places).dtype == stack_rows(others).dtype == np.float32
