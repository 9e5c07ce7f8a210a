"""The problem: a pool of documents, a budget, limits that the selection must stay within, and the objective. And its
answer: what a solver hands back (`Draft`), and what the user gets (`Selection`).

    pool = Pool(features, quality, tokens=tokens, groups={"domain": domain})
    problem = make_problem(pool, Select(select_ratio=0.1, lamb=0.5))      # `datamask.selection.calibration`
    problem.size, problem.weights, problem.objective, problem.limits

A document takes `weights[i]` of the budget: 1 where the budget counts documents, its number of tokens where it counts
tokens. The objective's means are over the same unit, so a token budget maximises the mean quality of a *token*.

The objective is f(S) = Σ_j λ_j·Q_j(S) + Σ_m (1 − λ)_m·D_m(S), of quality columns and diversity metrics:

    objective.values(masks)              # (G,) of masks (G, N)
    objective.evaluate(mask)             # exactly, term by term

Calibrated (the default), each term is scaled so that a random selection of the budget's size scores 0 and the term's
own best selection scores 1: λ then means the same on every corpus. Uncalibrated, f is the paper's raw sum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch

from datamask.config import ResolvedSelect
from datamask.selection.metrics.base import Metric, MomentMetric
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool, least_hashes, row_hashes

EXACT = 1e6  # roundings that a span must hold for the objective to be exact to 1e-6


@dataclass(frozen=True, eq=False)
class Term:
    """One summand: weight · (raw − zero) / (one − zero). `metric` is None for a quality column."""

    name: str
    weight: float  # the term's share of λ or of 1 − λ
    zero: float  # raw value that scores 0
    one: float  # raw value that scores 1
    metric: Metric | None = None
    column: int | None = None  # which column of the pool's quality

    @property
    def rate(self) -> float:
        """1 / (one − zero): calibrated units per raw unit; 0 where all selections are equal (constant quality).

        Metrics' raw values are of order one and exact to about 1e-15, or to their `rounding`, so a span below 1e-9, or
        below a million times that, may be rounding error: calibrated, it would stand in the sixth digit.
        """
        span = self.one - self.zero
        least = 1e-3 if self.metric is not None else 1e-9  # quality may be in any unit
        blurred = EXACT * getattr(self.metric, "rounding", 0.0)
        return 1 / span if span > max(1e-6 * max(abs(self.one), abs(self.zero), least), blurred) else 0.0

    @property
    def scale(self) -> float:
        """weight · rate: the objective per raw unit."""
        return self.weight * self.rate

    def calibrated(self, raw: float) -> float:
        """(raw − zero) · rate: 0 for a random selection, 1 for the term's own best."""
        return (raw - self.zero) * self.rate


@dataclass(frozen=True, eq=False)
class Evaluation:
    """The objective of one mask, term by term."""

    objective: float
    terms: Mapping[str, float]  # calibrated
    statistics: Mapping[str, float]  # raw values

    @classmethod
    def of(cls, terms: Sequence[Term], raw: Mapping[str, float]) -> Evaluation:
        """Of the raw values of these terms, by name, and of other statistics among them."""
        objective = constant_of(terms) + sum(term.scale * raw[term.name] for term in terms)
        return cls(objective, {term.name: term.calibrated(raw[term.name]) for term in terms}, raw)


def constant_of(terms: Iterable[Term]) -> float:
    """−Σ scale·zero, which sums over documents lack."""
    return -sum(term.scale * term.zero for term in terms)


def scales_of(terms: Iterable[Term]) -> dict[str, dict[str, float]]:
    """Each term's zero and scale, by name: f = Σ scale · (raw − zero)."""
    return {term.name: {"zero": term.zero, "scale": term.scale} for term in terms}


@dataclass(frozen=True, eq=False)
class Objective:
    """The objective of a problem: its `quality` and `diversity` terms.

    linear: (N,) float64 on the CPU, each document's scaled quality; quality's part of f is
    Σ_i linear_i·w_i·m_i / size, and all terms' zeros are in `constant`.
    """

    problem: Problem
    quality: tuple[Term, ...]
    diversity: tuple[Term, ...]
    linear: torch.Tensor

    @property
    def terms(self) -> tuple[Term, ...]:
        """All terms, quality first."""
        return self.quality + self.diversity

    @cached_property
    def constant(self) -> float:
        """−Σ scale·zero over all terms."""
        return constant_of(self.terms)

    @property
    def margin(self) -> float:
        """An upper bound on the sum of the terms' absolute values and zeros, from which f's rounding error follows."""
        return sum(abs(term.scale) * (abs(term.zero) + max(abs(term.zero), abs(term.one), 1.0)) for term in self.terms)

    @property
    def scales(self) -> dict[str, dict[str, float]]:
        """As `scales_of`."""
        return scales_of(self.terms)

    def values(self, masks: torch.Tensor) -> torch.Tensor:
        """f of each mask: (G, N) bool or 0/1 -> (G,) float64."""
        masks = masks.to(self.problem.pool.device)
        per_document = self.linear.to(masks.device) * self.problem.weights / self.problem.size
        total = masks.double() @ per_document + self.constant
        for term in self.diversity:
            if term.scale and term.metric is not None:
                total = total + term.scale * term.metric.value(masks).to(total.device)
        return total

    def evaluate(self, mask: torch.Tensor) -> Evaluation:
        """f of one mask (N,) and its terms, in float64. An integer mask says how often each document is taken."""
        problem = self.problem
        mask = mask.cpu()
        weighted = (mask.double() * problem.weights.cpu()).numpy() / problem.size
        raw = {term.name: float(weighted @ problem.pool.quality[:, term.column]) for term in self.quality}
        exact: dict[str, float] = {}
        for term in self.diversity:
            assert term.metric is not None
            raw[term.name] = float(term.metric.value(mask[None].to(problem.pool.device))[0])
            if hasattr(term.metric, "exact"):
                exact[f"{term.name}_exact"] = float(term.metric.exact(mask.to(problem.pool.device)))
        return Evaluation.of(self.terms, {**raw, **exact})


