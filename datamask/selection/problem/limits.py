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

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
from scipy.sparse import csr_array

from datamask.compiling import compiled
from datamask.config import Quota, ResolvedSelect
from datamask.errors import ConfigError, InputError, nearest, some

TOLERANCE = 1e-3  # of limits in tokens, as a share of the budget: sums of whole documents cannot meet them exactly
GRAIN = 1e-9  # allowance for rounding errors of the sums, as a share of the budget
LENGTH = "length"  # name of the limit on length
NO_SELECTION = "no selection holds all limits at once (budget, quotas, length_tolerance); loosen one of them"


class LimitKind(NamedTuple):
    """One kind of limit: a column's quotas, or the bound on length."""

    codes: np.ndarray  # (N,) int64: of which limit a document is part; limits are numbered through all kinds
    coefficients: np.ndarray  # (N,) what it adds to that limit's sum


@dataclass(frozen=True, eq=False)
class Spent:
    """What some documents take of the budget and of each limit."""

    weight: float
    sums: np.ndarray  # (R,)

    def __add__(self, other: Spent) -> Spent:
        return Spent(self.weight + other.weight, self.sums + other.sums)


NOTHING = np.zeros(0)


@dataclass(frozen=True, eq=False)
class Limits:
    """A budget with R limits: Σ_{i selected} weights[i] ≤ size, and low ≤ the limits' sums ≤ high, tolerance included.

    True if there is any limit beside the budget.
    """

    weights: np.ndarray  # (N,) float64, what a document takes of the budget
    size: float
    names: tuple[str, ...] = ()  # (R,) of the limits, for messages
    low: np.ndarray = field(default_factory=lambda: NOTHING)  # (R,)
    high: np.ndarray = field(default_factory=lambda: NOTHING)  # (R,)
    scale: np.ndarray = field(default_factory=lambda: NOTHING)  # (R,) mean coefficient per unit of the budget
    kinds: tuple[LimitKind, ...] = ()
    slack: float | None = None  # `unspent`, where it is given: that of the whole problem of which this is a part
    columns: tuple[tuple[str, tuple[str, ...]], ...] = ()  # those with quotas, and their values, sorted
    in_tokens: bool = False  # whether the budget counts tokens, which `of` reads

    def __bool__(self) -> bool:
        return bool(self.names)

    @cached_property
    def counted(self) -> bool:
        """Whether the budget counts documents."""
        return bool((self.weights == 1).all())

    @property
    def one_column(self) -> bool:
        """Whether one column's quotas are all limits."""
        return len(self.kinds) == 1 and LENGTH not in self.names

    @cached_property
    def unspent(self) -> float:
        """The most of the budget that a selection may leave unspent, in the budget's unit."""
        if self.slack is not None:
            return self.slack
        return 0.0 if self.counted else self._unspent(1)

    def at(self, index: np.ndarray) -> Limits:
        """The same limits on the documents `index` (n,) alone."""
        kinds = tuple(LimitKind(each.codes[index], each.coefficients[index]) for each in self.kinds)
        return replace(self, weights=self.weights[index], kinds=kinds, slack=self.unspent)

    def spent(self, taken: np.ndarray) -> Spent:
        """What a selection spends. taken: (N,) bool, or the share of each document."""
        sums = np.zeros(len(self.names))
        for codes, coefficients in self.kinds:
            sums += np.bincount(codes, coefficients * taken, minlength=len(sums))
        return Spent(float((self.weights * taken).sum()), sums)

    def codes(self, groups: Mapping[str, Any]) -> list[np.ndarray]:
        """(n,) int64 for each column with quotas: the numbers of the limits of which documents are part."""
        found, first = [], 0
        for column, names in self.columns:
            found.append(first + np.searchsorted(np.array(names), _named(groups[column])))
            first += len(names)
        return found

    def of(self, tokens: np.ndarray, codes: Iterable[np.ndarray]) -> Limits:
        """The same limits on documents of these lengths (n,) and codes."""
        tokens, ones = np.asarray(tokens, dtype=np.float64), np.ones(len(tokens))
        weights, others = (tokens, ones) if self.in_tokens else (ones, tokens)
        kinds = [LimitKind(own, weights) for own in codes]
        if LENGTH in self.names:
            kinds.append(LimitKind(np.full(len(tokens), len(self.names) - 1), others))
        return replace(self, weights=weights, kinds=tuple(kinds))

    def less(self, spent: Spent) -> Limits:
        """What is left of these limits when other documents have spent this."""
        low, high = self.low - spent.sums, self.high - spent.sums
        return replace(self, size=self.size - spent.weight, low=low, high=high, slack=self.unspent)

    def part(self, index: np.ndarray, taken: np.ndarray) -> Limits:
        """What is left of the limits for the documents `index` (n,) beside a selection `taken` (N,) of others."""
        return self.at(index).less(self.spent(taken))

    def sample(self, index: np.ndarray, share: float) -> Limits:
        """The limits scaled to a sample, the documents `index` (n,), that has this share of the weight."""
        part = self.at(index)
        low = np.minimum(self.low * share, part.all_of_it.sums)  # a minimum is at most what the sample has
        return replace(part, size=self.size * share, low=low, high=self.high * share, slack=self.unspent * share)

    def repeated(self, most: int) -> Limits:
        """For documents that may each be taken up to `most` times: as one document of `most` times the weight."""
        kinds = tuple(LimitKind(each.codes, each.coefficients * most) for each in self.kinds)
        return replace(self, weights=self.weights * most, kinds=kinds, slack=self._unspent(most))

    def copies(self, index: np.ndarray, most: int) -> Limits:
        """For copies of documents, `index` (n,) naming the document of each; a document has at most `most` copies."""
        return replace(self.at(index), slack=self._unspent(most))

    def _unspent(self, most: int) -> float:
        forced = most_unspent(np.repeat(self.weights, most), self.size)
        return max(forced, TOLERANCE * self.size) if self else forced

    @property
    def all_of_it(self) -> Spent:
        """What all documents spend."""
        return self.spent(np.ones(len(self.weights), bool))

    def fits(self) -> bool:
        """Whether the documents can, by their sums, fill the budget and the limits."""
        there = self.all_of_it
        within = bool((self.high >= 0).all() and (self.low <= there.sums).all())
        return 0 < self.size <= there.weight * (1 + 1e-12) and within

    def violations(self, selected: np.ndarray) -> list[str]:
        """A sentence for each limit that a mask breaks; [] if none. selected: (N,) bool."""
        return self.broken(self.spent(selected))

    def violations_of_counts(self, counts: np.ndarray, most: int) -> list[str]:
        """The same, where documents may be taken up to `most` times. counts: (N,) how often each is."""
        index = np.repeat(np.arange(len(counts)), counts)
        return self.copies(index, most).violations(np.ones(len(index), bool))

    def broken(self, spent: Spent) -> list[str]:
        """A sentence for each limit that a selection breaks which spends this; [] if none."""
        found, grain = [], GRAIN * max(self.size, 1.0)
        if spent.weight > self.size + grain or spent.weight < self.size - self.unspent - grain:
            found.append(f"the selection takes {spent.weight:.0f} of a budget of {self.size:.0f}")
        grains = GRAIN * np.maximum(self.size * self.scale, 1.0)
        for limit in np.flatnonzero((spent.sums < self.low - grains) | (spent.sums > self.high + grains)):
            found.append(
                f"{self.names[limit]} has {spent.sums[limit]:.0f}, "
                f"outside {self.low[limit]:.0f} to {self.high[limit]:.0f}"
            )
        return found

    # -- by document, of every kind

    @property
    def by_document(self) -> LimitKind:
        """(N, kinds) int32 and float64: of which limits each document is part, and what it adds to their sums."""
        codes, coefficients = np.zeros((2, len(self.weights), len(self.kinds)))
        for column, kind in enumerate(self.kinds):
            codes[:, column], coefficients[:, column] = kind
        return LimitKind(codes.astype(np.int32), coefficients)

    @property
    def charges(self) -> LimitKind:
        """As `by_document`, with coefficients per unit of the budget, each limit's scaled to a mean of one."""
        codes, coefficients = self.by_document
        return LimitKind(codes, coefficients / self.weights[:, None] / self.scale[codes])

    # -- as linear inequalities: floor ≤ rows · mass ≤ ceiling, mass what each document takes of the budget

    @cached_property
    def rows(self) -> csr_array:
        """(R, N) the `charges` of each limit."""
        codes, charges = self.charges
        documents = np.repeat(np.arange(len(codes)), len(self.kinds))
        return csr_array((charges.ravel(), (codes.ravel(), documents)), shape=(len(self.names), len(codes)))

    @cached_property
    def floor(self) -> np.ndarray:
        """(R,) the lower ends, scaled as `rows`."""
        return self.low / self.scale

    @cached_property
    def ceiling(self) -> np.ndarray:
        """(R,) the upper ends, scaled as `rows`."""
        return np.minimum(self.high / self.scale, 1e100)

    def charge(self, multipliers: np.ndarray) -> np.ndarray:
        """(N,) what the limits' dual prices (R,) charge for each document, per unit of the budget."""
        charged = self.rows.T @ multipliers if self else np.zeros(len(self.weights))
        return np.asarray(charged)

    def ends(self, multipliers: np.ndarray) -> float:
        """Σ_r max(ν_r·ceiling_r, ν_r·floor_r): what the limits' ends add to the dual's value."""
        return float(multipliers.clip(0) @ self.ceiling - (-multipliers).clip(0) @ self.floor)

    def held(self, level: float, multipliers: np.ndarray) -> float:
        """The part of a bound that does not depend on the documents: level · (what of the budget is spent) + ends.

        level: the budget's dual price.
        """
        return level * (self.size if level >= 0 else self.size - self.unspent) + self.ends(multipliers)


