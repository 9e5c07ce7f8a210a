"""Annealing by single documents: the budget, the value beside that of swaps, and the same mask for the same seed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from datamask.selection.arrays import solve
from datamask.selection.cover import flips
from datamask.selection.cover import greedy_search as search
from datamask.selection.cover.solve import STEPS, make_concave, to_mask
from datamask.selection.cover.summed import SummedCoverage
from datamask.selection.cover.tangent import maximise
from datamask.selection.problem.feasible import Feasible
from tests.selection.cover.test_coverage import feasible_masks, pool_of, problem_of

NGRAMS = {"algorithm": "coverage", "coverage": {"atoms": {"ngrams": 1}}}


@pytest.fixture(autouse=True)
def one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "SMALL", 0)


@pytest.mark.parametrize("budget", [{"budget_documents": 150}, {"budget_tokens": 700}])
@pytest.mark.parametrize("lamb", [0.0, 0.5])
def test_the_budget_is_spent_and_the_mask_is_as_good_as_by_swaps(budget, lamb, monkeypatch) -> None:
    problem = problem_of(pool_of(3, 1500), lamb=lamb, **NGRAMS, **budget)
    found, again = solve(problem), solve(problem)
    weights = problem.limits.weights
    assert (found.selected == again.selected).all()
    assert not problem.limits.violations(found.selected)
    assert weights[found.selected].sum() > problem.size - weights.min()
    monkeypatch.setattr(search, "SMALL", len(problem.objective.diversity[0].metric.rows.index))
    swapped = solve(problem)
    assert (found.selected != swapped.selected).any()
    assert found.objective > swapped.objective - 0.02


@pytest.mark.parametrize("seed", range(6))
def test_no_mask_exceeds_the_best_of_all(seed: int) -> None:
    """Few documents, one of which is most of an atom: the series does not hold for it."""
    problem = problem_of(pool_of(seed, adversarial=seed % 2 == 0), lamb=0.3, **NGRAMS)
    found = solve(problem)
    values = problem.objective.values(torch.from_numpy(feasible_masks(problem)))
    assert not problem.limits.violations(found.selected)
    assert found.objective <= float(values.max()) + 1e-9 <= found.upper_bound + 2e-9


def test_the_mixture_that_flips_keep_is_the_masks_own() -> None:
    problem = problem_of(pool_of(5, 300), lamb=0.2, budget_documents=30, **NGRAMS)
    term = problem.objective.diversity[0]
    joint = SummedCoverage.of([term.metric], [term.scale])
    mass, size = np.full(300, (1 - joint.alpha) / 30), 30.0
    selected = np.arange(300) % 10 == 0
    level = joint.rows.state(mass * selected) + joint.floor
    inverse, rows, root = 1 / level, joint.rows, np.full(300, 1e-3)
    heats, linear = np.geomspace(1, 1e-2, 20), np.zeros(300)
    over = flips.flips(
        rows.start, rows.index, rows.value, joint.t, level, inverse, mass, root, linear, selected, np.ones(300), 0.0,
        heats, 2.0,
    )  # fmt: skip
    assert over == selected.sum() - size
    assert np.allclose(level, joint.rows.state(mass * selected) + joint.floor, atol=1e-12)
    assert np.allclose(inverse, 1 / level)


@pytest.mark.parametrize("budget", [{"budget_documents": 3000}, {"budget_tokens": 14000}])
def test_of_many_documents_a_start_as_warm_as_rounding_lost_loses_less(budget) -> None:
    problem = problem_of(pool_of(4, 30_000), lamb=0.5, **NGRAMS, **budget)
    feasible = Feasible(problem.limits)
    concave, joint, _ = make_concave(problem, list(problem.objective.diversity), feasible)
    found = maximise(concave, feasible.uniform_start(), 1e-5, STEPS, lambda step: None)
    rounded = feasible.round(found.p, found.price).numpy()

    def lost(mask: np.ndarray) -> float:
        p = torch.from_numpy(mask).double()
        return found.value - concave.value(p, concave.states(p))

    efforts = [search.Effort(lost=lost(rounded)), search.Effort()]
    warm, hot = (to_mask(concave, joint, found.price, rounded, 1.0, effort) for effort in efforts)
    assert not problem.limits.violations(warm)
    assert lost(warm) < lost(rounded) and lost(warm) < lost(hot)


@pytest.mark.slow
def test_loops_read_from_the_cache_compute_what_the_process_that_compiled_them_did(tmp_path: Path) -> None:
    """Rows whose terms cancel: the order in which they are summed says which documents enter."""
    script = """
import numpy as np
from datamask.selection.cover import flips
g = np.random.default_rng(0)
rows, atoms, each = 3000, 2000, 62
half = g.standard_normal((rows, each // 2)).astype(np.float32)
value = g.permuted(np.concatenate([half, -half], axis=1), axis=1).ravel()
index, start = g.integers(0, atoms, rows * each).astype(np.uint16), np.arange(rows + 1) * each
selected, t, level, ones = np.zeros(rows, bool), np.ones(atoms, np.float32), np.ones(atoms), np.ones(rows)
flips.seeded(1)
flips.flips(start, index, value, t, level, np.ones(atoms, np.float32), 1e-8 * ones, ones, 0 * ones, selected, ones,
            0.0, np.full(1, 1e-30), 1e30)
print(selected.mean(), np.packbits(selected).tobytes().hex())
"""
    there = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    command = [sys.executable, "-c", script]
    runs = [subprocess.run(command, env=there, capture_output=True, check=True) for _ in range(2)]
    assert list(tmp_path.rglob("flips*.nbc"))
    assert 0.2 < float(runs[0].stdout.split()[0]) < 0.8
    assert runs[0].stdout == runs[1].stdout
