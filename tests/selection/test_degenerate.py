"""Pools in which there is nothing, or everything, to choose: every solver with every metric."""

from __future__ import annotations

import numpy as np
import pytest

from datamask import select
from datamask.selection.solvers import SOLVERS

GENERATOR = np.random.default_rng(0)
FEATURES, QUALITY = GENERATOR.standard_normal((40, 6)), GENERATOR.random(40)


@pytest.fixture(params=SOLVERS)
def run(request):
    def call(features, quality, **asked):
        found = select(features, quality, solver=request.param, n_epochs=10, partial=0.5, **asked)
        assert np.isfinite(found.objective)
        assert all(np.isfinite(value) for value in [*found.terms.values(), *found.statistics.values()])
        assert np.isfinite(found.probability).all() and np.isfinite(found.price).all()
        assert found.upper_bound is None or found.objective <= found.upper_bound + 1e-6 * (1 + abs(found.objective))
        return found

    call.solver = request.param
    return call


pytestmark = pytest.mark.parametrize("algorithm", ["DiSF", "Pair_simi", "Facility"])


def test_constant_quality(run, algorithm):
    found = run(FEATURES, np.full(40, 0.3), algorithm=algorithm, select_ratio=0.5)
    assert found.selected.sum() == 20 and found.terms["quality"] == 0


def test_equal_documents(run, algorithm):
    found = run(np.tile(FEATURES[:1], (40, 1)), QUALITY, algorithm=algorithm, select_ratio=0.25)
    assert found.selected.sum() == 10
    if run.solver in ("relaxation", "greedy", "top-quality", "direct"):  # only quality is left to decide
        assert set(found.indices) == set(np.argsort(-QUALITY)[:10])


def test_nothing_to_tell_apart(run, algorithm):
    found = run(np.ones((40, 6)), np.zeros(40), algorithm=algorithm, select_ratio=0.25)
    assert found.selected.sum() == 10


def test_everything(run, algorithm):
    found = run(FEATURES, QUALITY, algorithm=algorithm, select_ratio=1)
    assert found.selected.all() and (found.probability > 0.99).all()


def test_one_of_many(run, algorithm):
    assert run(FEATURES, QUALITY, algorithm=algorithm, budget_documents=1).selected.sum() == 1


def test_one_of_one(run, algorithm):
    assert run(FEATURES[:1], QUALITY[:1], algorithm=algorithm, budget_documents=1).selected.all()


def test_all_but_one(run, algorithm):
    assert run(FEATURES, QUALITY, algorithm=algorithm, budget_documents=39).selected.sum() == 39


def test_a_constant_and_an_empty_column(run, algorithm):
    features = np.concatenate([FEATURES, np.full((40, 1), 3.0), np.zeros((40, 1))], axis=1)
    assert run(features, QUALITY, algorithm=algorithm, select_ratio=0.25).selected.sum() == 10


def test_one_dimension(run, algorithm):
    assert run(FEATURES[:, :1], QUALITY, algorithm=algorithm, select_ratio=0.25).selected.sum() == 10


@pytest.mark.parametrize("unit", [1e-12, 1.0, 1e8])
def test_quality_alone_in_any_unit_by_the_policy_gradient(unit, algorithm):
    features, quality = np.random.default_rng(3).standard_normal((60, 8)), np.random.default_rng(4).random(60)
    asked = {"algorithm": algorithm, "lamb": 1.0, "budget_documents": 20, "partial": 0.5, "n_epochs": 300}
    found = select(features, unit * quality, solver="policy-gradient", **asked)
    assert set(np.flatnonzero(found.selected)) == set(np.argsort(-quality)[:20])
    assert np.isfinite(found.probability).all()
