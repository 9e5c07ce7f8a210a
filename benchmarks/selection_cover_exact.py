"""Coverage's masks on instances small enough to try every selection: how much of the gap is integrality.

python benchmarks/selection_cover_exact.py out/real --work out/real/work

Random draws of 18 real documents of a curated corpus, 4 of them to be chosen: the best of all 3,060 selections beside
the mask that the relaxation finds, and its bound. Gaps are shares of the bound.
"""

from __future__ import annotations

import argparse
from itertools import combinations

import numpy as np
from selection_coverage import pool_of

from datamask.config import resolve
from datamask.selection.arrays import solve
from datamask.selection.problem.pool import Pool, make_problem

DOCUMENTS, CHOSEN = 18, 4


def every_value(problem: object, masks: np.ndarray) -> np.ndarray:
    """f of selections given as rows of document numbers (M, k), written out on dense rows."""
    objective, pool = problem.objective, problem.pool  # type: ignore[attr-defined]
    counts = np.asarray(pool.ngrams.todense(), np.float64)
    rows = counts / counts.sum(axis=1, keepdims=True)
    [term] = objective.diversity
    used = term.metric.t > 0
    mixed = np.stack([rows[mask].mean(axis=0) for mask in masks])
    level = (1 - term.metric.alpha) * mixed[:, used] + term.metric.alpha * term.metric.mean[used]
    value = np.log(level) @ term.metric.t[used] - term.metric.base
    linear = objective.linear.numpy()
    return linear[masks].mean(axis=1) + term.scale * value + objective.constant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("output", help="of a `datamask curate`")
    parser.add_argument("--work", required=True, help="folder for the shards' atoms")
    parser.add_argument("--instances", type=int, default=20)
    arguments = parser.parse_args()
    base = {"algorithm": "coverage", "coverage": {"atoms": {"ngrams": 1.0}}}
    pool, _ = pool_of(arguments.output, arguments.work, base)
    masks = np.array(list(combinations(range(DOCUMENTS), CHOSEN)))
    print("| λ | instances | the mask is the best there is | its gap to the best | the best's gap to the bound |")
    print("|--:|--:|--:|--:|--:|")
    for lamb in (0.0, 0.3, 0.5, 0.7):
        exact, own, gap = 0, [], []
        for number in range(arguments.instances):
            at = np.random.default_rng([number, 3]).choice(len(pool), DOCUMENTS, replace=False)
            counts = pool.ngrams[at]
            counts = counts[:, np.flatnonzero(np.asarray(counts.sum(axis=0)).ravel() > 1)]
            part = Pool(pool.features[at], pool.quality[at], pool.tokens[at], ngrams=counts)
            settings = resolve(None, {**base, "lamb": lamb, "budget_documents": CHOSEN})
            found = solve(problem := make_problem(part, settings))
            best = max(float(every_value(problem, block).max()) for block in np.array_split(masks, 60))
            exact += found.objective >= best - 1e-6
            own.append((best - found.objective) / best)
            gap.append((found.upper_bound - best) / found.upper_bound)
        print(
            f"| {lamb:g} | {arguments.instances} | {exact} | {np.mean(own):.3%} | {np.mean(gap):.1%} |",
            flush=True,
        )


if __name__ == "__main__":
    main()
