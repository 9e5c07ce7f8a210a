"""The driver of a corpus in groups of shards, as the process that runs the rounds sees it.

No array of this process has the length of the corpus. Prices and decisions lie in files, one for each group of shards,
and are read group by group. A budget in documents without limits reads the prices alone. Otherwise the documents'
lengths and their values of the limited columns are read too.

    cut = find_cut(blocks, budget)                      # where a budget is spent
    taken = Filling(blocks, room).take(keys, weights)   # the documents before it
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce, wraps
from operator import add
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np

from datamask.config import Config, ResolvedSelect
from datamask.maps import Handed, Mapper, hand_on, handed, here
from datamask.selection.candidates import CandidateGroup
from datamask.selection.driver import Iteration
from datamask.selection.problem.limits import Census, Limits, Spent, add_census, make_ends, take_census
from datamask.selection.problem.pool import budget_of
from datamask.selection.problem.problem import Certificate, Evaluation, Term, constant_of, scaled_quality, scales_of

HELD = 1 << 21  # documents, up to which a column is held after its first read: 16 MB a column
UNSOLVED = 0.05  # share of the objective's span; a fractional optimum further below its bound had too little room
SPENT = 1 - 1e-15  # share of the budget that counts as all of it
BITS = 16  # of a key that are found in a pass
SORTED = 1 << 18  # keys that are sorted, at most
HIGH = np.uint64(1 << 63)
Made = TypeVar("Made")


class PerGroup(Generic[Made]):
    """What is read or made of one group after the other, anew each time one goes through it."""

    def __init__(self, made: Callable[[], Iterable[Made]]) -> None:
        self.made = made

    def __iter__(self) -> Iterator[Made]:
        return iter(self.made())


Arrays = PerGroup[np.ndarray] | list[np.ndarray]  # one of each group
Blocks = PerGroup[tuple[np.ndarray, np.ndarray]]  # of each group two, (n,)


class ShardedSelection(NamedTuple):
    """The selection from all shards. Its arrays are read from the rounds' folder while that is there."""

    decided: Sequence[Handed]  # each group's `selected` (bool), `probability` and `price` (float32): (n,) each
    facts: Mapping[str, Any]


class UndecidedTooFew(Exception):
    """The undecided documents cannot meet the limits, or are too few for the optimum.

    The corpus must then be gathered and solved as one problem.
    """


class Group(NamedTuple):
    """An item of a round's map: shards whose features are read together."""

    number: int
    shard: CandidateGroup
    now: Handed = Handed()  # the arrays that this round needs, (n,) each


