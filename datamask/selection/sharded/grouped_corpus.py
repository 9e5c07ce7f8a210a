"""The corpus in groups of shards, as the process that runs the rounds sees it: its limits, sums and budget cuts.

No array of this process has the length of the corpus. Prices and decisions lie in files, one for each group of shards,
and are read group by group. A budget in documents without limits reads the prices alone. Otherwise the documents'
lengths and their values of the limited columns are read too.

    cut = find_cut(blocks, budget)
    taken = Filling(blocks, room).take(keys, weights)

`blocks()` gives the keys (n,) uint64 and the weights (n,) of one group of documents after the other. Documents count by
ascending key (`ascending`, `descending` make keys of numbers). The cut's 64 bits are found 16 at a time, by a histogram
over all blocks each, as a radix sort does, until so few keys are left that they are sorted; the caller holds one block,
65,536 sums and these.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce, wraps
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np

from datamask.config import Config, ResolvedSelect
from datamask.maps import Handed, Mapper, hand_on, handed
from datamask.selection.problem.limits import Census, Limits, add_census, make_ends, take_census
from datamask.selection.problem.pool import budget_of
from datamask.selection.problem.problem import Term, scaled_quality

HELD = 1 << 21  # documents, up to which a column is held after its first read: 16 MB a column
BITS = 16  # of a key that are found in a pass
SORTED = 1 << 18  # keys that are sorted, at most
HIGH = np.uint64(1 << 63)
Blocks = Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]]
SPENT = 1 - 1e-15  # share of the budget that counts as all of it


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


@dataclass(frozen=True, eq=False)
class ShardedSelection:
    """The selection from all shards. Its arrays are read from the rounds' folder while that is there."""

    decided: Sequence[Handed]  # each group's `selected` (bool), `probability` and `price` (float32): (n,) each
    facts: Mapping[str, Any]

    @property
    def selected(self) -> np.ndarray:
        """(N,) bool, in the order of the shards."""
        return self._column("selected")

    @property
    def probability(self) -> np.ndarray:
        """(N,) float32: the fractional optimum."""
        return self._column("probability")

    @property
    def price(self) -> np.ndarray:
        """(N,) float32: each document's price at the selection."""
        return self._column("price")

    def _column(self, name: str) -> np.ndarray:
        return np.concatenate([found.read(name)[0] for found in self.decided])


class UndecidedTooFew(Exception):
    """The undecided documents cannot meet the limits, or are too few for the optimum.

    The corpus must then be gathered and solved as one problem.
    """


class Group(NamedTuple):
    """An item of a round's map: shards whose features are read together."""

    number: int
    shard: ShardCandidates
    first: int  # the row number of its first candidate in the corpus
    now: Handed | None = None  # the arrays that this round needs, (n,) each

    def given(self, *names: str) -> tuple[np.ndarray, ...]:
        """These arrays of this round."""
        assert self.now is not None
        return tuple(self.now.read(*names))


@dataclass(frozen=True, eq=False)
class Round:
    """The state of a round: what every worker is given beside its group."""

    config: Config
    folder: str
    name: str = ""
    size: float = 0.0  # the budget
    terms: Sequence[Term] = ()  # of quality

    @property
    def settings(self) -> ResolvedSelect:
        """Those of the selection."""
        return self.config.selection

    def linear(self, shard: ShardCandidates) -> np.ndarray:
        """(n,) each document's scaled quality."""
        return scaled_quality(self.terms, quality_of(shard))


State = TypeVar("State", bound=Round)


def hands_on(
    name: str,
) -> Callable[[Callable[[State, Group], Mapping[str, np.ndarray]]], Callable[[State, Group], Handed]]:
    """A map of a round whose arrays are handed on by this name, and found where an earlier attempt handed them on."""

    def made(work: Callable[[State, Group], Mapping[str, np.ndarray]]) -> Callable[[State, Group], Handed]:
        @wraps(work)
        def run(state: State, group: Group) -> Handed:
            place = f"{name}-{state.name}-{group.number}"
            return handed(state.folder, place) or hand_on(state.folder, place, **work(state, group))

        return run

    return made


class ReducedPrices(NamedTuple):
    """Prices of the corpus less what the limits charge."""

    level: float  # the budget's dual price
    most: float  # an upper bound on Σ w·price over all selections within the budget and the limits
    above: Callable[[], Iterator[np.ndarray]]  # of each group, the prices (n,) less all charges but the level


def weights_of(settings: ResolvedSelect, shard: ShardCandidates) -> np.ndarray:
    """(n,) float64: what each document takes of the budget."""
    return np.asarray(shard.tokens, dtype=np.float64) if settings.in_tokens else np.ones(len(shard))


def quality_of(shard: ShardCandidates) -> np.ndarray:
    """(n, Q) float64."""
    return np.asarray(shard.quality, dtype=np.float64).reshape(len(shard), -1)


