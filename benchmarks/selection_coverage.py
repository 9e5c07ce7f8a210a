"""Coverage: the mask beside rounding, growing by price, cynical selection, DSIR and SPOKES' exponentiated gradient.

python benchmarks/selection_coverage.py --output out/curated --atoms ngrams --lamb 0.3 0.5 0.7 --unit documents

Rivals are written plainly on the same sparse rows, and all have the objective's own terms. What the fractional ascent
by exponentiated gradient reaches, in as many seconds as ours took in all, is rounded.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch

from datamask.config import resolve
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.candidates import gather_pool, group_of, read_candidates
from datamask.selection.cover import greedy_search as search
from datamask.selection.cover.counting import with_atoms
from datamask.selection.cover.tangent import Concave
from datamask.selection.metrics.coverage import SummedCoverage
from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.pool import Pool
from datamask.selection.problem.problem import Problem
from datamask.stages import recorded


def pool_of(output: str, work: str, settings: dict) -> tuple[Pool, dict]:
    files, config, _ = recorded(output)
    config = config.model_copy(update={"select": resolve(None, settings)})
    ordered = [with_atoms(each, config, work) for each in sorted(files, key=lambda each: each.shard.name)]
    read = (read_candidates(each, config) for each in ordered)
    return gather_pool(group_of(ordered, read, config), config.selection, ""), settings


def concave_of(problem: Problem) -> tuple[Concave, SummedCoverage]:
    terms: list[Any] = [term for term in problem.objective.diversity if term.scale]
    joint = SummedCoverage.of([term.metric for term in terms], [term.scale for term in terms])
    return Concave([joint], [1.0], problem.objective.linear, Feasible(problem.limits), problem.size), joint


def grown_by_price(problem: Problem, concave: Concave, steps: int = 250) -> np.ndarray:
    """A share of the budget a step, by the prices of the mixture so far; each document once."""
    weights, chosen = problem.limits.weights, np.zeros(len(problem), bool)
    for step in range(steps):
        spent = float(weights[chosen].sum())
        mass = chosen * problem.size / spent if spent else np.full(len(problem), problem.size / weights.sum())
        price = concave.price(concave.states(torch.from_numpy(mass))).numpy()
        order = np.argsort(-np.where(chosen, -np.inf, price), kind="stable")
        room = problem.size * (step + 1) / steps - spent
        fits = np.cumsum(weights[order]) <= room + 1e-9
        chosen[order[fits]] = True
    order = np.argsort(~chosen, kind="stable")
    return fill_in_order(problem.limits, order)


def dsir(problem: Problem, joint: SummedCoverage) -> np.ndarray:
    """Importance resampling (Xie et al., arXiv 2302.03169): log ratio of t to the pool, with Gumbel noise.

    Quality is added, at the weight that does best of five.
    """
    t = joint.t / joint.t.sum()
    ratio = joint.rows.scores(np.log(np.maximum(t, 1e-9)) - np.log(np.maximum(joint.mean / joint.mean.sum(), 1e-9)))
    noise = np.random.default_rng(0).gumbel(size=len(ratio))
    quality = problem.objective.linear.numpy()
    found = []
    for weight in (0, 1, 3, 10, 30):
        score = ratio / max(ratio.std(), 1e-12) + noise + weight * quality / max(quality.std(), 1e-12)
        found.append(fill_in_order(problem.limits, np.argsort(-score, kind="stable")))
    values = problem.objective.values(torch.from_numpy(np.stack(found)))
    return found[int(values.argmax())]


def exponentiated(problem: Problem, concave: Concave, seconds: float) -> tuple[np.ndarray, float]:
    """SPOKES' ascent (arXiv 2606.15216), plainly: p ← min(1, p·exp(η·price)) brought to the budget by one factor."""
    weights = concave.feasible.weights
    p, started, best, reached = concave.feasible.uniform(), time.perf_counter(), None, -np.inf
    rate, step = 1.0, 0
    while time.perf_counter() - started < seconds:
        states = concave.states(p)
        value = concave.value(p, states)
        if value > reached:
            best, reached = p, value
        else:
            rate /= 2
            p = best
            states = concave.states(p)
        price = concave.price(states)
        scaled = p * torch.exp((rate * (price - price.mean()) / price.std()).clamp(-20, 20))
        low, high = 0.0, 1e12
        for _ in range(80):
            factor = (low * high) ** 0.5 if low else high / 2
            spent = float(weights @ (factor * scaled).clamp(max=1))
            low, high = (factor, high) if spent < problem.size else (low, factor)
        p = (high * scaled).clamp(max=1)
        step += 1
    assert best is not None
    price = concave.price(concave.states(best))
    return concave.feasible.round(best, price).numpy(), reached + problem.objective.constant


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--output", required=True, help="of a `datamask curate`")
    parser.add_argument("--work", required=True, help="folder for the shards' atoms")
    parser.add_argument("--atoms", nargs="+", default=["ngrams"])
    parser.add_argument("--lamb", type=float, nargs="+", default=[0.0, 0.3, 0.5, 0.7])
    parser.add_argument("--unit", choices=["documents", "tokens"], default="documents")
    parser.add_argument("--share", type=float, default=0.1)
    parser.add_argument("--alone", action="store_true", help="without the rivals")
    arguments = parser.parse_args()
    settings = {"algorithm": "coverage", "coverage": {"atoms": dict.fromkeys(arguments.atoms, 1.0)}}
    pool, settings = pool_of(arguments.output, arguments.work, settings)
    budget = {"select_ratio": arguments.share}
    if arguments.unit == "tokens":
        budget = {"budget_tokens": int(arguments.share * pool.tokens.sum())}
    problem = make_problem(pool, resolve(None, {**settings, **budget}))
    started = time.perf_counter()
    _ = problem.objective
    print(f"{len(pool):,} documents, {'+'.join(arguments.atoms)}, {arguments.share:.0%} of the {arguments.unit}; ")
    print(f"calibrated in {time.perf_counter() - started:.1f} s (once for all λ)\n")
    print("| λ | bound | fractional gap | mask | its gap | s | rounded | grown by price | cynical | DSIR | EG, mask |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for lamb in arguments.lamb:
        here = problem.at(lamb)
        found = solve_problem(here)
        relaxed = found.history[-1]["relaxed"]
        cells = [f"{lamb:g}", f"{found.upper_bound:.4f}", f"{1 - relaxed / found.upper_bound:.2%}"]
        cells += [f"**{found.objective:.4f}**", f"{found.gap:.1%}", f"{found.seconds:.1f}"]
        if not arguments.alone:
            concave, joint = concave_of(here)
            p = torch.from_numpy(found.probability).double()
            worth = here.objective.linear.numpy() * here.limits.weights / here.size
            masks = [
                concave.feasible.round(p, concave.price(concave.states(p))).numpy(),
                grown_by_price(here, concave),
                fill_in_order(here.limits, search.grow_greedily(joint, worth, here.limits)),
                dsir(here, joint),
            ]
            mask, fraction = exponentiated(here, concave, found.seconds)
            values = here.objective.values(torch.from_numpy(np.stack([*masks, mask]))).tolist()
            cells += [f"{value:.4f}" for value in values[:-1]] + [f"{fraction:.4f}, {values[-1]:.4f}"]
        print("| " + " | ".join(cells) + " |", flush=True)


if __name__ == "__main__":
    main()
