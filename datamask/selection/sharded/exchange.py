"""Corpus scope without the corpus in memory: shards exchange sums, in four reads of the features.

    1. sketch(shard)   rows of a sample that does not depend on how documents are split into shards; `merge` them
       learn           terms, calibration and first prices, from the sample
    2. sift(shard)     what each document is worth by these prices: the moments of those surely in, and the features of
                       the undecided, those of a worth near the cut
       solve           the undecided as one problem, the rest of the corpus a constant
    3. sift, solve     the same by the prices of that solution: documents of which the sample knew nothing come in
    4. settle(shard)   prices for the certificate, and the exact sums of what is selected

Quotas and a length bound are a few more numbers: what the limits charge for a document is taken off its worth.

Each is a function of one shard and small state (d or d² numbers); `sharded.passes` runs them as rounds of
maps. The calibration of diversity and DiSF's standardisation are the sample's; the bound covers the whole corpus.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from datamask.config import Select
from datamask.selection.engine.ascent import ascend_multilinear
from datamask.selection.engine.levels import Levels
from datamask.selection.engine.quadratic import Quadratic, exact_price, prepare, priced
from datamask.selection.metrics import metric_class
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.metrics.disf import DiSF
from datamask.selection.problem.calibration import SAMPLE, row_hashes
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.objective import Term, make_terms, weigh, worth
from datamask.selection.problem.pool import Pool, Problem
from datamask.selection.solvers import relaxation

LEARNING_STEPS = 40


class ExchangeShard(Protocol):
    @property
    def quality(self) -> np.ndarray: ...  # (N,) or (N, Q)

    @property
    def tokens(self) -> np.ndarray: ...  # (N,)

    @property
    def groups(self) -> Mapping[str, np.ndarray]: ...

    def __len__(self) -> int: ...

    def features(self) -> np.ndarray: ...


class Sketch(NamedTuple):
    """The documents of a sample, those whose features have the least hash: `SAMPLE` to learn from, as many to test."""

    hashes: np.ndarray  # (n,) uint64, ascending
    rows: np.ndarray  # (n,) where they are in the corpus
    features: np.ndarray  # (n, d)
    weights: np.ndarray  # (n,) of the budget
    quality: np.ndarray  # (n, Q)


@dataclass(frozen=True, eq=False)
class ExchangePlan:
    """What the shards are told: the objective's terms, and the metrics with their statistics."""

    settings: Select
    unit: str
    size: float
    quality: tuple[Term, ...]
    diversity: tuple[Term, ...]
    device: torch.device

    @property
    def metrics(self) -> list[MomentMetric]:
        return [term.metric for term in self.diversity if isinstance(term.metric, MomentMetric)]

    @property
    def coefficients(self) -> list[float]:
        pairs = zip(self.diversity, self.metrics, strict=True)
        return [term.scale * metric.unit / self.size**2 for term, metric in pairs]

    @property
    def constant(self) -> float:
        return -sum(term.scale * term.zero for term in (*self.quality, *self.diversity))


class Band(NamedTuple):
    """Out are documents worth less than `low`, in those worth more than `high`, undecided the rest."""

    low: float
    high: float

    def inside(self, worth: np.ndarray) -> np.ndarray:
        return worth > self.high

    def undecided(self, worth: np.ndarray) -> np.ndarray:
        return (worth >= self.low) & (worth <= self.high)


class Sifted(NamedTuple):
    worth: np.ndarray  # (n,) float64
    base: list[torch.Tensor]  # moments of the documents that are in
    features: np.ndarray  # (m, d) of the undecided


class Settled(NamedTuple):
    relaxed: np.ndarray  # (n,) prices that the bound is taken at, rounding included
    price: np.ndarray  # (n,) prices at the selection
    moments: list[torch.Tensor]  # exact, of the selection
    sums: list[tuple[torch.Tensor, torch.Tensor] | None]  # of DiSF's published statistic


def can_exchange(settings: Select) -> bool:
    """Whether these settings can be solved by sums: the relaxation of moment metrics, under any budget and limits."""
    moments = all(issubclass(metric_class(name), MomentMetric) for name in settings.metrics)
    return settings.solver == "relaxation" and moments and settings.repeat == 1


def sketch(
    features: np.ndarray,
    weights: np.ndarray,
    quality: np.ndarray,
    seed: int,
    first: int = 0,
    below: int | None = None,
) -> Sketch:
    """Of one shard, whose rows begin at `first`. features: (n, d); weights: (n,); quality: (n, Q).

    :param below: hashes that are certainly not among the corpus's least are left out.
    """
    hashes = row_hashes(features, seed)
    index = np.argsort(hashes, kind="stable")[: 2 * SAMPLE]
    if below is not None:
        index = index[hashes[index] < np.uint64(below)]
    return Sketch(hashes[index], first + index, features[index], weights[index], quality[index])


