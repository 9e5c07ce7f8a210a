"""How good coverage's best mask may be: an estimate by counting masks, where no bound is near (not a certificate).

python benchmarks/selection_cover_estimate.py out/real --work out/real/work --lamb 0.5 --heats 0.05 0.02

Let masks be drawn with probability ∝ exp(f / T). The mean-field weights π maximise f(π) + T·entropy(π). With each
document drawn alone by π, the mixture's deviation is nearly Gaussian, so that

    T log Σ exp(f / T) ≈ f(π) + T·entropy(π) − T/2 · log det(1 + B V Bᵀ / T),    V = π(1 − π), BᵀB the curvature of f

(the first moment; exact where rows lie in random directions). From it follow the mean of f at T and how many masks have
it; where the entropy passes 0 there are none left: that value estimates the best mask's. T is in 1 / documents chosen.
The eigenvalues take some minutes for each T.
"""

from __future__ import annotations

import argparse

import numpy as np
import scipy.linalg
import torch
from scipy.optimize import minimize
from scipy.special import entr, expit
from selection_coverage import concave_of, pool_of

from datamask.compiling import compiled
from datamask.config import resolve
from datamask.selection.cover.solve import ACCURACY, STEPS
from datamask.selection.cover.summed import SummedCoverage
from datamask.selection.cover.tangent import maximise
from datamask.selection.problem.pool import make_problem

LEAST = 1e-4  # documents of less variance are left out


@compiled
def outer(start, index, value, variance, scale, found):  # type: ignore[no-untyped-def]
    """found (J, J), its lower triangle, += Σ_i variance_i b_i b_iᵀ, b_ij = A_ij scale_j. Rows in rising atoms."""
    for row in range(len(start) - 1):
        for at in range(start[row], start[row + 1]):
            atom = index[at]
            own = variance[row] * value[at] * scale[atom]
            for other in range(start[row], at + 1):
                found[atom, index[other]] += own * value[other] * scale[index[other]]


def mean_field(joint: SummedCoverage, linear: np.ndarray, mass: float, count: int, heat: float, first: np.ndarray):  # type: ignore[no-untyped-def]
    """π (N,), and log prices with the cut (J + 1,), by the dual: convex and smooth in these."""

    def dual(x: np.ndarray) -> tuple[float, np.ndarray]:
        price = np.exp(x[:-1])
        gain = (linear + mass * joint.rows.scores(price) - x[-1] / count) / heat
        p = expit(gain)
        value = joint.floor @ price - joint.t @ x[:-1] + heat * np.logaddexp(0, gain).sum() + x[-1]
        slope = np.append(price * (joint.floor + joint.rows.state(p * mass)) - joint.t, 1 - p.sum() / count)
        return float(value), slope

    found = minimize(dual, first, jac=True, method="L-BFGS-B", options={"maxiter": 400, "maxcor": 30, "ftol": 1e-12})
    p = expit((linear + mass * joint.rows.scores(np.exp(found.x[:-1])) - found.x[-1] / count) / heat)
    return np.minimum(p * count / p.sum(), 1), found.x


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("output", help="of a `datamask curate`")
    parser.add_argument("--work", required=True, help="folder for the shards' atoms")
    parser.add_argument("--lamb", type=float, default=0.5)
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--heats", type=float, nargs="+", default=[0.05, 0.02])
    arguments = parser.parse_args()
    given = {"algorithm": "coverage", "coverage": {"atoms": {"ngrams": 1.0}}, "select_ratio": arguments.share}
    pool, given = pool_of(arguments.output, arguments.work, given)
    problem = make_problem(pool, resolve(None, given)).at(arguments.lamb)
    concave, joint = concave_of(problem)
    count, constant = int(problem.size), problem.objective.constant
    mass, linear = (1 - joint.alpha) / count, concave.linear.numpy() / count
    best = maximise(concave, concave.feasible.uniform_start(), ACCURACY, STEPS, lambda step: None)
    bound = best.bound + constant
    x = np.append(np.log(joint.t / joint.level(best.states[0])), concave.feasible.cut(best.price))
    print("| T | gap of the mean mask | log of their number | estimated gap of the best mask |\n|--:|--:|--:|--:|")
    for heat in arguments.heats:
        p, x = mean_field(joint, linear, mass, count, heat / count, x)
        state = concave.states(torch.from_numpy(p))
        value, variance = concave.value(torch.from_numpy(p), state) + constant, p * (1 - p)
        matrix = np.zeros((len(joint.t), len(joint.t)), np.float32)
        some = np.flatnonzero(variance > LEAST)
        rows = joint.rows.take(some)
        scale = mass * np.sqrt(joint.t) / joint.level(state[0])
        outer(rows.start, rows.index, rows.value, variance[some], scale, matrix)
        curved = np.maximum(scipy.linalg.eigvalsh(matrix, overwrite_a=True, check_finite=False).astype(float), 0)
        entropy = float((entr(p) + entr(1 - p)).sum())

        def left(cold: float, curved=curved, entropy=entropy) -> tuple[float, float]:
            """What the mean mask loses to curvature at this T, and the log of the number of such masks."""
            ratio = curved * count / cold
            kept = (ratio / (1 + ratio)).sum()
            return float(cold / count * kept / 2), entropy + float(kept - np.log1p(ratio).sum()) / 2

        lost, number = left(heat)
        colder = np.geomspace(heat / 10, heat, 200)
        empty = [value - left(cold)[0] for cold in colder if left(cold)[1] <= 0]
        cells = [f"{heat:g}", f"{1 - (value - lost) / bound:.2%}", f"{number:,.0f}"]
        print("| " + " | ".join([*cells, f"{1 - empty[-1] / bound:.2%}" if empty else "–"]) + " |", flush=True)


if __name__ == "__main__":
    main()
