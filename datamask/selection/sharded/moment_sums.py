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
from datamask.selection.problem.objective import Term, moment_coefficients, scaled_quality
from datamask.selection.problem.pool import Pool, row_hashes
from datamask.selection.sharded.grouped_corpus import Group, LimitDuals, Round, hands_on, quality_of, weights_of
from datamask.selection.solvers import relaxation


class Sample(NamedTuple):
    """The `SAMPLE` documents whose features have the least hashes, in the order of these."""

    features: np.ndarray  # (n, d)
    weights: np.ndarray  # (n,) what each takes of the budget
    quality: np.ndarray  # (n, Q)


@dataclass(frozen=True, eq=False)
class MomentPlan:
    """The budget, and the objective's terms with the metrics' statistics."""

    size: float
    quality: tuple[Term, ...]
    diversity: tuple[Term, ...]
    device: torch.device

    @property
    def metrics(self) -> list[MomentMetric]:
        """The diversity terms' metrics."""
        return [term.metric for term in self.diversity if isinstance(term.metric, MomentMetric)]

    @property
    def coefficients(self) -> list[float]:
        """c_m of each metric, as in `Quadratic`."""
        return moment_coefficients(self.diversity, self.size)

    @property
    def constant(self) -> float:
        """−Σ scale·zero over all terms: the objective is the quadratic's value plus this."""
        return -sum(term.scale * term.zero for term in (*self.quality, *self.diversity))


@dataclass(frozen=True, eq=False)
class MomentState(Round):
    """The state of a round."""

    plan: MomentPlan | None = None
    moments: Sequence[torch.Tensor] = ()
    chosen: Sequence[torch.Tensor] = ()  # moments of the selection

    @property
    def here(self) -> MomentPlan:
        """The plan, on this worker's device."""
        assert self.plan is not None
        return replace(self.plan, device=pick_device(self.config.selection.device))


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
    features, base = mapped(_features(state, group)), {}
    if state.plan is not None:
        plan, rows = state.here, np.flatnonzero(inside) if inside.any() else np.zeros(1, np.int64)
        pool = Pool(features[rows], np.zeros(len(rows)), device=plan.device)
        mass = torch.from_numpy((weights_of(state.settings, group.shard) * inside)[rows])
        sums = (metric.sum_over(pool, mass, torch.float32) for metric in plan.metrics)
        base = {f"base_{number}": moment.cpu().numpy() for number, moment in enumerate(sums)}
    return dict(features=features[at], **base)


