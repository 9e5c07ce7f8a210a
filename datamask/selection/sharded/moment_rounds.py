"""The four reads of `sharded.moment_sums` as rounds of maps: every worker holds a group of shards' features.

    found = select_shards(shards, config, maps=maps, folder=folder)

Only workers hold features. One worker solves the undecided documents, whose features fill `room_bytes`, or more if
the budget takes more documents than that holds. The caller holds a few numbers of each undecided and each sampled
document, and none of the others (`grouped_corpus`). `maps.hand_on` passes arrays from round to round.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from operator import add
from typing import Any, NamedTuple

import numpy as np
import torch

from datamask.config import Config
from datamask.devices import pick_device
from datamask.maps import Handed, Mapper, hand_on, handed, here
from datamask.selection.engine.ascent import Ascent
from datamask.selection.engine.quadratic import Quadratic, prepare, rounding_of, weighted_norms
from datamask.selection.metrics.disf import DiSF
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.objective import scaled_quality
from datamask.selection.problem.pool import Pool
from datamask.selection.sharded import moment_sums
from datamask.selection.sharded.budget_cuts import Filling, descending, find_cut, value_of
from datamask.selection.sharded.grouped_corpus import (
    Group,
    GroupedCorpus,
    LimitDuals,
    ShardedSelection,
    UndecidedTooFew,
    fits_limits,
    quality_of,
)
from datamask.selection.sharded.moment_sums import (
    CutRange,
    MomentPlan,
    Outcome,
    Sample,
    ShardCandidates,
    dual_prices_of,
    facts_of_rounds,
    learn_first_prices,
    make_cut_range,
    merge_samples,
)
from datamask.selection.solvers import relaxation

ROOM_BYTES = 3 << 27  # bytes of the undecided documents' float16 features
SOLVES = 2  # rounds of marginals and solve
OVERFLOW = 1.25  # undecided documents, as a multiple of the room, above which exact ranks make the range anew
EVERYTHING = CutRange(-np.inf, np.inf)
SPARE = 1.25  # the first bound on the sample's hashes lets this many times its expected number through


@dataclass(frozen=True, eq=False)
class MomentState:
    """The state of a round, which every worker gets with its item."""

    config: Config
    folder: str | None
    round: str = ""
    below: int | None = None  # a bound on hashes: see `moment_sums.sample_shard`
    plan: MomentPlan | None = None
    moments: Sequence[torch.Tensor] = ()
    cut_range: CutRange = EVERYTHING
    chosen: Sequence[torch.Tensor] = ()  # moments of the selection

    @property
    def here(self) -> MomentPlan:
        """The plan, on this worker's device."""
        assert self.plan is not None
        return replace(self.plan, device=pick_device(self.config.selection.device))


def sample_documents(state: MomentState, group: Group) -> Handed:
    """Map: the group's part of the sample; the arrays of a `Sample`."""
    name = f"sketch-{state.round}-{group.number}"
    if found := handed(state.folder, name):
        return found
    settings = state.config.selection
    made = moment_sums.sample_shard(group.documents(settings), settings.seed, group.first, state.below)
    return hand_on(state.folder, name, **made._asdict())


def measure_marginal_values(state: MomentState, group: Group) -> tuple[Handed, int]:
    """Map: a group's marginal values, base moments, and the features and number of its undecided documents."""
    name = f"marginals-{state.round}-{group.number}"
    if found := handed(state.folder, name):
        return found, int(found.read("undecided")[0])
    multiplicity, charge = group.given("multiplicity", "charge")
    plan = state.here
    moments = _on(plan.device, state.moments)
    documents = group.documents(state.config.selection)
    made = moment_sums.find_marginals(plan, documents, moments, multiplicity, charge, state.cut_range)
    base = {f"base_{number}": moment.cpu().numpy() for number, moment in enumerate(made.base)}
    count = len(made.features)
    return hand_on(
        state.folder, name, marginal=made.marginal, features=made.features, undecided=np.array(count), **base
    ), count


