"""The driver of a selection: prices documents, solves the undecided, finds a mask, certifies.

    draft = Mixture(problem, terms, feasible, progress).run()        # one pool, held by one process
    found = CoverRounds(shards, config, maps, folder).run()          # groups of documents, on any workers

init         the terms, and the first point
step         the undecided documents are solved, the others fixed; the solution is the next point. Of a pool all are
             undecided, and one step solves it. Of groups, those whose prices are near the cut are gathered
terminate    whether another step would not help
postprocess  the mask, its exact objective, and a bound for all documents

A metric takes part by its state, a sum over documents: one number an atom (`cover.solve`, `cover.cover_shards`), d or
d² numbers (`solvers.relaxation`, `sharded.moment_rounds`). Documents that are fixed, as in a refresh, are part of the
state (`selection.extension`); documents that are repeated are copies (`cover.repeat`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np

from datamask.maps import Handed, hand_on
from datamask.selection.engine.iterate import Iteration
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits, Spent
from datamask.selection.problem.problem import Problem, Term
from datamask.selection.result import Certificate, Draft
from datamask.selection.sharded.grouped_corpus import (
    Filling,
    Group,
    GroupedCorpus,
    ReducedPrices,
    ShardedSelection,
    UndecidedTooFew,
    ascending,
    quality_of,
)
from datamask.selection.solvers import Report


class GroupDecision(NamedTuple):
    """What was decided on a group's documents: (n,) each."""

    selected: np.ndarray  # bool
    probability: np.ndarray
    price: np.ndarray  # of a document, not of a unit of the budget


class Nearest(NamedTuple):
    """Documents near the cut, and what the others are."""

    at: Sequence[np.ndarray]  # their places in each group
    fixed: Sequence[Handed]  # of each group `at`, these places, and `inside`, (n,) bool: which others are selected
    spent: Spent  # by those inside
    above: Sequence[np.ndarray]  # (m,) bool of each group: which of the documents near the cut are above it


class PoolDriver(Iteration[Draft]):
    """The driver of one pool."""

    steps = 1

    def __init__(self, problem: Problem, terms: Sequence[Term], feasible: Feasible, progress: Report) -> None:
        """terms: of diversity, those that count. feasible: the masks within the limits."""
        self.problem, self.diversity, self.feasible, self.progress = problem, list(terms), feasible, progress
        self.history: list[dict[str, float]] = []

    def note(self, step: Mapping[str, float]) -> None:
        """Adds a step's values, the objective's constant aside, to the history."""
        constant = self.problem.objective.constant
        self.history.append({"step": len(self.history), **{name: value + constant for name, value in step.items()}})
        self.progress(self.history[-1])

    def terminate(self) -> bool:
        """False: the one step is made."""
        return False


class GroupDriver(GroupedCorpus, Iteration[ShardedSelection]):
    """The driver of groups, and which documents are undecided.

    :raises UndecidedTooFew: of `run`: see there.
    """

    terms: Sequence[Term]  # of quality
    diversity: Sequence[Term]
    index: Sequence[np.ndarray]  # places of the undecided in each group
    fixed: Sequence[Handed]  # of each group `inside`, (n,) bool: which other documents are selected
    own: Limits  # the corpus's, on the undecided
    spent: Spent  # by the fixed ones
    hashes: Callable[[], Iterator[np.ndarray]]  # (n,) uint64 of each group's documents, by which samples are drawn

    @property
    def constant(self) -> float:
        """−Σ scale·zero over all terms, which the sums over documents lack."""
        return -sum(term.scale * term.zero for term in (*self.terms, *self.diversity))

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
        return [
            self.hand(f"at-{name}-{group.number}", at=at, inside=np.zeros(len(group.shard), bool))
            for group, at in zip(self.groups, index, strict=True)
        ]

    def given(self, arrays: Iterable[Handed]) -> list[Group]:
        """The groups as items of a round that needs these arrays."""
        return [group._replace(now=now) for group, now in zip(self.groups, arrays, strict=True)]

    def nearest(
        self, name: str, prices: ReducedPrices, lengths: Callable[[], Iterator[np.ndarray]], room: int
    ) -> Nearest:
        """The documents nearest to the cut, as many as there is room for, about half of it above the cut.

        lengths: (n,) of each group, what each document takes of the room.
        """
        level, _, above = prices

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

    def gather(self, index: Sequence[np.ndarray], fixed: Sequence[Handed], spent: Spent) -> Limits:
        """Makes the documents at these places undecided, and returns what the fixed ones leave of the limits for them.

        :raises UndecidedTooFew: they cannot meet the limits.
        """
        self.index, self.fixed, self.spent, self.own = index, fixed, spent, self.limits_at(index)
        self.starts = np.cumsum([0, *map(len, index)])
        left = self.own.less(spent)
        if not left.fits():
            raise UndecidedTooFew
        return left

    def of_group(self, place: int, values: np.ndarray) -> np.ndarray:
        """(n,) of a group, of the type of values (m,): those of the undecided, and 1 and 0 for the others."""
        found = self.fixed[place].read("inside")[0].astype(values.dtype)
        found[self.index[place]] = values[self.starts[place] : self.starts[place + 1]]
        return found

    def check_limits(self, mask: np.ndarray) -> None:
        """:raises UndecidedTooFew: this mask (m,) of the undecided breaks a limit."""
        if broken := self.own.broken(self.spent + self.own.spent(mask)):
            raise UndecidedTooFew(broken[0])

    def finish(
        self,
        decisions: Iterable[GroupDecision],
        statistics: Mapping[str, float],
        certificate: Certificate,
        more: Mapping[str, Any] = {},
    ) -> ShardedSelection:
        """The selection with its facts. decisions: of each group; statistics: diversity's raw values, by name; more:
        other facts."""
        decided, sums, selected = [], np.zeros(self.columns), 0
        for group, (own, probability, price) in zip(self.groups, decisions, strict=True):
            sums += (self.weights(group) * own) @ quality_of(group.shard)
            selected += int(own.sum())
            columns = {
                "selected": own,
                "probability": probability.astype(np.float32),
                "price": price.astype(np.float32),
            }
            decided.append(hand_on(self.folder, f"decided-{group.number}", **columns))
        raw = {term.name: float(sums[term.column]) / self.size for term in self.terms} | {**statistics}
        terms = (*self.terms, *self.diversity)
        objective = self.constant + sum(term.scale * raw[term.name] for term in terms)
        facts = {
            "solver": self.config.selection.solver,
            "documents": self.count,
            "selected": selected,
            "objective": objective,
            "terms": {term.name: term.calibrated(raw[term.name]) for term in terms},
            "statistics": raw,
            "scales": {term.name: {"zero": term.zero, "scale": term.scale} for term in terms},
            "upper_bound": certificate.bound,
            "gap": certificate.gap(objective),
            "relaxed": certificate.relaxed,
            "integrality": certificate.integrality(objective),
            "history": self.history,
            **more,
        }
        return ShardedSelection(decided, facts)
