"""The rounds of a corpus in groups: the driver of every metric whose state is a sum over documents.

    begin      documents are priced at a first state, to which `descend` comes by quasi-Newton steps. Each is a pass
               over all documents: their prices, and the sums of those above a soft cut. A price needs the state alone,
               and one number a document comes back. Prices at any state give a bound for the whole corpus
    step       the undecided, whose price is near the cut, are solved by one worker with the others fixed. The solution
               is a new state, at which all are priced again
    terminate  whether the bound is near
    postprocess  one search for a mask among the undecided

A subclass lays the corpus out and says its terms; the state of its rounds is a `groups.Round` (`cover.cover_shards`,
`moment_rounds`). A fractional
optimum over a state of J numbers has at most J + 1 fractional documents, so the undecided that one worker can hold are
enough for corpora of any size.
"""

from __future__ import annotations

import contextlib
import itertools
from abc import abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial, reduce
from operator import add
from typing import NamedTuple

import numpy as np
import torch
from scipy.optimize import Bounds, brentq, minimize
from scipy.special import expit

from datamask.maps import Handed
from datamask.selection import groups
from datamask.selection.cover.solve import ACCURACY
from datamask.selection.metrics.coverage import SummedCoverage
from datamask.selection.metrics.moments import SummedMoments
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits

LIMITED = 1 << 20  # documents on which the limits' dual prices are learned, at most
# The descent's cut is soft: a document counts by the logistic function of its distance from the cut. SOFT are the
# widths of the cut in turn, as shares of the objective's span. With a sharp cut the bound of 1.4 M documents was
# still far above every choice after 60 passes, where a soft one came within .006 of one. A width has done its work
# after TURNS passes, or when the divergence of the two states is below this share, ENOUGH, of it; the descent, when a
# choice is within NEAR of the bound.
SOFT, TURNS, ENOUGH, NEAR = (0.3, 0.1, 0.03, 0.01), 25, 0.25, 0.005
SIDE, GRAINS = 640, 16  # of a histogram of distances from a soft cut: bins on each side, and bins to its width
FINE = 0.1  # the first step assumes that the bound is 1 / FINE² times as stiff as its conjugate part
SOLVES = 8  # solves of the undecided at most
LARGE_SOLVES = 2  # with the greatest room, where a solve takes minutes; 1 M long texts were .8 % off after one
# A solve may move other documents' prices past the cut. Then the solve's state and these shares of the way to it are
# tried, and the state of the least bound says which documents are undecided. Whole steps alone diverge in a small room.
SHORTER = (0.5, 0.25, 0.1, 0.03)


class SoftCut(NamedTuple):
    """Documents that count by the logistic function p of their distance from the cut."""

    fixed: Sequence[Handed]  # of each group `inside`, (n,) float32: p
    most: float  # what `groups.Priced.most` is at most, with the entropy of p times the width
    worth: float  # of that, without the entropy


class _Enough(Exception):
    """The descent need not go on."""


class _Reached(NamedTuple):
    """A bound, and the point at which it was found."""

    bound: float
    at: np.ndarray


