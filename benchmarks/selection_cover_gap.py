"""Coverage's mask by random swaps, by following the fractional optimum, and by the latter for longer.

python benchmarks/selection_cover_gap.py out/real --work out/real/work [--lamb 0.5 0.7] [--longer 15] [--seeds 4]

All start from one rounded fractional optimum of one calibration, so that gaps (shares of the bound) compare. Seconds
are of processor time, of the search alone.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from selection_coverage import concave_of, pool_of

from datamask.config import resolve
from datamask.selection.calibration import make_problem
from datamask.selection.cover import greedy_search as search
from datamask.selection.cover import sharpen
from datamask.selection.cover.solve import ACCURACY, STEPS
from datamask.selection.cover.tangent import maximise


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", help="of a `datamask curate`")
    parser.add_argument("--work", required=True, help="folder for the shards' atoms")
    parser.add_argument("--atoms", nargs="+", default=["ngrams"])
    parser.add_argument("--units", nargs="+", default=["documents", "tokens"])
    parser.add_argument("--lamb", type=float, nargs="+", default=[0.0, 0.3, 0.5, 0.7])
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--documents", type=int, help="of the pool, drawn at random")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--longer", type=float, default=0.0, help="also search so many times as long")
    arguments = parser.parse_args()
    given = {"algorithm": "coverage", "coverage": {"atoms": dict.fromkeys(arguments.atoms, 1.0)}}
    pool, given = pool_of(arguments.output, arguments.work, given)
    if arguments.documents:
        pool = pool.take(np.sort(np.random.default_rng(5).permutation(len(pool))[: arguments.documents]))
    columns = ["budget", "λ", "bound", "in part", "rounded", "swaps", "s", "followed", "s"]
    columns += ["longer", "s"] * bool(arguments.longer)
    print("| " + " | ".join(columns) + " |\n" + "|---" * len(columns) + "|")
    for unit in arguments.units:
        budget = {"select_ratio": arguments.share}
        if unit == "tokens":
            budget = {"budget_tokens": int(arguments.share * pool.tokens.sum())}
        whole = make_problem(pool, resolve(None, {**given, **budget}))
        for lamb in arguments.lamb:
            problem = whole.at(lamb)
            concave, joint = concave_of(problem)
            feasible, limits, size = concave.feasible, problem.limits, problem.size
            found = maximise(concave, feasible.uniform_start(), ACCURACY, STEPS, lambda step: None)
            cut, weights = feasible.cut(found.price), limits.weights
            linear, above = concave.linear.numpy() * weights / size, (found.price.numpy() - cut) * weights / size
            start = feasible.round(found.p, found.price)
            bound = found.bound + problem.objective.constant

            def gap(mask: np.ndarray, concave=concave, constant=problem.objective.constant, bound=bound) -> float:
                p = torch.from_numpy(mask).double()
                return 1 - (concave.value(p, concave.states(p)) + constant) / bound

            cells = [unit, f"{lamb:g}", f"{bound:.4f}", f"{int(((found.p > 1e-6) & (found.p < 1 - 1e-6)).sum()):,}"]
            cells.append(f"{gap(start.numpy()):.2%}")
            for alone, times in ((None, 1.0), (above, 1.0), (above, arguments.longer)):
                if not times:
                    continue
                began, gaps = time.process_time(), []
                most, sharpen.MOST_READ = sharpen.MOST_READ, int(sharpen.MOST_READ * max(times, 1))
                for seed in range(arguments.seeds):
                    effort = search.Effort(search=times, seed=seed)
                    at = search.Optimum(cut / size, alone, found.p.numpy())
                    mask = search.improve(joint, linear, limits, start.numpy(), 1.0, effort, size, at)
                    gaps.append(gap(mask))
                sharpen.MOST_READ = most
                spread = f" ± {np.ptp(gaps) / 2:.2%}" if len(gaps) > 1 else ""
                cells += [f"{np.mean(gaps):.2%}{spread}", f"{(time.process_time() - began) / len(gaps):.1f}"]
            print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