def weigh_terms(
    settings: ResolvedSelect, quality_weights: np.ndarray, quality: Sequence[Term], diversity: Sequence[Term]
) -> tuple[tuple[Term, ...], tuple[Term, ...]]:
    """The terms with their weights: λ is shared among quality's and 1 − λ among diversity's.

    quality_weights: (Q,), adding up to 1.
    """
    shares = [settings.metrics[term.name] for term in diversity]
    pairs = zip(quality, quality_weights, strict=True)
    return (
        tuple(replace(term, weight=settings.lamb * float(share)) for term, share in pairs),
        tuple(
            replace(term, weight=(1 - settings.lamb) * share / sum(shares))
            for term, share in zip(diversity, shares, strict=True)
        ),
    )


def moment_coefficients(terms: Sequence[Term], size: float) -> list[float]:
    """c_m of each term that is a `MomentMetric`: its part of f is −c_m ‖M‖² and a constant. size: the budget."""
    return [term.scale * term.metric.unit / size**2 for term in terms if isinstance(term.metric, MomentMetric)]


def scaled_quality(terms: Sequence[Term], quality: np.ndarray) -> np.ndarray:
    """(N,) float64: Σ_j scale_j·quality_ij, each document's scaled quality. quality: (N, Q)."""
    total = np.zeros(len(quality))
    for term in terms:
        total += term.scale * quality[:, term.column]
    return total


SAMPLE = 16_384  # documents on which a larger pool's first prices are learned; a term's own best takes no more
Terms = tuple[Sequence[Term], Sequence[Term]]  # of quality and of diversity, calibrated but not yet weighted by λ


@dataclass(frozen=True, eq=False)
class Problem:
    """A pool with its budget, limits and objective resolved: the input of every solver."""

    pool: Pool
    settings: ResolvedSelect
    unit: str  # "documents" or "tokens": what the budget counts
    size: float  # the budget in its unit
    weights: torch.Tensor  # (N,) float64: what a document takes of the budget
    limits: Limits
    calibrate: Callable[[Problem], Terms]  # called on first use of `objective`, since it takes a small solve
    copies: float = 1.0  # how many documents of the corpus each of the pool represents, if it is a sample

    def __len__(self) -> int:
        return len(self.pool)

    @cached_property
    def objective(self) -> Objective:
        """The objective to maximise."""
        quality, diversity = weigh_terms(self.settings, self.pool.quality_weights, *self.calibrate(self))
        return Objective(self, quality, diversity, torch.from_numpy(scaled_quality(quality, self.pool.quality)))

    @cached_property
    def sample(self) -> np.ndarray:
        """(n,) at most `SAMPLE` row numbers, for calibration and first prices, in the order of a hash of the rows."""
        return least_hashes(row_hashes(self.pool.features, self.settings.seed), SAMPLE)

    def at(self, lamb: float) -> Problem:
        """The same problem at another λ, sharing this one's calibration, which does not depend on λ."""
        terms = self.objective.quality, self.objective.diversity
        return replace(self, settings=self.settings.model_copy(update={"lamb": lamb}), calibrate=lambda _: terms)

    def generator(self, stream: int = 0) -> np.random.Generator:
        """A random generator from the problem's seed; different values of `stream` give independent sequences."""
        return np.random.default_rng([self.settings.seed, stream])


# ---------------------------------------------------------------- its answer


@dataclass(frozen=True, eq=False)
class Draft:
    """A solver's answer, before it is evaluated exactly. All tensors are on the CPU."""

    selected: torch.Tensor  # (N,) bool
    probability: torch.Tensor  # (N,) float, in [0, 1]
    price: torch.Tensor | None = None  # (N,) marginal gain of a document at the solution, where the solver knows it
    upper_bound: float | None = None  # no feasible selection's objective is greater
    relaxed: float | None = None  # the objective of the fractional optimum that the mask was rounded from
    history: tuple[Mapping[str, float], ...] = ()  # {"step", "objective", …} as the solver went
    repeat: torch.Tensor | None = None  # (N,) int64, how often each is taken, where documents may be repeated


