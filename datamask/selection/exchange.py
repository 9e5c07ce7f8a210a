"""Corpus scope without the corpus in memory: shards exchange sums, in four reads of the features.

    1. sketch(shard)    rows of a sample that does not depend on how documents are split into shards; `merge` them
       learn(...)       terms, calibration and first prices, from the sample
    2. score(shard)     each document's price; the nearest to the cut are undecided, the others in or out
    3. collect(shard)   the moments of those in, and the features of the undecided
       solve            the undecided as one problem, the rest of the corpus a constant
    4. settle(shard)    prices for the certificate, and the exact sums of what is selected

Each is a function of one shard and small state (d or d² numbers), so that a map-reduce can call it; `select_shards`
runs them here. Memory: a shard's features, the undecided's (`room` of them) and some forty bytes a document. The
calibration of diversity and DiSF's standardisation are the sample's; the bound covers the whole corpus.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from datamask.config import Select
from datamask.selection.ascent import Ascent, ascend
from datamask.selection.calibration import SAMPLE, row_hashes
from datamask.selection.feasible import Feasible
from datamask.selection.limits import Limits
from datamask.selection.metrics import metric_class
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.metrics.disf import DiSF
from datamask.selection.objective import Term, make_terms, weigh, worth
from datamask.selection.prices import Prices, make_prices
from datamask.selection.problem import Pool, Problem, budget
from datamask.selection.quadratic import Quadratic, exact_price, prepare, spread
from datamask.selection.solvers import relaxation

ROOM_BYTES = 3 << 27  # of the undecided documents' float16 features
LEARNING_STEPS = 40
OUT, UNDECIDED, IN = 0, 1, 2


class Shard(Protocol):
    @property
    def quality(self) -> np.ndarray: ...  # (N,) or (N, Q)

    @property
    def tokens(self) -> np.ndarray: ...  # (N,)

    @property
    def groups(self) -> Mapping[str, np.ndarray]: ...

    def __len__(self) -> int: ...

    def features(self) -> np.ndarray: ...


class Sketch(NamedTuple):
    """The documents of a sample: those whose features have the least hash."""

    hashes: np.ndarray  # (n,) uint64, ascending
    features: np.ndarray  # (n, d)
    weights: np.ndarray  # (n,) of the budget
    quality: np.ndarray  # (n, Q)


@dataclass(frozen=True, eq=False)
class Plan:
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


class First(NamedTuple):
    """What the sample taught: moments to price at, and what each of its documents takes from its own price there."""

    moments: list[torch.Tensor]
    hashes: np.ndarray  # (n,) uint64, ascending
    credit: np.ndarray  # (n,) float64: without it a document would be priced as beside itself


class Collected(NamedTuple):
    base: list[torch.Tensor]  # moments of the documents that are in
    features: np.ndarray  # (n, d) of the undecided


class Settled(NamedTuple):
    relaxed: np.ndarray  # (n,) prices that the bound is taken at, float32
    price: np.ndarray  # (n,) prices at the selection
    moments: list[torch.Tensor]  # exact, of the selection
    sums: list[tuple[torch.Tensor, torch.Tensor] | None]  # of DiSF's published statistic


@dataclass(frozen=True, eq=False)
class Exchanged:
    """All arrays (N,) in the order of the shards."""

    selected: np.ndarray
    probability: np.ndarray
    price: np.ndarray
    prices: Prices
    facts: Mapping[str, Any]


def can_exchange(settings: Select) -> bool:
    """Whether these settings can be solved by sums: the relaxation of moment metrics, and no limit but the budget."""
    limited = bool(settings.quotas) or settings.length_tolerance is not None
    moments = all(issubclass(metric_class(name), MomentMetric) for name in settings.metrics)
    return settings.solver == "relaxation" and not limited and moments


def sketch(features: np.ndarray, weights: np.ndarray, quality: np.ndarray, seed: int) -> Sketch:
    """Of one shard, at most `SAMPLE` documents. features: (n, d); weights: (n,); quality: (n, Q)."""
    hashes = row_hashes(features, seed)
    index = np.argsort(hashes, kind="stable")[:SAMPLE]
    return Sketch(hashes[index], features[index], weights[index], quality[index])


def merge(sketches: Sequence[Sketch]) -> Sketch:
    """The sketch of all their documents together."""
    joined = Sketch(*(np.concatenate(parts) for parts in zip(*sketches, strict=True)))
    index = np.argsort(joined.hashes, kind="stable")[:SAMPLE]
    return Sketch(*(column[index] for column in joined))


def learn(
    sample: Sketch, weights: np.ndarray, quality: np.ndarray, unit: str, size: float, settings: Select, device: Any
) -> tuple[Plan, First]:
    """The plan, and what to begin with. weights (N,), quality (N, Q): the whole corpus's."""
    share = float(sample.weights.sum() / weights.sum())
    pool = Pool(sample.features, sample.quality, device=device)
    problem = Problem(
        pool,
        settings,
        unit,
        size * share,
        torch.from_numpy(sample.weights),
        Limits(sample.weights, size * share),
        copies=1 / share,
    )
    terms = make_terms(problem, weights, size, quality)
    plan = Plan(settings, unit, size, *weigh(settings, pool.quality_weights, *terms), pool.device)
    small = Quadratic(
        [prepare(metric, pool) for metric in plan.metrics],
        [c / share**2 for c in plan.coefficients],
        torch.from_numpy(worth(plan.quality, sample.quality)) / size / share,
        Feasible(problem.limits),
    )
    found = ascend(
        small, small.feasible.even(), relaxation.TOLERANCE, LEARNING_STEPS, multilinear=True, copies=1 / share
    )
    credit = 2 * share * (small.own * found.p / small.feasible.weights).numpy()  # own: c/share² · w² · ‖v‖²
    return plan, First([moment / share for moment in found.moments], sample.hashes, credit)


