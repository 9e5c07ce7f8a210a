"""Who is wrong where DiSF's gap is wide: the bound, or the mask? Both are held against something independent.

    python benchmarks/disf_certificate.py embeddings.npz --documents 500 2000     # arrays `features` and `quality`

Three judges. Branch and bound in small pools: how far the mask is below the best there is. Long annealing by
single exchanges with exact gains: what is left to be gained in pools of some thousands. And the semidefinite
relaxation's shift of the kernel's diagonal: on masks Σ u_i (p_i² − p_i) is 0, so that f may be given any u with
K − diag(u) ⪰ 0 and stays concave; the u that lowers the bound most is looked for by a barrier (Lemaréchal and Oustry,
"Semidefinite relaxations and Lagrangian duality", 1999).
"""

from __future__ import annotations

import argparse
import time

import numba
import numpy as np
import torch
from selection_scale import embedded

from datamask.config import Select
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.problem.pool import Pool
from datamask.selection.problem.problem import Problem

MOST = 300_000_000  # sets that branch and bound looks at before it gives up


def quadratic_of(problem: Problem) -> tuple[np.ndarray, np.ndarray]:
    """linear (N,) and K (N, N) with f(mask) = constant + linear·m − mᵀKm."""
    (term,) = problem.objective.diversity
    metric = term.metric
    z = metric.prepare(problem.pool.rows(slice(None), torch.float64)).numpy()
    z = z.astype(np.float32) if len(z) > 4000 else z  # 400 MB a matrix of 10,000
    kernel = z @ z.T
    kernel *= kernel
    kernel -= z**2 @ (z**2).T
    return problem.objective.linear.numpy() / problem.size, np.multiply(
        kernel, kernel.dtype.type(term.scale * metric.unit / problem.size**2), out=kernel
    )


def shifted_bound(
    linear: np.ndarray, kernel: np.ndarray, u: np.ndarray, k: int, p: np.ndarray, steps: int = 600
) -> float:
    """max over 0 ≤ p ≤ 1, Σp = k of (linear − u)·p − pᵀ(K − diag u)p, from above, by Frank and Wolfe."""
    best, shifted = np.inf, kernel - np.diag(u)
    product = shifted @ p
    for _ in range(steps):
        gradient = linear - u - 2 * product
        toward = np.zeros(len(p))
        toward[np.argpartition(-gradient, k - 1)[:k]] = 1
        value = (linear - u) @ p - p @ product
        best = min(best, value + gradient @ (toward - p))
        change = toward - p
        bent = shifted @ change
        slope, bend = gradient @ change, change @ bent
        share = 1.0 if bend <= 0 else min(1.0, slope / (2 * bend))
        p, product = p + share * change, product + share * bent
    return best


def barrier(kernel: np.ndarray, weight: np.ndarray, seconds: float) -> np.ndarray:
    """u with K − diag(u) ⪰ 0 that (nearly) maximises Σ weight·u."""
    least = max(float(np.linalg.eigvalsh(kernel)[0]), 0.0)
    u = np.full(len(kernel), 0.95 * least)
    mu, until = float(weight @ np.full(len(u), least + 1e-12)) / len(u), time.perf_counter() + seconds
    while time.perf_counter() < until and mu > 1e-7 * float(weight @ np.abs(u)) / len(u):
        inverse = np.linalg.inv(kernel - np.diag(u))
        gradient = weight - mu * inverse.diagonal()
        step = np.linalg.solve(mu * inverse**2 + 1e-12 * np.eye(len(u)), gradient)  # Newton's
        share = 1.0
        while share > 1e-6:
            try:
                np.linalg.cholesky(kernel - np.diag(u + share * step))
                break
            except np.linalg.LinAlgError:
                share /= 2
        u = u + 0.95 * share * step
        if share == 1.0:
            mu /= 4
    return u


@numba.njit(cache=True)
def branch(linear, kernel, k, known, most):
    """The best value of k documents, by branch and bound, `known` being reached; and the sets looked at.

    To a set of some of the documents the r others add no more than their r greatest gains one by one, and what the r
    (r − 1) likeliest-opposed pairs would give back. Documents are taken or left in the order they come.
    """
    count = len(linear)
    pair = 0.0
    for i in range(count):
        for j in range(i):
            pair = min(pair, kernel[i, j])
    gain = np.zeros((k + 1, count))
    gain[0] = linear - np.diag(kernel)
    value, place, looked, best = np.zeros(k + 1), np.zeros(k + 1, np.int64), 0, known
    depth, place[0] = 0, -1
    while depth >= 0 and looked < most:
        place[depth] += 1
        i, left = place[depth], k - depth - 1
        if i > count - left - 1:
            depth -= 1
            continue
        looked += 1
        value[depth + 1] = value[depth] + gain[depth, i]
        if left == 0:
            best = max(best, value[depth + 1])
            continue
        for j in range(i + 1, count):
            gain[depth + 1, j] = gain[depth, j] - 2 * kernel[i, j]
        rest = np.sort(gain[depth + 1, i + 1 :])[-left:].sum() - left * (left - 1) * pair
        if value[depth + 1] + rest > best + 1e-12:
            depth += 1
            place[depth] = i
    return best, looked


