"""The bound on what a selection by saved prices misses."""

from itertools import combinations

import numpy as np
import pytest

from datamask.config import Select
from datamask.selection.api import solve
from datamask.selection.drift import drift_of
from datamask.selection.problem import Pool, make_problem


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
    chosen = solve(given)
    drift = drift_of(given, chosen.selected)
    assert drift.budget == pytest.approx(1, abs=0.02)
    assert drift.objective == pytest.approx(chosen.objective, abs=1e-5)
    assert drift.objective <= drift.upper_bound
    if given.settings.metrics == ("pairwise",) or settings == {}:
        assert drift.gap < 0.05


@pytest.mark.parametrize("seed", range(4))
def test_no_selection_of_the_size_is_above_the_bound(seed):
    given = problem(12, seed, select_ratio=None, budget_documents=3, lamb=0.4)
    masks = np.zeros((220, 12), bool)
    for row, choice in enumerate(combinations(range(12), 3)):
        masks[row, list(choice)] = True
    import torch

    best = float(given.objective.values(torch.from_numpy(masks)).max())
    for mask in masks[::17]:
        assert drift_of(given, mask).upper_bound >= best - 1e-6


def test_a_bad_selection_and_a_missed_budget_show():
    given = problem()
    chosen = solve(given).selected
    alike = np.zeros(len(given), bool)
    alike[np.argsort(-given.pool.quality[:, 0])[: chosen.sum()]] = True  # top quality alone
    assert drift_of(given, alike).gap > drift_of(given, chosen).gap + 0.01
    half = chosen.copy()
    half[np.flatnonzero(chosen)[::2]] = False
    assert drift_of(given, half).budget == pytest.approx(0.5, abs=0.02)