def measure_selection(state: MomentState, group: Group) -> Handed:
    """Map: `moment_sums.measure_shard` of a group: its part of the upper bound and of the exact objective."""
    name = f"measure-{state.round}-{group.number}"
    if found := handed(state.folder, name):
        return found
    selected, thresholds = group.given("selected", "thresholds")
    plan = state.here
    relaxed, chosen = _on(plan.device, state.moments), _on(plan.device, state.chosen)
    documents = group.documents(state.config.selection)
    made = moment_sums.measure_shard(plan, documents, selected, relaxed, chosen, thresholds)
    arrays = {f"moment_{number}": moment.cpu().numpy() for number, moment in enumerate(made.moments)}
    for number, pair in enumerate(made.sums):
        if pair is not None:
            arrays |= {f"sums_{number}_{side}": part.cpu().numpy() for side, part in enumerate(pair)}
    return hand_on(state.folder, name, relaxed=made.relaxed, price=made.price, **arrays)


# ---------------------------------------------------------------- the undecided


@dataclass(frozen=True, eq=False)
class UndecidedProblem:
    """The problem of the m undecided documents, with the rest of the corpus fixed."""

    marginals: Sequence[Handed]  # where their features are
    linear: np.ndarray  # (m,) as in `Quadratic`
    limits: Limits  # the limits, less what the surely selected documents spend
    base: Sequence[torch.Tensor]  # moments of the documents that are surely selected
    offset: float  # the linear sum of these


class UndecidedSolution(NamedTuple):
    """The solution of the undecided."""

    chosen: np.ndarray  # (m,) bool
    probability: np.ndarray  # (m,) the fractional optimum
    relaxed: Ascent
    moments: list[torch.Tensor]  # of the mask, computed from prepared rows (bf16 for DiSF)
    level: Any  # the budget's dual price where the bound is attained
    multipliers: np.ndarray  # (R,) the limits' dual prices there
    scale: float  # `Levels.scale` of the length bound, the last of them
    history: list[dict[str, float]]


def solve_undecided_documents(state: MomentState, posed: UndecidedProblem) -> UndecidedSolution:
    """Solves the undecided on one worker, which holds their features in memory."""
    plan, history = state.here, list[dict[str, float]]()
    features = np.concatenate([marginals.read("features")[0] for marginals in posed.marginals])
    pool = Pool(features, np.zeros(len(features)), device=plan.device)
    problem = Quadratic(
        [prepare(metric, pool) for metric in plan.metrics],
        plan.coefficients,
        torch.from_numpy(posed.linear),
        Feasible(posed.limits),
        _on(plan.device, posed.base),
        posed.offset,
    )

    def record(step: dict[str, float]) -> None:
        history.append({name: value + plan.constant for name, value in step.items()})

    relaxed = relaxation.relax_mask(problem, problem.feasible.uniform_start(), relaxation.TOLERANCE, record)
    chosen, _, p = relaxation.to_mask(problem, relaxed, relaxation.TOLERANCE / 4, record)
    at = dual_prices_of(problem, problem.price(relaxed.best))
    relaxed = replace(relaxed, moments=_on("cpu", relaxed.moments), best=_on("cpu", relaxed.best))
    return UndecidedSolution(
        chosen.numpy(), p.numpy(), relaxed, _on("cpu", problem.moments(chosen.double())), *at, history=history
    )


# ---------------------------------------------------------------- the reduces


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
    return _Selecting(shards, config, maps, folder, room_bytes).run()


