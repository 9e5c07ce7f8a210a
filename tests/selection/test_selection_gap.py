"""The bound on what a selection by saved prices misses."""

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch

from datamask.config import Select
from datamask.selection.arrays import solve_problem
from datamask.selection.problem.pool import Pool
from datamask.selection.problem.problem import make_problem
from datamask.selection.sharded.selection_gap import measure_gap


def problem(documents=400, seed=0, **settings):
    rng = np.random.default_rng(seed)
    centres = rng.normal(size=(6, 16))
    features = centres[rng.integers(6, size=documents)] + 0.4 * rng.normal(size=(documents, 16))
    tokens = rng.integers(5, 300, documents).astype(float)
    given = {"algorithm": "Pair_simi", "select_ratio": 0.2, **settings}
    return make_problem(Pool(features.astype(np.float32), rng.random(documents), tokens), Select(**given))


@pytest.mark.parametrize("settings", [{}, {"algorithm": "DiSF"}, {"select_ratio": None, "budget_tokens": 9000}])
def test_a_solved_selection_fills_the_budget_within_a_small_gap(settings):
    given = problem(**settings)
    chosen = solve_problem(given)
    drift = measure_gap(given, chosen.selected)
    assert drift.budget == pytest.approx(1, abs=0.02)
    assert drift.objective == pytest.approx(chosen.objective, abs=1e-5)
    assert drift.objective <= drift.upper_bound
    assert drift.gap <= chosen.gap + 1e-5  # a solve's bound, where the tangent's at the mask is loose


@pytest.mark.parametrize("seed", range(4))
def test_no_selection_of_the_size_is_above_the_bound(seed):
    given = problem(12, seed, select_ratio=None, budget_documents=3, lamb=0.4)
    masks = np.zeros((220, 12), bool)
    for row, choice in enumerate(combinations(range(12), 3)):
        masks[row, list(choice)] = True
    best = float(given.objective.values(torch.from_numpy(masks)).max())
    for mask in masks[::17]:
        assert measure_gap(given, mask).upper_bound >= best - 1e-6


def test_a_bad_selection_and_a_missed_budget_show():
    given = problem()
    chosen = solve_problem(given).selected
    alike = np.zeros(len(given), bool)
    alike[np.argsort(-given.pool.quality[:, 0])[: chosen.sum()]] = True  # top quality alone
    assert measure_gap(given, alike).gap > measure_gap(given, chosen).gap + 0.01
    half = chosen.copy()
    half[np.flatnonzero(chosen)[::2]] = False
    assert measure_gap(given, half).budget == pytest.approx(0.5, abs=0.02)


def test_prices_that_miss_a_quota_or_a_length_bound_show():
    """A refresh takes no selection by prices that breaks a limit: prices know nothing of quotas."""
    rng = np.random.default_rng(0)
    features, quality = rng.normal(size=(300, 8)).astype(np.float32), rng.random(300)
    domain = np.where(quality > 0.7, "good", "other")
    tokens = np.where(quality > 0.7, 900.0, 100.0)
    quota = {"quotas": [{"column": "domain", "maximum": {"good": 0.3}}]}
    for limit, words in ((quota, "domain = 'good'"), ({"length_tolerance": 0.1}, "length")):
        free = make_problem(
            Pool(features, quality, tokens, {"domain": domain}),
            Select(algorithm="Pair_simi", lamb=0.9, select_ratio=0.1),
        )
        held = make_problem(
            Pool(features, quality, tokens, {"domain": domain}),
            Select(algorithm="Pair_simi", lamb=0.9, select_ratio=0.1, **limit),
        )
        (broken,) = measure_gap(held, solve_problem(free).selected).broken
        assert words in broken
        assert measure_gap(held, solve_problem(held).selected).broken == ()


@pytest.mark.parametrize("seed", range(6))
def test_prices_are_those_of_the_selection_that_is_returned(seed, monkeypatch):
    """Greedy's where greedy's is the better one: the gradient at the mask, computed here once more."""
    from datamask.selection.solvers import relaxation

    swapped, first = relaxation._or_greedy, torch.arange(40) < 4

    def worse(given, terms, draft):
        return swapped(given, terms, replace(draft, selected=first))

    if seed % 2:
        monkeypatch.setattr(relaxation, "_or_greedy", worse)
    given = problem(40, seed, algorithm="DiSF", select_ratio=None, budget_documents=4, lamb=0.2)
    chosen = solve_problem(given)
    assert not np.array_equal(chosen.selected, first.numpy())
    (term,) = given.objective.diversity
    z = term.metric.prepare(given.pool.rows(slice(None), torch.float64)).numpy()
    kernel = (z @ z.T) ** 2 - z**2 @ (z**2).T
    gradient = given.objective.linear.numpy() / given.size
    gradient = gradient - 2 * term.scale * term.metric.unit / given.size**2 * kernel @ chosen.selected
    assert chosen.price == pytest.approx(gradient, rel=1e-3, abs=1e-4)
