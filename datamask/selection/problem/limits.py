"""Limits on the selection beside the budget: quotas per group, and a bound on length bias.

A limit is a row of coefficients with a lower and an upper end: low ≤ Σ_{i∈S} a_i ≤ high. A quota's rows are the
budget's own weights restricted to one value of the column (shares are in the budget's unit); the length bound is one
row, the tokens (the number of documents under a token budget).

How exactly each holds:
- documents are counted exactly: the budget's number of them, and quotas rounded to whole ones;
- a budget in tokens is never overspent, and no more of it is left (`unspent`) than lengths like these can force when no
  further document fits, or, where there are limits, than `TOLERANCE` of it if that is more;
- a limit in tokens holds to `TOLERANCE` of the budget, in tokens or in the documents these are on average.
A selection that misses any of these is never a result.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from datamask.config import Quota, Select
from datamask.errors import ConfigError, InputError, nearest

TOLERANCE = 1e-3  # of limits in tokens, as a share of the budget: sums of whole documents cannot meet them exactly
GRAIN = 1e-9  # allowance for rounding errors of the sums, as a share of the budget


@dataclass(frozen=True, eq=False)
class Grouping:
    """One column's quotas: low[v] ≤ Σ_{i selected, codes[i] = v} weights[i] ≤ high[v], tolerance included."""

    column: str
    names: tuple[str, ...]  # of the values, sorted
    codes: np.ndarray  # (N,) int64, into names
    low: np.ndarray  # (V,) in the budget's unit
    high: np.ndarray  # (V,)


@dataclass(frozen=True, eq=False)
class Length:
    """low ≤ Σ_{i selected} coefficients[i] ≤ high, tolerance included."""

    coefficients: np.ndarray  # (N,)
    low: float
    high: float


@dataclass(frozen=True, eq=False)
class Limits:
    """A budget with its limits: Σ_{i selected} weights[i] ≤ size, quotas and a length bound.

    True if there is any limit beside the budget.
    """

    weights: np.ndarray  # (N,) float64, what a document takes of the budget
    size: float
    groupings: tuple[Grouping, ...] = ()
    length: Length | None = None
    slack: float | None = None  # `unspent`, where it is given: that of the whole problem of which this is a part

    def __bool__(self) -> bool:
        return bool(self.groupings or self.length)

    @cached_property
    def counted(self) -> bool:
        """Whether the budget counts documents."""
        return bool((self.weights == 1).all())

    @cached_property
    def unspent(self) -> float:
        """The most of the budget that a selection may leave unspent, in the budget's unit."""
        if self.slack is not None:
            return self.slack
        if self.counted:
            return 0.0
        forced = most_unspent(self.weights, self.size)
        return max(forced, TOLERANCE * self.size) if self else forced

    def part(self, index: np.ndarray, taken: np.ndarray) -> Limits:
        """What is left of the limits for the documents `index` (n,) when those of `taken` (N,) bool are selected."""
        groupings = []
        for grouping in self.groupings:
            sums = np.bincount(grouping.codes[taken], self.weights[taken], minlength=len(grouping.names))
            groupings.append(
                Grouping(
                    grouping.column, grouping.names, grouping.codes[index], grouping.low - sums, grouping.high - sums
                )
            )
        length = None
        if self.length is not None:
            total = float(self.length.coefficients[taken].sum())
            length = Length(self.length.coefficients[index], self.length.low - total, self.length.high - total)
        left = self.size - float(self.weights[taken].sum())
        return Limits(self.weights[index], left, tuple(groupings), length, self.unspent)

    def sample(self, index: np.ndarray, share: float) -> Limits:
        """The limits scaled to a sample, the documents `index` (n,), that has this share of the weight."""
        weights, groupings = self.weights[index], []
        for each in self.groupings:
            codes = each.codes[index]
            there = np.bincount(codes, weights, minlength=len(each.names))  # a minimum is at most what the sample has
            groupings.append(
                Grouping(each.column, each.names, codes, np.minimum(each.low * share, there), each.high * share)
            )
        length = None
        if self.length is not None:
            length = Length(self.length.coefficients[index], self.length.low * share, self.length.high * share)
        return Limits(weights, self.size * share, tuple(groupings), length, self.unspent * share)

    def repeated(self, most: int) -> Limits:
        """For documents that may each be taken up to `most` times: as one document of `most` times the weight."""
        length = None
        if self.length is not None:
            length = Length(self.length.coefficients * most, self.length.low, self.length.high)
        return Limits(self.weights * most, self.size, self.groupings, length, self._unspent(most))

    def copies(self, index: np.ndarray, most: int) -> Limits:
        """For copies of documents, `index` (n,) naming the document of each; a document has at most `most` copies."""
        groupings = [replace(each, codes=each.codes[index]) for each in self.groupings]
        length = self.length
        if length is not None:
            length = replace(length, coefficients=length.coefficients[index])
        return Limits(self.weights[index], self.size, tuple(groupings), length, self._unspent(most))

    def _unspent(self, most: int) -> float:
        forced = most_unspent(np.repeat(self.weights, most), self.size)
        return max(forced, TOLERANCE * self.size) if self else forced

    def violations(self, selected: np.ndarray) -> list[str]:
        """A sentence for each limit that a mask breaks; [] if none. selected: (N,) bool."""
        found = []
        grain = GRAIN * max(self.size, 1.0)
        taken = float(self.weights[selected].sum())
        if taken > self.size + grain or taken < self.size - self.unspent - grain:
            found.append(f"the selection takes {taken:.0f} of a budget of {self.size:.0f}")
        for grouping in self.groupings:
            sums = np.bincount(grouping.codes[selected], self.weights[selected], minlength=len(grouping.names))
            for value in np.flatnonzero((sums < grouping.low - grain) | (sums > grouping.high + grain)):
                found.append(
                    f"{grouping.column} = {grouping.names[value]!r} has {sums[value]:.0f}, "
                    f"outside {grouping.low[value]:.0f} to {grouping.high[value]:.0f}"
                )
        if self.length is not None:
            total = float(self.length.coefficients[selected].sum())
            grain = GRAIN * max(abs(self.length.low), abs(total), 1.0)
            if not self.length.low - grain <= total <= self.length.high + grain:
                found.append(f"length: {total:.0f} is outside {self.length.low:.0f} to {self.length.high:.0f}")
        return found