def merge(sketches: Sequence[Sketch]) -> Sketch:
    """The sketch of all their documents together."""
    joined = Sketch(*(np.concatenate(parts) for parts in zip(*sketches, strict=True)))
    index = np.argsort(joined.hashes, kind="stable")[: 2 * SAMPLE]
    return Sketch(*(column[index] for column in joined))


def learn(
    sample: Sketch, limits: Limits, quality: np.ndarray, unit: str, settings: Select, device: Any
) -> tuple[ExchangePlan, list[torch.Tensor], np.ndarray, np.ndarray]:
    """The plan, the moments to price at first, how often each document is in these (N,), and what the limits charge
    for it there (N,). limits, quality (N, Q): the whole corpus's.
    """
    weights, size = limits.weights, limits.size
    sample = Sketch(*(column[:SAMPLE] for column in sample))
    share = float(sample.weights.sum() / weights.sum())
    pool = Pool(sample.features, sample.quality, device=device)
    problem = Problem(
        pool,
        settings,
        unit,
        size * share,
        torch.from_numpy(sample.weights).to(pool.device),
        limits.sample(sample.rows, share),
        copies=1 / share,
    )
    terms = make_terms(problem, weights, size, quality)
    plan = ExchangePlan(settings, unit, size, *weigh(settings, pool.quality_weights, *terms), pool.device)
    small = Quadratic(
        [prepare(metric, pool) for metric in plan.metrics],
        [c / share**2 for c in plan.coefficients],
        torch.from_numpy(worth(plan.quality, sample.quality)) / size / share,
        Feasible(problem.limits),
    )
    found = ascend_multilinear(small, small.feasible.even(), relaxation.TOLERANCE, LEARNING_STEPS, copies=1 / share)
    beside = np.zeros(len(weights))
    beside[sample.rows] = found.p.numpy() / share
    _, multipliers, scale = multipliers_of(small, found.price)
    charge = charge_of(limits, multipliers, scale, share)
    return plan, [moment / share for moment in found.moments], beside, charge


def charge_of(limits: Limits, multipliers: np.ndarray, scale: float, share: float = 1.0) -> np.ndarray:
    """(N,) what the limits take off each document's price, where a part of the problem has these multipliers, the last
    of them measured in `scale`, or a sample of this share has."""
    if not limits:
        return np.zeros(len(limits.weights))
    whole = Levels(limits)
    multipliers = multipliers * share
    if whole.ratio is not None:
        multipliers[-1] *= whole.scale / scale
    return whole.lowered(multipliers).numpy()


def multipliers_of(part: Quadratic, price: torch.Tensor) -> tuple[float, np.ndarray, float]:
    """(what a price must exceed, the limits' multipliers, what the last of them is measured in) at these prices."""
    _, dual = part.feasible.answer(price)
    answers = part.feasible.answers
    return dual.level, dual.multipliers, float(answers.scale) if answers is not None else 1.0


def appraise(
    plan: ExchangePlan, pool: Pool, weights: np.ndarray, moments: Sequence[torch.Tensor], beside: np.ndarray
) -> np.ndarray:
    """What each document is worth to a selection of these moments, per unit of the budget: (n,) float64.

    beside: (n,) how often the document is in it. Its price counts its likeness to itself so many times, where what it
    adds by coming in, or takes by leaving, counts that once.
    """
    own = torch.zeros(len(pool), dtype=torch.float64)
    for c, metric in zip(plan.coefficients, plan.metrics, strict=True):
        if metric.vector:
            own += c  # unit rows: nothing to read
            continue
        for part, rows in pool.blocks():
            own[part] += c * metric.squares(metric.prepare(rows)).double().cpu()
    return price_of(plan, pool, moments) + (2 * beside - 1) * weights * own.numpy()


def sift(
    plan: ExchangePlan,
    features: np.ndarray,
    weights: np.ndarray,
    quality: np.ndarray,
    moments: Sequence[torch.Tensor],
    beside: np.ndarray,
    charge: np.ndarray,
    band: Band,
) -> Sifted:
    """A shard's part of the problem that the undecided pose. weights, beside, charge: (n,)."""
    pool = Pool(features, quality, device=plan.device)
    value = appraise(plan, pool, weights, moments, beside) - charge
    taken = torch.from_numpy(weights * band.inside(value))
    base = [metric.sum_over(pool, taken, torch.float32) for metric in plan.metrics]
    return Sifted(value, base, features[band.undecided(value)])