class GroupedCorpus:
    """The budget and the limits of a corpus, and the sums and cuts over it."""

    def __init__(self, shards: Sequence[ShardCandidates], config: Config, maps: Mapper, folder: str) -> None:
        settings = config.selection
        self.config, self.maps, self.folder = config, maps, folder
        self.rows = [len(shard) for shard in shards]
        self.count = sum(self.rows)
        firsts = np.cumsum([0, *self.rows[:-1]]).tolist()
        self.groups = [Group(number, *each) for number, each in enumerate(zip(shards, firsts, strict=True))]
        self.columns = quality_of(shards[0]).shape[1]
        # whether token counts or group columns are needed
        self.reads_columns = bool(settings.in_tokens or settings.quotas or settings.length_tolerance is not None)
        if self.reads_columns:
            census = reduce(add_census, (take_census(settings, shard.tokens, shard.groups) for shard in shards))
        else:
            census = Census(np.ones(1), np.array([self.count]), {})
        tokens = float(census.tokens @ census.counts)
        self.unit, self.size = budget_of(settings, self.count, (tokens, float(census.tokens[0])))
        self.total = tokens if self.unit == "tokens" else float(self.count)  # weight of all
        self.limits = make_ends(settings, self.size, census)
        self.coded = [self._code(group) for group in self.groups] if self.limits.columns else []
        self.history: list[dict[str, float]] = []

    def hand(self, name: str, **arrays: np.ndarray) -> Handed:
        """Hands arrays on by this name, or finds those that an interrupted run handed on."""
        return handed(self.folder, name) or hand_on(self.folder, name, **arrays)

    def _code(self, group: Group) -> Handed:
        codes = self.limits.codes(group.shard.groups)
        return self.hand(f"codes-{group.number}", **{f"codes_{place}": own for place, own in enumerate(codes)})

    # ------------------------------------------------------------ documents of a group

    def column(self, found: Sequence[Handed], name: str) -> Callable[[], Iterator[np.ndarray]]:
        """A function that gives this array of one group after the other."""
        if self.count > HELD:
            return lambda: (each.read(name)[0] for each in found)
        held: list[np.ndarray] = []

        def arrays() -> Iterator[np.ndarray]:
            held.extend(each.read(name)[0] for each in found[len(held) :])
            return iter(held)

        return arrays

    def weights(self, group: Group) -> np.ndarray:
        """(n,) float64: what each document takes of the budget."""
        return weights_of(self.config.selection, group.shard)

    def known(self, group: Group) -> tuple[np.ndarray, list[np.ndarray]]:
        """(n,) each: the documents' lengths, and their codes in the limited columns."""
        names = [f"codes_{place}" for place in range(len(self.limits.columns))]
        codes = self.coded[group.number].read(*names) if names else []
        return np.asarray(group.shard.tokens, dtype=np.float64) if self.reads_columns else np.ones(
            len(group.shard)
        ), codes

    def limits_at(self, rows: Sequence[np.ndarray]) -> Limits:
        """The corpus's limits on some documents: the places (n,) of each group's, one group after the other."""
        if not self.reads_columns:
            return self.limits.of(np.ones(sum(map(len, rows))), [])
        known = [self.known(group) for group in self.groups]
        tokens = np.concatenate([tokens[at] for (tokens, _), at in zip(known, rows, strict=True)])
        codes = [
            np.concatenate([own[place][at] for (_, own), at in zip(known, rows, strict=True)])
            for place in range(len(self.limits.columns))
        ]
        return self.limits.of(tokens, codes)

    # ------------------------------------------------------------ sums and cuts

    def spans(self) -> list[tuple[float, float]]:
        """Each quality column's `calibration.quality_span`, over the corpus."""
        return [self._span(column) for column in range(self.columns)]

    def _span(self, column: int) -> tuple[float, float]:
        def each() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for group in self.groups:
                yield quality_of(group.shard)[:, column], self.weights(group)

        cut = self._cut(lambda: ((descending(quality), weights) for quality, weights in each()), SPENT)
        last = value_of(cut.key, falling=True)
        best = math.fsum(float(weights[quality > last] @ quality[quality > last]) for quality, weights in each())
        mean = math.fsum(float(weights @ quality) for quality, weights in each()) / self.total
        return mean, (best + last * (self.size - cut.before)) / self.size

    def _cut(self, blocks: Callable[[], Iterator[tuple[np.ndarray, np.ndarray]]], share: float = 1.0) -> BudgetCut:
        """Where the budget is spent. share: of it."""
        found = find_cut(blocks, share * min(self.size, self.total))
        assert found is not None
        return found

    def _falling(self, prices: Callable[[], Iterator[np.ndarray]]) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for group, price in zip(self.groups, prices(), strict=True):
            yield descending(price), self.weights(group)

    def reduced(self, name: str, prices: Callable[[], Iterator[np.ndarray]], dual: np.ndarray) -> ReducedPrices:
        """The level at which these prices (n,) of each group, less what the limits charge, spend the budget.

        dual: (R,) the limits' dual prices. Any give a bound; at this level of the budget's it is the least for these.
        """
        above = prices
        if self.limits.whole:
            files = [
                self.hand(f"above-{name}-{group.number}", above=price - self.charge(group, dual))
                for group, price in zip(self.groups, prices(), strict=True)
            ]

            def above() -> Iterator[np.ndarray]:
                return (found.read("above")[0] for found in files)

        level = value_of(self._cut(lambda: self._falling(above), SPENT).key, falling=True)
        over = math.fsum(
            float(self.weights(group) @ (each - level).clip(min=0))
            for group, each in zip(self.groups, above(), strict=True)
        )
        return ReducedPrices(level, over + self.limits.whole.held(level, dual), above)

    def charge(self, group: Group, dual: np.ndarray) -> np.ndarray:
        """(n,) what the limits' dual prices charge for each document, per unit of the budget."""
        return self.limits.of(*self.known(group)).charge(dual) if self.limits.whole else np.zeros(len(group.shard))