def most_unspent(weights: np.ndarray, size: float) -> float:
    """The most that a selection into which no further document fits can leave of the budget.

    If L is left, every document of weight at most L is selected, so L ≤ size − Σ_{w_i ≤ L} w_i.
    """
    ordered = np.sort(weights)
    before = np.concatenate([[0.0], np.cumsum(ordered)])
    left = np.minimum(size - before, np.append(ordered, np.inf))
    return float(max(left.max(), 0.0))


def make_limits(
    settings: Select, weights: np.ndarray, size: float, tokens: np.ndarray | None, groups: Mapping[str, Any]
) -> Limits:
    """The limits of these settings on a pool.

    :raises ConfigError: a quota's column is not among the groups.
    :raises InputError: the quotas contradict one another or ask for more than the pool has.
    """
    in_tokens = settings.budget_tokens is not None
    repeat = settings.repeat
    groupings = tuple(_grouping(quota, weights, size, groups, in_tokens, repeat) for quota in settings.quotas)
    length = None
    if settings.length_tolerance is not None and tokens is not None:
        mean, tolerance = float(tokens.mean()), settings.length_tolerance
        if settings.budget_tokens:  # Σ tokens is fixed, so the mean is bounded through the number of documents
            shortest, grain = mean * (1 - tolerance), TOLERANCE * size / mean
            most = size / shortest if shortest > 0 else float("inf")
            length = Length(np.ones(len(tokens)), size / (mean * (1 + tolerance)) - grain, most + grain)
        else:
            whole, grain = size * mean, TOLERANCE * size * mean
            length = Length(tokens.astype(np.float64), whole * (1 - tolerance) - grain, whole * (1 + tolerance) + grain)
        _check_length(length, np.asarray(weights), size, repeat)
    return Limits(np.asarray(weights, dtype=np.float64), size, groupings, length)


def _grouping(
    quota: Quota, weights: np.ndarray, size: float, groups: Mapping[str, Any], in_tokens: bool, repeat: int
) -> Grouping:
    if quota.column not in groups:
        have = ", ".join(sorted(groups)) or "none"
        raise ConfigError(f"quotas: no group column {quota.column!r}{nearest(quota.column, groups)}; given: {have}")
    values = np.asarray(["" if value is None else str(value) for value in groups[quota.column]])
    found, codes = np.unique(values, return_inverse=True)
    names = tuple(found.tolist())
    available = repeat * np.bincount(codes, weights, minlength=len(names))
    whole = bool((weights == 1).all())
    up, down = (np.asarray, np.asarray) if in_tokens else (_ceil, _floor)
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
    grain = GRAIN * max(size, 1.0)
    if in_tokens:
        low, high = low - TOLERANCE * size, high + TOLERANCE * size
        if whole:  # documents of one token each: sums are whole numbers
            low, high = _ceil(low), _floor(high)
    for value, name in enumerate(names):
        if low[value] > high[value] + grain:
            raise InputError(
                f"quota: {quota.column} = {name!r} must have at least {low[value]:.0f} and at most {high[value]:.0f}"
            )
        if low[value] > available[value] + grain:
            raise InputError(
                f"quota: {quota.column} = {name!r} must have at least {low[value]:.0f} of the budget's {size:.0f}, "
                f"the pool has {available[value]:.0f}; lower the minimum or the budget"
            )
    if low.clip(0).sum() > size + grain:
        raise InputError(f"quota: the minimums of {quota.column} add up to {low.sum():.0f}, the budget is {size:.0f}")
    most = np.minimum(high, available).sum()
    spare = 0.0 if whole else max(most_unspent(np.repeat(weights, repeat), size), TOLERANCE * size)
    if most < size - spare - grain:
        raise InputError(
            f"quota: the maximums of {quota.column} leave room for {most:.0f}, the budget is {size:.0f}; "
            "raise one or lower the budget"
        )
    return Grouping(quota.column, names, codes.astype(np.int64), low, high)


def _check_length(length: Length, weights: np.ndarray, size: float, repeat: int) -> None:
    """Raises InputError if no selection that spends the budget holds the length bound, other limits ignored."""
    per_weight = length.coefficients / weights
    for sign in (1, -1):
        order = np.argsort(sign * per_weight, kind="stable")
        taken = np.diff(np.minimum(np.cumsum(repeat * weights[order]), size), prepend=0.0)
        extreme = float(taken @ per_weight[order])
        short = sign < 0 and extreme < length.low * (1 - 1e-9) - 1e-9
        if short or (sign > 0 and (weights == 1).all() and extreme > length.high * (1 + 1e-9) + 1e-9):
            raise InputError(
                "length_tolerance: no selection of this budget comes that near to the pool's mean length; "
                "raise the tolerance or change the budget"
            )


def _ceil(value: Any) -> Any:
    return np.ceil(value - 1e-9)


def _floor(value: Any) -> Any:
    return np.floor(value + 1e-9)
