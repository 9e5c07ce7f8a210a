"""How far a selection by saved prices is from the best, so that a refresh knows when it must solve again.

    drift = measure_drift(all_files, config)
    drift.budget, drift.objective, drift.upper_bound, drift.gap

Prices judge each new document alone, against what was selected before. Where the new documents are many, or unlike the
old, the budget and the balance among them are missed. The bound is the supergradient's: no selection of the budget's
size gains more than moving all of it to the documents whose price, taken at this selection, is highest.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from datamask.config import Config
from datamask.selection.api import pick_device
from datamask.selection.cover.counting import words_of
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.pool import Pool, Problem, make_problem
from datamask.selection.sharded.candidates import read_candidates
from datamask.selection.sharded.joint import _gather, prices_of
from datamask.stages import ShardFiles
from datamask.storage import read_table


@dataclass(frozen=True)
class Drift:
    """A selection against its problem."""

    budget: float  # spent, over what there is to spend
    objective: float
    upper_bound: float
    broken: tuple[str, ...] = ()  # limits that the selection misses, in words: prices know nothing of quotas

    @property
    def gap(self) -> float:
        return (self.upper_bound - self.objective) / max(abs(self.upper_bound), 1e-12)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "gap": self.gap}


def measure_drift(all_files: Sequence[ShardFiles], config: Config) -> Drift:
    """The selection in the shards' mask files against the problem that the settings pose on all their candidates.

    :raises InputError: as `make_problem`.
    """
    shards = [(files, read_candidates(files, config)) for files in sorted(all_files, key=lambda f: f.shard.name)]
    present = [(files, candidates) for files, candidates in shards if len(candidates)]
    selected = np.concatenate([_selected(files)[candidates.index] for files, candidates in present])
    candidates = [candidates for _, candidates in present]
    with tempfile.TemporaryDirectory(prefix="datamask-") as folder:
        pool = Pool(
            _gather(candidates, folder, lambda rows: None),
            np.concatenate([shard.quality for shard in candidates]),
            np.concatenate([shard.tokens for shard in candidates]),
            {name: np.concatenate([shard.groups[name] for shard in candidates]) for name in candidates[0].groups},
            device=pick_device(config.select.device),
            **words_of(candidates, config.select),
        )
        return drift_of(make_problem(pool, config.select), selected)


def drift_of(problem: Problem, selected: np.ndarray) -> Drift:
    """selected: (N,) bool, of any size. Its objective and bound mean little where its size is far from the budget."""
    weights = problem.weights.cpu().numpy()
    objective = problem.objective.evaluate(torch.from_numpy(selected)).objective
    chosen: Any = SimpleNamespace(selected=selected, repeat=None)
    price = prices_of(problem, chosen).score(
        problem.pool.features, problem.pool.quality, problem.pool.device, problem.pool.ngrams
    )
    gain = price.astype(np.float64)
    _, best = Feasible(problem.limits).respond(torch.from_numpy(gain))
    bound = objective + best - float((weights * gain)[selected].sum())
    limits = replace(problem.limits, size=float(weights[selected].sum()))  # the budget is judged by itself
    broken = tuple(limits.violations(selected)) if limits else ()
    return Drift(float(weights[selected].sum()) / problem.size, objective, max(bound, objective), broken)


def _selected(files: ShardFiles) -> np.ndarray:
    assert files.masks is not None
    found: np.ndarray = read_table(files.masks.path, ["selected"])["selected"].to_numpy()
    return found
