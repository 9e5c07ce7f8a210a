"""A sweep of 11 λ against cold solves of the same problems.

    python benchmarks/report_sweep.py out/real                 # an output folder of `datamask curate`
    python benchmarks/report_sweep.py --synthetic 20000        # clustered features instead

Cold: `select` from nothing at λ = 0.2, 0.5, 0.8 (each calibrates, prepares and starts anew); eleven such are their mean
times eleven. Warm: `datamask sweep`'s own function: one calibration, one preparation, each λ from where the last ended.
"""

from __future__ import annotations

import argparse
import time

import numpy as np

from datamask.config import Select
from datamask.report.embedded import load_corpus
from datamask.report.sweep import TOLERANCE
from datamask.selection import select
from datamask.selection.api import finish
from datamask.selection.problem import Pool, make_problem
from datamask.selection.solvers import relaxation

LAMBDAS = np.linspace(0, 1, 11).round(2)
COLD = (0.2, 0.5, 0.8)


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
    print(f"{len(features):,} × {features.shape[1]}, 10 %, two runs of the same problems")
    head = ("one cold", "3 cold", "11 cold", "sweep of 11", "in colds", "worst gap")
    print(f"{'metric':<10}" + "".join(f"{name:>12}" for name in head))
    for algorithm in arguments.algorithms:
        settings = Select(algorithm=algorithm, select_ratio=0.1)
        seconds = []
        for lamb in COLD:
            began = time.perf_counter()
            select(features, quality, settings=settings.model_copy(update={"lamb": lamb}))
            seconds.append(time.perf_counter() - began)
        began = time.perf_counter()
        problem, warm, gaps = make_problem(Pool(features, quality), settings), relaxation.Warm(tolerance=TOLERANCE), []
        for lamb in LAMBDAS:
            at = problem.at(float(lamb))
            gaps.append(finish(at, relaxation.solve(at, lambda record: None, warm), 0.0).gap)
        swept, cold = time.perf_counter() - began, float(np.mean(seconds))
        print(
            f"{algorithm:<10}{cold:>11.1f}s{3 * cold:>11.1f}s{11 * cold:>11.1f}s{swept:>11.1f}s{swept / cold:>12.1f}"
            f"{max(gap or 0 for gap in gaps):>12.2%}"
        )


if __name__ == "__main__":
    main()
