"""The policy gradient: how fast a step is, how near the bound it comes, and what its settings do.

    python benchmarks/policy_gradient.py --data '../shared/data/real/real-*.parquet' --part speed
    python benchmarks/policy_gradient.py --data '…' --part bound --documents 10000
    python benchmarks/policy_gradient.py --data '…' --part settings

`speed`: steps of the published settings on 10,000 documents (DiSF, ratio 0.3, G 128, partial 0.1), ours and the
published method written plainly (a correlation matrix for every rollout), a step of each.
`bound`: published and improved beside the relaxation's upper bound, λ from 0.1 to 0.9.
`settings`: learning rate, rollouts, init and steps, one at a time.
"""

from __future__ import annotations

import argparse
import os
import time

import torch
from embedded import Embedded, real, synthetic

from datamask.config import Select, resolve
from datamask.selection.arrays import select
from datamask.selection.calibration import make_problem
from datamask.selection.paper.policy_gradient import Policy, as_masks, surrogate_gradient
from datamask.selection.problem.pool import Pool

STEPS = 5000


def plain_step(features: torch.Tensor, quality: torch.Tensor, logits: torch.Tensor, settings: Select, rate: float,
               generator: torch.Generator) -> None:  # fmt: skip
    """The published method as its paper reads: for every rollout, the correlation matrix of what it selected."""
    batch = torch.randperm(len(logits), generator=generator)[: round(settings.partial * len(logits))]
    k = round((settings.select_ratio or 0) * len(batch))
    gumbel = -torch.empty(settings.n_rollout, len(batch)).exponential_(generator=generator).log()
    drawn = (logits[batch] + gumbel).topk(k, dim=1).indices
    rewards = torch.empty(settings.n_rollout)
    for rollout, chosen in enumerate(drawn):
        rows = features[batch[chosen]]
        standard = (rows - rows.mean(0)) / (rows.var(0) + 1e-8).sqrt()
        correlation = standard.T @ standard / (k - 1)
        off_diagonal = correlation - torch.diag(correlation.diagonal())
        diversity = -float((off_diagonal**2).sum()) / 10_000
        rewards[rollout] = settings.lamb * quality[batch[chosen]].mean() + (1 - settings.lamb) * diversity
    advantage = (rewards - rewards.mean()) / rewards.std()
    masks = as_masks(drawn, len(batch))
    logits[batch] += rate * surrogate_gradient(logits[batch], masks, advantage)


def speed(pool: Embedded) -> None:
    """Steps of each in turn, the quickest of three; processor time too, which the machine's other work is not in."""
    settings = resolve(
        None,
        {"solver": "policy-gradient", "algorithm": "DiSF", "select_ratio": 0.3, "published": True, "calibrate": False},
    )
    features, quality = torch.from_numpy(pool.features), torch.from_numpy(pool.quality)
    generator = torch.Generator().manual_seed(0)
    rows = []
    policies = {}
    for name, published in [("published, ours", True), ("improved", False)]:
        changed = make_problem(Pool(features, quality), settings.model_copy(update={"published": published}))
        policy = Policy(changed, generator, lambda record: None, torch.zeros(len(quality)))
        policy.selected[:3000] = True
        if not published:
            policy._begin(torch.arange(len(quality)), 3000)
        policies[name] = policy
    size = round(settings.partial * len(quality))

    def ours() -> None:
        batch = torch.randperm(len(quality), generator=generator)[:size]
        policies["published, ours"]._published_step(batch, round(0.3 * size), 1.0)

    def improved() -> None:
        policies["improved"]._step(torch.randperm(len(quality), generator=generator)[:size], 1.0)

    logits = torch.zeros(len(quality))
    for name, step, count in [
        ("published, plain", lambda: plain_step(features, quality, logits, settings, 1.0, generator), 1),
        ("published, ours", ours, 20),
        ("improved", improved, 20),
    ]:
        step()
        walls, processors = [], []
        for _ in range(3):
            wall, processor = time.perf_counter(), time.process_time()
            for _ in range(count):
                step()
            walls.append(1e3 * (time.perf_counter() - wall) / count)
            processors.append(1e3 * (time.process_time() - processor) / count)
        rows.append((name, min(walls), min(processors)))
    print(f"\n{len(quality):,} documents, {features.shape[1]} dimensions, G {settings.n_rollout}, DiSF, ratio 0.3")
    print(f"{torch.get_num_threads()} threads; load of the machine {os.getloadavg()[0]:.1f}")
    print("| step | ms | processor ms | times faster | by processor time |\n|---|---|---|---|---|")
    for name, wall, processor in rows:
        faster = f"{rows[0][1] / wall:.0f} | {rows[0][2] / processor:.0f}"
        print(f"| {name} | {wall:.2f} | {processor:.2f} | {faster} |")


