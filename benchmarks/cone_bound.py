"""Bounds and limits where features lie in a narrow cone, as real encoders' do, judged in float64 by plain NumPy.

    python benchmarks/cone_bound.py --documents 6000 --common 0.3 0.9 0.999

A bound is one on the fractional optimum too. So it is held against the best fractional p that Frank and Wolfe's steps,
written here once more, find in float64 from where the solver ended, and against the tangent's bound there.
"""

from __future__ import annotations

import argparse

import numpy as np
from fuzz_select import Instance, standardised, unit


def judged(instance: Instance, found: object, steps: int) -> tuple[float, float, float]:
    """The mask's value, the best fractional value found, and the least bound by a tangent, all by definition."""
    x = unit(instance.features.astype(np.float64))
    scales, count = found.scales, len(x)  # type: ignore[attr-defined]
    k = int(found.selected.sum())  # type: ignore[attr-defined]
    linear, constant = np.zeros(count), 0.0
    kernels = []
    for name, term in scales.items():
        constant -= term["scale"] * term["zero"]
        if name == "quality":
            linear += term["scale"] * instance.quality[:, 0] / k
        elif term["scale"]:
            z = x if name == "pairwise" else standardised(x, instance.features.dtype)
            kernels.append((z, name == "disf", term["scale"] * (1e-4 if name == "disf" else 1) / k**2))

    def product(p: np.ndarray) -> np.ndarray:
        total = np.zeros(count)
        for z, squared, c in kernels:
            if squared:
                moment = (z * p[:, None]).T @ z
                moment[np.diag_indices_from(moment)] = 0
                total += c * ((z @ moment) * z).sum(axis=1)
            else:
                total += c * (z @ (p @ z))
        return total

    mask = found.selected.astype(float)  # type: ignore[attr-defined]
    value = constant + linear @ mask - mask @ product(mask)
    p = found.probability.astype(np.float64)  # type: ignore[attr-defined]
    p *= k / p.sum()
    p = np.minimum(p, 1)
    price, best, least = product(p), -np.inf, np.inf
    for _ in range(steps):
        here = constant + linear @ p - p @ price
        best = max(best, here) if abs(p.sum() - k) <= 1e-9 * k or p.sum() < k else best
        gradient = linear - 2 * price
        toward = np.zeros(count)
        toward[np.argpartition(-gradient, k - 1)[:k]] = 1
        least = min(least, here + gradient @ (toward - p))
        change = toward - p
        bent = product(change)
        bend = change @ bent
        share = 1.0 if bend <= 0 else min(1.0, max(0.0, (gradient @ change) / (2 * bend)))
        p, price = p + share * change, price + share * bent
    return float(value), float(best), float(least)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--documents", type=int, default=6000)
    parser.add_argument("--width", type=int, default=768)
    parser.add_argument("--common", type=float, nargs="+", default=[0.3, 0.7, 0.9, 0.99, 0.999])
    parser.add_argument("--metric", nargs="+", default=["Pair_simi", "DiSF"])
    parser.add_argument("--steps", type=int, default=12)
    arguments = parser.parse_args()
    print("| common | metric | limit | objective − by definition | bound − best fractional | tangent − bound | bound |")
    print("|---|---|---|---|---|---|---|")
    rng = np.random.default_rng(0)
    plain = unit(rng.standard_normal((arguments.documents, arguments.width)) * rng.random(arguments.width) ** 2)
    axis = unit(rng.standard_normal((1, arguments.width)))
    quality, tokens = rng.random((arguments.documents, 1)), np.round(10 ** rng.uniform(1, 5, arguments.documents))
    groups = {"domain": rng.choice(list("abcde"), arguments.documents)}
    for common in arguments.common:
        features = (common * axis + np.sqrt(1 - common**2) * plain).astype(np.float16)
        for metric in arguments.metric:
            for name, limit in {"none": {}, "quota": {"quotas": [{"column": "domain", "as_pool": 0.0}]}}.items():
                asked = {"algorithm": metric, "select_ratio": 0.1, **limit}
                instance = Instance(features, quality, tokens, groups, asked)
                found = instance.run()
                value, best, least = judged(instance, found, arguments.steps)
                tangent = f"{least - found.upper_bound:.1e}" if not limit else "–"
                above = f"{found.upper_bound - best:.1e}" if not limit else f"{found.upper_bound - value:.1e} (mask)"
                print(
                    f"| {common} | {metric} | {name} | {found.objective - value:.1e} | {above} | {tangent} "
                    f"| {found.upper_bound:.6f} |",
                    flush=True,
                )


if __name__ == "__main__":
    main()
