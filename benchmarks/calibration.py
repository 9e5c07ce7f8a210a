"""How near a term's score of 1 is to its own best, where that is told by samples: against a whole solve at λ = 0.

python benchmarks/calibration.py                       # synthetic clusters
python benchmarks/calibration.py embeddings.npz        # arrays `features` (N, d) and `quality` (N,)
"""

from __future__ import annotations

import argparse
import time

from selection_scale import embedded

from datamask.config import Select
from datamask.selection import calibration
from datamask.selection.calibration import make_problem
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.problem.pool import Pool
from datamask.selection.solvers import relaxation


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embeddings", nargs="?")
    parser.add_argument("--documents", type=int, default=100_000)
    parser.add_argument("--metric", nargs="+", default=["pairwise", "DiSF"])
    parser.add_argument("--ratio", type=float, nargs="+", default=[0.01, 0.1, 0.3])
    arguments = parser.parse_args()
    pool = Pool(*embedded(arguments.embeddings, arguments.documents))
    print("Shares of the way from random to what a whole solve for diversity alone reaches.\n")
    print("| documents | metric | ratio | a sample's own best | two samples', extended | seconds | whole solve, s |")
    print("|---|---|---|---|---|---|---|")
    for name in arguments.metric:
        for ratio in arguments.ratio:
            problem = make_problem(pool, Select(algorithm=name, lamb=0.0, select_ratio=ratio))
            begun = time.perf_counter()
            term = problem.objective.diversity[0]
            calibrated = time.perf_counter()
            found = relaxation.Relaxation().solve(problem, lambda step: None)
            ended = time.perf_counter()
            metric = term.metric
            assert isinstance(metric, MomentMetric)
            reached = float(metric.value(found.selected[None])[0]) - term.zero
            rows = problem.sample[: calibration.best_on(metric)]
            _, alone = calibration.best_among(problem, metric, rows)
            print(
                f"| {len(pool):,} | {name} | {ratio} | {(alone - term.zero) / reached:.3f} | "
                f"{(term.one - term.zero) / reached:.3f} | {calibrated - begun:.2f} | {ended - calibrated:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