class Rounds(groups.GroupDriver):
    """The driver of groups by prices at states (J,)."""

    joint: SummedCoverage | SummedMoments  # without documents: diversity's part of the objective
    objective_span: float
    numbers: int  # that all documents take of the room
    lengths: groups.Arrays  # (n,) of each group, what each document takes of it
    room: int
    greatest_room: int  # where it may grow if it holds too few
    descended = True  # whether the first state is that of a descent; else it is made where solves do not come near
    near: groups.Nearest  # the undecided
    own: Limits  # the corpus's, on these
    hashes: groups.Arrays  # (n,) uint64 of each group's documents, by which samples are drawn
    answers: Feasible | None = None  # of the documents that the limits' prices are learned on
    room_words: str  # a room in words, with a place for its number

    @abstractmethod
    def finished(self, chosen: groups.Arrays, probability: groups.Arrays, state: np.ndarray) -> groups.ShardedSelection:
        """The selection that has this state (J,). chosen, probability: (n,) of each group, bool and float."""

    def begin(self, at: np.ndarray) -> None:
        """Prices all documents at the first state (J,)."""
        self.base, [self.best] = at, self.price(f"at-{self.done}", at)
        self.priced = self.best  # at the last solve's optimum
        self.p = np.zeros(0)  # (m,) the fractional optimum of the undecided
        self.grown = False  # whether the room is the greatest, as the first one held too few
        self.solves, self.steps = 0, SOLVES + LARGE_SOLVES  # with this room; in all, at most
        self.nearer = True  # whether the last solve lowered the bound

    def step(self) -> None:
        """Solves the documents next to the cut, and prices all at the solution and at shares of the way to it."""
        near = self.nearest()
        self.posed_last = self.pose(f"{self.done}", near, self.first_p(near))
        [self.solved] = self.maps(type(self.state).solve, self.state, [self.posed_last])
        self.p, self.solves = self.solved.p, self.solves + 1
        states = [self.solved.state, *((1 - share) * self.base + share * self.solved.state for share in SHORTER)]
        prices = self.price(f"{self.done + 1}", *states)
        least = min(range(len(prices)), key=lambda place: prices[place].bound)
        self.nearer, self.priced = prices[least].bound < self.best.bound, prices[0]
        if self.nearer:
            self.best, self.base = prices[least], states[least]
        self.note({"objective": self.solved.value, "upper_bound": self.best.bound})

    @property
    def off(self) -> float:
        """How far the fractional optimum may lie below the best one, as a share of the objective's span."""
        return (self.best.bound - self.solved.value) / self.objective_span

    def terminate(self) -> bool:
        """Whether the bound is near, or a step would solve the same undecided again and no greater room is left."""
        if not self.done:
            return False
        if self.off <= ACCURACY or len(self.p) == self.count:
            return True
        most = LARGE_SOLVES if self.grown or not self.descended else SOLVES
        if self.solves == most or not self.nearer:
            if not self.descended and self.off > NEAR:
                self.descended = True
                self.begin(self.descend(self.base))
                return False
            if self.off <= groups.UNSOLVED or self.room == self.greatest_room:
                return True
            self.room, self.grown, self.solves = self.greatest_room, True, 0
        return False

    def check_optimum(self) -> None:
        """:raises UndecidedTooFew: the fractional optimum is far below its bound, and not all were undecided."""
        if self.off > groups.UNSOLVED and len(self.p) < self.count:
            raise groups.UndecidedTooFew(
                f"{self.settings.metric} by groups: room={self.room_words.format(self.room)} holds {len(self.p):,} "
                f"undecided documents of {self.count:,} at a time, too few: after {self.done} solves the optimum may "
                f"lie {self.off:.0%} of the objective's span higher. Pass a greater room, or solve the corpus as one "
                "problem"
            )

    def postprocess(self) -> groups.ShardedSelection:
        """The mask, searched among the undecided."""
        self.check_optimum()
        mask, state = self.search(replace(self.posed_last, p=self.p), self.priced)
        return self.finished(self.of_groups(mask), self.of_groups(self.p), state)

    def descend(self, at: np.ndarray, widths: Sequence[float] = SOFT) -> np.ndarray:
        """The state (J,) of the least bound found from a state, by L-BFGS (Liu & Nocedal 1989) on the bound, softened.

        The bound is convex in the slope y = ∂f / ∂state: the conjugate of the metric, and the most that documents at
        their prices, linear in y, can give. Its gradient is the state of the documents above the cut less the one of
        which y is the slope. With a soft cut it has a second derivative, and the documents count in fractions.
        """
        used, first, unit, lowest = self.joint.slopes_from(at)
        if not used.any() or self.numbers <= self.room:
            return at  # prices are the same at all states, or all documents are solved at once
        unit = FINE * unit
        span, passed = self.objective_span, itertools.count()
        least, most = _Reached(np.inf, at), -np.inf  # the least bound, and the greatest value of a choice
        now = _Reached(np.inf, first / unit)  # the least softened bound of this width

        def bound(scaled: np.ndarray, width: float) -> tuple[float, np.ndarray]:
            nonlocal least, most, now
            number, state = next(passed), self.joint.at_slope(scaled * unit, used)
            [priced], slope = self.price(f"descent-{number}", state), self.joint.slope(state)
            soft = self.soften(f"descent-{number}", priced, width * span)
            own = self.state_of(f"descent-{number}", soft.fixed)
            conjugate, mine = (self.joint.of_state(each) - float(slope @ each) for each in (state, own))
            softened = conjugate + soft.most / self.size
            most = max(most, mine + soft.worth / self.size)
            least = min(least, _Reached(priced.bound, state), key=lambda each: each.bound)
            now = min(now, _Reached(softened, scaled), key=lambda each: each.bound)
            if conjugate - mine < ENOUGH * width * span or least.bound - most < NEAR * span:
                raise _Enough
            return softened / span, (own - state)[used] * unit / span

        options, bounds = {"maxfun": TURNS, "maxcor": TURNS, "ftol": 0, "gtol": 0}, Bounds(lowest / unit)
        for width in widths:
            start, now = now.at, _Reached(np.inf, now.at)
            with contextlib.suppress(_Enough):
                minimize(bound, start, width, jac=True, method="L-BFGS-B", bounds=bounds, options=options)
            if least.bound - most < NEAR * span:
                break
        return least.at

    def state_of(self, name: str, fixed: Sequence[Handed]) -> np.ndarray:
        """The state (J,) of the documents `inside`, (n,) of each group: which of them, or their p."""
        return groups.sum_groups(self.take(name, fixed), "state")

    def soften(self, name: str, priced: groups.Priced, width: float) -> SoftCut:
        """The cut of these prices made soft: this wide, and at the level at which the documents spend the budget."""
        spread = np.arange(-SIDE, SIDE + 1) / GRAINS
        weight = np.zeros(len(spread))
        for group, above in zip(self.groups, priced.above, strict=True):
            place = np.rint(((above - priced.level) * GRAINS / width).clip(-SIDE, SIDE)).astype(np.int64) + SIDE
            weight += np.bincount(place, self.state.weights(group), len(spread))
        size, lowest = min(self.size, groups.SPENT * self.total), -SIDE / GRAINS

        def over(by: float) -> float:
            return float(weight @ expit(spread - by)) - size

        moved = brentq(over, lowest, -lowest) if over(lowest) > 0 else lowest  # sums of all documents are rounded
        level = priced.level + width * moved
        most = worth = self.limits.held(level, priced.dual)
        fixed, nothing = [], np.zeros(0, np.int64)
        for group, above in zip(self.groups, priced.above, strict=True):
            off, weights = above - level, self.state.weights(group)
            p = expit(off / width)
            most += width * float(weights @ np.logaddexp(0, off / width))
            worth += float(weights @ (p * off))
            fixed.append(self.hand(f"soft-{name}-{group.number}", at=nothing, inside=p.astype(np.float32)))
        return SoftCut(fixed, most, worth)

    # ------------------------------------------------------------ prices

    def price(self, name: str, *states: np.ndarray) -> list[groups.Priced]:
        """Prices every document at each of these states (J,)."""
        slopes = [self.joint.slope(state) for state in states]
        found = self.maps(groups.price_group, replace(self.state, name=name, slopes=slopes), self.groups, self.rows)
        priced = []
        for place, (state, slope) in enumerate(zip(states, slopes, strict=True)):
            prices = self.column(found, f"price_{place}")
            reduced = self.reduced(f"{name}-{place}", prices, self._dual(prices))
            bound = self.joint.of_state(state) - float(slope @ state) + reduced.most / self.size
            priced.append(reduced._replace(bound=bound))
        return priced

    def _dual(self, prices: groups.Arrays) -> np.ndarray:
        """(R,) the limits' dual prices, from the documents with the least hashes."""
        if not self.limits:
            return np.zeros(0)
        if self.answers is None:
            self.pricing = self.sample(LIMITED, self.ones)
            limits = self.limits_at(self.pricing)
            share = float(limits.weights.sum()) / self.total
            self.answers = Feasible(limits.sample(np.arange(len(limits.weights)), share))
        some = groups.picked(prices, self.pricing)
        return self.answers.answer(torch.from_numpy(some))[1].multipliers

    # ------------------------------------------------------------ the undecided

    def sample(self, room: int, lengths: groups.Arrays) -> list[np.ndarray]:
        """A sample: the documents with the least hashes, as many as there is room for. Their places in each group."""
        each = groups.PerGroup(lambda: zip(self.hashes, lengths, strict=True))
        filling = groups.Filling(each, room)
        return [np.flatnonzero(filling.take(*own)) for own in each]

    def take_sample(self, index: Sequence[np.ndarray]) -> list[Handed]:
        """What the groups tell of the documents at these places of each, with no document `inside`."""
        nothing = (np.zeros(count, bool) for count in self.rows)
        return self.take("sample", self.hand_each("at-sample", at=index, inside=nothing))

    def given(self, arrays: Iterable[Handed]) -> list[groups.Group]:
        """The groups as items of a round that needs these arrays."""
        return [group._replace(now=now) for group, now in zip(self.groups, arrays, strict=True)]

    def nearest(self) -> groups.Nearest:
        """The documents nearest to the cut, as many as there is room for, about half of it above the cut."""
        level, above, lengths, room = self.best.level, self.best.above, self.lengths, self.room

        def side(over: bool) -> Iterator[tuple[np.ndarray, np.ndarray]]:
            """Distances from the cut, and lengths, of the documents above it or of the others."""
            for price, length in zip(above, lengths, strict=True):
                off = price - level
                mine = (off > 0) == over
                yield groups.ascending(np.abs(off[mine])), length[mine]

        ends = [sum(int(length.sum(dtype=np.int64)) for _, length in side(over)) for over in (True, False)]
        below = min(ends[1], room - min(ends[0], room // 2))
        rooms = {True: room - below, False: below}
        fillings = {over: groups.Filling(groups.PerGroup(partial(side, over)), room) for over, room in rooms.items()}
        index, fixed, spent = [], [], []
        for group, price, length in zip(self.groups, above, lengths, strict=True):
            off = price - level
            undecided = np.zeros(len(off), bool)
            for over, filling in fillings.items():
                mine = np.flatnonzero((off > 0) == over)
                undecided[mine] = filling.take(groups.ascending(np.abs(off[mine])), length[mine])
            at, inside = np.flatnonzero(undecided), (off > 0) & ~undecided
            index.append(at)
            fixed.append(self.hand(f"at-{self.done}-{group.number}", at=at, inside=inside))
            spent.append(self.limits.of(*self.known(group)).spent(inside))
        return groups.Nearest(index, fixed, reduce(add, spent))

    def take(self, name: str, fixed: Sequence[Handed]) -> list[Handed]:
        """What the groups tell of the documents `at`, and of those `inside`: see `nearest`."""
        return self.maps(groups.read_undecided, replace(self.state, name=name), self.given(fixed), self.rows)

    def pose(self, name: str, near: groups.Nearest, start: np.ndarray | None) -> groups.Undecided:
        """Makes these documents the undecided ones. start: (m,) their first p.

        :raises UndecidedTooFew: they cannot meet the limits.
        """
        self.near, self.own = near, self.limits_at(near.at)
        left = self.own.less(near.spent)
        if not left.fits():
            raise groups.UndecidedTooFew
        linear = groups.picked((self.state.linear(group) for group in self.groups), near.at)
        return groups.Undecided(self.take(name, near.fixed), linear, left, start)

    def of_groups(self, values: np.ndarray) -> groups.PerGroup[np.ndarray]:
        """(n,) of each group, of the type of values (m,): those of the undecided, and 1 and 0 for the others."""

        def each() -> Iterator[np.ndarray]:
            start = 0
            for at, fixed in zip(self.near.at, self.near.fixed, strict=True):
                found = fixed.read("inside")[0].astype(values.dtype)
                found[at] = values[start : (start := start + len(at))]
                yield found

        return groups.PerGroup(each)

    def first_p(self, near: groups.Nearest) -> np.ndarray:
        """(m,) the first p of these documents: the last optimum, or at first which are above the cut."""
        if len(self.p):
            return groups.picked(self.of_groups(self.p), near.at)
        return groups.picked((price > self.best.level for price in self.best.above), near.at).astype(np.float64)

    def search(self, posed: groups.Undecided, priced: groups.Priced) -> tuple[np.ndarray, np.ndarray]:
        """The mask (m,) of the problem that was posed last, whose fractional optimum is its p, and the corpus's state.

        priced: at that optimum.

        :raises UndecidedTooFew: it breaks a limit.
        """
        price = groups.picked(priced.prices, self.near.at)
        beside_it = sum(int(found.read("inside")[0].sum()) for found in self.near.fixed)
        [(mask, state)] = self.maps(type(self.state).search, self.state, [(posed, price, beside_it)])
        if broken := self.own.broken(self.near.spent + self.own.spent(mask)):
            raise groups.UndecidedTooFew(broken[0])
        return mask, state
