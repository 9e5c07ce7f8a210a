"""Limits on the selection beside the budget: quotas per group, and a bound on length bias.

A limit is a row of coefficients with a lower and an upper end: low ≤ Σ_{i∈S} a_i ≤ high. A quota's rows are the
budget's own weights restricted to one value of the column (shares are in the budget's unit); the length bound is one
row, the tokens (the number of documents under a token budget).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from datamask.config import Quota, Select
from datamask.errors import ConfigError, InputError, nearest


@dataclass(frozen=True, eq=False)
class Grouping:
    """One column's quotas: low[v] ≤ Σ_{i selected, codes[i] = v} weights[i] ≤ high[v]."""

    column: str
    names: tuple[str, ...]  # of the values, sorted
    codes: np.ndarray  # (N,) int64, into names
    low: np.ndarray  # (V,) in the budget's unit
    high: np.ndarray  # (V,)


@dataclass(frozen=True, eq=False)
class Length:
    """low ≤ Σ_{i selected} coefficients[i] ≤ high."""

    coefficients: np.ndarray  # (N,)
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Limits:
    weights: np.ndarray  # (N,) float64, what a document takes of the budget
    size: float
    groupings: tuple[Grouping, ...] = ()
    length: Length | None = None

    def __bool__(self) -> bool:
        return bool(self.groupings or self.length)

    def violations(self, selected: np.ndarray) -> list[str]:
        """What a mask breaks by more than one document, in words; [] if nothing. selected: (N,) bool."""
        found = []
        one = float(self.weights.max())
        taken = float(self.weights[selected].sum())
        if taken > self.size + 1e-6 or taken < self.size - one - 1e-6:
            found.append(f"the selection takes {taken:.0f} of a budget of {self.size:.0f}")
        slack = one if one > 1 else 0.0  # documents are counted exactly; tokens to one document
        for grouping in self.groupings:
            sums = np.bincount(grouping.codes[selected], self.weights[selected], minlength=len(grouping.names))
            for value, name in enumerate(grouping.names):
                if not grouping.low[value] - slack - 1e-6 <= sums[value] <= grouping.high[value] + slack + 1e-6:
                    found.append(
                        f"{grouping.column} = {name!r} has {sums[value]:.0f}, "
                        f"outside {grouping.low[value]:.0f} to {grouping.high[value]:.0f}"
                    )
        if self.length is not None:
            total = float(self.length.coefficients[selected].sum())
            slack = float(self.length.coefficients.max())
            if not self.length.low - slack <= total <= self.length.high + slack:
                found.append(f"length: {total:.0f} is outside {self.length.low:.0f} to {self.length.high:.0f}")
        return found


def make_limits(
    settings: Select, weights: np.ndarray, size: float, tokens: np.ndarray | None, groups: Mapping[str, Any]
) -> Limits:
    """The limits of these settings on a pool.

    :raises ConfigError: a quota's column is not among the groups.
    :raises InputError: the quotas contradict one another or ask for more than the pool has.
    """
    groupings = tuple(_grouping(quota, weights, size, groups) for quota in settings.quotas)
    length = None
    if settings.length_tolerance is not None and tokens is not None:
        mean, tolerance = float(tokens.mean()), settings.length_tolerance
        if settings.budget_tokens:  # Σ tokens is fixed, so the mean is bounded through the number of documents
            shortest = mean * (1 - tolerance)
            length = Length(
                np.ones(len(tokens)), size / (mean * (1 + tolerance)), size / shortest if shortest > 0 else float("inf")
            )
        else:
            length = Length(tokens.astype(np.float64), size * mean * (1 - tolerance), size * mean * (1 + tolerance))
    return Limits(np.asarray(weights, dtype=np.float64), size, groupings, length)


def _grouping(quota: Quota, weights: np.ndarray, size: float, groups: Mapping[str, Any]) -> Grouping:
    if quota.column not in groups:
        have = ", ".join(sorted(groups)) or "none"
        raise ConfigError(f"quotas: no group column {quota.column!r}{nearest(quota.column, groups)}; given: {have}")
    values = np.asarray(["" if value is None else str(value) for value in groups[quota.column]])
    found, codes = np.unique(values, return_inverse=True)
    names = tuple(found.tolist())
    available = np.bincount(codes, weights, minlength=len(names))
    whole = bool((weights == 1).all())
    up, down = (_ceil, _floor) if whole else (np.asarray, np.asarray)
    low, high = np.zeros(len(names)), np.full(len(names), size)
    if quota.as_pool is not None:
        share = available / available.sum()
        low = np.maximum(low, down((share - quota.as_pool).clip(0) * size))
        high = np.minimum(high, up((share + quota.as_pool).clip(max=1) * size))
    for name, least in quota.minimum.items():
        if name not in names and least > 0:
            raise InputError(
                f"quota: no document has {quota.column} = {name!r}{nearest(name, names)}; "
                f"found: {', '.join(names[:20])}"
            )
        if name in names:
            low[names.index(name)] = max(low[names.index(name)], up(least * size))
    for name, most in quota.maximum.items():
        if name in names:
            high[names.index(name)] = min(high[names.index(name)], down(most * size))
    for value, name in enumerate(names):
        if low[value] > high[value]:
            raise InputError(
                f"quota: {quota.column} = {name!r} must have at least {low[value]:.0f} and at most {high[value]:.0f}"
            )
        if low[value] > available[value]:
            raise InputError(
                f"quota: {quota.column} = {name!r} must have at least {low[value]:.0f} of the budget's {size:.0f}, "
                f"the pool has {available[value]:.0f}; lower the minimum or the budget"
            )
    if low.sum() > size + 1e-6:
        raise InputError(f"quota: the minimums of {quota.column} add up to {low.sum():.0f}, the budget is {size:.0f}")
    most = np.minimum(high, available).sum()
    if most < size - 1e-6:
        raise InputError(
            f"quota: the maximums of {quota.column} leave room for {most:.0f}, the budget is {size:.0f}; "
            "raise one or lower the budget"
        )
    return Grouping(quota.column, names, codes.astype(np.int64), low, high)


def _ceil(value: Any) -> Any:
    return np.ceil(value - 1e-9)


def _floor(value: Any) -> Any:
    return np.floor(value + 1e-9)