class _Selecting(GroupedCorpus):
    def __init__(
        self, shards: Sequence[ShardCandidates], config: Config, maps: Mapper, folder: str | None, room_bytes: int
    ) -> None:
        super().__init__(shards, config, maps, folder)
        self.room_bytes, self.device = room_bytes, pick_device(config.selection.device)

    def run(self) -> ShardedSelection:
        sample = self._sample()
        places = self._places(sample)
        of_sample = self._of_sample(sample, places)
        spans = self.spans() if self.config.selection.calibrate else []
        plan, moments, multiplicity, multipliers, scale = learn_first_prices(
            sample, of_sample, self.total, spans, self.unit, self.config.selection, self.device
        )
        dual = LimitDuals(multipliers, scale)
        known = Pool(sample.features, sample.quality, device=self.device)
        # At least as many undecided as the budget takes: with 40 % of that, two solves ended 68 to 95 % from
        # the bound; with 60 % as near as with all in memory.
        budget_takes = int(np.ceil(self.size * self.count / self.total))
        room = max(budget_takes, self.room_bytes // (2 * sample.features.shape[1]))
        chosen: list[Handed] = []
        for number in range(SOLVES):
            if chosen:
                parts = [found.read("selected")[0][at] for found, at in zip(chosen, places, strict=True)]
                multiplicity = np.concatenate(parts).astype(np.float64)[np.argsort(np.argsort(sample.rows))]
            charged = self._charged(of_sample, dual)
            about = moment_sums.value_marginally(plan, known, sample.weights, moments, multiplicity) - charged
            stands = moment_sums.documents_represented(len(about), self.count, learned=number == 0)
            cut_range = make_cut_range(about, sample.weights, stands, self.size, room)
            counts = partial(self._counts, sample, places, multiplicity, chosen)
            posed = self._pose(f"{number}", plan, cut_range, moments, counts, dual, round(OVERFLOW * room))
            if posed is None:  # the sample misjudged the range: make it from exact ranks, at the cost of one more read
                exact = self._exact_range(room)
                posed = self._pose(f"{number}-exact", plan, exact, moments, counts, dual, self.count)
                if posed is None:
                    raise UndecidedTooFew
            solved = self._solve(number, plan, posed)
            moments, dual = solved.moments, LimitDuals(solved.multipliers, solved.scale)
            chosen = self._chosen(number, solved)
        return self._finished(plan, solved, chosen)

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

    def _places(self, sample: Sample) -> list[np.ndarray]:
        """The sample's documents as places in each group."""
        rows = np.sort(sample.rows)
        cuts = np.searchsorted(rows, [group.first for group in self.groups])
        return [part - group.first for part, group in zip(np.split(rows, cuts[1:]), self.groups, strict=True)]

    def _of_sample(self, sample: Sample, places: Sequence[np.ndarray]) -> Limits:
        """The corpus's limits on the sample's documents, in the sample's order."""
        return self.limits_at(places).at(np.argsort(np.argsort(sample.rows)))

    def _charged(self, of_sample: Limits, dual: LimitDuals) -> np.ndarray:
        """(n,) what the limits charge for the documents of the sample."""
        if not self.limits:
            return np.zeros(len(of_sample.weights))
        length = of_sample.length
        tokens = of_sample.weights if length is None or self.limits.in_tokens else length.coefficients
        return self.limits.charge(tokens, [each.codes for each in of_sample.groupings], *dual)

    def _counts(
        self, sample: Sample, places: Sequence[np.ndarray], multiplicity: np.ndarray, chosen: Sequence[Handed]
    ) -> Iterator[np.ndarray]:
        """How often each document (n,) of each group counts in the moments."""
        if chosen:
            yield from (found.read("selected")[0].astype(np.float64) for found in chosen)
            return
        sorted_, start = multiplicity[np.argsort(sample.rows)], 0
        for group, at in zip(self.groups, places, strict=True):
            counts = np.zeros(len(group.shard))
            counts[at] = sorted_[start : start + len(at)]
            start += len(at)
            yield counts

    # ------------------------------------------------------------ the undecided

    def _pose(
        self,
        name: str,
        plan: MomentPlan,
        cut_range: CutRange,
        moments: Sequence[torch.Tensor],
        counts: Callable[[], Iterator[np.ndarray]],
        dual: LimitDuals,
        most: int,
    ) -> UndecidedProblem | None:
        """The problem of the undecided documents.

        None if there are more than `most`, or if they cannot meet the rest of the budget and the limits.
        """
        items = [
            group._replace(
                now=self.hand(
                    f"given-{name}-{group.number}", multiplicity=multiplicity, charge=self.charge(group, dual)
                )
            )
            for group, multiplicity in zip(self.groups, counts(), strict=True)
        ]
        state = MomentState(self.config, self.folder, name, plan=plan, moments=_on("cpu", moments), cut_range=cut_range)
        found = self.maps(measure_marginal_values, state, items, self.rows)
        self.marginals = [marginals for marginals, _ in found]
        base: list[np.ndarray] | None = None
        spent, offsets, linear = [], [], []
        self.inside, self.index = [], []
        for group, marginals in zip(self.groups, self.marginals, strict=True):
            value, *of_group = marginals.read("marginal", *(f"base_{place}" for place in range(len(plan.metrics))))
            base = of_group if base is None else [a + b for a, b in zip(base, of_group, strict=True)]
            inside, at = cut_range.inside(value), np.flatnonzero(cut_range.undecided(value))
            self.inside.append(self.hand(f"inside-{name}-{group.number}", inside=inside))
            self.index.append(at)
            spent.append(self.limits.of(*self.known(group)).spent(inside))
            gain = scaled_quality(plan.quality, quality_of(group.shard)) / self.size
            offsets.append(float((self.weights(group) * gain)[inside].sum()))
            linear.append(gain[at])
        assert base is not None
        if sum(map(len, self.index)) > most:
            return None
        self.own = self.limits_at(self.index)
        self.spent = reduce(add, spent)
        limits = self.own.less(self.spent)
        if not fits_limits(limits):
            return None
        fixed = [torch.from_numpy(part) for part in base]
        return UndecidedProblem(self.marginals, np.concatenate(linear), limits, fixed, math.fsum(offsets))

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

    def _solve(self, number: int, plan: MomentPlan, posed: UndecidedProblem) -> UndecidedSolution:
        state = MomentState(self.config, self.folder, f"{number}", plan=plan)
        [solved] = self.maps(solve_undecided_documents, state, [posed])
        self.history += [{"step": len(self.history) + place, **step} for place, step in enumerate(solved.history)]
        return solved

    def _chosen(self, number: int, solved: UndecidedSolution) -> list[Handed]:
        """Each group's `selected` and `probability`."""
        ends = np.cumsum([len(at) for at in self.index])[:-1]
        found = []
        parts = zip(
            self.inside, self.index, np.split(solved.chosen, ends), np.split(solved.probability, ends), strict=True
        )
        for place, (fixed, at, chosen, probability) in enumerate(parts):
            [selected] = fixed.read("inside")
            selected = selected.copy()
            relaxed = selected.astype(np.float32)
            selected[at], relaxed[at] = chosen, probability
            found.append(self.hand(f"chosen-{number}-{place}", selected=selected, probability=relaxed))
        return found

    # ------------------------------------------------------------ the end

    def _finished(self, plan: MomentPlan, solved: UndecidedSolution, chosen: Sequence[Handed]) -> ShardedSelection:
        relaxed, dual = solved.relaxed, LimitDuals(solved.multipliers, solved.scale)
        if broken := self.own.broken(self.spent + self.own.spent(solved.chosen)):
            raise UndecidedTooFew(broken[0])
        items = []
        for group, found in zip(self.groups, chosen, strict=True):
            thresholds = solved.level + self.charge(group, dual)
            now = self.hand(f"last-{group.number}", selected=found.read("selected")[0], thresholds=thresholds)
            items.append(group._replace(now=now))
        state = MomentState(
            self.config, self.folder, plan=plan, moments=_on("cpu", relaxed.best), chosen=_on("cpu", solved.moments)
        )
        measured = self.maps(measure_selection, state, items, self.rows)
        total: list[torch.Tensor] | None = None
        statistics: list[Any] = [None] * len(plan.metrics)
        names = [f"moment_{place}" for place in range(len(plan.metrics))]
        sums, quality, selected, decided = [], np.zeros(self.columns), 0, []
        for group, done, of_group in zip(self.groups, measured, chosen, strict=True):
            at_relaxed, at_chosen, *arrays = done.read("relaxed", "price", *names)
            moments = [torch.from_numpy(moment) for moment in arrays]
            total = moments if total is None else [a + b for a, b in zip(total, moments, strict=True)]
            for place, metric in enumerate(plan.metrics):
                if isinstance(metric, DiSF):
                    pair = [torch.from_numpy(each) for each in done.read(f"sums_{place}_0", f"sums_{place}_1")]
                    before = statistics[place]
                    statistics[place] = pair if before is None else [a + b for a, b in zip(before, pair, strict=True)]
            weights = self.weights(group)
            taken, probability = of_group.read("selected", "probability")
            sums.append(float(weights @ np.abs(at_relaxed)))
            quality, selected = quality + (weights * taken) @ quality_of(group.shard), selected + int(taken.sum())
            columns = {"selected": taken, "probability": probability, "price": (at_chosen * weights).astype(np.float32)}
            decided.append(hand_on(self.folder, f"decided-{group.number}", **columns))
        assert total is not None
        _, most, _ = self.reduced("relaxed", lambda: (done.read("relaxed")[0] for done in measured), dual)
        held = weighted_norms(plan.coefficients, relaxed.best)
        bound = most + held + plan.constant
        bound += rounding_of(math.fsum(sums), most, held, plan.constant, terms=self.count)
        value = relaxed.value + plan.constant
        outcome = Outcome(self.count, selected, quality, total, statistics, bound, value, self.history)
        return ShardedSelection(decided, facts_of_rounds(plan, outcome))


def _on(device: torch.device | str, moments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [moment.to(device) for moment in moments]
