"""The certificate against every selection there is, in small pools, whatever the budget counts and the limits say."""

from __future__ import annotations

from functools import cache
from itertools import product

import numpy as np
import pytest
import torch

from datamask.config import Select
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.problem.limits import LENGTH
from datamask.selection.problem.pool import Pool
from tests.selection.instances import FAMILIES, instance

COUNT = 11
EVERY = torch.tensor([[number >> row & 1 for row in range(COUNT)] for number in range(1, 2**COUNT)], dtype=torch.bool)
LIMITS = {
    "documents": {"budget_documents": 4},
    "tokens": {"budget_tokens": 1500},
    "quota": {"budget_documents": 5, "quotas": [{"column": "domain", "maximum": {"a": 0.4}, "minimum": {"c": 0.2}}]},
    "quota of tokens": {"budget_tokens": 1800, "quotas": [{"column": "domain", "maximum": {"a": 0.4}}]},
    "two quotas": {
        "budget_documents": 5,
        "quotas": [{"column": "domain", "as_pool": 0.2}, {"column": "half", "minimum": {"1": 0.6}}],
    },
    "length": {"budget_documents": 5, "length_tolerance": 0.1},
    "length of tokens": {"budget_tokens": 1800, "length_tolerance": 0.2},
}


def problem_of(family: str, seed: int, width: int, **asked: object):
    features, quality = instance(family, seed, COUNT, width)
    tokens = np.random.default_rng(seed).integers(50, 700, COUNT)
    groups = {"domain": np.array(list("aaaabbbbccc")), "half": np.arange(COUNT) % 2}
    return make_problem(Pool(features, quality, tokens, groups), Select(**{"select_ratio": None, **asked}))


@cache
def feasible(limits: str, seed: int) -> torch.Tensor:
    """Every selection of exactly so many documents, or of the tokens to one document, that holds the limits.

    Neither the features nor the algorithm make a difference.
    """
    problem = problem_of("gaussian", seed, 5, algorithm="Pair_simi", **LIMITS[limits])
    allowed = torch.tensor([not problem.limits.violations(mask) for mask in EVERY.numpy()])
    if problem.unit == "documents":
        allowed &= EVERY.sum(1) == problem.size
    if LENGTH in problem.limits.names:  # strictly: `violations` forgives a document
        place = problem.limits.names.index(LENGTH)
        [own] = [kind for kind in problem.limits.kinds if (kind.codes == place).all()]
        total = EVERY.double() @ torch.from_numpy(own.coefficients).double()
        allowed &= (float(problem.limits.low[place]) <= total) & (total <= float(problem.limits.high[place]))
    return EVERY[allowed]


FAST = {  # with each metric that states its own curvature, or none, some of the limits
    "Pair_simi": ["documents", "tokens", "two quotas", "length of tokens"],
    "DiSF": ["documents", "tokens", "length"],
    "Facility": ["documents", "quota"],
}
CASES = [
    pytest.param(*case, marks=[] if case[0] == "gaussian" and case[1] in FAST[case[2]] else pytest.mark.slow)
    for case in product(FAMILIES, LIMITS, FAST)
]


@pytest.mark.parametrize(("family", "limits", "algorithm"), CASES)
def test_no_selection_exceeds_the_bound(family, limits, algorithm):
    compared = 0
    for seed, lamb in enumerate((0.0, 0.4, 0.9)):
        problem = problem_of(family, seed, 5, algorithm=algorithm, lamb=lamb, **LIMITS[limits])
        allowed = feasible(limits, seed)
        compared += len(allowed)
        best = float(problem.objective.values(allowed).max())
        found = solve_problem(problem)
        assert found.upper_bound is not None
        slack = 1e-5 * (1 + abs(best))  # prices are float32
        assert best <= found.upper_bound + slack, (seed, lamb)
        if LENGTH not in problem.limits.names:
            assert found.objective <= best + slack, (seed, lamb)
    assert compared > 50


@pytest.mark.parametrize(
    ("algorithm", "families"),
    [
        ({"Pair_simi": 1.0, "DiSF": 1.0}, FAMILIES),
        ("Pair_simi", FAMILIES),
    ],
)
def test_several_terms_and_columns(algorithm, families):
    for family in families:
        features, quality = instance(family, 7, COUNT, 4)
        columns = np.stack([quality, -quality[::-1], features[:, 0]], axis=1)
        pool = Pool(features, columns, quality_weights=[1, 2, 0.5])
        problem = make_problem(pool, Select(algorithm=algorithm, select_ratio=None, budget_documents=4))
        found = solve_problem(problem)
        best = float(problem.objective.values(EVERY[EVERY.sum(1) == 4]).max())
        assert found.upper_bound is not None
        assert found.objective <= best + 1e-6 * (1 + abs(best))
        assert best <= found.upper_bound + 1e-6 * (1 + abs(best))
