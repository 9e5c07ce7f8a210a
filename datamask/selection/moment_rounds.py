"""The rounds of pairwise and DiSF: their state is d or d² numbers.

    found = MomentRounds(shards, config, folder, maps).run()

Features are laid out once, as flat files that later rounds map into memory; only workers hold them. A sample gives the
terms, their calibration, DiSF's standardisation and the state at which to price first. From there it goes on as
`selection.price_rounds` has it. At the end the prices that bound the objective are computed with their rounding errors,
and the moments of the selected exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np
import torch

from datamask.config import ResolvedSelect
from datamask.devices import pick_device
from datamask.maps import mapped, write_array
from datamask.selection import groups
from datamask.selection.calibration import make_terms
from datamask.selection.cover.solve import span_of_objective
from datamask.selection.metrics import metric_class, metric_columns
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.metrics.moments import DiSF, SummedMoments
from datamask.selection.price_rounds import Rounds
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.pool import Pool, row_hashes
from datamask.selection.problem.problem import SAMPLE, Certificate, Problem, Term, moment_coefficients, scaled_quality
from datamask.selection.solvers import relaxation
from datamask.selection.solvers.ascent import Ascent, Multilinear
from datamask.selection.solvers.quadratic import Quadratic, prepare, priced, rounding_of

ROOM_BYTES = 3 << 27  # bytes of the undecided documents' float16 features
LEARNING_STEPS = 40  # steps of the ascent on the sample at most


@dataclass(frozen=True, eq=False)
class MomentState(groups.Round):
    """The state of a round."""

    diversity: Sequence[Term] = ()
    joint: SummedMoments = field(default_factory=SummedMoments)
    bounded: np.ndarray | None = None  # (J,) the state whose prices bound the objective
    chosen: np.ndarray | None = None  # (J,) the selection's

    @property
    def device(self) -> torch.device:
        """This worker's."""
        return pick_device(self.settings.device)

    @property
    def metrics(self) -> list[MomentMetric]:
        """The diversity terms' metrics."""
        return [term.metric for term in self.diversity if isinstance(term.metric, MomentMetric)]

    def pool(self, group: groups.Group) -> Pool:
        """A group's documents."""
        return Pool(mapped(_features(self, group)), groups.quality_of(group.shard), device=self.device)

    def moments(self, state: np.ndarray) -> list[torch.Tensor]:
        """The metrics' moments at a state (J,), on this worker's device."""
        return [moment.to(self.device) for moment in self.joint.unflatten(state)]

    def prices(self, group: groups.Group) -> list[np.ndarray]:
        pool, linear = self.pool(group), torch.from_numpy(self.linear(group))
        factors = [-0.5] * len(self.metrics)
        found = (priced(pool, self.metrics, factors, linear, self.moments(slope))[0] for slope in self.slopes)
        return [price.numpy() for price in found]

    def rows(self, group: groups.Group, at: np.ndarray, mass: np.ndarray) -> dict[str, np.ndarray]:
        features, rows = mapped(_features(self, group)), np.flatnonzero(mass) if mass.any() else np.zeros(1, np.int64)
        pool = Pool(features[rows], np.zeros(len(rows)), device=self.device)
        sums = (metric.sum_over(pool, torch.from_numpy(mass[rows]), torch.float32) for metric in self.metrics)
        return {"features": features[at], "state": self.joint.flatten(sums)}

    def quadratic(self, posed: groups.Undecided) -> Quadratic:
        """The problem of the undecided, whose features are held in memory."""
        features = np.concatenate([taken.read("features")[0] for taken in posed.taken])
        pool = Pool(features, np.zeros(len(features)), device=self.device)
        return Quadratic(
            [prepare(metric, pool) for metric in self.metrics],
            moment_coefficients(self.diversity, self.size),
            torch.from_numpy(posed.linear / self.size),
            Feasible(posed.limits),
            self.moments(groups.sum_groups(posed.taken, "state") * self.size),
            posed.offset,
        )

    def solve(self, posed: groups.Undecided) -> groups.Fractions:
        """See `Round.solve`; the state is that of the least bound."""
        problem = self.quadratic(posed)
        assert posed.p is not None
        start = problem.feasible.project(torch.from_numpy(posed.p))
        found = relaxation.relax_mask(problem, start, relaxation.TOLERANCE, lambda step: None)
        return groups.Fractions(found.p.numpy(), self.joint.flatten(found.bound_moments) / self.size, found.value)

    def search(self, item: tuple[groups.Undecided, np.ndarray, int]) -> tuple[np.ndarray, np.ndarray]:
        posed, _, _ = item
        problem, p = self.quadratic(posed), torch.from_numpy(posed.p)
        moments = problem.moments(p)
        relaxed = Ascent(p, moments, problem.value(p, moments), problem.price(moments), float("inf"), moments)
        mask, _, _ = relaxation.to_mask(problem, relaxed, relaxation.TOLERANCE / 4, lambda step: None)
        return mask.numpy(), self.joint.flatten(problem.moments(mask.double())) / self.size


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


