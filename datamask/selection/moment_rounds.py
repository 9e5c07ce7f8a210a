"""The driver of pairwise and DiSF: its state is d or d² numbers.

    found = MomentRounds(shards, config, folder, maps).run()

    init         lays the features out, once, as flat files that later rounds map into memory; a sample gives the terms,
                 their calibration and the first prices
    step         every document's marginal value, then the features of those near the cut; one worker solves these.
                 Twice: the second time at the solution's prices, which know what the sample did not hold
    postprocess  prices for the upper bound, and the exact sums of the selected documents. Where the bound is far above
                 the optimum found, the corpus has to be solved as one problem: of 1.4 M texts of 17 languages, whose
                 prices are nearly the same, other languages were above the cut after each solve

Only workers hold features. One worker solves the undecided documents, whose features fill the room, or more if
the budget takes more documents than that holds. The caller holds a few numbers of each undecided and each sampled
document, and none of the others (`grouped_corpus`). A document's marginal value is net of the limits' dual prices. The
calibration of diversity and DiSF's standardisation come from the sample; the bound covers the whole corpus.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import NamedTuple

import numpy as np
import torch

from datamask.config import ResolvedSelect
from datamask.devices import pick_device
from datamask.maps import Handed, mapped, write_array
from datamask.selection import groups
from datamask.selection.calibration import make_terms
from datamask.selection.cover.solve import span_of_objective
from datamask.selection.metrics import metric_class, metric_columns
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.metrics.moments import DiSF
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.pool import Pool, row_hashes
from datamask.selection.problem.problem import SAMPLE, Certificate, Problem, Term, moment_coefficients, scaled_quality
from datamask.selection.solvers import relaxation
from datamask.selection.solvers.ascent import Ascent, Multilinear
from datamask.selection.solvers.quadratic import Quadratic, prepare, priced, rounding_of, weighted_norms

ROOM_BYTES = 3 << 27  # bytes of the undecided documents' float16 features
SOLVES = 2  # rounds of marginals and solve
LEARNING_STEPS = 40  # steps of the ascent on the sample at most


# -- what a worker finds in a group's features, and how one solves the undecided


@dataclass(frozen=True, eq=False)
class MomentState(groups.Round):
    """The state of a round."""

    diversity: Sequence[Term] = ()
    moments: Sequence[torch.Tensor] = ()
    chosen: Sequence[torch.Tensor] = ()  # moments of the selection

    @property
    def device(self) -> torch.device:
        """This worker's."""
        return pick_device(self.settings.device)

    @property
    def metrics(self) -> list[MomentMetric]:
        """The diversity terms' metrics."""
        return [term.metric for term in self.diversity if isinstance(term.metric, MomentMetric)]

    @property
    def coefficients(self) -> list[float]:
        """c_m of each metric, as in `Quadratic`."""
        return moment_coefficients(self.diversity, self.size)


def can_sum_moments(settings: ResolvedSelect) -> bool:
    """Whether these settings can be solved by sums over shards: solver relaxation, moment metrics that read features
    alone, no repeats."""
    moments = all(issubclass(metric_class(name), MomentMetric) for name in settings.metrics)
    columns = any(metric_columns(name) for name in settings.metrics)
    return settings.solver == "relaxation" and moments and not columns and settings.repeat == 1


