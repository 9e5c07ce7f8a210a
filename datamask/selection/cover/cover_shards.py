"""Coverage of a corpus too large for one process: shards exchange sums over the atoms, one worker solves the undecided.

    found = cover_shards(groups, config, maps=maps, folder=folder)

    sketch   hashes of the documents, which say what the sample and the anchors are
    lay out  each group's rows of atoms once, as flat files that later rounds map into memory; the pool's sums
    learn    on a sample that one worker holds: the calibration, and a first state
    price    every document at that state; (J,) goes to the groups, one number a document comes back. This also gives a
             bound for the whole corpus
    take     the rows of the undecided, whose price is near the cut, and the state of the documents above them
    solve    the undecided with the others fixed: a new state, at which to price again, until the bound is near

and at last one search for a mask among the undecided. The tangent bound holds at any state, so it is a bound for the
whole corpus however few documents were undecided. A fractional optimum over J atoms has at most J + 1 fractional
documents, so the undecided that one worker can hold are enough for corpora of any size.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch

from datamask.config import Config, Select
from datamask.maps import Handed, Mapper, here
from datamask.selection.cover.atoms import NEAREST, AtomRows, Atoms, targets_of
from datamask.selection.cover.counting import target_of
from datamask.selection.cover.shard_maps import (
    Covering,
    OwnBest,
    PartSolution,
    UndecidedProblem,
    best_of_sample,
    lay_group,
    mask_part,
    price_group,
    sketch_group,
    solve_part,
    take_group,
)
from datamask.selection.cover.solve import ACCURACY, span_of_objective
from datamask.selection.cover.summed import SummedCoverage
from datamask.selection.metrics import metric_class
from datamask.selection.metrics.coverage import Coverage
from datamask.selection.problem.calibration import quality_span
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.objective import Term, scaled_quality, weigh
from datamask.selection.sharded.passes import Exchanged, Gathered, UndecidedTooFew, fits
from datamask.selection.sharded.prices import make_prices

JOINT_NUMBERS = 1 << 27  # with at most so many numbers in all rows the corpus is one problem, at 24 bytes each
ROOM = 1 << 26  # numbers in the undecided documents' rows
SAMPLE_ROOM = 1 << 24  # numbers in the sample's rows
GROUP_ROWS = 1 << 15  # documents of a group of several shards
SOLVES = 4  # solves of the undecided at most
# The first state is the best of these interpolations between the sample's optimum (0) and the pool's own mixture (1),
# by the bound that each gives.
TOWARDS = (0.0, 0.25, 0.5, 0.75)
SAMPLE_ACCURACY = 5e-3  # tolerance on the sample, as a share of the objective's span


def can_cover(settings: Select) -> bool:
    """Whether these settings can be solved by rounds: the relaxation of coverage alone, each document once."""
    alone = all(name.startswith("coverage-") for name in settings.metrics)
    return alone and settings.solver == "relaxation" and settings.repeat == 1


def numbers_of(settings: Select, words: int, documents: int) -> int:
    """How many numbers all rows of atoms hold. words: each document's distinct n-grams, summed over all documents."""
    embedded = "coverage-embedding" in settings.metrics
    return words * (settings.metrics.keys() != {"coverage-embedding"}) + embedded * NEAREST * documents


def cover_shards(
    shards: Sequence[Any], config: Config, folder: str, maps: Mapper = here, room: int | None = None
) -> Exchanged:
    """Runs all rounds and returns the selection.

    shards: `exchange.ExchangeShard`s with `ngrams()`, none of them empty. folder: for the arrays passed between rounds.
    room: numbers in the undecided documents' rows, by default `ROOM`.

    :raises InputError: as `make_problem` and `make_atoms`, or no selection holds the limits.
    :raises UndecidedTooFew: the undecided documents that the room holds cannot meet the limits.
    """
    return _Covering(shards, config, maps, folder, ROOM if room is None else room).run()


