"""What a solver hands back, and what the user gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import torch


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
class Selection:
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
    objective: float
    terms: Mapping[str, float]
    statistics: Mapping[str, float]
    upper_bound: float | None
    seconds: float
    solver: str
    asked: Mapping[str, Any] = field(default_factory=dict)
    scales: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    relaxed: float | None = None
    history: tuple[Mapping[str, float], ...] = field(default=(), repr=False)
    repeat: np.ndarray | None = None

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