class Certificate(NamedTuple):
    """How good a selection is at least. Values of the objective, constant included."""

    bound: float  # no selection within the budget and the limits is above it
    relaxed: float | None  # of the fractional optimum

    def gap(self, objective: float) -> float:
        """How far a selection of this objective is below the bound at most, as a share of it."""
        return max(0.0, self.bound - objective) / max(abs(self.bound), 1e-12)

    def integrality(self, objective: float) -> float | None:
        """The part of `gap` that whole documents cost; None without a fractional optimum."""
        if self.relaxed is None:
            return None
        return max(0.0, min(self.relaxed, self.bound) - objective) / max(abs(self.bound), 1e-12)


@dataclass(frozen=True, eq=False)
class Selection(Evaluation):
    """A selection, evaluated exactly.

    selected: (N,) bool; probability: (N,) float32; price: (N,) float32, marginal gain at the solution (0 if unknown).
    objective: λ·Q + (1 − λ)·D, calibrated unless the settings say otherwise. terms: each term on that scale.
    statistics: each term's raw value, and DiSF's published statistic. scales: of each term, {"zero", "scale"}: the
    objective is Σ scale · (raw − zero). upper_bound: no selection within the budget and
    the limits has a greater objective; None where the solver has no certificate. gap: how far below, as a share of it.
    relaxed: the objective of the fractional optimum, where the solver has one. What `relaxed` is below the bound, the
    solver left; what the objective is below `relaxed`, whole documents cost (`integrality`, as a share of the bound):
    a fraction p pays p² of what a document costs against itself, a mask p. No mask may reach it.
    asked: the settings' algorithm, parts, λ, budget and seed, defaults filled in (`config.ResolvedSelect.facts`).
    repeat: with `select.repeat` above 1, (N,) int32, how often each document is taken; `probability` is then its
    fractional weight, from 0 to `select.repeat`, and `upper_bound` holds for both.
    """

    selected: np.ndarray
    probability: np.ndarray
    price: np.ndarray
    upper_bound: float | None
    seconds: float
    solver: str
    asked: Mapping[str, Any] = field(default_factory=dict)
    scales: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    relaxed: float | None = None
    history: tuple[Mapping[str, float], ...] = field(default=(), repr=False)
    repeat: np.ndarray | None = None

    def __repr__(self) -> str:
        """One line, as a notebook shows it; the arrays are fields."""
        bound = "" if self.upper_bound is None else f" of at most {self.upper_bound:.4f}"
        chosen = f"{np.count_nonzero(self.selected):,} of {len(self.selected):,} documents"
        return f"Selection({self.solver}: {chosen}, objective {self.objective:.4f}{bound})"

    @property
    def indices(self) -> np.ndarray:
        """Row numbers of the selected documents, ascending."""
        return np.flatnonzero(self.selected)

    @property
    def times(self) -> np.ndarray:
        """(N,) how often each document is taken: `repeat`, or the mask."""
        return self.selected if self.repeat is None else self.repeat

    def placed(self, rows: np.ndarray, count: int) -> Selection:
        """The same in the pool of `count` documents that these rows (N,) were taken from. Others are not selected."""

        def scatter(values: np.ndarray) -> np.ndarray:
            found = np.zeros(count, values.dtype)
            found[rows] = values
            return found

        repeat = None if self.repeat is None else scatter(self.repeat)
        selected, probability, price = (scatter(each) for each in (self.selected, self.probability, self.price))
        return replace(self, selected=selected, probability=probability, price=price, repeat=repeat)

    @property
    def certificate(self) -> Certificate | None:
        """The bound, where the solver has one."""
        return None if self.upper_bound is None else Certificate(self.upper_bound, self.relaxed)

    @property
    def gap(self) -> float | None:
        """(upper_bound − objective) / |upper_bound|; None without a certificate."""
        return self.certificate and self.certificate.gap(self.objective)

    @property
    def integrality(self) -> float | None:
        """The part of `gap` that whole documents cost; None without a fractional optimum."""
        return self.certificate and self.certificate.integrality(self.objective)

    def facts(self) -> dict[str, Any]:
        """Everything but the arrays, ready for JSON."""
        return {
            "solver": self.solver,
            **self.asked,
            "documents": len(self.selected),
            "selected": int(self.selected.sum()),
            **({} if self.repeat is None else {"copies": int(self.repeat.sum())}),
            "objective": self.objective,
            "terms": dict(self.terms),
            "statistics": dict(self.statistics),
            "scales": {name: dict(scale) for name, scale in self.scales.items()},
            "upper_bound": self.upper_bound,
            "gap": self.gap,
            "relaxed": self.relaxed,
            "integrality": self.integrality,
            "seconds": self.seconds,
            "history": [dict(step) for step in self.history],
        }