class _Covering(Gathered):
    def __init__(self, shards: Sequence[Any], config: Config, maps: Mapper, folder: str, room: int) -> None:
        super().__init__(shards, config, maps, folder)
        self.room = room
        self.settings = config.select
        self.feasible = Feasible(self.limits)
        self.state = Covering(config, folder, share=self.size / float(self.weights.sum()))

    def run(self) -> Exchanged:
        self._lay_out()
        hashes = np.concatenate(self.hashes)
        sample = self._sample(hashes)
        self._learn(sample, hashes)
        at, bound, solved = self._begin(sample), np.inf, None
        for number in range(SOLVES + 1):
            price, most = self._price(f"{number}", at)
            bound = min(bound, most)
            if number:
                assert solved is not None
                near = bound - solved.value <= ACCURACY * self.objective_span
                self.history.append({"step": len(self.history), "objective": solved.value, "upper_bound": bound})
                if near or number == SOLVES or len(self.index) == len(price):
                    break
            posed = self._pose(f"{number}", price)
            [solved] = self.maps(solve_part, self.state, [posed])
            self.p = self.inside.astype(np.float64)
            self.p[self.index] = solved.p
            at = solved.state
        assert solved is not None
        return self._finished(posed, solved, price, bound)

    def _lay_out(self) -> None:
        sketched = self.maps(sketch_group, self.state, self.groups, self.rows)
        self.hashes = [found.read("hashes")[0] for found in sketched]
        anchors = np.zeros((0, 0), np.float32)
        if "coverage-embedding" in self.settings.metrics:
            least = np.concatenate([found.read("least")[0] for found in sketched])
            order = np.argsort(least, kind="stable")[: self.settings.coverage.anchors]
            anchors = np.concatenate([found.read("rows")[0] for found in sketched])[order]
            self.state = replace(self.state, anchors=self.hand("anchors", rows=anchors))
        self.dimensions = sketched[0].read("rows")[0].shape[1]
        laid = self.maps(lay_group, self.state, self.groups, self.rows)
        self.length = np.concatenate([found.read("length")[0] for found in laid])
        total, random, spent = (_sum(found.read(name)[0] for found in laid) for name in ("state", "random", "spent"))
        self.state = replace(self.state, width=len(total))
        target = target_of(self.settings)
        parts = [name.removeprefix("coverage-") for name in self.settings.metrics]
        targets = targets_of(parts, len(anchors), total[len(anchors) :], None if target is None else target.counts)
        nothing = AtomRows(np.zeros(1, np.int64), np.zeros(0, np.uint16), np.zeros(0, np.float32), len(total))
        atoms = Atoms(nothing, targets, slice(len(anchors), len(total)), anchors)
        self.metrics: list[Coverage] = []
        for name in self.settings.metrics:
            metric = metric_class(name)(None, torch.zeros(0), self.size)  # type: ignore[arg-type]
            assert isinstance(metric, Coverage)
            metric.measure(self.settings, atoms, total / float(self.weights.sum()))
            self.metrics.append(metric)
        self.random = random / np.maximum(spent, 1e-300)[:, None]

    def _sample(self, hashes: np.ndarray) -> np.ndarray:
        """(m,) row numbers, ascending: the documents with the least hashes, as many as `SAMPLE_ROOM` holds."""
        order = np.argsort(hashes, kind="stable")
        count = int(np.searchsorted(np.cumsum(self.length[order], dtype=np.int64), min(SAMPLE_ROOM, self.room)))
        return np.sort(order[: max(count, 2)])

    def _learn(self, sample: np.ndarray, hashes: np.ndarray) -> None:
        """Calibrates the terms on the sample and joins them to the objective."""
        settings, quality = self.settings, self.quality
        self.taken = self._take("sample", sample, np.zeros(len(self.weights)))[0]
        half = hashes[sample] < np.median(hashes[sample])
        spans = [(0.0, 1.0)] * len(self.metrics)
        if settings.calibrate:
            weights = self.weights[sample]
            items = [
                OwnBest(SummedCoverage.of([metric], [1.0]), self.taken, weights, half, self.state.share, metric.name)
                for metric in self.metrics
            ]
            found = self.maps(best_of_sample, self.state, items)
            spans = [self._span(metric, *each) for metric, each in zip(self.metrics, found, strict=True)]
        columns = [f"quality_{column}" for column in range(quality.shape[1])] if quality.shape[1] > 1 else ["quality"]
        terms = []
        for column, name in enumerate(columns):
            span = quality_span(self.weights, self.size, quality[:, column]) if settings.calibrate else (0.0, 1.0)
            terms.append(Term(name, 0.0, *span, column=column))
        diversity = [
            Term(metric.name, 0.0, *span, metric=metric) for metric, span in zip(self.metrics, spans, strict=True)
        ]
        uniform = np.full(quality.shape[1], 1 / quality.shape[1])
        self.terms, self.diversity = weigh(settings, uniform, terms, diversity)
        self.linear = scaled_quality(self.terms, quality)
        every = [*self.terms, *self.diversity]
        self.objective_span = span_of_objective(every, settings.calibrate)
        self.constant = -sum(term.scale * term.zero for term in every)
        self.joint = SummedCoverage.of(self.metrics, [term.scale for term in self.diversity])

    def _span(self, metric: Coverage, sizes: Sequence[int], best: Sequence[float]) -> tuple[float, float]:
        """(zero, one): the mean of random selections, and the corpus's own best, extrapolated from the sample and half
        of it.

        For n-grams, the distance to the greatest possible value is taken as a power of the size; for embeddings, the
        value as linear in 1 / size.
        """
        zero = float(np.mean([metric.of_state(state) for state in self.random]))
        (half, whole), count = sizes, len(self.weights)
        if half == whole or best[1] <= best[0]:
            return zero, max(best[1], zero)
        if metric.part == "embedding":
            one = best[1] + (best[1] - best[0]) * (1 / whole - 1 / count) / (1 / half - 1 / whole)
            return zero, max(one, zero)
        used = metric.t > 0
        most = (
            float(metric.t[used] @ np.log(metric.t[used])) - metric.base
        )  # rows add up to 1: the greatest value is at t
        off = [max(most - each, 1e-12) for each in best]
        one = most - off[1] * (off[1] / off[0]) ** float(np.log(count / whole) / np.log(whole / half))
        return zero, max(one, zero)

    def _begin(self, sample: np.ndarray) -> np.ndarray:
        """The state at which to price first, from the fractional optimum of the sample."""
        share = float(self.weights[sample].sum() / self.weights.sum())
        part = UndecidedProblem(
            self.taken,
            self.joint,
            self.linear[sample],
            self.limits.sample(sample, share),
            self.size * share,
            0.0,
            SAMPLE_ACCURACY * self.objective_span,
        )
        [solved] = self.maps(solve_part, self.state, [part])
        states = [(1 - share) * solved.state + share * self.joint.mean for share in TOWARDS]
        return min(zip(self._prices("start", states), states, strict=True), key=lambda found: found[0][1])[1]

    def _price(self, name: str, at: np.ndarray) -> tuple[np.ndarray, float]:
        """(N,) each document's price at this state, per unit of the budget and times size; and the bound there."""
        return self._prices(name, [at])[0]

    def _prices(self, name: str, states: Sequence[np.ndarray]) -> list[tuple[np.ndarray, float]]:
        slopes = [self.joint.slope(state) for state in states]
        found = self.maps(price_group, replace(self.state, round=name, slopes=slopes), self.groups, self.rows)
        scores = np.concatenate([each.read("scores")[0] for each in found], axis=1)
        priced = []
        for state, slope, score in zip(states, slopes, scores, strict=True):
            price = self.linear + score
            _, most = self.feasible.respond(torch.from_numpy(price))
            bound = self.joint.of_state(state) - float(slope @ state) + most / self.size
            priced.append((price, bound))
        return priced

    def _pose(self, name: str, price: np.ndarray) -> UndecidedProblem:
        """The problem of the undecided: as many documents as there is room for, about half of it above the cut."""
        _, dual = self.feasible.answer(torch.from_numpy(price))
        above = price - dual.thresholds(torch.from_numpy(price)).numpy()
        over, under = np.flatnonzero(above > 0), np.flatnonzero(above <= 0)
        over = over[np.argsort(above[over], kind="stable")]
        under = under[np.argsort(-above[under], kind="stable")]
        filled = [np.cumsum(self.length[part], dtype=np.int64) for part in (over, under)]
        ends = [int(each[-1]) if len(each) else 0 for each in filled]
        below = min(ends[1], self.room - min(ends[0], self.room // 2))
        rooms = (self.room - below, below)
        undecided = np.zeros(len(price), bool)
        for part, sums, room in zip((over, under), filled, rooms, strict=True):
            undecided[part[: int(np.searchsorted(sums, room, side="right"))]] = True
        self.index, self.inside = np.flatnonzero(undecided), (above > 0) & ~undecided
        limits = self.limits.part(self.index, self.inside)
        if not fits(limits):
            raise UndecidedTooFew
        held = self.weights * self.inside / self.size
        taken, state = self._take(name, self.index, held)
        before = getattr(self, "p", None)
        start = before[self.index] if before is not None else (above[self.index] > 0).astype(np.float64)
        return UndecidedProblem(
            taken,
            replace(self.joint, held=state),
            self.linear[self.index],
            limits,
            self.size,
            float(held @ self.linear),
            ACCURACY * self.objective_span,
            start,
        )

    def _take(self, name: str, index: np.ndarray, mass: np.ndarray) -> tuple[list[Handed], np.ndarray]:
        items = []
        for group, part in zip(self.groups, self.parts, strict=True):
            at = index[np.searchsorted(index, part.start) : np.searchsorted(index, part.stop)] - part.start
            items.append(group._replace(now=self.hand(f"at-{name}-{group.number}", at=at, mass=mass[part])))
        found = self.maps(take_group, replace(self.state, round=name), items, self.rows)
        return found, _sum(each.read("state")[0] for each in found)

    def _finished(self, posed: UndecidedProblem, solved: PartSolution, price: np.ndarray, bound: float) -> Exchanged:
        item = (replace(posed, p=solved.p), price[self.index], int(self.inside.sum()))
        [(mask, chosen_state)] = self.maps(mask_part, self.state, [item])
        chosen = self.inside.copy()
        chosen[self.index] = mask
        if broken := self.limits.violations(chosen):
            raise UndecidedTooFew(broken[0])
        at_chosen, tangent = self._price("chosen", chosen_state)
        bound = min(bound, tangent) + self.constant
        raw = {
            term.name: float(self.weights * chosen @ self.quality[:, term.column]) / self.size for term in self.terms
        }
        raw |= {metric.name: metric.of_state(chosen_state) for metric in self.metrics}
        terms = (*self.terms, *self.diversity)
        objective = self.constant + sum(term.scale * raw[term.name] for term in terms)
        relaxed = solved.value + self.constant
        size = max(abs(bound), 1e-12)
        self.history = [
            {name: value if name == "step" else value + self.constant for name, value in step.items()}
            for step in self.history
        ]
        facts = {
            "solver": self.settings.solver,
            "documents": len(chosen),
            "selected": int(chosen.sum()),
            "objective": objective,
            "terms": {term.name: term.calibrated(raw[term.name]) for term in terms},
            "statistics": raw,
            "scales": {term.name: {"zero": term.zero, "scale": term.scale} for term in terms},
            "upper_bound": bound,
            "gap": max(0.0, bound - objective) / size,
            "relaxed": relaxed,
            "integrality": max(0.0, min(relaxed, bound) - objective) / size,
            "history": self.history,
            "undecided": len(self.index),
        }
        moments = [torch.from_numpy(solved.state) for _ in self.metrics]
        prices = make_prices(self.terms, self.diversity, moments, self.dimensions, self.size, self.unit == "tokens")
        prices = prices.cut(price / self.size, self.weights, self.size)
        paid = (at_chosen * self.weights / self.size).astype(np.float32)
        return Exchanged(chosen, self.p.astype(np.float32), paid, prices, facts)


def _sum(arrays: Iterable[np.ndarray]) -> np.ndarray:
    """The sum in float64, in the order of the groups, so that it does not depend on which worker was first."""
    total: np.ndarray | None = None
    for array in arrays:
        total = array.astype(np.float64) if total is None else total + array
    assert total is not None
    return total
