"""The driver of a corpus in groups of shards, as the process that runs the rounds sees it.

No array of this process has the length of the corpus. Prices and decisions lie in files, one for each group of shards,
and are read group by group. A budget in documents without limits reads the prices alone. Otherwise the documents'
lengths and their values of the limited columns are read too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial, reduce, wraps
from operator import add
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from datamask.config import Config, ResolvedSelect
from datamask.maps import Handed, Mapper, hand_on, handed, here
from datamask.selection.budget_cuts import Blocks, BudgetCut, Filling, ascending, descending, find_cut, value_of
from datamask.selection.driver import Iteration
from datamask.selection.problem.limits import Census, Limits, Spent, add_census, make_ends, take_census
from datamask.selection.problem.pool import budget_of, quality_names
from datamask.selection.problem.problem import Certificate, Evaluation, Term, constant_of, scaled_quality, scales_of

if TYPE_CHECKING:
    from datamask.selection.candidates import CandidateGroup

HELD = 1 << 21  # documents, up to which a column is held after its first read: 16 MB a column
UNSOLVED = 0.05  # share of the objective's span; a fractional optimum further below its bound had too little room
SPENT = 1 - 1e-15  # share of the budget that counts as all of it
SIDE, GRAINS = 640, 16  # of a histogram of distances from a soft cut: bins on each side, and bins to its width


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
    slopes: Sequence[np.ndarray] = ()  # (J,) each: the gradients at which documents are priced

    @cached_property
    def settings(self) -> ResolvedSelect:
        """Those of the selection."""
        return self.config.selection

    def linear(self, shard: CandidateGroup) -> np.ndarray:
        """(n,) each document's scaled quality."""
        return scaled_quality(self.terms, quality_of(shard))


State = TypeVar("State", bound=Round)
Found = Callable[[State, Group], Mapping[str, np.ndarray]]


def hands_on(name: str) -> Callable[[Found[State]], Callable[[State, Group], Handed]]:
    """A map of a round whose arrays are handed on by this name, and found where an earlier attempt handed them on."""

    def made(work: Found[State]) -> Callable[[State, Group], Handed]:
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
    dual: np.ndarray  # (R,) the limits' dual prices


class SoftCut(NamedTuple):
    """Documents that count by the logistic function p of their distance from the cut."""

    fixed: Sequence[Handed]  # of each group `inside`, (n,) float32: p
    most: float  # what `ReducedPrices.most` is at most, with the entropy of p times the width
    worth: float  # of that, without the entropy


def weights_of(settings: ResolvedSelect, shard: CandidateGroup) -> np.ndarray:
    """(n,) float64: what each document takes of the budget."""
    return np.asarray(shard.tokens, dtype=np.float64) if settings.in_tokens else np.ones(len(shard))


def quality_of(shard: CandidateGroup) -> np.ndarray:
    """(n, Q) float64."""
    return np.asarray(shard.quality, dtype=np.float64).reshape(len(shard), -1)


class Nearest(NamedTuple):
    """Documents near the cut, and what the others are."""

    at: Sequence[np.ndarray]  # their places in each group
    fixed: Sequence[Handed]  # of each group `at`, these places, and `inside`, (n,) bool: which others are selected
    spent: Spent  # by those inside
    above: Sequence[np.ndarray]  # (m,) bool of each group: which of the documents near the cut are above it


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


def sum_groups(found: Sequence[Handed], name: str) -> np.ndarray:
    """The sum of all groups' arrays in float64, in the groups' order, whichever worker was first."""
    return reduce(add, (each.read(name)[0].astype(np.float64) for each in found))


def picked(parts: Iterable[np.ndarray], places: Sequence[np.ndarray]) -> np.ndarray:
    """These places (m,) of each group's array, of one group after the other."""
    return np.concatenate([own[at] for own, at in zip(parts, places, strict=True)])