@groups.hands_on("laid")
def write_features(state: MomentState, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: writes a group's features as a flat file, and hands on the documents' hashes (n,)."""
    features = group.shard.features()
    write_array(_features(state, group), features)
    return {"hashes": row_hashes(features, state.settings.seed)}


@groups.hands_on("taken")
def read_undecided(state: MomentState, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: a group's features of the documents `at`, and of those that are selected beside them (`inside`) the moments
    and the quality's part of the objective (`offset`)."""
    at, inside = group.given("at", "inside")
    features, rows = mapped(_features(state, group)), np.flatnonzero(inside) if inside.any() else np.zeros(1, np.int64)
    pool = Pool(features[rows], np.zeros(len(rows)), device=state.device)
    mass = torch.from_numpy((groups.weights_of(state.settings, group.shard) * inside)[rows])
    sums = (metric.sum_over(pool, mass, torch.float32) for metric in state.metrics)
    linear = groups.weights_of(state.settings, group.shard) * (state.linear(group.shard) / state.size)
    arrays = {f"base_{place}": each.cpu().numpy() for place, each in enumerate(sums)}
    return dict(features=features[at], offset=np.asarray(linear[inside].sum()), **arrays)


@groups.hands_on("marginals")
def measure_marginal_values(state: MomentState, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: a group's marginal values (n,)."""
    [multiplicity] = group.given("multiplicity")
    pool, weights = _pool(state, group), groups.weights_of(state.settings, group.shard)
    # A price charges the self-term 2·multiplicity times. Adding or removing a whole document costs it once.
    self_terms = torch.zeros(len(pool), dtype=torch.float64)
    for c, metric in zip(state.coefficients, state.metrics, strict=True):
        if metric.vector:
            self_terms += c  # rows have unit length, so nothing needs to be read
            continue
        for part, rows in pool.blocks():
            self_terms[part] += c * metric.squares(metric.prepare(rows)).double().cpu()
    value = _prices_at(state, group, pool, state.moments) + (2 * multiplicity - 1) * weights * self_terms.numpy()
    return {"marginal": value}


def _features(state: MomentState, group: groups.Group) -> str:
    return f"{state.folder}/features-{group.number}.npy"


def _pool(state: MomentState, group: groups.Group) -> Pool:
    return Pool(mapped(_features(state, group)), groups.quality_of(group.shard), device=state.device)


@groups.hands_on("measured")
def measure_selection(state: MomentState, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: a group's part of the upper bound and of the exact objective.

    Hands on the prices (n,) at the fractional optimum's moments plus their rounding error (`relaxed`) and at the
    selection's (`price`), its exact moments, and the sums for DiSF's published statistic. Prices that may be above the
    group's `thresholds` (n,), about the dual prices, are computed again in float64.
    """
    selected, thresholds = group.given("selected", "thresholds")
    pool, weights = _pool(state, group), groups.weights_of(state.settings, group.shard)
    index, mass = torch.from_numpy(np.flatnonzero(selected)), torch.from_numpy(weights * selected)
    arrays = {}
    for number, metric in enumerate(state.metrics):
        arrays[f"moment_{number}"] = metric.sum_over(pool, mass).cpu().numpy()
        if isinstance(metric, DiSF):
            pair = metric.exact_sums(pool.rows(index, torch.float64))
            arrays |= {f"sums_{number}_{side}": part.cpu().numpy() for side, part in enumerate(pair)}
    linear = torch.from_numpy(state.linear(group.shard) / state.size)
    relaxed = on_device(state.device, state.moments)
    price, error = priced(pool, state.metrics, state.coefficients, linear, relaxed, errors=True)
    most = price + error
    near = (most > torch.from_numpy(thresholds)).nonzero()[:, 0]
    if not pool.is_small:
        at = near.to(pool.device)
        exact, error = priced(pool, state.metrics, state.coefficients, linear[near], relaxed, at, errors=True)
        most[near] = exact + error
    return dict(relaxed=most.numpy(), price=_prices_at(state, group, pool, state.chosen), **arrays)


def _prices_at(state: MomentState, group: groups.Group, pool: Pool, moments: Sequence[torch.Tensor]) -> np.ndarray:
    """(n,) float64: prices per unit of the budget, at a selection of these moments."""
    linear, there = torch.from_numpy(state.linear(group.shard) / state.size), on_device(state.device, moments)
    return priced(pool, state.metrics, state.coefficients, linear, there)[0].numpy()


# ---------------------------------------------------------------- the undecided


class UndecidedSolution(NamedTuple):
    """The solution of the undecided."""

    chosen: np.ndarray  # (m,) bool
    probability: np.ndarray  # (m,) the fractional optimum
    relaxed: Ascent
    moments: list[torch.Tensor]  # of the mask, computed from prepared rows (bf16 for DiSF)
    level: float  # the budget's dual price where the bound is attained
    dual: np.ndarray  # (R,) the limits' dual prices there
    history: list[dict[str, float]]


def solve_undecided(state: MomentState, posed: groups.Undecided) -> UndecidedSolution:
    """Solves the undecided on one worker, which holds their features in memory."""
    history: list[dict[str, float]] = []
    features = np.concatenate([taken.read("features")[0] for taken in posed.taken])
    pool = Pool(features, np.zeros(len(features)), device=state.device)
    base = [torch.from_numpy(groups.sum_groups(posed.taken, f"base_{place}")) for place in range(len(state.metrics))]
    problem = Quadratic(
        [prepare(metric, pool) for metric in state.metrics],
        state.coefficients,
        torch.from_numpy(posed.linear / state.size),
        Feasible(posed.limits),
        on_device(state.device, base),
        posed.offset,
    )
    relaxed = relaxation.relax_mask(problem, problem.feasible.uniform_start(), relaxation.TOLERANCE, history.append)
    chosen, _, p = relaxation.to_mask(problem, relaxed, relaxation.TOLERANCE / 4, history.append)
    _, dual = problem.feasible.answer(problem.price(relaxed.best))
    relaxed = replace(relaxed, moments=on_device("cpu", relaxed.moments), best=on_device("cpu", relaxed.best))
    moments = on_device("cpu", problem.moments(chosen.double()))
    return UndecidedSolution(chosen.numpy(), p.numpy(), relaxed, moments, dual.level, dual.multipliers, history)


def on_device(device: torch.device | str, moments: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """The moments there."""
    return [moment.to(device) for moment in moments]


# ---------------------------------------------------------------- the driver


class MomentRounds(groups.GroupDriver):
    """The driver of metrics whose state is a moment. room: bytes of the undecided documents' float16 features."""

    read = staticmethod(read_undecided)

    def init(self) -> None:
        """The terms and the first prices, from a sample."""
        self.state = MomentState(self.config, self.folder, size=self.size)
        self.chosen: list[Handed] = []  # each group's `selected` and `probability`, as the last solve found them
        self.laid = self.maps(write_features, self.state, self.groups, self.rows)
        self.hashes = self.column(self.laid, "hashes")
        self.sampled = self.sample(SAMPLE, self.ones)
        taken = self.take("sample", self.places("sample", self.sampled))
        self.order = np.argsort(groups.picked(self.hashes(), self.sampled), kind="stable")
        features = np.concatenate([each.read("features")[0] for each in taken])[self.order]
        weights = groups.picked(map(self.weights, self.groups), self.sampled)[self.order]
        quality = groups.picked((groups.quality_of(group.shard) for group in self.groups), self.sampled)[self.order]
        self.learn(features, weights, quality)
        # At least as many undecided as the budget takes: with 40 % of that, two solves ended 68 to 95 % from
        # the bound; with 60 % as near as with all in memory.
        budget_takes = int(np.ceil(self.size * self.count / self.total))
        room = ROOM_BYTES if self.given_room is None else self.given_room
        self.room = max(budget_takes, room // (2 * features.shape[1]))
        self.steps = SOLVES

    def learn(self, features: np.ndarray, weights: np.ndarray, quality: np.ndarray) -> None:
        """The terms; and the moments and dual prices at which to price first, from the solution of the sample, which
        stands for the corpus: the `SAMPLE` documents whose features have the least hashes, in the order of these."""
        limits = self.limits_at(self.sampled).at(self.order)
        spans = self.spans() if self.settings.calibrate else []
        size, share = limits.size, float(weights.sum() / self.total)
        pool, ends = Pool(features, quality, device=self.state.device), limits.sample(np.arange(len(weights)), share)
        given = self.settings, self.unit, size * share, torch.from_numpy(weights).to(pool.device), ends
        problem = Problem(pool, *given, partial(make_terms, spans=spans), copies=1 / share)
        self.terms, self.diversity = problem.objective.quality, problem.objective.diversity
        self.state = replace(self.state, terms=self.terms, diversity=self.diversity)
        small = Quadratic(
            [prepare(metric, pool) for metric in self.state.metrics],
            [c / share**2 for c in self.state.coefficients],
            torch.from_numpy(scaled_quality(self.terms, quality)) / size / share,
            Feasible(problem.limits),
        )
        start = small.feasible.uniform()
        found = Multilinear(small, start, relaxation.TOLERANCE, LEARNING_STEPS).representing(1 / share).run()
        self.dual = small.feasible.answer(found.price)[1].multipliers * share
        self.moments = [moment / share for moment in found.moments]
        self.multiplicity = found.p.numpy() / share  # (n,) how often each of the sample counts in these

    def step(self) -> None:
        """Solves the documents next to the cut at the last prices."""
        name = f"{self.done}"
        counts = self.hand_each(f"counts-{name}", multiplicity=self._counts())
        at = replace(self.state, name=name, moments=on_device("cpu", self.moments))
        found = self.maps(measure_marginal_values, at, self.given(counts), self.rows)
        values = self.reduced(f"marginal-{name}", self.column(found, "marginal"), self.dual)
        posed = self.pose(name, self.nearest(name, values, self.ones, self.room))
        [self.solved] = self.maps(solve_undecided, self.state, [posed])
        solved = self.solved
        for step in solved.history:
            self.note(step)
        self.moments, self.dual = solved.moments, solved.dual
        places, probability = range(len(self.groups)), solved.probability.astype(np.float32)
        self.chosen = self.hand_each(
            f"chosen-{name}",
            selected=(self.of_group(place, solved.chosen) for place in places),
            probability=(self.of_group(place, probability) for place in places),
        )

    def postprocess(self) -> groups.ShardedSelection:
        """The last solve's mask, and a bound at its fractional optimum."""
        relaxed, level = self.solved.relaxed, self.solved.level
        self.check_limits(self.solved.chosen)
        masks = (found.read("selected")[0] for found in self.chosen)
        above = (level + self.charge(group, self.dual) for group in self.groups)
        thresholds = self.hand_each("last", selected=masks, thresholds=above)
        state = replace(self.state, moments=on_device("cpu", relaxed.best), chosen=self.moments)
        measured = self.maps(measure_selection, state, self.given(thresholds), self.rows)
        summed = math.fsum(
            float(self.weights(group) @ np.abs(done.read("relaxed")[0]))
            for group, done in zip(self.groups, measured, strict=True)
        )
        most = self.reduced("relaxed", lambda: (done.read("relaxed")[0] for done in measured), self.dual).most
        held = weighted_norms(self.state.coefficients, relaxed.best)
        bound = most + held + self.constant + rounding_of(summed, most, held, self.constant, terms=self.count)
        value = relaxed.value + self.constant
        span = span_of_objective([*self.terms, *self.diversity], self.settings.calibrate)
        self.check_near((bound - value) / span, int(self.starts[-1]), f"{self.room:,} documents")
        selected = sum(int(found.read("selected")[0].sum()) for found in self.chosen)
        raw: dict[str, float] = {}
        exact: dict[str, float] = {}
        for place, (term, metric) in enumerate(zip(self.diversity, self.state.metrics, strict=True)):
            moment = torch.from_numpy(groups.sum_groups(measured, f"moment_{place}"))
            raw[term.name] = -metric.unit * float(moment.square().sum()) / self.size**2
            if isinstance(metric, DiSF):
                sums = (torch.from_numpy(groups.sum_groups(measured, f"sums_{place}_{side}")) for side in range(2))
                exact[f"{term.name}_exact"] = DiSF.of_sums(selected, *sums)

        def decisions() -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
            for group, done, found in zip(self.groups, measured, self.chosen, strict=True):
                selected, probability = found.read("selected", "probability")
                yield selected, probability, done.read("price")[0] * self.weights(group)

        return self.finish(decisions(), {**raw, **exact}, Certificate(bound, value))

    def _counts(self) -> Iterator[np.ndarray]:
        """How often each document (n,) of each group counts in the moments."""
        if self.chosen:
            yield from (found.read("selected")[0].astype(np.float64) for found in self.chosen)
            return
        of_groups = np.split(self.multiplicity[np.argsort(self.order)], np.cumsum(list(map(len, self.sampled)))[:-1])
        for count, at, own in zip(self.rows, self.sampled, of_groups, strict=True):
            counts = np.zeros(count)
            counts[at] = own
            yield counts