def most_unspent(weights: np.ndarray, size: float, counts: np.ndarray | None = None) -> float:
    """The most that a selection into which no further document fits can leave of the budget.

    If L is left, every document of weight at most L is selected, so L ≤ size − Σ_{w_i ≤ L} w_i.

    :param counts: how many documents have each weight; None: one.
    """
    order = np.argsort(weights)
    ordered = weights[order]
    before = np.concatenate([[0.0], np.cumsum(ordered if counts is None else ordered * counts[order])])
    left = np.minimum(size - before, np.append(ordered, np.inf))
    return float(max(left.max(), 0.0))


@dataclass(frozen=True, eq=False)
class Census:
    """What limits are made from: how many documents have each length, and the budget's unit in each group."""

    tokens: np.ndarray  # (U,) distinct lengths, ascending
    counts: np.ndarray  # (U,) documents of each
    groups: Mapping[str, Mapping[str, float]]  # column -> value -> what its documents weigh together


def make_ends(settings: ResolvedSelect, size: float, census: Census) -> Limits:
    """The limits of these settings on a pool of which this is the census, without its documents: see `Limits.of`.

    :raises InputError: the quotas contradict one another or ask for more than the pool has.
    """
    in_tokens, repeat, documents = settings.in_tokens, settings.repeat, int(census.counts.sum())
    weights, counts = (census.tokens, census.counts) if in_tokens else (np.ones(1), np.array([documents]))
    counted = bool((weights == 1).all())
    limited = bool(settings.quotas) or settings.length_tolerance is not None
    spare = 0.0 if counted else most_unspent(weights, size, counts)
    unspent = max(spare, TOLERANCE * size) if limited and not counted else spare
    repeated = 0.0 if counted else max(most_unspent(weights, size, counts * repeat), TOLERANCE * size)
    names, scale = [], []
    ends: list[tuple[np.ndarray, np.ndarray]] = []
    columns = tuple((quota.column, tuple(sorted(census.groups[quota.column]))) for quota in settings.quotas)
    for quota, (column, values) in zip(settings.quotas, columns, strict=True):
        ends.append(_quota_ends(quota, size, census.groups, in_tokens, counted, repeated, repeat))
        names += [f"{column} = {name!r}" for name in values]
        scale += [1.0] * len(values)
    if settings.length_tolerance is not None:
        mean, tolerance = float((census.tokens * census.counts).sum() / documents), settings.length_tolerance
        if settings.in_tokens:  # Σ tokens is fixed, so the mean is bounded through the number of documents
            shortest, grain = mean * (1 - tolerance), TOLERANCE * size / mean
            most = size / shortest if shortest > 0 else float("inf")
            low, high = size / (mean * (1 + tolerance)) - grain, most + grain
        else:
            whole, grain = size * mean, TOLERANCE * size * mean
            low, high = whole * (1 - tolerance) - grain, whole * (1 + tolerance) + grain
        names.append(LENGTH)
        scale.append(1 / mean if in_tokens else mean)
        ends.append((np.array([low]), np.array([high])))
        per_weight = 1 / census.tokens if in_tokens else census.tokens
        weight = census.counts * (census.tokens if in_tokens else 1.0)
        _check_length(low, high, per_weight, repeat * weight, size, counted)
    lows, highs = (np.concatenate([NOTHING, *(each[side] for each in ends)]) for side in (0, 1))
    made = Limits(NOTHING, size, tuple(names), lows, highs, np.array(scale), slack=unspent)
    return replace(made, columns=columns, in_tokens=in_tokens)


