"""Corpus scope without the corpus in memory: shards add up moments, in four reads of the features.

    1. sample_shard        map: the shard's part of a sample that does not depend on the split into shards
       learn_first_prices  reduce: terms, calibration and first prices, from the merged sample
    2. find_marginals      map: each document's marginal value at these prices; the moments of the documents that are
                           surely selected, and the features of the undecided, whose marginal value is near the cut
       a solve             reduce: the undecided as one problem, the rest of the corpus a constant
    3. both again          at that solution's prices, which also know documents that the sample did not hold
    4. measure_shard       map: prices for the upper bound, and the exact sums of the selected documents

Quotas and a length bound add a few numbers: a document's marginal value is taken net of the limits' dual prices.

Each map is a function of one shard and a small state (d or d² numbers); `sharded.moment_rounds` runs them in rounds.
The calibration of diversity and DiSF's standardisation come from the sample; the bound covers the whole corpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from datamask.config import ResolvedSelect
from datamask.selection.engine.ascent import ascend_multilinear
from datamask.selection.engine.quadratic import Quadratic, exact_price, prepare, priced
from datamask.selection.metrics import metric_class, metric_columns
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.metrics.disf import DiSF
from datamask.selection.problem.calibration import SAMPLE, make_terms
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.objective import Term, moment_coefficients, scaled_quality, weigh_terms
from datamask.selection.problem.pool import Pool, row_hashes
from datamask.selection.problem.problem import Problem
from datamask.selection.solvers import relaxation

LEARNING_STEPS = 40  # steps of the ascent on the sample at most


class ShardCandidates(Protocol):
    """A shard's candidates as the maps read them."""

    @property
    def quality(self) -> np.ndarray:
        """(N,) or (N, Q)."""
        ...

    @property
    def tokens(self) -> np.ndarray:
        """(N,) positive."""
        ...

    @property
    def groups(self) -> Mapping[str, np.ndarray]:
        """Group column -> (N,) values."""
        ...

    def __len__(self) -> int: ...

    def features(self) -> np.ndarray:
        """(N, d), read anew at each call."""
        ...


class Documents(NamedTuple):
    """What the maps read of a shard's candidates."""

    features: np.ndarray  # (n, d)
    weights: np.ndarray  # (n,) float64: what each takes of the budget
    quality: np.ndarray  # (n, Q) float64


class Sample(NamedTuple):
    """The sample: the 2·`SAMPLE` documents whose features have the least hashes. Half is learned from, half tests."""

    hashes: np.ndarray  # (n,) uint64, ascending
    rows: np.ndarray  # (n,) row numbers in the corpus
    features: np.ndarray  # (n, d)
    weights: np.ndarray  # (n,) what each takes of the budget
    quality: np.ndarray  # (n, Q)


@dataclass(frozen=True, eq=False)
class MomentPlan:
    """The state sent to the maps: the budget, and the objective's terms with the metrics' statistics."""

    settings: ResolvedSelect
    unit: str
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


class Marginals(NamedTuple):
    """A shard's output of `find_marginals`."""

    marginal: np.ndarray  # (n,) float64 marginal values, net of the limits' charge
    base: list[torch.Tensor]  # moments of the documents that are surely selected
    features: np.ndarray  # (m, d) of the undecided


class ShardSums(NamedTuple):
    """A shard's output of `measure_shard`."""

    relaxed: np.ndarray  # (n,) prices at the fractional optimum plus their rounding error, for the upper bound
    price: np.ndarray  # (n,) prices at the selection
    moments: list[torch.Tensor]  # exact moments of the selection
    sums: list[tuple[torch.Tensor, torch.Tensor] | None]  # sums for DiSF's published statistic


def can_sum_moments(settings: ResolvedSelect) -> bool:
    """Whether these settings can be solved by sums over shards: solver relaxation, moment metrics that read features
    alone, no repeats."""
    moments = all(issubclass(metric_class(name), MomentMetric) for name in settings.metrics)
    columns = any(metric_columns(name) for name in settings.metrics)
    return settings.solver == "relaxation" and moments and not columns and settings.repeat == 1


def sample_shard(documents: Documents, seed: int, first: int = 0, below: int | None = None) -> Sample:
    """Map: the sample of one shard, whose rows begin at `first` in the corpus.

    :param below: only documents with hashes below this are kept.
    """
    features, weights, quality = documents
    hashes = row_hashes(features, seed)
    index = np.argsort(hashes, kind="stable")[: 2 * SAMPLE]
    if below is not None:
        index = index[hashes[index] < np.uint64(below)]
    return Sample(hashes[index], first + index, features[index], weights[index], quality[index])


