"""How much of a long item is done: what is told inside it, as whoever runs it hears it."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.sparse import csr_array

from datamask.selection.arrays import select
from datamask.shares import hear_shares, share_part, tell_share
from datamask.work import Counted


def test_parts_in_parts():
    found = []
    with hear_shares(found.append):
        tell_share(0.1)
        with share_part(0.2, 0.6):
            tell_share(0.5)
            with share_part(0.5, 1):
                tell_share(0.5)
        with share_part(0.6, 1):
            pass
    assert [round(share, 9) for share in found] == [0.1, 0.4, 0.5, 0.6, 1]


@given(st.lists(st.floats(-1, 2, allow_nan=False)))
def test_a_share_only_grows_and_stays_within(told):
    found = []
    with hear_shares(found.append):
        for share in told:
            tell_share(share)
    assert found == sorted(set(found)) and all(0 < share <= 1 for share in found)


def test_nobody_need_listen():
    with share_part(0, 0.5):
        tell_share(0.3)


@given(st.integers(0, 1000), st.lists(st.floats(0, 1)))
def test_all_rows_are_counted_once(rows, shares):
    found = []
    counted = Counted(found.append, rows)
    for share in [*sorted(shares), 1.0]:
        counted.to(share)
    assert sum(found) == rows and all(more > 0 for more in found)


def test_a_solve_tells_how_far_it_is():
    generator, found = np.random.default_rng(3), []
    atoms = csr_array(generator.poisson(0.4, (300, 40)).astype(np.float32))
    with hear_shares(found.append):
        select(generator.standard_normal((300, 8)), generator.random(300), atoms=atoms, budget_documents=60)
    assert found == sorted(set(found)) and found[-1] == 1
    assert len(found) > 20 and all(after - before < 0.2 for before, after in zip([0, *found], found))


@pytest.mark.parametrize("solver", ["relaxation", "policy-gradient", "greedy"])
def test_a_solver_can_be_ended_between_its_steps(solver):
    generator, left = np.random.default_rng(3), [0] * 5
    with hear_shares(lambda share: None, left.pop), pytest.raises(IndexError):
        select(generator.standard_normal((300, 8)), generator.random(300), solver=solver, budget_documents=60)