def _features(state: MomentState, group: groups.Group) -> str:
    return f"{state.folder}/features-{group.number}.npy"


@groups.hands_on("measured")
def measure_selection(state: MomentState, group: groups.Group) -> dict[str, np.ndarray]:
    """Map: a group's part of the upper bound and of the exact objective.

    Hands on the prices (n,) at the bound's state plus their rounding error (`most`) and at the selection's (`price`),
    its exact moments, and the sums for DiSF's published statistic. Prices that may be above the group's `thresholds`
    (n,), about the dual prices, are computed again in float64.
    """
    assert state.bounded is not None and state.chosen is not None
    selected, thresholds = group.now.read("selected", "thresholds")
    pool, weights = state.pool(group), state.weights(group)
    index, mass = torch.from_numpy(np.flatnonzero(selected)), torch.from_numpy(weights * selected)
    arrays = {}
    for number, metric in enumerate(state.metrics):
        arrays[f"moment_{number}"] = metric.sum_over(pool, mass).cpu().numpy()
        if isinstance(metric, DiSF):
            pair = metric.exact_sums(pool.rows(index, torch.float64))
            arrays |= {f"sums_{number}_{side}": part.cpu().numpy() for side, part in enumerate(pair)}
    linear = torch.from_numpy(state.linear(group))
    bounded, chosen = map(state.moments, (state.bounded, state.chosen))
    price, error = priced(pool, state.metrics, state.joint.scales, linear, bounded, errors=True)
    most = price + error
    near = (most > torch.from_numpy(thresholds)).nonzero()[:, 0]
    if not pool.is_small:
        at = near.to(pool.device)
        exact, error = priced(pool, state.metrics, state.joint.scales, linear[near], bounded, at, errors=True)
        most[near] = exact + error
    last, _ = priced(pool, state.metrics, state.joint.scales, linear, chosen)
    return dict(most=most.numpy(), price=last.numpy(), **arrays)