def merge_samples(samples: Sequence[Sample]) -> Sample:
    """Reduce: the sample of all shards' documents together."""
    joined = Sample(*(np.concatenate(parts) for parts in zip(*samples, strict=True)))
    index = np.argsort(joined.hashes, kind="stable")[: 2 * SAMPLE]
    return Sample(*(column[index] for column in joined))


class FirstPrices(NamedTuple):
    """What the sample says."""

    plan: MomentPlan
    moments: list[torch.Tensor]  # at which to price first
    multiplicity: np.ndarray  # (n,) how often each document of the sample counts in these moments
    multipliers: np.ndarray  # (R,) the limits' dual prices
    scale: float  # the length bound's `Levels.scale` there


def learn_first_prices(
    sample: Sample,
    limits: Limits,
    total: float,
    spans: Sequence[tuple[float, float]],
    unit: str,
    settings: ResolvedSelect,
    device: Any,
) -> FirstPrices:
    """Solves the first `SAMPLE` documents of the sample, which stand for the corpus.

    limits: the corpus's, on the documents of the sample; total: the corpus's weight; spans: its quality's (zero, one).
    """
    count, size = len(sample.hashes), limits.size
    sample = Sample(*(column[:SAMPLE] for column in sample))
    share = float(sample.weights.sum() / total)
    pool = Pool(sample.features, sample.quality, device=device)
    problem = Problem(
        pool,
        settings,
        unit,
        size * share,
        torch.from_numpy(sample.weights).to(pool.device),
        limits.sample(np.arange(len(sample.rows)), share),
        copies=1 / share,
    )
    terms = make_terms(problem, spans)
    plan = MomentPlan(settings, unit, size, *weigh_terms(settings, pool.quality_weights, *terms), pool.device)
    small = Quadratic(
        [prepare(metric, pool) for metric in plan.metrics],
        [c / share**2 for c in plan.coefficients],
        torch.from_numpy(scaled_quality(plan.quality, sample.quality)) / size / share,
        Feasible(problem.limits),
    )
    found = ascend_multilinear(small, small.feasible.uniform(), relaxation.TOLERANCE, LEARNING_STEPS, copies=1 / share)
    multiplicity = np.zeros(count)
    multiplicity[: len(sample.rows)] = found.p.numpy() / share
    _, multipliers, scale = dual_prices_of(small, found.price)
    return FirstPrices(plan, [moment / share for moment in found.moments], multiplicity, multipliers * share, scale)


def dual_prices_of(part: Quadratic, price: torch.Tensor) -> tuple[float, np.ndarray, float]:
    """The budget's dual price, the limits' multipliers (R,) and the length bound's `Levels.scale`, at these prices."""
    _, dual = part.feasible.answer(price)
    answers = part.feasible.answers
    return dual.level, dual.multipliers, float(answers.scale) if answers is not None else 1.0


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


def find_marginals(
    plan: MomentPlan,
    documents: Documents,
    moments: Sequence[torch.Tensor],
    multiplicity: np.ndarray,
    charge: np.ndarray,
    cut_range: CutRange,
) -> Marginals:
    """Map: a shard's marginal values, its part of the fixed moments, and its undecided documents' features.

    multiplicity, charge: (n,).
    """
    features, weights, quality = documents
    pool = Pool(features, quality, device=plan.device)
    value = value_marginally(plan, pool, weights, moments, multiplicity) - charge
    taken = torch.from_numpy(weights * cut_range.inside(value))
    base = [metric.sum_over(pool, taken, torch.float32) for metric in plan.metrics]
    return Marginals(value, base, features[cut_range.undecided(value)])


def measure_shard(
    plan: MomentPlan,
    documents: Documents,
    selected: np.ndarray,
    relaxed: Sequence[torch.Tensor],
    chosen: Sequence[torch.Tensor],
    thresholds: np.ndarray,
) -> ShardSums:
    """Map: a shard's part of the upper bound and of the exact objective.

    relaxed, chosen: moments of the fractional optimum and of the selection, to price at. thresholds: (n,) about the
    dual prices at the first; prices that may be above them are computed again in float64.
    """
    pool = Pool(documents.features, documents.quality, device=plan.device)
    index = torch.from_numpy(np.flatnonzero(selected))
    moments: list[torch.Tensor] = []
    sums: list[tuple[torch.Tensor, torch.Tensor] | None] = []
    for metric in plan.metrics:
        mass = torch.from_numpy(documents.weights * selected)
        moments.append(metric.sum_over(pool, mass))
        sums.append(metric.exact_sums(pool.rows(index, torch.float64)) if isinstance(metric, DiSF) else None)
    linear = torch.from_numpy(scaled_quality(plan.quality, pool.quality) / plan.size)
    price, error = priced(pool, plan.metrics, plan.coefficients, linear, relaxed, errors=True)
    most = price + error
    near = (most > torch.from_numpy(thresholds)).nonzero()[:, 0]
    if not pool.is_small:
        at = near.to(pool.device)
        exact, error = priced(pool, plan.metrics, plan.coefficients, linear[near], relaxed, at, errors=True)
        most[near] = exact + error
    return ShardSums(most.numpy(), prices_at(plan, pool, chosen), moments, sums)


