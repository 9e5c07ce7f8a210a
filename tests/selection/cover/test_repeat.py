"""Documents that may be taken several times: against every choice of whole numbers, and definitions written out."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch
from scipy.optimize import LinearConstraint, minimize

from datamask import select
from datamask.config import Select, resolve
from datamask.errors import ConfigError, InputError
from datamask.selection.arrays import solve_problem
from datamask.selection.solvers import check_solver
from tests.selection.cover.test_coverage import ALGORITHMS, pool_of, problem_of

MOST = 2
EVERY = {**ALGORITHMS, "pairwise": {"algorithm": "Pair_simi"}, "disf": {"algorithm": "DiSF"}}


def choices(problem) -> np.ndarray:
    """(n, N) all whole numbers within budget and limits."""
    weights, size, count = problem.limits.weights, problem.size, len(problem)
    counts = np.array(list(product(range(MOST + 1), repeat=count)))
    spent = counts @ weights
    counts = counts[(spent <= size + 1e-9) & (spent > size - weights.max())]

    def broken(row: np.ndarray) -> bool:
        index = np.repeat(np.arange(count), row)
        return bool(problem.limits.copies(index, MOST).violations(np.ones(len(index), bool)))

    return counts[[not broken(row) for row in counts]]


def values(problem, counts: np.ndarray) -> np.ndarray:
    return np.array([problem.objective.evaluate(torch.from_numpy(row)).objective for row in counts])


LIMITS = [{}, {"quotas": [{"column": "domain", "as_pool": 0.3}]}, {"length_tolerance": 0.5}]
LIMITED = "target", "mixture"  # a second a case where there are limits
CASES = [
    pytest.param(limits, name, marks=[pytest.mark.slow] * (bool(limits) and name not in LIMITED))
    for limits in LIMITS
    for name in EVERY
]


@pytest.mark.parametrize(("limits", "name"), CASES)
def test_no_choice_of_whole_numbers_is_above_the_bound(limits: dict, name: str) -> None:
    for seed, adversarial in ((0, False), (1, True)):
        problem = problem_of(
            pool_of(seed, 7, adversarial), lamb=0.4, budget_tokens=20, repeat=MOST, **EVERY[name], **limits
        )
        found = solve_problem(problem)  # raises where a limit is broken
        counts = choices(problem)
        every = values(problem, counts)
        assert found.upper_bound >= every.max() - 1e-9
        assert found.upper_bound >= max(found.relaxed, found.objective)
        assert found.objective == pytest.approx(values(problem, found.repeat[None])[0])
        assert (counts == found.repeat).all(axis=1).any()
        assert (every > found.objective + 1e-9).mean() <= (0.1 if limits else 0.05)


@pytest.mark.parametrize("name", EVERY)
def test_the_fractional_weights_reach_their_bound(name: str) -> None:
    problem = problem_of(pool_of(4, 60), lamb=0.3, budget_tokens=70, repeat=MOST, **EVERY[name])
    found = solve_problem(problem)
    if name not in ("pairwise", "disf"):  # theirs covers what whole documents may leave unspent, to their advantage
        assert (found.upper_bound - found.relaxed) / abs(found.upper_bound) <= 1e-4
    weights = torch.from_numpy(found.probability.astype(np.float64))
    assert problem.objective.evaluate(weights).objective == pytest.approx(found.relaxed, abs=1e-5)
    assert float(weights @ problem.weights) == pytest.approx(problem.size, rel=1e-5)
    assert 1 < float(weights.max()) <= MOST + 1e-6
    assert found.repeat @ problem.limits.weights <= problem.size
    assert found.repeat.max() > 1


@pytest.mark.parametrize("name", ["pairwise", "ngrams"])
def test_the_fractional_weights_are_those_of_scipy(name: str) -> None:
    problem = problem_of(pool_of(11, 14), lamb=0.3, budget_tokens=30, repeat=MOST, **EVERY[name])
    weights = problem.limits.weights

    def loss(p: np.ndarray) -> float:
        return -problem.objective.evaluate(torch.from_numpy(p)).objective

    found = minimize(
        loss, np.full(14, 30 / weights.sum()), method="SLSQP", bounds=[(0, MOST)] * 14,
        constraints=[LinearConstraint(weights, 30, 30)], options={"maxiter": 300, "ftol": 1e-10},
    )  # fmt: skip
    assert solve_problem(problem).relaxed == pytest.approx(-found.fun, abs=2e-4)


def test_once_is_todays_mask() -> None:
    pool = pool_of(5, 40)
    for name in ("mixture", "pairwise"):
        plain = solve_problem(problem_of(pool, lamb=0.4, budget_tokens=60, **EVERY[name]))
        once = solve_problem(problem_of(pool, lamb=0.4, budget_tokens=60, repeat=1, **EVERY[name]))
        assert plain.selected.tobytes() == once.selected.tobytes()
        assert plain.probability.tobytes() == once.probability.tobytes()
        assert plain.facts().keys() == once.facts().keys()
        assert once.repeat is None


def test_more_repeats_are_never_worse_on_the_same_scale() -> None:
    pool = pool_of(6, 40)
    reached = []
    for most in (1, 2, 4):
        problem = problem_of(
            pool, lamb=0.0, calibrate=False, budget_tokens=60, repeat=most, algorithm="coverage",
            coverage={"atoms": {"target": 1}},
        )  # fmt: skip
        reached.append(solve_problem(problem).relaxed)
    assert reached[0] < reached[1] < reached[2]


def test_a_budget_may_be_more_than_the_pool() -> None:
    pool = pool_of(7, 20)
    total = int(pool.tokens.sum())
    found = solve_problem(problem_of(pool, lamb=0.5, budget_tokens=2 * total, repeat=3, algorithm="coverage"))
    assert found.repeat @ pool.tokens > 1.9 * total
    whole = solve_problem(problem_of(pool, lamb=0.5, budget_tokens=3 * total, repeat=3, algorithm="coverage"))
    assert (whole.repeat == 3).all()
    with pytest.raises(InputError, match="each 3 times"):
        problem_of(pool, budget_tokens=3 * total + 1, repeat=3, algorithm="coverage")


def test_quality_alone_repeats_the_best() -> None:
    pool = pool_of(8, 30)
    found = solve_problem(problem_of(pool, lamb=1.0, budget_tokens=40, repeat=4, algorithm="coverage"))
    best = int(np.argmax(pool.quality[:, 0]))
    assert found.repeat[best] == 4
    assert found.gap <= 0.2


def test_order_of_documents_does_not_matter() -> None:
    pool = pool_of(9, 40)
    settings = {"budget_tokens": 60, "repeat": 3, "lamb": 0.4, "algorithm": "coverage", "coverage": {"anchors": 20}}
    order = np.random.default_rng(0).permutation(40)
    first = select(pool.features.numpy(), pool.quality, tokens=pool.tokens, **settings)
    other = select(pool.features.numpy()[order], pool.quality[order], tokens=pool.tokens[order], **settings)
    assert (other.repeat == first.repeat[order]).all()


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"budget_documents": 4}, "set token_ratio, or budget_tokens"),
        ({"budget_tokens": 20, "algorithm": "Facility"}, "changes nothing"),
        ({"budget_tokens": 20, "algorithm": {"coverage": 1, "Facility": 1}}, "changes nothing"),
    ],
)
def test_what_cannot_be_repeated_is_said(settings: dict, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        problem_of(pool_of(0), repeat=2, **settings)


def test_a_solver_that_takes_a_document_once_is_refused() -> None:
    with pytest.raises(ConfigError, match="top-quality cannot hold repeat above 1; these can: relaxation"):
        check_solver(resolve(Select(budget_tokens=20, repeat=2, solver="top-quality")))