class MomentRounds(Rounds):
    """The driver of metrics whose state is a moment. room: bytes of the undecided documents' float16 features."""

    room_words = "{:,} documents"
    descended = False  # a pass costs as much as a step of the solve, whose solution the sample's may be near

    def init(self) -> None:
        """Lays the corpus out, and learns the terms from a sample, whose optimum is the first state."""
        self.state = MomentState(self.config, self.folder, size=self.size)
        laid = self.maps(write_features, self.state, self.groups, self.rows)
        self.hashes = self.column(laid, "hashes")
        self.numbers, self.lengths = self.count, self.ones
        sampled = self.sample(SAMPLE, self.ones)
        taken = self.take_sample(sampled)
        order = np.argsort(groups.picked(self.hashes, sampled), kind="stable")
        features = np.concatenate([each.read("features")[0] for each in taken])[order]
        quality = groups.picked((groups.quality_of(group.shard) for group in self.groups), sampled)[order]
        # At least as many undecided as the budget takes: with 40 % of that, two solves ended 68 to 95 % from
        # the bound; with 60 % as near as with all in memory.
        budget_takes = int(np.ceil(self.size * self.count / self.total))
        room = ROOM_BYTES if self.given_room is None else self.given_room
        self.room = self.greatest_room = max(budget_takes, room // (2 * features.shape[1]))
        self.begin(self.learn(features, quality, self.limits_at(sampled).at(order)))

    def learn(self, features: np.ndarray, quality: np.ndarray, limits: Limits) -> np.ndarray:
        """The terms, and the state (J,) at which to price first, from the solution of the sample, which stands for the
        corpus: the `SAMPLE` documents whose features have the least hashes, in the order of these. limits: those of
        the corpus, on these."""
        spans = [self.quality_span()] if self.settings.calibrate else []
        weights, pool = limits.weights, Pool(features, quality, device=self.state.device)
        share = float(weights.sum() / self.total)
        given = torch.from_numpy(weights).to(pool.device), limits.sample(np.arange(len(weights)), share)
        make = partial(make_terms, spans=spans)
        problem = Problem(pool, self.settings, self.unit, self.size * share, *given, make, copies=1 / share)
        self.terms, self.diversity = problem.objective.quality, problem.objective.diversity
        self.objective_span = span_of_objective([*self.terms, *self.diversity], self.settings.calibrate)
        self.joint = SummedMoments.of(self.diversity)
        self.state = replace(self.state, terms=self.terms, diversity=self.diversity, joint=self.joint)
        small = Quadratic(
            [prepare(metric, pool) for metric in self.state.metrics],
            moment_coefficients(self.diversity, self.size * share),
            torch.from_numpy(scaled_quality(self.terms, quality)) / self.size / share,
            Feasible(problem.limits),
        )
        start = small.feasible.uniform()
        found = Multilinear(small, start, relaxation.TOLERANCE, LEARNING_STEPS).representing(1 / share).run()
        return self.joint.flatten(found.moments) / self.size / share

    def finished(self, chosen: groups.Arrays, probability: groups.Arrays, state: np.ndarray) -> groups.ShardedSelection:
        level, dual = self.best.level, self.best.dual
        above = (level + self.charge(group, dual) for group in self.groups)
        thresholds = self.hand_each("last", selected=chosen, thresholds=above)
        at = replace(self.state, bounded=self.base, chosen=state)
        measured = self.maps(measure_selection, at, self.given(thresholds), self.rows)
        prices = self.column(measured, "most")
        summed = math.fsum(
            float(self.state.weights(group) @ np.abs(price)) / self.size
            for group, price in zip(self.groups, prices, strict=True)
        )
        most = self.reduced("last", prices, dual).most / self.size
        held = -self.joint.of_state(self.base)
        bound = most + held + self.constant + rounding_of(summed, most, held, self.constant, terms=self.count)
        selected = sum(int(found.read("selected")[0].sum()) for found in thresholds)
        raw: dict[str, float] = {}
        exact: dict[str, float] = {}
        for place, (term, metric) in enumerate(zip(self.diversity, self.state.metrics, strict=True)):
            moment = torch.from_numpy(groups.sum_groups(measured, f"moment_{place}"))
            raw[term.name] = -metric.unit * float(moment.square().sum()) / self.size**2
            if isinstance(metric, DiSF):
                sums = (torch.from_numpy(groups.sum_groups(measured, f"sums_{place}_{side}")) for side in range(2))
                exact[f"{term.name}_exact"] = DiSF.of_sums(selected, *sums)
        decisions = chosen, probability, self.column(measured, "price")
        return self.finish(decisions, {**raw, **exact}, Certificate(bound, self.solved.value + self.constant))
