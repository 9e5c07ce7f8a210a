"""Relaxation ≥ greedy ≥ random, on many random and adversarial instances."""

from __future__ import annotations

import pytest

from datamask import select
from tests.selection.instances import FAMILIES, instance


@pytest.mark.parametrize("algorithm", ["Pair_simi", "DiSF", "Facility"])
@pytest.mark.parametrize("family", FAMILIES)
def test_relaxation_greedy_random(family, algorithm):
    for seed in range(2):
        features, quality = instance(family, seed, 60, 8)
        for lamb in (0.0, 0.3, 0.7):
            for k in (1, 2, 6, 20, 50, 59):
                relaxation, greedy, random = (
                    select(
                        features, quality, algorithm=algorithm, lamb=lamb, budget_documents=k, solver=solver, seed=seed
                    ).objective
                    for solver in ("relaxation", "greedy", "random")
                )
                rounding = 1e-6 * (1 + abs(greedy))
                assert relaxation >= greedy - rounding, (seed, lamb, k)
                assert greedy >= random - rounding, (seed, lamb, k)
