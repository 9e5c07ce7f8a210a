"""What is said of a certificate: points of the bound, what whole documents cost, nothing where a bound says nothing."""

import pytest

from datamask.certificate_words import describe

NEAR = {"objective": 0.90323, "upper_bound": 1.05671, "gap": 0.14524, "integrality": 0.1448}


def test_what_is_reached_and_what_whole_documents_cost_are_told_in_points():
    told = describe(NEAR, calibrated=True)
    assert "score 0.9032 (0: a random choice of this size" in told and "85.5% of the possible" in told
    assert "Of the missing 14.52 points at most 14.48 points are because documents are whole" in told
    assert "%, " not in told


@pytest.mark.parametrize("integrality", [None, 0.0, 0.9])
def test_a_bound_far_above_is_no_measure(integrality):
    found = {"objective": 0.689, "upper_bound": 9.54694, "gap": 0.9278, "integrality": integrality}
    told = describe(found, calibrated=True)
    assert "92.78" not in told and "of the possible" not in told
    assert "ompare the score with that of other runs over the same corpus, budget and target" in told


def test_a_solver_without_objective_or_bound():
    assert describe({"objective": None}, calibrated=True) == ""
    assert describe({"objective": 0.5, "upper_bound": None, "gap": None}, False) == (
        "score 0.5000; this solver proves no bound"
    )


def test_a_raw_objective_below_zero_has_no_share_of_the_possible():
    told = describe({"objective": -2.0, "upper_bound": -1.9, "gap": 0.0526, "integrality": 0.0}, False)
    assert "of the possible" not in told and "5.26 points" in told
