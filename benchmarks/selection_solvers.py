"""Solvers side by side in one run: seconds, objective, and seconds to reach what the slowest good one reaches.

    python benchmarks/selection_solvers.py --data '../shared/data/real/real-*.parquet' --documents 4000

Facility location beside apricot-select and submodlib (the same kernel of cosines, their lazy greedy); DiSF beside
incremental greedy and the published method written plainly (a correlation matrix for every rollout).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from apricot import FacilityLocationSelection
from embedded import Embedded, real
from policy_gradient import plain_step
from submodlib import FacilityLocationFunction

from datamask.config import resolve
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.paper.facility import FacilityLocation
from datamask.selection.problem.pool import Pool
from datamask.selection.problem.problem import Problem

RATIO = 0.1


def facility(pool: Embedded) -> None:
    count = len(pool.quality)
    k = round(RATIO * count)
    problem_pool = Pool(pool.features, pool.quality)
    metric = FacilityLocation(problem_pool, torch.ones(count, dtype=torch.float64), k)
    began = time.perf_counter()
    kernel = (pool.features @ pool.features.T).clip(0).astype(np.float32)  # apricot and submodlib want no negatives
    built = time.perf_counter() - began

    def apricot() -> np.ndarray:
        model = FacilityLocationSelection(k, metric="precomputed", optimizer="lazy")
        return np.asarray(model.fit(kernel.astype(np.float64)).ranking)

    def submodlib() -> np.ndarray:
        function = FacilityLocationFunction(n=count, mode="dense", sijs=kernel, separate_rep=False)
        picks = function.maximize(budget=k, optimizer="LazyGreedy", show_progress=False)
        return np.array([number for number, _ in picks])

    def ours(solver: str) -> np.ndarray:
        settings = resolve(
            None, {"solver": solver, "algorithm": "Facility", "lamb": 0.0, "calibrate": False}, tokens=False
        )
        return solve_problem(make_problem(problem_pool, settings)).indices

    FacilityLocationSelection(2, metric="precomputed", optimizer="lazy").fit(np.eye(10))  # compiled before it is timed
    print(f"\nFacility location alone, {count} real documents, {k} selected; the kernel took {built:.1f} s")
    print("| solver | seconds | value |\n|---|---|---|")
    for name, run in [
        ("apricot-select, lazy", apricot),
        ("submodlib, LazyGreedy", submodlib),
        ("greedy (ours, kernel included)", lambda: ours("greedy")),
        ("relaxation (ours, kernel included)", lambda: ours("relaxation")),
    ]:
        began = time.perf_counter()
        chosen = run()
        seconds = time.perf_counter() - began
        mask = torch.zeros(1, count, dtype=torch.bool)
        mask[0, torch.from_numpy(np.asarray(chosen, dtype=np.int64))] = True
        seconds += built if "kernel included" not in name else 0.0
        print(f"| {name} | {seconds:.2f} | {float(metric.value(mask)[0]):.5f} |", flush=True)


def disf(pool: Embedded, plain_seconds: float, steps: int) -> None:
    runs: list[tuple[str, list[tuple[float, float]], float, float]] = []
    bound = None
    calibrated = make_problem(Pool(pool.features, pool.quality), resolve(None, {"algorithm": "DiSF"}, tokens=False))
    solvers: dict[str, dict[str, Any]] = {
        "relaxation": {"solver": "relaxation"},
        "greedy, rank-one": {"solver": "greedy"},
        "policy gradient, improved": {"solver": "policy-gradient", "n_epochs": steps},
        "policy gradient, published": {"solver": "policy-gradient", "n_epochs": steps, "published": True},
    }
    for name, keywords in solvers.items():
        problem = replace(calibrated.at(calibrated.settings.lamb), settings=resolve(calibrated.settings, keywords))
        reached: list[tuple[float, float]] = []
        began = time.perf_counter()

        def note(
            record: Mapping[str, float], reached: list[tuple[float, float]] = reached, began: float = began
        ) -> None:
            reached.append((time.perf_counter() - began, record.get("objective", float("nan"))))

        found = solve_problem(problem, note)
        bound = found.upper_bound if bound is None else bound
        if keywords["solver"] != "policy-gradient":
            reached = [(found.seconds, found.objective)]  # before rounding there is no selection
        runs.append((name, reached, found.seconds, found.objective))
    runs.append(("published, written plainly", *plainly(calibrated, plain_seconds, steps)))
    assert bound is not None
    target = runs[3][3]
    print(
        f"\nDiSF, λ 0.5, calibrated, {len(pool.quality)} real documents, {RATIO:.0%}; bound {bound:.5f}; {steps} steps"
    )
    print(f"| solver | seconds | objective | share of the bound | seconds to {target:.4f} |\n|---|---|---|---|---|")
    for name, reached, seconds, objective in runs:
        at = next((f"{when:.1f}" for when, value in reached if value >= target - 1e-9), f"not in {seconds:.0f}")
        print(f"| {name} | {seconds:.1f} | {objective:.5f} | {objective / bound:.2%} | {at} |", flush=True)


def plainly(problem: Problem, limit: float, steps: int) -> tuple[list[tuple[float, float]], float, float]:
    """As many plain steps as `limit` seconds allow: where it got, when."""
    features = problem.pool.rows(slice(None))
    quality = torch.from_numpy(problem.pool.quality[:, 0]).float()
    logits = ((quality - quality.mean()) / quality.std()).float()
    generator = torch.Generator().manual_seed(0)
    reached, began, step = [], time.perf_counter(), 0
    while step < steps and time.perf_counter() - began < limit:
        rate = 10 - 9 * step / steps
        plain_step(features, quality, logits, problem.settings, rate, generator)
        step += 1
        mask = torch.zeros(1, len(quality), dtype=torch.bool)
        mask[0, logits.topk(int(problem.size)).indices] = True
        if step % 10 == 1:
            reached.append((time.perf_counter() - began, float(problem.objective.values(mask)[0])))
    return reached, time.perf_counter() - began, reached[-1][1]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="parquet files with text and id")
    parser.add_argument("--cache", help=".npz that keeps the embedded text for the next run")
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--steps", type=int, default=2000)
    parser.add_argument("--plain-seconds", type=float, default=60, help="how long the plain method may run")
    parser.add_argument("--part", choices=["facility", "disf", "all"], default="all")
    arguments = parser.parse_args()
    pool = real(arguments.data, arguments.cache).take(arguments.documents)
    if arguments.part != "disf":
        facility(pool)
    if arguments.part != "facility":
        disf(pool, arguments.plain_seconds, arguments.steps)


if __name__ == "__main__":
    main()
