"""The maps of `sharded.moment_rounds`: what a worker finds in a group's features, and how one solves the undecided.

write_features           lays a group's features out as a flat file, which later rounds map into memory
measure_marginal_values  each document's marginal value at a point
read_undecided           the features of the undecided, and the moments of the documents that are surely selected
measure_selection        prices for the upper bound, and the exact sums of the selected documents
solve_undecided          the undecided as one problem, the rest of the corpus a constant
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from datamask.config import ResolvedSelect
from datamask.devices import pick_device
from datamask.maps import Handed, mapped, write_array
from datamask.selection.engine.ascent import Ascent
from datamask.selection.engine.quadratic import Quadratic, exact_price, prepare, priced
from datamask.selection.metrics import metric_class, metric_columns
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.metrics.moments import DiSF
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.objective import Term, moment_coefficients
from datamask.selection.problem.pool import Pool, row_hashes
from datamask.selection.sharded.grouped_corpus import Group, Round, hands_on, quality_of, weights_of
from datamask.selection.solvers import relaxation


@dataclass(frozen=True, eq=False)
class MomentState(Round):
    """The state of a round."""

    diversity: Sequence[Term] = ()
    moments: Sequence[torch.Tensor] = ()
    chosen: Sequence[torch.Tensor] = ()  # moments of the selection

    @property
    def device(self) -> torch.device:
        """This worker's."""
        return pick_device(self.settings.device)

    @property
    def metrics(self) -> list[MomentMetric]:
        """The diversity terms' metrics."""
        return [term.metric for term in self.diversity if isinstance(term.metric, MomentMetric)]

    @property
    def coefficients(self) -> list[float]:
        """c_m of each metric, as in `Quadratic`."""
        return moment_coefficients(self.diversity, self.size)


def can_sum_moments(settings: ResolvedSelect) -> bool:
    """Whether these settings can be solved by sums over shards: solver relaxation, moment metrics that read features
    alone, no repeats."""
    moments = all(issubclass(metric_class(name), MomentMetric) for name in settings.metrics)
    columns = any(metric_columns(name) for name in settings.metrics)
    return settings.solver == "relaxation" and moments and not columns and settings.repeat == 1


@hands_on("laid")
def write_features(state: MomentState, group: Group) -> dict[str, np.ndarray]:
    """Map: writes a group's features as a flat file, and hands on the documents' hashes (n,)."""
    features = group.shard.features()
    write_array(_features(state, group), features)
    return {"hashes": row_hashes(features, state.settings.seed)}