def make_cut_range(marginal: np.ndarray, weights: np.ndarray, stands: np.ndarray, size: float, room: int) -> CutRange:
    """The range in which about `room` documents of the corpus are undecided, half of them above the cut.

    If there are fewer on one side, the other side gets the rest. marginal: (n,) marginal values; weights: (n,);
    stands: (n,) how many documents of the corpus each represents; size: the budget.
    """
    order = np.argsort(-marginal, kind="stable")
    documents, spent = np.cumsum(stands[order]), np.cumsum((stands * weights)[order])
    taken = int(np.searchsorted(spent, size * (1 + 1e-12), side="right"))
    over = float(documents[taken - 1]) if taken else 0.0
    under = float(documents[-1]) - over
    below = min(under, room - min(over, room // 2))
    above = min(over, room - below)
    first = int(np.searchsorted(documents, over - above + 1e-6, side="right"))
    last = int(np.searchsorted(documents, over + below - 1e-6, side="left"))
    high = np.inf if above >= over else float(marginal[order[min(first, len(order) - 1)]])
    return CutRange(-np.inf if below >= under else float(marginal[order[last]]), high)


def documents_represented(sampled: int, count: int, learned: bool) -> np.ndarray:
    """(sampled,) how many of the corpus's `count` documents each document of a sample represents.

    If the prices were learned on the first `SAMPLE` of them, these represent only themselves, and the others the rest.
    """
    alone = min(SAMPLE, sampled) if learned else 0
    stands = np.ones(sampled)
    stands[alone:] = (count - alone) / max(sampled - alone, 1)
    return stands


class Outcome(NamedTuple):
    """What the rounds end with. bound and relaxed are values of the objective, constant included."""

    documents: int
    selected: int
    quality: np.ndarray  # (Q,) Σ of the selected documents' weights times their quality
    moments: list[torch.Tensor]  # over the selection, one for each metric
    sums: list[Any]  # the same, for DiSF's published statistic
    bound: float
    relaxed: float
    history: list[dict[str, float]]


def facts_of_rounds(plan: MomentPlan, outcome: Outcome) -> dict[str, Any]:
    """The selection's facts, as `Selection.facts` has them without seconds."""
    documents, selected, quality, moments, sums, bound, relaxed, history = outcome
    raw = {term.name: float(quality[term.column]) / plan.size for term in plan.quality}
    exact = {}
    for term, metric, moment, pair in zip(plan.diversity, plan.metrics, moments, sums, strict=True):
        raw[term.name] = -metric.unit * float(moment.square().sum()) / plan.size**2
        if pair is not None:
            exact[f"{term.name}_exact"] = DiSF.of_sums(selected, *pair)
    terms = (*plan.quality, *plan.diversity)
    objective = plan.constant + sum(term.scale * raw[term.name] for term in terms)
    return {
        "solver": plan.settings.solver,
        "documents": documents,
        "selected": selected,
        "objective": objective,
        "terms": {term.name: term.calibrated(raw[term.name]) for term in terms},
        "statistics": {**raw, **exact},
        "scales": {term.name: {"zero": term.zero, "scale": term.scale} for term in terms},
        "upper_bound": bound,
        "gap": max(0.0, bound - objective) / max(abs(bound), 1e-12),
        "relaxed": relaxed,
        "integrality": max(0.0, min(relaxed, bound) - objective) / max(abs(bound), 1e-12),
        "history": history,
    }


def prices_at(plan: MomentPlan, pool: Pool, moments: Sequence[torch.Tensor]) -> np.ndarray:
    """(n,) float64: prices per unit of the budget, at a selection of these moments."""
    linear = torch.from_numpy(scaled_quality(plan.quality, pool.quality) / plan.size)
    return exact_price(pool, plan.metrics, plan.coefficients, linear, moments).numpy()