def settle(
    plan: ExchangePlan,
    features: np.ndarray,
    weights: np.ndarray,
    quality: np.ndarray,
    selected: np.ndarray,
    relaxed: Sequence[torch.Tensor],
    chosen: Sequence[torch.Tensor],
    thresholds: np.ndarray,
) -> Settled:
    """A shard's part of the certificate and of the exact objective. relaxed, chosen: moments to price at; thresholds:
    (n,) about what a document's price must exceed at the first, above which prices are computed in float64."""
    pool = Pool(features, quality, device=plan.device)
    index = torch.from_numpy(np.flatnonzero(selected))
    moments: list[torch.Tensor] = []
    sums: list[tuple[torch.Tensor, torch.Tensor] | None] = []
    for metric in plan.metrics:
        mass = torch.from_numpy(weights * selected)
        moments.append(metric.sum_over(pool, mass))
        sums.append(metric.exact_sums(pool.rows(index, torch.float64)) if isinstance(metric, DiSF) else None)
    linear = torch.from_numpy(worth(plan.quality, pool.quality) / plan.size)
    price, error = priced(pool, plan.metrics, plan.coefficients, linear, relaxed, errors=True)
    most = price + error
    near = (most > torch.from_numpy(thresholds)).nonzero()[:, 0]
    if not pool.is_small:
        at = near.to(pool.device)
        exact, error = priced(pool, plan.metrics, plan.coefficients, linear[near], relaxed, at, errors=True)
        most[near] = exact + error
    return Settled(most.numpy(), price_of(plan, pool, chosen), moments, sums)


def make_band(worth: np.ndarray, weights: np.ndarray, stands: np.ndarray, size: float, room: int) -> Band:
    """That in which about `room` documents are undecided: half of them next above the cut, or all that are
    there, the rest next below it. All (n,); stands: how many documents of the corpus each stands for."""
    order = np.argsort(-worth, kind="stable")
    documents, spent = np.cumsum(stands[order]), np.cumsum((stands * weights)[order])
    taken = int(np.searchsorted(spent, size * (1 + 1e-12), side="right"))
    over = float(documents[taken - 1]) if taken else 0.0
    under = float(documents[-1]) - over
    below = min(under, room - min(over, room // 2))
    above = min(over, room - below)
    first = int(np.searchsorted(documents, over - above + 1e-6, side="right"))
    last = int(np.searchsorted(documents, over + below - 1e-6, side="left"))
    high = np.inf if above >= over else float(worth[order[min(first, len(order) - 1)]])
    return Band(-np.inf if below >= under else float(worth[order[last]]), high)


def stands_for(sampled: int, count: int, learned: bool) -> np.ndarray:
    """(sampled,) how many of the corpus's `count` documents each of a sample stands for; what was learned from has
    the prices of no document but itself."""
    alone = min(SAMPLE, sampled) if learned else 0
    stands = np.ones(sampled)
    stands[alone:] = (count - alone) / max(sampled - alone, 1)
    return stands


def facts_of(
    plan: ExchangePlan,
    weights: np.ndarray,
    quality: np.ndarray,
    chosen: np.ndarray,
    moments: list[torch.Tensor],
    sums: list[Any],
    bound: float,
    relaxed: float,
    history: list[dict[str, float]],
) -> dict[str, Any]:
    mass = weights * chosen / plan.size
    raw = {term.name: float(mass @ quality[:, term.column]) for term in plan.quality}
    exact = {}
    for term, metric, moment, pair in zip(plan.diversity, plan.metrics, moments, sums, strict=True):
        raw[term.name] = -metric.unit * float(moment.square().sum()) / plan.size**2
        if pair is not None:
            exact[f"{term.name}_exact"] = DiSF.of_sums(int(chosen.sum()), *pair)
    terms = (*plan.quality, *plan.diversity)
    objective = plan.constant + sum(term.scale * raw[term.name] for term in terms)
    return {
        "solver": plan.settings.solver,
        "documents": len(chosen),
        "selected": int(chosen.sum()),
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


def price_of(plan: ExchangePlan, pool: Pool, moments: Sequence[torch.Tensor]) -> np.ndarray:
    linear = torch.from_numpy(worth(plan.quality, pool.quality) / plan.size)
    return exact_price(pool, plan.metrics, plan.coefficients, linear, moments).numpy()