@hands_on("taken")
def read_undecided(state: MomentState, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's features of the documents `at`, and the moments of those that are selected beside them
    (`inside`)."""
    at, inside = group.given("at", "inside")
    features, rows = mapped(_features(state, group)), np.flatnonzero(inside) if inside.any() else np.zeros(1, np.int64)
    pool = Pool(features[rows], np.zeros(len(rows)), device=state.device)
    mass = torch.from_numpy((weights_of(state.settings, group.shard) * inside)[rows])
    sums = (metric.sum_over(pool, mass, torch.float32) for metric in state.metrics)
    return dict(features=features[at], **{f"base_{place}": each.cpu().numpy() for place, each in enumerate(sums)})


@hands_on("marginals")
def measure_marginal_values(state: MomentState, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's marginal values (n,)."""
    [multiplicity] = group.given("multiplicity")
    pool, weights = _pool(state, group), weights_of(state.settings, group.shard)
    # A price charges the self-term 2·multiplicity times. Adding or removing a whole document costs it once.
    self_terms = torch.zeros(len(pool), dtype=torch.float64)
    for c, metric in zip(state.coefficients, state.metrics, strict=True):
        if metric.vector:
            self_terms += c  # rows have unit length, so nothing needs to be read
            continue
        for part, rows in pool.blocks():
            self_terms[part] += c * metric.squares(metric.prepare(rows)).double().cpu()
    value = _prices_at(state, group, pool, state.moments) + (2 * multiplicity - 1) * weights * self_terms.numpy()
    return {"marginal": value}


def _features(state: MomentState, group: Group) -> str:
    return f"{state.folder}/features-{group.number}.npy"


def _pool(state: MomentState, group: Group) -> Pool:
    return Pool(mapped(_features(state, group)), quality_of(group.shard), device=state.device)


@hands_on("measured")
def measure_selection(state: MomentState, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's part of the upper bound and of the exact objective.

    Hands on the prices (n,) at the fractional optimum's moments plus their rounding error (`relaxed`) and at the
    selection's (`price`), its exact moments, and the sums for DiSF's published statistic. Prices that may be above the
    group's `thresholds` (n,), about the dual prices, are computed again in float64.
    """
    selected, thresholds = group.given("selected", "thresholds")
    pool, weights = _pool(state, group), weights_of(state.settings, group.shard)
    index, mass = torch.from_numpy(np.flatnonzero(selected)), torch.from_numpy(weights * selected)
    arrays = {}
    for number, metric in enumerate(state.metrics):
        arrays[f"moment_{number}"] = metric.sum_over(pool, mass).cpu().numpy()
        if isinstance(metric, DiSF):
            pair = metric.exact_sums(pool.rows(index, torch.float64))
            arrays |= {f"sums_{number}_{side}": part.cpu().numpy() for side, part in enumerate(pair)}
    linear = torch.from_numpy(state.linear(group.shard) / state.size)
    relaxed = on_device(state.device, state.moments)
    price, error = priced(pool, state.metrics, state.coefficients, linear, relaxed, errors=True)
    most = price + error
    near = (most > torch.from_numpy(thresholds)).nonzero()[:, 0]
    if not pool.is_small:
        at = near.to(pool.device)
        exact, error = priced(pool, state.metrics, state.coefficients, linear[near], relaxed, at, errors=True)
        most[near] = exact + error
    return dict(relaxed=most.numpy(), price=_prices_at(state, group, pool, state.chosen), **arrays)


def _prices_at(state: MomentState, group: Group, pool: Pool, moments: Sequence[torch.Tensor]) -> np.ndarray:
    """(n,) float64: prices per unit of the budget, at a selection of these moments."""
    linear, there = torch.from_numpy(state.linear(group.shard) / state.size), on_device(state.device, moments)
    return exact_price(pool, state.metrics, state.coefficients, linear, there).numpy()


# ---------------------------------------------------------------- the undecided


@dataclass(frozen=True, eq=False)
class UndecidedProblem:
    """The problem of the m undecided documents, with the rest of the corpus fixed."""

    taken: Sequence[Handed]  # their features
    linear: np.ndarray  # (m,) as in `Quadratic`
    limits: Limits  # the limits, less what the surely selected documents spend
    base: Sequence[torch.Tensor]  # moments of the documents that are surely selected
    offset: float  # the linear sum of these


class UndecidedSolution(NamedTuple):
    """The solution of the undecided."""

    chosen: np.ndarray  # (m,) bool
    probability: np.ndarray  # (m,) the fractional optimum
    relaxed: Ascent
    moments: list[torch.Tensor]  # of the mask, computed from prepared rows (bf16 for DiSF)
    level: float  # the budget's dual price where the bound is attained
    dual: np.ndarray  # (R,) the limits' dual prices there
    history: list[dict[str, float]]


def solve_undecided(state: MomentState, posed: UndecidedProblem) -> UndecidedSolution:
    """Solves the undecided on one worker, which holds their features in memory."""
    history: list[dict[str, float]] = []
    features = np.concatenate([taken.read("features")[0] for taken in posed.taken])
    pool = Pool(features, np.zeros(len(features)), device=state.device)
    problem = Quadratic(
        [prepare(metric, pool) for metric in state.metrics],
        state.coefficients,
        torch.from_numpy(posed.linear),
        Feasible(posed.limits),
        on_device(state.device, posed.base),
        posed.offset,
    )
    relaxed = relaxation.relax_mask(problem, problem.feasible.uniform_start(), relaxation.TOLERANCE, history.append)
    chosen, _, p = relaxation.to_mask(problem, relaxed, relaxation.TOLERANCE / 4, history.append)
    _, dual = problem.feasible.answer(problem.price(relaxed.best))
    relaxed = replace(relaxed, moments=on_device("cpu", relaxed.moments), best=on_device("cpu", relaxed.best))
    moments = on_device("cpu", problem.moments(chosen.double()))
    return UndecidedSolution(chosen.numpy(), p.numpy(), relaxed, moments, dual.level, dual.multipliers, history)


def on_device(device: torch.device | str, moments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The moments there."""
    return [moment.to(device) for moment in moments]
