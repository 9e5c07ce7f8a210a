"""The driver of groups beside the one of a pool: one group, 3 and 17 groups of the same documents.

    python benchmarks/fuzz_groups.py --first 1 --instances 200

An instance is made from its seed alone: 60 to 400 documents, a metric, a budget in documents or tokens, quotas, a
length bound, and room for a part of the documents. Terms are not calibrated, so that all objectives are on one scale.
Counted are: bounds below what another run reached, objectives that differ from their definition, masks outside the
limits, crashes, runs refused because the room was too small, and objectives more than TOLERANCE of the gap between
random and best below the pool's.
"""

from __future__ import annotations

import argparse
import tempfile
import time
import traceback
from collections import Counter
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from datamask.config import Config, resolve
from datamask.errors import InputError
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.cover.cover_shards import CoverRounds, can_cover
from datamask.selection.groups import UndecidedTooFew
from datamask.selection.moment_rounds import MomentRounds
from datamask.selection.problem.pool import Pool

GROUPS = (1, 3, 17)
BOUND, VALUE, TOLERANCE = 1e-9, 1e-6, 0.05


@dataclass
class Rows:
    rows: np.ndarray
    counts: csr_array
    quality: np.ndarray
    tokens: np.ndarray
    groups: dict[str, np.ndarray]

    def __len__(self) -> int:
        return len(self.rows)

    def features(self) -> np.ndarray:
        return self.rows

    def ngrams(self) -> csr_array:
        return self.counts

    def take(self, at: np.ndarray) -> Rows:
        groups = {name: values[at] for name, values in self.groups.items()}
        return Rows(self.rows[at], self.counts[at], self.quality[at], self.tokens[at], groups)


def make(seed: int) -> tuple[Rows, Any, int, np.random.Generator]:
    """The documents, the settings, the room in documents, and the generator."""
    rng = np.random.default_rng(seed)
    count, width, topics = int(rng.integers(60, 400)), int(rng.choice([4, 12, 24])), int(rng.integers(1, 9))
    topic = rng.integers(0, topics, count)
    centres = rng.normal(size=(topics, width))
    rows = (centres[topic] + rng.normal(size=(count, width))).astype(np.float32)
    likely = rng.dirichlet(np.full(50, 0.3), topics)
    counts = np.stack([rng.multinomial(int(rng.integers(5, 60)), likely[each]) for each in topic])
    tokens = np.maximum(1, np.round(10 ** rng.uniform(1, 2.5, count)))
    whole = Rows(rows, csr_array(counts.astype(np.float32)), rng.random(count) + 0.1 * topic, tokens,
                 {"domain": rng.choice(list("abc"), count)})  # fmt: skip
    asked: dict[str, Any] = {"lamb": float(rng.random()), "calibrate": False, "seed": int(rng.integers(3))}
    asked["algorithm"] = ["coverage", "Pair_simi", "DiSF"][int(rng.integers(3))]
    if asked["algorithm"] == "coverage":
        parts: list[dict[str, float]] = [{"ngrams": 1}, {"embedding": 1}, {"ngrams": 0.7, "embedding": 0.3}]
        curve = str(rng.choice(["likelihood", "saturating"]))
        asked["coverage"] = {"atoms": parts[int(rng.integers(3))], "anchors": 20, "curve": curve}
    if rng.random() < 0.5:
        asked["budget_documents"] = int(rng.integers(5, count // 2))
    else:
        asked["budget_tokens"] = int(rng.uniform(0.05, 0.5) * tokens.sum())
    if rng.random() < 0.4:
        asked["quotas"] = [{"column": "domain", "maximum": {"a": float(rng.uniform(0.3, 0.6))}}]
    if rng.random() < 0.3:
        asked["length_tolerance"] = float(rng.uniform(0.05, 0.3))
    return whole, resolve(None, asked, tokens=True), int(count * rng.uniform(0.4, 1.2)), rng


def by_groups(whole: Rows, settings: Any, room: int, order: np.ndarray, groups: int) -> tuple[np.ndarray, Any]:
    """(N,) bool mask and the facts."""
    parts = np.array_split(order, groups)
    shards, config = [whole.take(part) for part in parts], Config(select=settings)
    with tempfile.TemporaryDirectory() as folder:
        if can_cover(settings):
            words = (whole.counts.nnz if settings.metrics.keys() != {"coverage-embedding"} else 0) / len(whole)
            found = CoverRounds(shards, config, folder, room=int(room * (words + 16))).run()
        else:
            found = MomentRounds(shards, config, folder, room=room * 2 * whole.rows.shape[1]).run()
        mask = np.zeros(len(whole), bool)
        mask[order] = np.concatenate([each.read("selected")[0] for each in found.decided])
    return mask, found.facts


def judge(seed: int) -> list[str]:
    """What is wrong, in words; [] if nothing."""
    whole, settings, room, rng = make(seed)
    pool = Pool(whole.rows, whole.quality, whole.tokens, whole.groups, ngrams=whole.counts)
    problem = make_problem(pool, settings)
    try:
        best = solve_problem(problem)
    except InputError:
        return ["infeasible"]
    assert best.upper_bound is not None
    draws = [rng.permutation(len(whole)) for _ in range(8)]
    masks = [np.cumsum(problem.limits.weights[draw]) <= problem.size for draw in draws]
    random = np.mean([problem.objective.evaluate(torch.from_numpy(m[np.argsort(d)])).objective
                      for m, d in zip(masks, draws, strict=True)])  # fmt: skip
    problems, reached, bounds = [], [best.objective], [best.upper_bound]
    for groups in GROUPS:
        try:
            mask, facts = by_groups(whole, settings, room, rng.permutation(len(whole)), groups)
        except UndecidedTooFew:
            problems.append("room")
            continue
        except Exception:
            problems.append(f"crash: {groups} groups, " + traceback.format_exc(limit=-2).replace("\n", " | ")[-300:])
            continue
        value = problem.objective.evaluate(torch.from_numpy(mask)).objective
        if broken := problem.limits.violations(mask):
            problems.append(f"limits: {groups} groups, {broken[0]}")
        if abs(value - facts["objective"]) > VALUE * (1 + abs(value)):
            problems.append(f"value: {groups} groups, {facts['objective']:.9g} is {value:.9g} by definition")
        if best.objective - value > TOLERANCE * max(best.upper_bound - random, 1e-12):
            problems.append(
                f"worse: {groups} groups, {value:.6f} where {best.objective:.6f} is known, {random:.6f} random"
            )
        reached.append(value)
        bounds.append(facts["upper_bound"])
    if min(bounds) < max(reached) - BOUND * (1 + abs(max(reached))):
        problems.append(f"bound: {bounds} below {max(reached):.12g}")
    return problems


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--first", type=int, default=1)
    parser.add_argument("--instances", type=int, default=200)
    arguments = parser.parse_args()
    counts: Counter[str] = Counter()
    started = time.process_time()
    for seed in range(arguments.first, arguments.first + arguments.instances):
        for problem in judge(seed):
            counts[problem.partition(":")[0]] += 1
            if ":" in problem:
                print(f"{seed} {make(seed)[1].metrics}: {problem}", flush=True)
    names = ["bound", "value", "limits", "crash", "worse", "room", "infeasible"]
    print(f"{time.process_time() - started:.0f} s of processor time")
    print("| instances | " + " | ".join(names) + " |")
    print("|---" * (len(names) + 1) + "|")
    print(f"| {arguments.instances:,} | " + " | ".join(str(counts[name]) for name in names) + " |")


if __name__ == "__main__":
    main()
