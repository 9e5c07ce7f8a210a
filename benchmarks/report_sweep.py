"""A sweep of 11 λ against cold solves of the same problems.

    python benchmarks/report_sweep.py out/real                 # an output folder of `datamask curate`
    python benchmarks/report_sweep.py --synthetic 20000        # clustered features instead

Cold: `select` from nothing at every λ (each calibrates and prepares anew). Warm: what `datamask sweep` runs: one
calibration, one preparation, each λ from where the one above ended. Both in one run; "worse" is the most that any λ of
the sweep scores less than its cold solve.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from datamask.config import Select
from datamask.report.embedded import load_corpus
from datamask.selection import select
from datamask.selection.problem.pool import Pool, make_problem
from datamask.study.sweep import solve_all

LAMBDAS = np.linspace(0, 1, 11).round(2).tolist()


def clustered(count: int, dimensions: int = 768) -> tuple[np.ndarray, np.ndarray]:
    """(count, dimensions) float16 unit rows in 50 clusters of uneven size, and a quality that follows the cluster."""
    generator = np.random.default_rng(0)
    centres = generator.normal(size=(50, dimensions))
    cluster = generator.choice(50, count, p=generator.dirichlet(np.full(50, 0.5)))
    rows = centres[cluster] + generator.normal(size=(count, dimensions))
    quality = generator.normal(size=50)[cluster] + generator.normal(size=count)
    return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float16), quality


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", nargs="?", help="an output folder")
    parser.add_argument("--synthetic", type=int, default=20_000, help="documents, where no corpus is given")
    parser.add_argument("--algorithms", nargs="+", default=["pairwise", "DiSF"])
    arguments = parser.parse_args()
    if arguments.corpus:
        embedded = load_corpus(arguments.corpus, 100_000)
        features, quality = embedded.features, embedded.quality
    else:
        features, quality = clustered(arguments.synthetic)
    print(f"{len(features):,} × {features.shape[1]}, 10 %")
    head = ("11 cold", "one cold", "sweep of 11", "in colds", "cold gap", "sweep gap", "worse")
    print(f"{'metric':<10}" + "".join(f"{name:>12}" for name in head))
    for algorithm in arguments.algorithms:
        settings = Select(algorithm=algorithm, select_ratio=0.1)
        began = time.perf_counter()
        cold = [select(features, quality, settings=settings.model_copy(update={"lamb": lamb})) for lamb in LAMBDAS]
        middle = time.perf_counter()
        warm = solve_all(make_problem(Pool(features, quality), settings), LAMBDAS)
        apart, swept = middle - began, time.perf_counter() - middle
        gaps = [max(selection.gap or 0 for selection in found) for found in (cold, warm)]
        worse = max(a.objective - b.objective for a, b in zip(cold, warm, strict=True))
        print(
            f"{algorithm:<10}{apart:>11.1f}s{apart / 11:>11.1f}s{swept:>11.1f}s{11 * swept / apart:>12.1f}"
            f"{gaps[0]:>12.2%}{gaps[1]:>12.2%}{worse:>12.4f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