@dataclass(frozen=True, eq=False)
class Round(ABC):
    """The state of a round, which every worker is given beside its group, and what a worker does: by its metrics."""

    config: Config
    folder: str
    name: str = ""
    size: float = 0.0  # the budget
    terms: Sequence[Term] = ()  # of quality
    slopes: Sequence[np.ndarray] = ()  # (J,) each: the gradients at which documents are priced

    @cached_property
    def settings(self) -> ResolvedSelect:
        """Those of the selection."""
        return self.config.selection

    def weights(self, group: Group) -> np.ndarray:
        """(n,) float64: what each document takes of the budget."""
        shard = group.shard
        return np.asarray(shard.tokens, dtype=np.float64) if self.settings.in_tokens else np.ones(len(shard))

    def linear(self, group: Group) -> np.ndarray:
        """(n,) each document's scaled quality."""
        return scaled_quality(self.terms, quality_of(group.shard))

    @abstractmethod
    def prices(self, group: Group) -> list[np.ndarray]:
        """Of a group's documents (n,) at each of the slopes: scaled quality + ⟨slope, v_i⟩."""

    @abstractmethod
    def rows(self, group: Group, at: np.ndarray, mass: np.ndarray) -> dict[str, np.ndarray]:
        """The rows of the documents `at`, and the `state` (J,) of documents of this mass (n,)."""

    @abstractmethod
    def solve(self, posed: Undecided) -> Fractions:
        """The fractional optimum of the undecided."""

    @abstractmethod
    def search(self, item: tuple[Undecided, np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
        """The best mask (m,) found from a fractional optimum of the undecided, and the corpus's state (J,) with it.

        item: the undecided, p the optimum; the prices (m,) there; how many documents are selected beside these.
        """


def hands_on(name: str) -> Callable[[Callable[[Any, Group], Mapping[str, np.ndarray]]], Callable[[Any, Group], Handed]]:
    """A map of a round whose arrays are handed on by this name, and found where an earlier attempt handed them on."""

    def made(work: Callable[[Any, Group], Mapping[str, np.ndarray]]) -> Callable[[Any, Group], Handed]:
        @wraps(work)
        def run(state: Any, group: Group) -> Handed:
            place = f"{name}-{state.name}-{group.number}"
            return handed(state.folder, place) or hand_on(state.folder, place, **work(state, group))

        return run

    return made


@hands_on("price")
def price_group(state: Round, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's prices (n,) at each of the slopes, `price_<number>`."""
    return {f"price_{place}": price for place, price in enumerate(state.prices(group))}


@hands_on("taken")
def read_undecided(state: Round, group: Group) -> dict[str, np.ndarray]:
    """Map: a group's rows of the documents `at`, and of those that are selected beside them (`inside`) the state (J,)
    and the quality's part of the objective (`offset`)."""
    at, inside = group.now.read("at", "inside")
    mass = state.weights(group) * inside / state.size
    return {**state.rows(group, at, mass), "offset": np.asarray(mass @ state.linear(group))}


class Priced(NamedTuple):
    """Every document's price, per unit of the budget and times size, and the dual prices of budget and limits."""

    prices: Arrays  # (n,) of each group
    above: Arrays  # the same less what the limits charge
    level: float  # the budget's dual price
    dual: np.ndarray  # (R,) the limits'
    most: float  # an upper bound on Σ w·price over all selections within the budget and the limits
    bound: float = math.inf  # of the tangent plane at the state of these prices, for the whole corpus


def quality_of(shard: CandidateGroup) -> np.ndarray:
    """(n, 1) float64: quality as a `Pool` has it, of one column."""
    return np.asarray(shard.quality, dtype=np.float64).reshape(len(shard), 1)


class Nearest(NamedTuple):
    """Documents near the cut, and what the others are."""

    at: Sequence[np.ndarray]  # their places in each group
    fixed: Sequence[Handed]  # of each group `at`, these places, and `inside`, (n,) bool: which others are selected
    spent: Spent  # by those inside


@dataclass(frozen=True, eq=False)
class Undecided:
    """The problem of the m undecided documents, the others held as they are."""

    taken: Sequence[Handed]  # what each group tells of them, and of the others that are selected
    linear: np.ndarray  # (m,) their scaled quality
    limits: Limits  # what the others leave of them
    p: np.ndarray | None = None  # (m,) the start

    @property
    def offset(self) -> float:
        """The others' part of the objective's linear sum."""
        return math.fsum(float(each.read("offset")[0]) for each in self.taken)


class Fractions(NamedTuple):
    """The fractional optimum of the undecided."""

    p: np.ndarray  # (m,)
    state: np.ndarray  # (J,) of the whole corpus
    value: float


def sum_groups(found: Sequence[Handed], name: str) -> np.ndarray:
    """The sum of all groups' arrays in float64, in the groups' order, whichever worker was first."""
    return reduce(add, (each.read(name)[0].astype(np.float64) for each in found))


def picked(parts: Iterable[np.ndarray], places: Sequence[np.ndarray]) -> np.ndarray:
    """These places (m,) of each group's array, of one group after the other."""
    return np.concatenate([own[at] for own, at in zip(parts, places, strict=True)])


# -- where a budget is spent, of documents in an order, that lie in groups of which one is held at a time
#
# `blocks` give the keys (n,) uint64 and the weights (n,) of one group of documents after the other. Documents count by
# ascending key (`ascending`, `descending` make keys of numbers). Few keys are sorted. Of many the cut's 64 bits are
# found 16 at a time, by a histogram over all blocks each, as a radix sort does, until few are left; the caller holds
# one block, 65,536 sums and these.


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


def value_of(key: np.uint64) -> float:
    """The number of which `descending` made this key."""
    key = ~np.uint64(key)
    return float(np.array(key ^ HIGH if key >= HIGH else ~key).view(np.float64))


def find_cut(blocks: Blocks, budget: float) -> BudgetCut | None:
    """The least key at which the weights of all keys up to it add up to `budget` or more; None: all are less.

    Sums of whole numbers below 2⁵³ are exact in any order.
    """
    found, before = np.uint64(0), 0.0
    sums: np.ndarray
    for shift in range(64, 0, -BITS):
        sums, held, count = np.zeros(1 << BITS), [], 0  # held: of the keys that begin with the bits `found`
        for keys, weights in blocks:
            mine = np.flatnonzero(keys >> np.uint64(shift) == found) if shift < 64 else slice(None)
            held.append((keys[mine], weights[mine]))
            count += len(held[-1][0])
            if count > SORTED:  # with all before: their sums by the next bits
                for keys, weights in held:
                    digit = (keys >> np.uint64(shift - BITS) & np.uint64((1 << BITS) - 1)).astype(np.int64)
                    sums += np.bincount(digit, weights, minlength=1 << BITS)
                held = []
        if count <= SORTED:
            keys, weights = (np.concatenate(each) for each in zip(*held, strict=True))
            different, index = np.unique(keys, return_inverse=True)
            sums = np.bincount(index, weights)
        reached = before + np.cumsum(sums)
        place = int(np.searchsorted(reached, budget))
        if place == len(reached):
            return None
        before = float(reached[place - 1]) if place else before
        if count <= SORTED:
            return BudgetCut(different[place], before)
        found = found << np.uint64(BITS) | np.uint64(place)
    return BudgetCut(found, before)


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


class GroupDriver(Iteration[ShardedSelection]):
    """The driver of groups: the budget and the limits of a corpus, sums and cuts over it, and what is undecided.

    :raises UndecidedTooFew: of `run`: see there.
    """

    state: Any  # of the rounds: a `Round`
    terms: Sequence[Term]  # of quality
    diversity: Sequence[Term]

    def __init__(
        self,
        shards: Sequence[CandidateGroup],
        config: Config,
        folder: str,
        maps: Mapper = here,
        room: int | None = None,
    ) -> None:
        """shards: none of them empty. folder: for the arrays passed between rounds. room: what of the undecided
        documents one worker holds, by default as much as the driver says.

        :raises InputError: as `make_problem`, and of `run`: no selection is within the limits.
        """
        settings = self.settings = config.selection
        self.config, self.folder, self.maps, self.given_room = config, folder, maps, room
        self.rows = [len(shard) for shard in shards]
        self.count = sum(self.rows)
        self.groups = [Group(number, shard) for number, shard in enumerate(shards)]
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
        coded = (np.array(self.limits.codes(shard.groups)) for shard in (shards if self.limits.columns else ()))
        self.coded = [self.hand(f"codes-{number}", codes=codes) for number, codes in enumerate(coded)]
        self.history: list[dict[str, float]] = []

    def hand(self, name: str, **arrays: np.ndarray) -> Handed:
        """Hands arrays on by this name, or finds those that an interrupted run handed on."""
        return handed(self.folder, name) or hand_on(self.folder, name, **arrays)

    def hand_each(self, name: str, **columns: Iterable[np.ndarray]) -> list[Handed]:
        """Hands these arrays of each group on, by this name and the group's number."""
        each = enumerate(zip(*columns.values(), strict=True))
        return [self.hand(f"{name}-{number}", **dict(zip(columns, own, strict=True))) for number, own in each]

    # ------------------------------------------------------------ documents of a group

    def column(self, found: Sequence[Handed], name: str) -> Arrays:
        """This array of each group."""
        each = PerGroup(lambda: (own.read(name)[0] for own in found))
        return each if self.count > HELD else list(each)

    def known(self, group: Group) -> tuple[np.ndarray, np.ndarray]:
        """(n,) the documents' lengths, and (C, n) their codes in the C limited columns."""
        codes = self.coded[group.number].read("codes")[0] if self.coded else np.zeros((0, len(group.shard)), np.int64)
        tokens = group.shard.tokens if self.reads_columns else np.ones(len(group.shard))
        return np.asarray(tokens, dtype=np.float64), codes

    def limits_at(self, rows: Sequence[np.ndarray]) -> Limits:
        """The corpus's limits on some documents: the places (n,) of each group's, one group after the other."""
        known = [self.known(group) for group in self.groups]
        codes = np.hstack([own[:, at] for (_, own), at in zip(known, rows, strict=True)])
        return self.limits.of(picked((tokens for tokens, _ in known), rows), codes)

    # ------------------------------------------------------------ sums and cuts

    def quality_span(self) -> tuple[float, float]:
        """`calibration.quality_span` of the corpus."""
        each = PerGroup(lambda: ((quality_of(group.shard)[:, 0], self.state.weights(group)) for group in self.groups))
        cut = self._cut(PerGroup(lambda: ((descending(quality), weights) for quality, weights in each)))
        last = value_of(cut.key)
        best = math.fsum(float(weights[quality > last] @ quality[quality > last]) for quality, weights in each)
        mean = math.fsum(float(weights @ quality) for quality, weights in each) / self.total
        return mean, (best + last * (self.size - cut.before)) / self.size

    def _cut(self, blocks: Blocks) -> BudgetCut:
        """Where the budget is spent."""
        found = find_cut(blocks, SPENT * min(self.size, self.total))
        assert found is not None
        return found

    def reduced(self, name: str, prices: Arrays, dual: np.ndarray) -> Priced:
        """The level at which these prices (n,) of each group, less what the limits charge, spend the budget.

        dual: (R,) the limits' dual prices. Any give a bound; at this level of the budget's it is the least for these.
        """
        above = prices
        if self.limits:
            pairs = zip(self.groups, prices, strict=True)
            files = self.hand_each(f"above-{name}", above=(price - self.charge(group, dual) for group, price in pairs))
            above = self.column(files, "above")
        weighed = PerGroup(lambda: zip(above, map(self.state.weights, self.groups), strict=True))
        cut = self._cut(PerGroup(lambda: ((descending(price), weights) for price, weights in weighed)))
        level = value_of(cut.key)
        over = math.fsum(float(weights @ (price - level).clip(min=0)) for price, weights in weighed)
        return Priced(prices, above, level, dual, over + self.limits.held(level, dual))

    def charge(self, group: Group, dual: np.ndarray) -> np.ndarray:
        """(n,) what the limits' dual prices charge for each document, per unit of the budget."""
        return self.limits.of(*self.known(group)).charge(dual)

    # ------------------------------------------------------------ what was found

    @property
    def constant(self) -> float:
        """As `Objective.constant`."""
        return constant_of((*self.terms, *self.diversity))

    def note(self, step: Mapping[str, float]) -> None:
        """As `PoolDriver.note`."""
        constant = self.constant
        self.history.append({"step": len(self.history), **{name: value + constant for name, value in step.items()}})

    @property
    def ones(self) -> Arrays:
        """(n,) ones of each group."""
        return PerGroup(lambda: (np.ones(count, np.int64) for count in self.rows))

    def finish(
        self,
        decisions: tuple[Arrays, Arrays, Arrays],
        statistics: Mapping[str, float],
        certificate: Certificate,
        more: Mapping[str, Any] = {},
    ) -> ShardedSelection:
        """The selection with its facts. decisions: of each group's documents (n,) which are selected (bool), their
        probability, and price as of `Priced`; statistics: diversity's raw values, by name; more: other facts."""
        decided, sums, selected = [], np.zeros(1), 0
        for group, own, probability, price in zip(self.groups, *decisions, strict=True):
            weights = self.state.weights(group)
            sums += (weights * own) @ quality_of(group.shard)
            selected += int(own.sum())
            each = {
                "probability": probability.astype(np.float32),
                "price": (price * weights / self.size).astype(np.float32),
            }
            decided.append(hand_on(self.folder, f"decided-{group.number}", selected=own, **each))
        raw = {term.name: float(sums[term.column]) / self.size for term in self.terms}
        terms = (*self.terms, *self.diversity)
        found = Evaluation.of(terms, raw | {**statistics})
        facts = {
            "solver": self.settings.solver,
            "documents": self.count,
            "selected": selected,
            **vars(found),
            "scales": scales_of(terms),
            "upper_bound": certificate.bound,
            "gap": certificate.gap(found.objective),
            "relaxed": certificate.relaxed,
            "integrality": certificate.integrality(found.objective),
            "history": self.history,
            **more,
        }
        return ShardedSelection(decided, facts)