def bound(pools: dict[str, Embedded], lambdas: list[float], algorithms: list[str], steps: int) -> None:
    print(f"\n{steps} steps, ratio 0.1, objective as a share of the relaxation's upper bound")
    print("| pool | documents | metric | λ | bound | relaxation | published | s | improved | s |")
    print("|---|---|---|---|---|---|---|---|---|---|")
    for name, pool in pools.items():
        for algorithm in algorithms:
            for lamb in lambdas:
                same = {"algorithm": algorithm, "lamb": lamb}
                best = select(pool.features, pool.quality, **same)
                assert best.upper_bound is not None
                cells = [f"{best.upper_bound:.5f}", f"{best.objective / best.upper_bound:.3%}"]
                for published in (True, False):
                    learned = {"solver": "policy-gradient", "n_epochs": steps, "published": published, **same}
                    found = select(pool.features, pool.quality, **learned)
                    cells += [f"{found.objective / best.upper_bound:.3%}", f"{found.seconds:.0f}"]
                print(
                    f"| {name} | {len(pool.quality)} | {algorithm} | {lamb} | " + " | ".join(cells) + " |", flush=True
                )


def settings_table(pool: Embedded, algorithm: str, steps: int) -> None:
    best = select(pool.features, pool.quality, algorithm=algorithm).upper_bound
    assert best is not None
    print(f"\n{len(pool.quality)} documents, {algorithm}, λ 0.5, {steps} steps unless said; share of the bound")
    print("| setting | published | improved |\n|---|---|---|")
    changes: list[tuple[str, dict[str, object]]] = [
        ("default: lr 10 → 1, G 128, partial 0.1, init quality", {}),
        ("lr 30 → 3", {"max_lr": 30.0, "min_lr": 3.0}),
        ("lr 3 → 0.3", {"max_lr": 3.0, "min_lr": 0.3}),
        ("lr 10 → 0.1", {"min_lr": 0.1}),
        ("G 32", {"n_rollout": 32}),
        ("G 256", {"n_rollout": 256}),
        ("init same", {"init": "same"}),
        ("partial 0.05", {"partial": 0.05}),
        ("steps / 4", {"n_epochs": max(1, steps // 4)}),
        ("steps × 2", {"n_epochs": 2 * steps}),
        ("order gradient", {"gradient": "order"}),
    ]
    for name, change in changes:
        cells = []
        for published in (True, False):
            keywords = {"n_epochs": steps, "algorithm": algorithm, **change}
            found = select(pool.features, pool.quality, solver="policy-gradient", published=published, **keywords)
            cells.append(f"{found.objective / best:.3%}")
        print(f"| {name} | " + " | ".join(cells) + " |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True, help="parquet files with text and id")
    parser.add_argument("--cache", help=".npz that keeps the embedded text for the next run")
    parser.add_argument("--part", choices=["speed", "bound", "settings"], required=True)
    parser.add_argument("--documents", type=int, default=10_000)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--lambdas", type=float, nargs="+", default=[0.1, 0.3, 0.5, 0.7, 0.9])
    parser.add_argument("--algorithms", nargs="+", default=["Pair_simi", "DiSF"])
    parser.add_argument("--pools", nargs="+", default=["real", "synthetic"])
    arguments = parser.parse_args()
    text = real(arguments.data, arguments.cache).take(arguments.documents)
    if arguments.part == "speed":
        speed(text)
    elif arguments.part == "settings":
        settings_table(text, arguments.algorithms[0], arguments.steps)
    else:
        pools = {"real": text, "synthetic": synthetic(arguments.documents)}
        chosen = {name: pools[name] for name in arguments.pools}
        bound(chosen, arguments.lambdas, arguments.algorithms, arguments.steps)


if __name__ == "__main__":
    main()
