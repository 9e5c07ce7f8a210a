"""The driver of pairwise and DiSF: its state is d or d² numbers, and a selection takes four reads of the features.

    found = select_shards(shards, config, maps=maps, folder=folder)

    init         a sample gives the terms, their calibration and the first prices, and says about where the cut will be
    step         every document's marginal value, and in the same read the features of those near the cut; one worker
                 solves these. Twice: the second time at the solution's prices, which know what the sample did not hold
    postprocess  prices for the upper bound, and the exact sums of the selected documents

Only workers hold features. One worker solves the undecided documents, whose features fill `room_bytes`, or more if
the budget takes more documents than that holds. The caller holds a few numbers of each undecided and each sampled
document, and none of the others (`grouped_corpus`). A document's marginal value is net of the limits' dual prices. The
calibration of diversity and DiSF's standardisation come from the sample; the bound covers the whole corpus.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch

from datamask.config import Config, ResolvedSelect
from datamask.devices import pick_device
from datamask.maps import Handed, Mapper, here
from datamask.selection.calibration import make_terms
from datamask.selection.engine.ascent import Multilinear
from datamask.selection.engine.quadratic import Quadratic, prepare, rounding_of, weighted_norms
from datamask.selection.metrics.moments import DiSF
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.objective import scaled_quality
from datamask.selection.problem.pool import Pool
from datamask.selection.problem.problem import Problem
from datamask.selection.sharded import moment_sums
from datamask.selection.sharded.budget_cuts import Filling, descending, find_cut, value_of
from datamask.selection.sharded.driver import Certificate, Driver, GroupDecision
from datamask.selection.sharded.grouped_corpus import (
    LimitDuals,
    ShardCandidates,
    ShardedSelection,
    UndecidedTooFew,
    quality_of,
)
from datamask.selection.sharded.moment_sums import (
    CutRange,
    MomentPlan,
    MomentState,
    Sample,
    UndecidedProblem,
    dual_prices_of,
    measure_marginal_values,
    measure_selection,
    merge_samples,
    on_device,
    sample_documents,
    solve_undecided,
)
from datamask.selection.solvers import relaxation

ROOM_BYTES = 3 << 27  # bytes of the undecided documents' float16 features
SOLVES = 2  # rounds of marginals and solve
OVERFLOW = 1.25  # undecided documents, as a multiple of the room, above which exact ranks make the range anew
SPARE = 1.25  # the first bound on the sample's hashes lets this many times its expected number through
LEARNING_STEPS = 40  # steps of the ascent on the sample at most


def select_shards(
    shards: Sequence[ShardCandidates],
    config: Config,
    maps: Mapper = here,
    folder: str | None = None,
    room_bytes: int = ROOM_BYTES,
) -> ShardedSelection:
    """Runs all rounds and returns the selection.

    shards: none of them empty. folder: for the arrays passed between rounds; None keeps them in memory. room_bytes:
    bytes of the undecided documents' float16 features.

    :raises InputError: as `make_problem`, or no selection is within the limits.
    :raises UndecidedTooFew: see there.
    """
    return MomentRounds(shards, config, maps, folder, room_bytes).run()


class MomentRounds(Driver):
    """The driver of metrics whose state is a moment."""

    def __init__(
        self, shards: Sequence[ShardCandidates], config: Config, maps: Mapper, folder: str | None, room_bytes: int
    ) -> None:
        super().__init__(shards, config, maps, folder)
        self.room_bytes, self.device = room_bytes, pick_device(config.selection.device)
        self.chosen: list[Handed] = []  # each group's `selected` and `probability`, as the last solve found them

    def init(self) -> None:
        """The terms and the first prices, from a sample."""
        self.sample = self._sample()
        self.places = self._places()
        self.of_sample = self.limits_at(self.places).at(np.argsort(np.argsort(self.sample.rows)))
        spans = self.spans() if self.config.selection.calibrate else []
        self.plan, self.moments, self.multiplicity, self.dual = learn_first_prices(
            self.sample, self.of_sample, self.total, spans, self.unit, self.config.selection, self.device
        )
        self.terms, self.diversity = self.plan.quality, self.plan.diversity
        # At least as many undecided as the budget takes: with 40 % of that, two solves ended 68 to 95 % from
        # the bound; with 60 % as near as with all in memory.
        budget_takes = int(np.ceil(self.size * self.count / self.total))
        self.room = max(budget_takes, self.room_bytes // (2 * self.sample.features.shape[1]))
        self.steps = SOLVES

    def step(self) -> None:
        """Solves the documents next to the cut at the last prices."""
        if self.chosen:
            parts = [found.read("selected")[0][at] for found, at in zip(self.chosen, self.places, strict=True)]
            self.multiplicity = np.concatenate(parts).astype(np.float64)[np.argsort(np.argsort(self.sample.rows))]
        name, room = f"{self.done}", self.room
        posed = self._pose(name, self._likely_range(room), round(OVERFLOW * room))
        if posed is None:  # the sample misjudged the range: make it from exact ranks, at the cost of one more read
            posed = self._pose(f"{name}-exact", self._exact_range(room), self.count)
            if posed is None:
                raise UndecidedTooFew
        [self.solved] = self.maps(solve_undecided, MomentState(self.config, self.folder, name, plan=self.plan), [posed])
        solved, before = self.solved, len(self.history)
        self.history += [{"step": before + place, **step} for place, step in enumerate(solved.history)]
        self.moments, self.dual = solved.moments, solved.dual
        self.chosen = [
            self.hand(
                f"chosen-{name}-{place}",
                selected=self.of_group(place, solved.chosen),
                probability=self.of_group(place, solved.probability.astype(np.float32)),
            )
            for place in range(len(self.groups))
        ]

    def terminate(self) -> bool:
        """False: every solve corrects the prices."""
        return False

    def postprocess(self) -> ShardedSelection:
        """The last solve's mask, and a bound at its fractional optimum."""
        plan, relaxed, level = self.plan, self.solved.relaxed, self.solved.level
        self.check_limits(self.solved.chosen)
        items = []
        for group, found in zip(self.groups, self.chosen, strict=True):
            thresholds = level + self.charge(group, self.dual)
            now = self.hand(f"last-{group.number}", selected=found.read("selected")[0], thresholds=thresholds)
            items.append(group._replace(now=now))
        state = MomentState(
            self.config, self.folder, plan=plan, moments=on_device("cpu", relaxed.best), chosen=self.moments
        )
        measured = self.maps(measure_selection, state, items, self.rows)
        summed = math.fsum(
            float(self.weights(group) @ np.abs(done.read("relaxed")[0]))
            for group, done in zip(self.groups, measured, strict=True)
        )
        _, most, _ = self.reduced("relaxed", lambda: (done.read("relaxed")[0] for done in measured), self.dual)
        held = weighted_norms(plan.coefficients, relaxed.best)
        bound = most + held + self.constant + rounding_of(summed, most, held, self.constant, terms=self.count)
        selected = sum(int(found.read("selected")[0].sum()) for found in self.chosen)
        raw: dict[str, float] = {}
        exact: dict[str, float] = {}
        for place, (term, metric) in enumerate(zip(self.diversity, plan.metrics, strict=True)):
            moment = _total(measured, f"moment_{place}")
            raw[term.name] = -metric.unit * float(moment.square().sum()) / self.size**2
            if isinstance(metric, DiSF):
                sums = (_total(measured, f"sums_{place}_{side}") for side in range(2))
                exact[f"{term.name}_exact"] = DiSF.of_sums(selected, *sums)

        def decisions() -> Iterator[GroupDecision]:
            for group, done, found in zip(self.groups, measured, self.chosen, strict=True):
                selected, probability = found.read("selected", "probability")
                yield GroupDecision(selected, probability, done.read("price")[0] * self.weights(group))

        return self.finish(decisions(), {**raw, **exact}, Certificate(bound, relaxed.value + self.constant))

    # ------------------------------------------------------------ the sample

    def _sample(self) -> Sample:
        most = 2 * moment_sums.SAMPLE
        bounds = [int(SPARE * most / self.count * 2**64)] if SPARE * most < self.count / 2 else []
        for below in (*bounds, None):  # many equal documents may leave too few below the bound: then use none
            state = MomentState(self.config, self.folder, round="bounded" if below else "all", below=below)
            found = self.maps(sample_documents, state, self.groups, self.rows)
            merged = merge_samples([Sample(*found[0].read(*Sample._fields))])
            for each in found[1:]:
                merged = merge_samples([merged, Sample(*each.read(*Sample._fields))])
            if len(merged.hashes) >= most or below is None:
                break
        return merged

    def _places(self) -> list[np.ndarray]:
        """The sample's documents as places in each group."""
        rows = np.sort(self.sample.rows)
        cuts = np.searchsorted(rows, [group.first for group in self.groups])
        return [part - group.first for part, group in zip(np.split(rows, cuts[1:]), self.groups, strict=True)]

    def _likely_range(self, room: int) -> CutRange:
        """`make_cut_range` of the sample's marginal values."""
        weights, charged = self.sample.weights, np.zeros(len(self.sample.weights))
        if self.limits:
            length, codes = self.of_sample.length, [each.codes for each in self.of_sample.groupings]
            tokens = weights if length is None or self.limits.in_tokens else length.coefficients
            charged = self.limits.charge(tokens, codes, *self.dual)
        known = Pool(self.sample.features, self.sample.quality, device=self.device)
        value = moment_sums.value_marginally(self.plan, known, weights, self.moments, self.multiplicity) - charged
        stands = documents_represented(len(value), self.count, learned=not self.done)
        return make_cut_range(value, weights, stands, self.size, room)

    def _counts(self) -> Iterator[np.ndarray]:
        """How often each document (n,) of each group counts in the moments."""
        if self.chosen:
            yield from (found.read("selected")[0].astype(np.float64) for found in self.chosen)
            return
        ends = np.cumsum([len(at) for at in self.places])[:-1]
        parts = np.split(self.multiplicity[np.argsort(self.sample.rows)], ends)
        for group, at, of_sample in zip(self.groups, self.places, parts, strict=True):
            counts = np.zeros(len(group.shard))
            counts[at] = of_sample
            yield counts

    # ------------------------------------------------------------ the undecided

    def _pose(self, name: str, cut_range: CutRange, most: int) -> UndecidedProblem | None:
        """The problem of the undecided documents.

        None if there are more than `most`, or if they cannot meet the rest of the budget and the limits.
        """
        plan, items = self.plan, []
        for group, multiplicity in zip(self.groups, self._counts(), strict=True):
            given = {"multiplicity": multiplicity, "charge": self.charge(group, self.dual)}
            items.append(group._replace(now=self.hand(f"given-{name}-{group.number}", **given)))
        moments = on_device("cpu", self.moments)
        state = MomentState(self.config, self.folder, name, plan=plan, moments=moments, cut_range=cut_range)
        found = self.maps(measure_marginal_values, state, items, self.rows)
        self.marginals = [marginals for marginals, _ in found]
        if sum(undecided for _, undecided in found) > most:
            return None
        fixed, index, spent, offsets, linear = [], [], [], [], []
        for group, marginals in zip(self.groups, self.marginals, strict=True):
            [value] = marginals.read("marginal")
            inside, at = cut_range.inside(value), np.flatnonzero(cut_range.undecided(value))
            fixed.append(self.hand(f"inside-{name}-{group.number}", inside=inside))
            index.append(at)
            spent.append(self.limits.of(*self.known(group)).spent(inside))
            gain = scaled_quality(plan.quality, quality_of(group.shard)) / self.size
            offsets.append(float((self.weights(group) * gain)[inside].sum()))
            linear.append(gain[at])
        try:
            limits = self.gather(index, fixed, reduce(add, spent))
        except UndecidedTooFew:
            return None
        base = [_total(self.marginals, f"base_{place}") for place in range(len(plan.metrics))]
        return UndecidedProblem(self.marginals, np.concatenate(linear), limits, base, math.fsum(offsets))

    def _exact_range(self, room: int) -> CutRange:
        """`make_cut_range` of all marginal values."""

        def values() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            for group, found in zip(self.groups, self.marginals, strict=True):
                yield descending(found.read("marginal")[0]), self.weights(group)

        def ones() -> Iterator[tuple[np.ndarray, np.ndarray]]:
            return ((keys, np.ones(len(keys))) for keys, _ in values())

        def at(rank: int) -> float:
            cut = find_cut(ones, rank)
            assert cut is not None
            return value_of(cut.key, falling=True)

        filling = Filling(values, self.size * (1 + 1e-12))
        over = sum(int(filling.take(*each).sum()) for each in values())
        under = self.count - over
        below = min(under, room - min(over, room // 2))
        above = min(over, room - below)
        return CutRange(
            -np.inf if below >= under else at(over + below), np.inf if above >= over else at(over - above + 1)
        )


def _total(found: Sequence[Handed], name: str) -> torch.Tensor:
    """The sum of all groups' arrays, in the groups' order."""
    return reduce(add, (torch.from_numpy(each.read(name)[0]) for each in found))


class FirstPrices(NamedTuple):
    """What the sample says."""

    plan: MomentPlan
    moments: list[torch.Tensor]  # at which to price first
    multiplicity: np.ndarray  # (n,) how often each document of the sample counts in these moments
    dual: LimitDuals


def learn_first_prices(
    sample: Sample,
    limits: Limits,
    total: float,
    spans: Sequence[tuple[float, float]],
    unit: str,
    settings: ResolvedSelect,
    device: Any,
) -> FirstPrices:
    """Solves the first `SAMPLE` documents of the sample, which stand for the corpus.

    limits: the corpus's, on the documents of the sample; total: the corpus's weight; spans: its quality's (zero, one).
    """
    count, size = len(sample.hashes), limits.size
    sample = Sample(*(column[: moment_sums.SAMPLE] for column in sample))
    share = float(sample.weights.sum() / total)
    pool = Pool(sample.features, sample.quality, device=device)
    problem = Problem(
        pool,
        settings,
        unit,
        size * share,
        torch.from_numpy(sample.weights).to(pool.device),
        limits.sample(np.arange(len(sample.rows)), share),
        partial(make_terms, spans=spans),
        copies=1 / share,
    )
    plan = MomentPlan(size, problem.objective.quality, problem.objective.diversity, pool.device)
    small = Quadratic(
        [prepare(metric, pool) for metric in plan.metrics],
        [c / share**2 for c in plan.coefficients],
        torch.from_numpy(scaled_quality(plan.quality, sample.quality)) / size / share,
        Feasible(problem.limits),
    )
    found = (
        Multilinear(small, small.feasible.uniform(), relaxation.TOLERANCE, LEARNING_STEPS).representing(1 / share).run()
    )
    multiplicity = np.zeros(count)
    multiplicity[: len(sample.rows)] = found.p.numpy() / share
    _, dual = dual_prices_of(small, found.price)
    dual = dual._replace(multipliers=dual.multipliers * share)
    return FirstPrices(plan, [moment / share for moment in found.moments], multiplicity, dual)


def make_cut_range(marginal: np.ndarray, weights: np.ndarray, stands: np.ndarray, size: float, room: int) -> CutRange:
    """The range in which about `room` documents of the corpus are undecided, half of them above the cut.

    If there are fewer on one side, the other side gets the rest. marginal: (n,) marginal values; weights: (n,);
    stands: (n,) how many documents of the corpus each represents; size: the budget.
    """
    order = np.argsort(-marginal, kind="stable")
    documents, spent = np.cumsum(stands[order]), np.cumsum((stands * weights)[order])
    taken = int(np.searchsorted(spent, size * (1 + 1e-12), side="right"))
    over = float(documents[taken - 1]) if taken else 0.0
    under = float(documents[-1]) - over
    below = min(under, room - min(over, room // 2))
    above = min(over, room - below)
    first = int(np.searchsorted(documents, over - above + 1e-6, side="right"))
    last = int(np.searchsorted(documents, over + below - 1e-6, side="left"))
    high = np.inf if above >= over else float(marginal[order[min(first, len(order) - 1)]])
    return CutRange(-np.inf if below >= under else float(marginal[order[last]]), high)


def documents_represented(sampled: int, count: int, learned: bool) -> np.ndarray:
    """(sampled,) how many of the corpus's `count` documents each document of a sample represents.

    If the prices were learned on the first `SAMPLE` of them, these represent only themselves, and the others the rest.
    """
    alone = min(moment_sums.SAMPLE, sampled) if learned else 0
    stands = np.ones(sampled)
    stands[alone:] = (count - alone) / max(sampled - alone, 1)
    return stands