@hands_on("marginals")
def measure_marginal_values(state: MomentState, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's marginal values (n,)."""
    [multiplicity], plan = group.given("multiplicity"), state.here
    pool, weights = _pool(state, group), weights_of(state.settings, group.shard)
    value = value_marginally(plan, pool, weights, on_device(plan.device, state.moments), multiplicity)
    return {"marginal": value}


def _features(state: MomentState, group: Group) -> str:
    return f"{state.folder}/features-{group.number}.npy"


def _pool(state: MomentState, group: Group) -> Pool:
    return Pool(mapped(_features(state, group)), quality_of(group.shard), device=state.here.device)


@hands_on("measured")
def measure_selection(state: MomentState, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's part of the upper bound and of the exact objective.

    Hands on the prices (n,) at the fractional optimum's moments plus their rounding error (`relaxed`) and at the
    selection's (`price`), its exact moments, and the sums for DiSF's published statistic. Prices that may be above the
    group's `thresholds` (n,), about the dual prices, are computed again in float64.
    """
    selected, thresholds = group.given("selected", "thresholds")
    plan = state.here
    relaxed, chosen = on_device(plan.device, state.moments), on_device(plan.device, state.chosen)
    pool, weights = _pool(state, group), weights_of(state.settings, group.shard)
    index, mass = torch.from_numpy(np.flatnonzero(selected)), torch.from_numpy(weights * selected)
    arrays = {}
    for number, metric in enumerate(plan.metrics):
        arrays[f"moment_{number}"] = metric.sum_over(pool, mass).cpu().numpy()
        if isinstance(metric, DiSF):
            pair = metric.exact_sums(pool.rows(index, torch.float64))
            arrays |= {f"sums_{number}_{side}": part.cpu().numpy() for side, part in enumerate(pair)}
    linear = torch.from_numpy(scaled_quality(plan.quality, pool.quality) / plan.size)
    price, error = priced(pool, plan.metrics, plan.coefficients, linear, relaxed, errors=True)
    most = price + error
    near = (most > torch.from_numpy(thresholds)).nonzero()[:, 0]
    if not pool.is_small:
        at = near.to(pool.device)
        exact, error = priced(pool, plan.metrics, plan.coefficients, linear[near], relaxed, at, errors=True)
        most[near] = exact + error
    return dict(relaxed=most.numpy(), price=prices_at(plan, pool, chosen), **arrays)


def value_marginally(
    plan: MomentPlan, pool: Pool, weights: np.ndarray, moments: Sequence[torch.Tensor], multiplicity: np.ndarray
) -> np.ndarray:
    """(n,) float64: each document's marginal value to a selection of these moments, per unit of the budget.

    multiplicity: (n,) how often each document counts in the moments. Its price charges the self-term 2·multiplicity
    times. Adding or removing a whole document costs it once. The difference is corrected here.
    """
    self_terms = torch.zeros(len(pool), dtype=torch.float64)
    for c, metric in zip(plan.coefficients, plan.metrics, strict=True):
        if metric.vector:
            self_terms += c  # rows have unit length, so nothing needs to be read
            continue
        for part, rows in pool.blocks():
            self_terms[part] += c * metric.squares(metric.prepare(rows)).double().cpu()
    return prices_at(plan, pool, moments) + (2 * multiplicity - 1) * weights * self_terms.numpy()


def prices_at(plan: MomentPlan, pool: Pool, moments: Sequence[torch.Tensor]) -> np.ndarray:
    """(n,) float64: prices per unit of the budget, at a selection of these moments."""
    linear = torch.from_numpy(scaled_quality(plan.quality, pool.quality) / plan.size)
    return exact_price(pool, plan.metrics, plan.coefficients, linear, moments).numpy()


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
    dual: LimitDuals
    history: list[dict[str, float]]


def solve_undecided(state: MomentState, posed: UndecidedProblem) -> UndecidedSolution:
    """Solves the undecided on one worker, which holds their features in memory."""
    plan, history = state.here, list[dict[str, float]]()
    features = np.concatenate([taken.read("features")[0] for taken in posed.taken])
    pool = Pool(features, np.zeros(len(features)), device=plan.device)
    problem = Quadratic(
        [prepare(metric, pool) for metric in plan.metrics],
        plan.coefficients,
        torch.from_numpy(posed.linear),
        Feasible(posed.limits),
        on_device(plan.device, posed.base),
        posed.offset,
    )

    def record(step: dict[str, float]) -> None:
        history.append({name: value + plan.constant for name, value in step.items()})

    relaxed = relaxation.relax_mask(problem, problem.feasible.uniform_start(), relaxation.TOLERANCE, record)
    chosen, _, p = relaxation.to_mask(problem, relaxed, relaxation.TOLERANCE / 4, record)
    at = dual_prices_of(problem, problem.price(relaxed.best))
    relaxed = replace(relaxed, moments=on_device("cpu", relaxed.moments), best=on_device("cpu", relaxed.best))
    return UndecidedSolution(
        chosen.numpy(), p.numpy(), relaxed, on_device("cpu", problem.moments(chosen.double())), *at, history=history
    )


def dual_prices_of(part: Quadratic, price: torch.Tensor) -> tuple[float, LimitDuals]:
    """The budget's dual price and the limits', at these prices."""
    _, dual = part.feasible.answer(price)
    answers = part.feasible.answers
    return dual.level, LimitDuals(dual.multipliers, float(answers.scale) if answers is not None else 1.0)


def on_device(device: torch.device | str, moments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The moments there."""
    return [moment.to(device) for moment in moments]