class GroupDriver(Iteration[ShardedSelection]):
    """The driver of groups: the budget and the limits of a corpus, sums and cuts over it, and what is undecided.

    :raises UndecidedTooFew: of `run`: see there.
    """

    read_undecided: Any  # the map that reads a group's documents `at`, and sums those `inside`
    state: Any  # of the rounds
    terms: Sequence[Term]  # of quality
    diversity: Sequence[Term]
    index: Sequence[np.ndarray]  # places of the undecided in each group
    fixed: Sequence[Handed]  # of each group `inside`, (n,) bool: which other documents are selected
    own: Limits  # the corpus's, on the undecided
    spent: Spent  # by the fixed ones
    hashes: Callable[[], Iterator[np.ndarray]]  # (n,) uint64 of each group's documents, by which samples are drawn

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
        self.columns = quality_of(shards[0]).shape[1]
        self.quality_names = quality_names(self.columns)
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
        self.coded = []
        for group in self.groups if self.limits.columns else ():
            codes = self.limits.codes(group.shard.groups)
            named = {f"codes_{place}": own for place, own in enumerate(codes)}
            self.coded.append(self.hand(f"codes-{group.number}", **named))
        self.history: list[dict[str, float]] = []

    def hand(self, name: str, **arrays: np.ndarray) -> Handed:
        """Hands arrays on by this name, or finds those that an interrupted run handed on."""
        return handed(self.folder, name) or hand_on(self.folder, name, **arrays)

    def hand_each(self, name: str, **columns: Iterable[np.ndarray]) -> list[Handed]:
        """Hands these arrays of each group on, by this name and the group's number."""
        each = enumerate(zip(*columns.values(), strict=True))
        return [self.hand(f"{name}-{number}", **dict(zip(columns, own, strict=True))) for number, own in each]

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
        return weights_of(self.settings, group.shard)

    def known(self, group: Group) -> tuple[np.ndarray, list[np.ndarray]]:
        """(n,) each: the documents' lengths, and their codes in the limited columns."""
        names = [f"codes_{place}" for place in range(len(self.limits.columns))]
        codes = self.coded[group.number].read(*names) if names else []
        tokens = group.shard.tokens if self.reads_columns else np.ones(len(group.shard))
        return np.asarray(tokens, dtype=np.float64), codes

    def limits_at(self, rows: Sequence[np.ndarray]) -> Limits:
        """The corpus's limits on some documents: the places (n,) of each group's, one group after the other."""
        known = [self.known(group) for group in self.groups]
        columns = range(len(self.limits.columns))
        codes = [picked((own[place] for _, own in known), rows) for place in columns]
        return self.limits.of(picked((tokens for tokens, _ in known), rows), codes)

    # ------------------------------------------------------------ sums and cuts

    def spans(self) -> list[tuple[float, float]]:
        """Each quality column's `calibration.quality_span`, over the corpus."""
        return [self._span(column) for column in range(self.columns)]

    def _span(self, column: int) -> tuple[float, float]:
        def each() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for group in self.groups:
                yield quality_of(group.shard)[:, column], self.weights(group)

        cut = self._cut(lambda: ((descending(quality), weights) for quality, weights in each()))
        last = value_of(cut.key, falling=True)
        best = math.fsum(float(weights[quality > last] @ quality[quality > last]) for quality, weights in each())
        mean = math.fsum(float(weights @ quality) for quality, weights in each()) / self.total
        return mean, (best + last * (self.size - cut.before)) / self.size

    def _cut(self, blocks: Blocks) -> BudgetCut:
        """Where the budget is spent."""
        found = find_cut(blocks, SPENT * min(self.size, self.total))
        assert found is not None
        return found

    def reduced(self, name: str, prices: Callable[[], Iterator[np.ndarray]], dual: np.ndarray) -> ReducedPrices:
        """The level at which these prices (n,) of each group, less what the limits charge, spend the budget.

        dual: (R,) the limits' dual prices. Any give a bound; at this level of the budget's it is the least for these.
        """
        above = prices
        if self.limits.whole:
            pairs = zip(self.groups, prices(), strict=True)
            files = self.hand_each(f"above-{name}", above=(price - self.charge(group, dual) for group, price in pairs))

            def above() -> Iterator[np.ndarray]:
                return (found.read("above")[0] for found in files)

        def falling() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for group, price in zip(self.groups, above(), strict=True):
                yield descending(price), self.weights(group)

        level = value_of(self._cut(falling).key, falling=True)
        over = math.fsum(
            float(self.weights(group) @ (each - level).clip(min=0))
            for group, each in zip(self.groups, above(), strict=True)
        )
        return ReducedPrices(level, over + self.limits.whole.held(level, dual), above, dual)

    def soften(self, name: str, reduced: ReducedPrices, width: float) -> SoftCut:
        """The cut made soft: this wide, and at the level at which the documents spend the budget."""
        spread = np.arange(-SIDE, SIDE + 1) / GRAINS
        weight = np.zeros(len(spread))
        for group, above in zip(self.groups, reduced.above(), strict=True):
            place = np.rint(((above - reduced.level) * GRAINS / width).clip(-SIDE, SIDE)).astype(np.int64) + SIDE
            weight += np.bincount(place, self.weights(group), len(spread))
        size, lowest = min(self.size, SPENT * self.total), -SIDE / GRAINS

        def over(by: float) -> float:
            return float(weight @ expit(spread - by)) - size

        moved = brentq(over, lowest, -lowest) if over(lowest) > 0 else lowest  # sums of all documents are rounded
        level = reduced.level + width * moved
        most = worth = self.limits.whole.held(level, reduced.dual)
        fixed, nothing = [], np.zeros(0, np.int64)
        for group, above in zip(self.groups, reduced.above(), strict=True):
            off, weights = above - level, self.weights(group)
            p = expit(off / width)
            most += width * float(weights @ np.logaddexp(0, off / width))
            worth += float(weights @ (p * off))
            fixed.append(self.hand(f"soft-{name}-{group.number}", at=nothing, inside=p.astype(np.float32)))
        return SoftCut(fixed, most, worth)

    def charge(self, group: Group, dual: np.ndarray) -> np.ndarray:
        """(n,) what the limits' dual prices charge for each document, per unit of the budget."""
        return self.limits.of(*self.known(group)).charge(dual) if self.limits.whole else np.zeros(len(group.shard))

    # ------------------------------------------------------------ the undecided

    @property
    def constant(self) -> float:
        """As `Objective.constant`."""
        return constant_of((*self.terms, *self.diversity))

    def note(self, step: Mapping[str, float]) -> None:
        """As `PoolDriver.note`."""
        constant = self.constant
        self.history.append({"step": len(self.history), **{name: value + constant for name, value in step.items()}})

    def ones(self) -> Iterator[np.ndarray]:
        """(n,) ones of each group."""
        return (np.ones(len(group.shard), np.int64) for group in self.groups)

    def sample(self, room: int, lengths: Callable[[], Iterator[np.ndarray]]) -> list[np.ndarray]:
        """A sample: the documents with the least hashes, as many as there is room for. Their places in each group."""
        filling = Filling(lambda: zip(self.hashes(), lengths(), strict=True), room)
        return [np.flatnonzero(filling.take(*each)) for each in zip(self.hashes(), lengths(), strict=True)]

    def places(self, name: str, index: Sequence[np.ndarray]) -> list[Handed]:
        """These places of each group (`at`) for a round, with no document `inside`."""
        return self.hand_each(f"at-{name}", at=index, inside=(np.zeros(count, bool) for count in self.rows))

    def given(self, arrays: Iterable[Handed]) -> list[Group]:
        """The groups as items of a round that needs these arrays."""
        return [group._replace(now=now) for group, now in zip(self.groups, arrays, strict=True)]

    def nearest(
        self, name: str, prices: ReducedPrices, lengths: Callable[[], Iterator[np.ndarray]], room: int
    ) -> Nearest:
        """The documents nearest to the cut, as many as there is room for, about half of it above the cut.

        lengths: (n,) of each group, what each document takes of the room.
        """
        level, above = prices.level, prices.above

        def side(over: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            """Distances from the cut, and lengths, of the documents above it or of the others."""
            for price, length in zip(above(), lengths(), strict=True):
                off = price - level
                mine = (off > 0) == over
                yield ascending(np.abs(off[mine])), length[mine]

        ends = [sum(int(length.sum(dtype=np.int64)) for _, length in side(over)) for over in (True, False)]
        below = min(ends[1], room - min(ends[0], room // 2))
        rooms = {True: room - below, False: below}
        fillings = {over: Filling(partial(side, over), room) for over, room in rooms.items()}
        index, fixed, spent, starts = [], [], [], []
        for group, price, length in zip(self.groups, above(), lengths(), strict=True):
            off = price - level
            undecided = np.zeros(len(off), bool)
            for over, filling in fillings.items():
                mine = np.flatnonzero((off > 0) == over)
                undecided[mine] = filling.take(ascending(np.abs(off[mine])), length[mine])
            at, inside = np.flatnonzero(undecided), (off > 0) & ~undecided
            index.append(at)
            starts.append(off[at] > 0)
            fixed.append(self.hand(f"at-{name}-{group.number}", at=at, inside=inside))
            spent.append(self.limits.of(*self.known(group)).spent(inside))
        return Nearest(index, fixed, reduce(add, spent), starts)

    def take(self, name: str, fixed: Sequence[Handed]) -> list[Handed]:
        """What the groups tell of the documents `at`, and of those `inside`: see `nearest`."""
        return self.maps(type(self).read_undecided, replace(self.state, name=name), self.given(fixed), self.rows)

    def pose(self, name: str, near: Nearest, start: np.ndarray | None) -> Undecided:
        """Makes these documents the undecided ones. start: (m,) their first p.

        :raises UndecidedTooFew: they cannot meet the limits.
        """
        self.index, self.fixed, self.spent = near.at, near.fixed, near.spent
        self.own, self.starts = self.limits_at(near.at), np.cumsum([0, *map(len, near.at)])
        left = self.own.less(near.spent)
        if not left.fits():
            raise UndecidedTooFew
        linear = picked((self.state.linear(group.shard) for group in self.groups), near.at)
        return Undecided(self.take(name, near.fixed), linear, left, start)

    def of_group(self, place: int, values: np.ndarray) -> np.ndarray:
        """(n,) of a group, of the type of values (m,): those of the undecided, and 1 and 0 for the others."""
        found = self.fixed[place].read("inside")[0].astype(values.dtype)
        found[self.index[place]] = values[self.starts[place] : self.starts[place + 1]]
        return found

    def finish(
        self,
        decisions: Iterable[tuple[np.ndarray, np.ndarray, np.ndarray]],
        statistics: Mapping[str, float],
        certificate: Certificate,
        more: Mapping[str, Any] = {},
    ) -> ShardedSelection:
        """The selection with its facts. decisions: of each group's documents (n,) which are selected (bool), their
        probability, and price of a document; statistics: diversity's raw values, by name; more: other facts."""
        decided, sums, selected = [], np.zeros(self.columns), 0
        for group, (own, probability, price) in zip(self.groups, decisions, strict=True):
            sums += (self.weights(group) * own) @ quality_of(group.shard)
            selected += int(own.sum())
            numbers = {"probability": probability.astype(np.float32), "price": price.astype(np.float32)}
            decided.append(hand_on(self.folder, f"decided-{group.number}", selected=own, **numbers))
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