def score(plan: Plan, features: np.ndarray, quality: np.ndarray, first: First) -> np.ndarray:
    """A shard's prices per unit of the budget, (n,) float64: what each document is worth beside the others."""
    price = _score(plan, Pool(features, quality, device=plan.device), first.moments)
    hashes = row_hashes(features, plan.settings.seed)
    place = np.searchsorted(first.hashes, hashes).clip(max=len(first.hashes) - 1)
    return price + np.where(first.hashes[place] == hashes, first.credit[place], 0.0)


def collect(plan: Plan, features: np.ndarray, weights: np.ndarray, state: np.ndarray) -> Collected:
    """A shard's part of the problem that the undecided pose. weights: (n,); state: (n,) OUT, UNDECIDED or IN."""
    pool = Pool(features, np.zeros(len(features)), device=plan.device)
    taken = torch.from_numpy(weights * (state == IN))
    base = [metric.sum_over(pool, taken, torch.float32) for metric in plan.metrics]
    return Collected(base, features[state == UNDECIDED])


def settle(
    plan: Plan,
    features: np.ndarray,
    weights: np.ndarray,
    quality: np.ndarray,
    selected: np.ndarray,
    relaxed: Sequence[torch.Tensor],
    chosen: Sequence[torch.Tensor],
) -> Settled:
    """A shard's part of the certificate and of the exact objective. relaxed, chosen: moments to price at."""
    pool = Pool(features, quality, device=plan.device)
    index = torch.from_numpy(np.flatnonzero(selected))
    moments: list[torch.Tensor] = []
    sums: list[tuple[torch.Tensor, torch.Tensor] | None] = []
    for metric in plan.metrics:
        mass = torch.from_numpy(weights * selected)
        moments.append(metric.sum_over(pool, mass))
        sums.append(metric.exact_sums(pool.rows(index, torch.float64)) if isinstance(metric, DiSF) else None)
    return Settled(_score(plan, pool, relaxed), _score(plan, pool, chosen), moments, sums)