def make_limits(
    settings: ResolvedSelect, weights: np.ndarray, size: float, tokens: np.ndarray | None, groups: Mapping[str, Any]
) -> Limits:
    """The limits of these settings on a pool.

    :raises ConfigError, InputError: as `take_census` and `make_ends`.
    """
    weights = np.asarray(weights, dtype=np.float64)
    if not settings.quotas and settings.length_tolerance is None:
        return Limits(weights, size)
    lengths = weights if settings.in_tokens or tokens is None else np.asarray(tokens, dtype=np.float64)
    census = take_census(settings, lengths, groups)
    made = make_ends(settings, size, census)
    return replace(made.of(lengths, made.codes(groups)), slack=None)


def take_census(settings: ResolvedSelect, tokens: np.ndarray, groups: Mapping[str, Any]) -> Census:
    """The census of documents of these lengths (n,) and groups (n,).

    :raises ConfigError: a quota's column is not among the groups.
    """
    weights = tokens if settings.in_tokens else None
    found = {}
    for column in (quota.column for quota in settings.quotas):
        if column not in groups:
            have = ", ".join(sorted(groups)) or "none"
            raise ConfigError(f"quotas: no group column {column!r}{nearest(column, groups)}; given: {have}")
        values, codes = np.unique(_named(groups[column]), return_inverse=True)
        found[column] = dict(zip(values.tolist(), np.bincount(codes, weights).tolist(), strict=True))
    return Census(*np.unique(np.asarray(tokens, dtype=np.float64), return_counts=True), found)