def anneal(
    linear: np.ndarray, kernel: np.ndarray, mask: np.ndarray, steps: int, seed: int = 0
) -> tuple[float, np.ndarray]:
    """The best value on a long walk of single exchanges at a falling temperature (Kirkpatrick et al. 1983)."""
    rng = np.random.default_rng(seed)
    mask = mask.copy()
    inside, outside = np.flatnonzero(mask), np.flatnonzero(~mask)
    product, own = kernel @ mask, kernel.diagonal()
    value = best = float(linear @ mask - mask @ product)
    kept = mask.copy()
    hot = 0.3 * float(own.mean())
    for step in range(steps):
        a, b = rng.integers(len(inside)), rng.integers(len(outside))
        i, j = inside[a], outside[b]
        gain = linear[j] - linear[i] + 2 * (product[i] - product[j]) - own[i] - own[j] + 2 * kernel[i, j]
        if gain > 0 or rng.random() < np.exp(gain / (hot * 1e-3 ** (step / steps))):
            inside[a], outside[b] = j, i
            mask[i], mask[j] = False, True
            product += kernel[j] - kernel[i]
            value += gain
            if value > best:
                best, kept = value, mask.copy()
    return float(linear @ kept - kept @ kernel @ kept), kept


def pair(text: str) -> tuple[int, int]:
    count, k = text.split(",")
    return int(count), int(k)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("embeddings", nargs="?")
    parser.add_argument("--documents", type=int, nargs="+", default=[500, 2000])
    parser.add_argument("--lamb", type=float, nargs="+", default=[0.1, 0.5])
    parser.add_argument("--steps", type=int, default=400_000, help="of annealing")
    parser.add_argument("--branch", type=pair, nargs="*", default=[(26, 5), (40, 6), (60, 5), (60, 6), (60, 8)])
    parser.add_argument("--seconds", type=float, default=40, help="of the barrier")
    arguments = parser.parse_args()
    features, quality = embedded(arguments.embeddings, 40_000)
    rng = np.random.default_rng(0)
    print("branch and bound (λ = 0.5): the mask, below the best of all; the bound, above it; sets looked at")
    for count, k in arguments.branch:
        index = rng.choice(len(quality), count, replace=False)
        problem = make_problem(Pool(features[index], quality[index]), Select(algorithm="DiSF", budget_documents=k))
        linear, kernel = quadratic_of(problem)
        order = np.argsort(-(linear - kernel.diagonal()))
        found, constant = solve_problem(problem), problem.objective.constant
        reached = found.objective - constant
        kernel = np.ascontiguousarray(kernel[np.ix_(order, order)], dtype=np.float64)
        best, looked = branch(linear[order], kernel, k, reached - 1e-9, MOST)
        best += constant
        print(
            f"- {k} of {count}: {100 * max(0.0, best - found.objective) / abs(best):.3f} %, "
            f"{100 * (found.upper_bound - best) / abs(best):.1f} %, {looked:,}"
            + (" (given up)" if looked >= MOST else ""),
            flush=True,
        )
    print("| documents | λ | mask | annealed | fractional | bound | shifted | gap | of it whole | gap, shifted |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for count in arguments.documents:
        index = rng.choice(len(quality), count, replace=False)
        for lamb in arguments.lamb:
            problem = make_problem(Pool(features[index], quality[index]), Select(algorithm="DiSF", lamb=lamb))
            found, constant = solve_problem(problem), problem.objective.constant
            shift, annealed = "–", "–"
            below = "–"
            if count <= 12_000:
                linear, kernel = quadratic_of(problem)
                annealed = f"{anneal(linear, kernel, found.selected, arguments.steps)[0] + constant:.4f}"
            if count <= 4000:
                p = found.probability.astype(float)
                u = barrier(kernel, p * (1 - p) + 1e-3, arguments.seconds)
                least = float(np.linalg.eigvalsh(kernel - np.diag(u))[0])
                u += min(least, 0.0) - 1e-12 * float(kernel.diagonal().mean())
                tight = shifted_bound(linear, kernel, u, int(problem.size), found.selected.astype(float)) + constant
                tight = min(tight, found.upper_bound)  # no help, or a barrier that did not get far
                shift = f"{tight:.4f}"
                below = f"{100 * (tight - found.objective) / abs(tight):.1f} %"
            print(
                f"| {count:,} | {lamb} | {found.objective:.4f} | {annealed} | {found.relaxed:.4f} "
                f"| {found.upper_bound:.4f} | {shift} | {100 * found.gap:.2f} % "
                f"| {100 * found.integrality:.2f} % | {below} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