# ---------------------------------------------------------------- cuts of an order


class BudgetCut(NamedTuple):
    """The key at which the sum of weights reaches what was asked for, and the sum of those of lower keys."""

    key: np.uint64
    before: float


def ascending(values: np.ndarray) -> np.ndarray:
    """(n,) uint64 keys in the order of float64 values (n,); equal values, 0 and −0 among them, have equal keys."""
    bits = (np.asarray(values, dtype=np.float64) + 0.0).view(np.uint64)
    return np.where(bits >= HIGH, ~bits, bits | HIGH)


def descending(values: np.ndarray) -> np.ndarray:
    """(n,) uint64 keys in the reverse order of float64 values (n,)."""
    return ~ascending(values)


def value_of(key: np.uint64, falling: bool = False) -> float:
    """The number of which `ascending`, or where `falling` is set `descending`, made this key."""
    key = ~np.uint64(key) if falling else np.uint64(key)
    return float(np.array(key ^ HIGH if key >= HIGH else ~key).view(np.float64))


def find_cut(blocks: Blocks, budget: float) -> BudgetCut | None:
    """The least key at which the weights of all keys up to it add up to `budget` or more; None: all are less.

    Sums of whole numbers below 2⁵³ are exact in any order.
    """
    found, before = np.uint64(0), 0.0
    for shift in range(64 - BITS, -1, -BITS):
        sums, counts = np.zeros(1 << BITS), np.zeros(1 << BITS, np.int64)
        for keys, weights in blocks():
            keys, weights = _begun(keys, weights, found, shift + BITS)
            digit = (keys >> np.uint64(shift) & np.uint64((1 << BITS) - 1)).astype(np.int64)
            sums += np.bincount(digit, weights, minlength=1 << BITS)
            counts += np.bincount(digit, minlength=1 << BITS)
        reached = before + np.cumsum(sums)
        place = int(np.searchsorted(reached, budget))
        if place == len(reached):
            return None
        before = float(reached[place - 1]) if place else before
        found = found << np.uint64(BITS) | np.uint64(place)
        if shift and counts[place] <= SORTED:
            pairs = [_begun(keys, weights, found, shift) for keys, weights in blocks()]
            keys, weights = (np.concatenate(each) for each in zip(*pairs, strict=True))
            different, index = np.unique(keys, return_inverse=True)
            ends = before + np.cumsum(np.bincount(index, weights))
            place = min(int(np.searchsorted(ends, budget)), len(ends) - 1)
            return BudgetCut(different[place], float(ends[place - 1]) if place else before)
    return BudgetCut(found, before)


def _begun(keys: np.ndarray, weights: np.ndarray, found: np.uint64, shift: int) -> tuple[np.ndarray, np.ndarray]:
    """Those of the keys whose bits from `shift` on are `found`, with their weights."""
    if shift == 64:
        return keys, weights
    mine = np.flatnonzero(keys >> np.uint64(shift) == found)
    return keys[mine], weights[mine]


class Filling:
    """Takes documents by ascending key, and of equal keys in the order in which they come, as long as there is room.

    The first that does not fit ends it. Every document is to be shown once, in one order.
    """

    def __init__(self, blocks: Blocks, room: float) -> None:
        """blocks: with weights that are whole numbers."""
        cut = find_cut(blocks, np.floor(room) + 1)
        self.key = None if cut is None else cut.key
        self.left = 0.0 if cut is None else np.floor(room) - cut.before

    def take(self, keys: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """(n,) bool: which of these documents (n,) are taken."""
        if self.key is None:
            return np.ones(len(keys), bool)
        taken = keys < self.key
        ties = np.flatnonzero(keys == self.key)
        filled = np.cumsum(weights[ties])
        taken[ties] = filled <= self.left
        self.left -= float(filled[-1]) if len(ties) else 0.0
        return taken