def add_census(one: Census, other: Census) -> Census:
    """The census of the documents of both."""
    tokens, place = np.unique(np.concatenate([one.tokens, other.tokens]), return_inverse=True)
    counts = np.bincount(place, np.concatenate([one.counts, other.counts])).astype(np.int64)
    groups = {name: Counter(own) for name, own in one.groups.items()}
    for name, sums in groups.items():
        sums.update(other.groups[name])  # adds, and keeps a value of documents without tokens, which + drops
    return Census(tokens, counts, groups)


def idle_quotas(settings: ResolvedSelect, groups: Mapping[str, Any]) -> list[str]:
    """A sentence for each quota whose maximum names values that no document has, as a typing error makes it."""
    found = []
    for quota in settings.quotas:
        there = _named(groups.get(quota.column, ())) if quota.maximum else ()
        if absent := sorted(quota.maximum.keys() - {*there}):
            text = f"no document has {quota.column} {some(absent, 5)}, so a maximum of select.quotas bounds nothing"
            found.append(text + nearest(absent[0], {*there}))
    return found


def _named(values: Any) -> np.ndarray:
    return np.asarray(["" if value is None else str(value) for value in values])


def _quota_ends(
    quota: Quota,
    size: float,
    groups: Mapping[str, Mapping[str, float]],
    in_tokens: bool,
    whole: bool,
    spare: float,
    repeat: int,
) -> tuple[np.ndarray, np.ndarray]:
    """(V,) each: the least and the most of each value.

    whole: every document weighs 1; spare: what a selection may leave of the budget.
    """
    names = tuple(sorted(groups[quota.column]))
    available = repeat * np.array([groups[quota.column][name] for name in names])
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
    low = np.maximum(low, up(np.array([quota.minimum.get(name, -np.inf) for name in names]) * size))
    high = np.minimum(high, down(np.array([quota.maximum.get(name, np.inf) for name in names]) * size))
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
    if most < size - spare - grain:
        raise InputError(
            f"quota: the maximums of {quota.column} leave room for {most:.0f}, the budget is {size:.0f}; "
            "raise one or lower the budget"
        )
    return low, high