def select_shards(
    shards: Sequence[Shard],
    settings: Select,
    device: torch.device,
    progress: Callable[[int], None] = lambda rows: None,
    room_bytes: int = ROOM_BYTES,
) -> Exchanged:
    """All four passes in this process. Shards must not be empty.

    :raises InputError: as `make_problem`.
    """
    tokens = np.concatenate([shard.tokens for shard in shards])
    unit, size, weights = budget(settings, len(tokens), tokens)
    quality = np.concatenate([np.asarray(shard.quality, dtype=np.float64).reshape(len(shard), -1) for shard in shards])
    parts = _parts([len(shard) for shard in shards])
    sketches: list[Sketch] = []
    for shard, part in zip(shards, parts, strict=True):
        mine = sketch(shard.features(), weights[part], quality[part], settings.seed)
        sketches = [merge([*sketches, mine])]
        progress(len(shard) // 4)
    sample = sketches[0]
    plan, first = learn(sample, weights, quality, unit, size, settings, device)

    price = np.empty(len(tokens))
    for shard, part in zip(shards, parts, strict=True):
        price[part] = score(plan, shard.features(), quality[part], first)
        progress(len(shard) // 4)
    width = sample.features.shape[1]
    state = decide(price, weights, size, room=max(1, room_bytes // (2 * width)))

    collected = []
    for shard, part in zip(shards, parts, strict=True):
        collected.append(collect(plan, shard.features(), weights[part], state[part]))
        progress(len(shard) // 4)
    base = [torch.stack(each).sum(dim=0) for each in zip(*(c.base for c in collected), strict=True)]
    undecided = np.concatenate([c.features for c in collected])
    collected.clear()
    history: list[dict[str, float]] = []
    chosen, probability, relaxed, kept = _solve(
        plan, undecided, base, state, weights, worth(plan.quality, quality) / size, history
    )

    total: list[torch.Tensor] | None = None
    statistics: list[Any] = [None] * len(plan.metrics)
    at_relaxed, at_chosen = np.empty(len(tokens)), np.empty(len(tokens))
    for shard, part in zip(shards, parts, strict=True):
        done = settle(plan, shard.features(), weights[part], quality[part], chosen[part], relaxed.best, kept)
        at_relaxed[part], at_chosen[part] = done.relaxed, done.price
        total = done.moments if total is None else [a + b for a, b in zip(total, done.moments, strict=True)]
        for number, pair in enumerate(done.sums):
            before = statistics[number]
            statistics[number] = pair if before is None or pair is None else (before[0] + pair[0], before[1] + pair[1])
        progress(len(shard) - 3 * (len(shard) // 4))
    assert total is not None
    linear = torch.from_numpy(at_relaxed)
    _, most = Feasible(Limits(weights, size)).respond(linear)
    bound = most + spread(plan.coefficients, relaxed.best) + plan.constant
    facts = _facts(plan, weights, quality, chosen, total, statistics, bound, history)
    prices = make_prices(plan.quality, plan.diversity, total, width, size, unit == "tokens")
    prices = prices.cut(at_chosen, weights, size)
    return Exchanged(chosen, probability.astype(np.float32), (at_chosen * weights).astype(np.float32), prices, facts)


def decide(price: np.ndarray, weights: np.ndarray, size: float, room: int) -> np.ndarray:
    """(N,) OUT, UNDECIDED or IN: of the `room` undecided half are next above the cut, or all that are there, the rest
    next below it. price: (N,)."""
    order = np.argsort(-price, kind="stable")
    cut = int(np.searchsorted(np.cumsum(weights[order]), size * (1 + 1e-12), side="right"))
    below = min(len(price) - cut, room - min(cut, room // 2))
    above = min(cut, room - below)
    state = np.full(len(price), OUT)
    state[order[: cut - above]] = IN
    state[order[cut - above : cut + below]] = UNDECIDED
    return state


def _solve(
    plan: Plan,
    features: np.ndarray,
    base: list[torch.Tensor],
    state: np.ndarray,
    weights: np.ndarray,
    linear: np.ndarray,
    history: list[dict[str, float]],
) -> tuple[np.ndarray, np.ndarray, Ascent, list[torch.Tensor]]:
    """The mask, the probabilities, the relaxed optimum, and the moments of the mask as far as bf16 knows them."""
    index, inside = np.flatnonzero(state == UNDECIDED), state == IN
    left = plan.size - float(weights[inside].sum())
    pool = Pool(features, np.zeros(len(features)), device=plan.device)
    problem = Quadratic(
        [prepare(metric, pool) for metric in plan.metrics],
        plan.coefficients,
        torch.from_numpy(linear[index]),
        Feasible(Limits(weights[index], left)),
        base,
        float((weights * linear)[inside].sum()),
    )

    def record(step: dict[str, float]) -> None:
        history.append({"step": len(history), **{name: value + plan.constant for name, value in step.items()}})

    relaxed = relaxation.relax(problem, problem.feasible.even(), relaxation.TOLERANCE, record)
    chosen, _, p = relaxation.to_mask(problem, relaxed, relaxation.TOLERANCE / 4, record)
    selected, probability = inside.copy(), inside.astype(np.float64)
    selected[index], probability[index] = chosen.numpy(), p.numpy()
    return selected, probability, relaxed, problem.moments(chosen.double())


def _facts(
    plan: Plan,
    weights: np.ndarray,
    quality: np.ndarray,
    chosen: np.ndarray,
    moments: list[torch.Tensor],
    sums: list[Any],
    bound: float,
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
        "upper_bound": bound,
        "gap": max(0.0, bound - objective) / max(abs(bound), 1e-12),
        "history": history,
    }


def _score(plan: Plan, pool: Pool, moments: Sequence[torch.Tensor]) -> np.ndarray:
    linear = torch.from_numpy(worth(plan.quality, pool.quality) / plan.size)
    return exact_price(pool, plan.metrics, plan.coefficients, linear, moments).numpy()


def _parts(lengths: Sequence[int]) -> list[slice]:
    ends = np.cumsum(lengths)
    return [slice(int(end - length), int(end)) for end, length in zip(ends, lengths, strict=True)]
