"""How near the optimum the relaxation comes, over λ, metrics and features; beside direct scores and top-quality.

python benchmarks/selection_optimality.py                       # synthetic clusters
python benchmarks/selection_optimality.py embeddings.npz        # arrays `features` (N, d) and `quality` (N,)
"""

from __future__ import annotations

import argparse

from selection_scale import embedded

from datamask import select


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embeddings", nargs="?")
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--metric", nargs="+", default=["pairwise", "DiSF", "Facility"])
    parser.add_argument("--lamb", type=float, nargs="+", default=[0.1, 0.3, 0.5, 0.7, 0.9])
    arguments = parser.parse_args()
    features, quality = embedded(arguments.embeddings, arguments.documents)
    print("| metric | λ | top-quality | direct | relaxation | its p | bound | gap | p's gap | seconds |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for metric in arguments.metric:
        for lamb in arguments.lamb:
            value = {
                solver: select(features, quality, algorithm=metric, lamb=lamb, solver=solver)
                for solver in ("top-quality", "direct", "relaxation")
            }
            best = value["relaxation"]
            relaxed = [step["relaxed"] for step in best.history if "relaxed" in step]  # facility location has none
            fractional = f"{max(relaxed):.5f}" if relaxed else ""
            below = f"{100 * (1 - max(relaxed) / best.upper_bound):.3f} %" if relaxed else ""
            print(
                f"| {metric} | {lamb} | {value['top-quality'].objective:.5f} | {value['direct'].objective:.5f} "
                f"| {best.objective:.5f} | {fractional} | {best.upper_bound:.5f} "
                f"| {100 * best.gap:.3f} % | {below} | {best.seconds:.1f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
