"""How far a selection by saved prices is from the best one. By this a refresh decides when to solve again.

    found = measure_files_gap(all_files, paths, config)
    found.budget, found.objective, found.upper_bound, found.gap

Prices judge each new document by itself, against what was selected before. Where new documents are many or unlike the
old, the selection is redundant among them. The upper bound comes from a solve by the relaxation. Other solvers have no
bound, so the tangent at this selection gives one: f is concave, so no selection within the budget exceeds the maximum
of f's tangent over the feasible set. That bound is loose, because a mask is far from the fractional optimum.
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
from datamask.selection.arrays import solve_problem
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.problem import Problem, make_problem
from datamask.selection.sharded.candidates import read_candidates
from datamask.selection.sharded.corpus_selection import gather_pool, prices_of
from datamask.stages import ShardFiles
from datamask.storage import read_table


@dataclass(frozen=True)
class SelectionGap:
    """A selection compared with its problem."""

    budget: float  # the selection's weight as a share of the budget
    objective: float
    upper_bound: float
    broken: tuple[str, ...] = ()  # the limits that the selection breaks, in words (prices ignore quotas)

    @property
    def gap(self) -> float:
        """(upper_bound − objective) / |upper_bound|."""
        return (self.upper_bound - self.objective) / max(abs(self.upper_bound), 1e-12)

    def as_dict(self) -> dict[str, Any]:
        """All fields and the gap, ready for JSON."""
        return {**asdict(self), "gap": self.gap}


def measure_files_gap(all_files: Sequence[ShardFiles], masks: Sequence[str], config: Config) -> SelectionGap:
    """The gap of a selection, for the problem that the settings pose on all candidates. masks: each shard's, a path.

    :raises InputError: as `make_problem`.
    """
    shards = [(path, read_candidates(files, config)) for files, path in zip(all_files, masks, strict=True)]
    present = [(path, candidates) for path, candidates in shards if len(candidates)]
    selected = np.concatenate(
        [read_table(path, ["selected"])["selected"].to_numpy()[candidates.index] for path, candidates in present]
    )
    candidates = [candidates for _, candidates in present]
    with tempfile.TemporaryDirectory(prefix="datamask-") as folder:
        pool = gather_pool(candidates, config.selection, folder, lambda rows: None)
        return measure_gap(make_problem(pool, config.selection), selected)


def measure_gap(problem: Problem, selected: np.ndarray) -> SelectionGap:
    """The gap of a selection. selected: (N,) bool; far from the budget's size, objective and bound mean little."""
    weights = problem.weights.cpu().numpy()
    objective = problem.objective.evaluate(torch.from_numpy(selected)).objective
    chosen: Any = SimpleNamespace(selected=selected, repeat=None)
    price = prices_of(problem, chosen).score(
        problem.pool.features, problem.pool.quality, problem.pool.device, problem.pool.ngrams, weights
    )
    gain = price.astype(np.float64)
    _, best = Feasible(problem.limits).respond(torch.from_numpy(gain))
    bound = objective + best - float((weights * gain)[selected].sum())
    if problem.settings.solver == "relaxation":
        bound = min(bound, solve_problem(problem).upper_bound or bound)
    limits = replace(problem.limits, size=float(weights[selected].sum()))  # the budget is reported separately
    broken = tuple(limits.violations(selected)) if limits else ()
    return SelectionGap(float(weights[selected].sum()) / problem.size, objective, max(bound, objective), broken)
