"""The maps of `sharded.moment_rounds`: what a worker finds in a group's features, and how one solves the undecided.

sample_documents         the group's part of a sample that does not depend on the split into groups
measure_marginal_values  each document's marginal value at a point; the moments of the documents that are surely
                         selected, and the features of the undecided, whose marginal value is near the cut
measure_selection        prices for the upper bound, and the exact sums of the selected documents
solve_undecided          the undecided as one problem, the rest of the corpus a constant
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import torch

from datamask.config import Config, ResolvedSelect
from datamask.devices import pick_device
from datamask.maps import Handed, hand_on, handed
from datamask.selection.engine.ascent import Ascent
from datamask.selection.engine.quadratic import Quadratic, exact_price, prepare, priced
from datamask.selection.metrics import metric_class, metric_columns
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.metrics.moments import DiSF
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.objective import Term, moment_coefficients, scaled_quality
from datamask.selection.problem.pool import Pool, row_hashes
from datamask.selection.problem.problem import SAMPLE
from datamask.selection.sharded.grouped_corpus import Documents, Group, LimitDuals
from datamask.selection.solvers import relaxation


class Sample(NamedTuple):
    """The sample: the 2·`SAMPLE` documents whose features have the least hashes. Half is learned from, half tests."""

    hashes: np.ndarray  # (n,) uint64, ascending
    rows: np.ndarray  # (n,) row numbers in the corpus
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


class CutRange(NamedTuple):
    """Documents of marginal value below `low` are out and above `high` are selected; the others are undecided."""

    low: float
    high: float

    def inside(self, marginal: np.ndarray) -> np.ndarray:
        """(n,) bool: which documents of these marginal values (n,) are surely selected."""
        return marginal > self.high

    def undecided(self, marginal: np.ndarray) -> np.ndarray:
        """(n,) bool: which documents of these marginal values (n,) are undecided."""
        return (marginal >= self.low) & (marginal <= self.high)


EVERYTHING = CutRange(-np.inf, np.inf)


@dataclass(frozen=True, eq=False)
class MomentState:
    """The state of a round, which every worker gets with its item."""

    config: Config
    folder: str | None
    round: str = ""
    below: int | None = None  # a bound on hashes: see `sample_shard`
    plan: MomentPlan | None = None
    moments: Sequence[torch.Tensor] = ()
    cut_range: CutRange = EVERYTHING
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


def sample_documents(state: MomentState, group: Group) -> Handed:
    """Map: the group's part of the sample; the arrays of a `Sample`."""
    name = f"sketch-{state.round}-{group.number}"
    if found := handed(state.folder, name):
        return found
    settings = state.config.selection
    made = sample_shard(group.documents(settings), settings.seed, group.first, state.below)
    return hand_on(state.folder, name, **made._asdict())


def sample_shard(documents: Documents, seed: int, first: int = 0, below: int | None = None) -> Sample:
    """The sample of one shard, whose rows begin at `first` in the corpus.

    :param below: only documents with hashes below this are kept.
    """
    features, weights, quality = documents
    hashes = row_hashes(features, seed)
    index = np.argsort(hashes, kind="stable")[: 2 * SAMPLE]
    if below is not None:
        index = index[hashes[index] < np.uint64(below)]
    return Sample(hashes[index], first + index, features[index], weights[index], quality[index])


def merge_samples(samples: Sequence[Sample]) -> Sample:
    """The sample of all shards' documents together."""
    joined = Sample(*(np.concatenate(parts) for parts in zip(*samples, strict=True)))
    index = np.argsort(joined.hashes, kind="stable")[: 2 * SAMPLE]
    return Sample(*(column[index] for column in joined))


def measure_marginal_values(state: MomentState, group: Group) -> tuple[Handed, int]:
    """Map: a group's marginal values, net of the limits' charge, the moments of the documents that are surely selected
    (base), and the features and number of its undecided documents."""
    name = f"marginals-{state.round}-{group.number}"
    if found := handed(state.folder, name):
        return found, int(found.read("undecided")[0])
    multiplicity, charge = group.given("multiplicity", "charge")
    plan = state.here
    features, weights, quality = group.documents(state.config.selection)
    pool = Pool(features, quality, device=plan.device)
    value = value_marginally(plan, pool, weights, on_device(plan.device, state.moments), multiplicity) - charge
    taken = torch.from_numpy(weights * state.cut_range.inside(value))
    base = [metric.sum_over(pool, taken, torch.float32).cpu().numpy() for metric in plan.metrics]
    features = features[state.cut_range.undecided(value)]
    arrays = {f"base_{number}": moment for number, moment in enumerate(base)} | {"undecided": np.array(len(features))}
    return hand_on(state.folder, name, marginal=value, features=features, **arrays), len(features)


def measure_selection(state: MomentState, group: Group) -> Handed:
    """Map: a group's part of the upper bound and of the exact objective.

    Hands on the prices (n,) at the fractional optimum's moments plus their rounding error (`relaxed`) and at the
    selection's (`price`), its exact moments, and the sums for DiSF's published statistic. Prices that may be above the
    group's `thresholds` (n,), about the dual prices, are computed again in float64.
    """
    name = f"measure-{state.round}-{group.number}"
    if found := handed(state.folder, name):
        return found
    selected, thresholds = group.given("selected", "thresholds")
    plan = state.here
    relaxed, chosen = on_device(plan.device, state.moments), on_device(plan.device, state.chosen)
    features, weights, quality = group.documents(state.config.selection)
    pool = Pool(features, quality, device=plan.device)
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
    return hand_on(state.folder, name, relaxed=most.numpy(), price=prices_at(plan, pool, chosen), **arrays)


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

    marginals: Sequence[Handed]  # where their features are
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
    features = np.concatenate([marginals.read("features")[0] for marginals in posed.marginals])
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