def _check_length(
    low: float, high: float, per_weight: np.ndarray, weights: np.ndarray, size: float, counted: bool
) -> None:
    """Raises InputError if no selection that spends the budget holds the length bound, other limits ignored.

    per_weight, weights: (U,) coefficient per unit of the budget, and what all documents of that weigh together.
    """
    for sign in (1, -1):
        order = np.argsort(sign * per_weight, kind="stable")
        taken = np.diff(np.minimum(np.cumsum(weights[order]), size), prepend=0.0)
        extreme = float(taken @ per_weight[order])
        short = sign < 0 and extreme < low * (1 - 1e-9) - 1e-9
        if short or (sign > 0 and counted and extreme > high * (1 + 1e-9) + 1e-9):
            raise InputError(
                "length_tolerance: no selection of this budget comes that near to the pool's mean length; "
                "raise the tolerance or change the budget"
            )


def _ceil(value: Any) -> Any:
    return np.ceil(value - 1e-9)


def _floor(value: Any) -> Any:
    return np.floor(value + 1e-9)


# -- the limits' sums over a selection that changes document by document, for the compiled loops of searches


class RunningSums(NamedTuple):
    """The documents' parts in the limits' sums, and these with their ends."""

    weights: np.ndarray  # (N,) what each document takes of the budget
    codes: np.ndarray  # (N, kinds) int32: of which limits a document is part
    coefficients: np.ndarray  # (N, kinds) what it adds to their sums
    sums: np.ndarray  # (R,) over the selection
    low: np.ndarray  # (R,)
    high: np.ndarray  # (R,)


def running_sums(limits: Limits, selected: np.ndarray, index: np.ndarray | None = None) -> RunningSums:
    """The sums of this mask (N,) bool, for a search among the documents `index` (None: all)."""
    part = limits if index is None else limits.at(index)
    return RunningSums(part.weights, *part.by_document, limits.spent(selected).sums, part.low, part.high)


@compiled
def allowed(leaving, entering, spent, room, sums):  # type: ignore[no-untyped-def]
    """Whether a swap keeps the budget (within `room` of it) and the limits.

    leaving is −1 for an addition, entering −1 for a removal. spent: what is spent beyond the budget.
    """
    more = sums.weights[entering] if entering >= 0 else 0.0
    less = sums.weights[leaving] if leaving >= 0 else 0.0
    after = spent + more - less
    if abs(after) > room + 1e-9 and abs(after) > abs(spent) - 1e-9:
        return False
    for column in range(sums.codes.shape[1]):
        out = sums.codes[leaving, column] if leaving >= 0 else -1
        into = sums.codes[entering, column] if entering >= 0 else -1
        more = sums.coefficients[entering, column] if entering >= 0 else 0.0
        less = sums.coefficients[leaving, column] if leaving >= 0 else 0.0
        if out == into:
            there = sums.sums[out] + more - less
            if more != less and (there < sums.low[out] - 1e-9 or there > sums.high[out] + 1e-9):
                return False
            continue
        if out >= 0 and sums.sums[out] - less < sums.low[out] - 1e-9:
            return False
        if into >= 0 and sums.sums[into] + more > sums.high[into] + 1e-9:
            return False
    return True


@compiled
def book_row(row, sign, sums):  # type: ignore[no-untyped-def]
    """Updates the sums in place when a row enters (sign 1) or leaves (sign −1)."""
    for column in range(sums.codes.shape[1]):
        sums.sums[sums.codes[row, column]] += sign * sums.coefficients[row, column]
