"""The driver of a pool whose metrics are functions of a state, coverage among them: fractional optimum, bound, mask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, replace

import numpy as np
import torch

from datamask.errors import ConfigError, InputError
from datamask.selection.cover import greedy_search as search
from datamask.selection.cover.tangent import Concave, Record, maximise
from datamask.selection.driver import PoolDriver
from datamask.selection.metrics.base import Metric, StateMetric
from datamask.selection.metrics.coverage import Coverage, SummedCoverage
from datamask.selection.problem.feasible import Feasible, fill_in_order, top_up
from datamask.selection.problem.limits import NO_SELECTION
from datamask.selection.problem.problem import Draft, Problem, Term
from datamask.selection.solvers import Report
from datamask.selection.solvers.quadratic import rounding_of, swap_by_value
from datamask.shares import share_part, tell_share

# Tolerance of the fractional optimum, as a share of the objective's span: judges do not tell apart what differs by so
# little (benchmarks/LOG.md). `coverage.search` asks for less.
ACCURACY = 1e-3
REPEATED = 5e-5  # the same with repeats
ROUGHER = 5  # times that where words saturate: no mask comes within a tenth of the span of it
STEPS = 400  # at most
ROUGH, ROUGH_STEPS = 1e-2, 60  # the same for a term's own best; its tolerance is a share of a random selection's value
# Documents × dimensions² up to which swaps are tried by value, where there are other metrics than coverage.
TRIED = 1 << 23
# With at most SMALL numbers in all rows, rounding loses most and more starts cost little: the optimum is followed by
# LONGER times the sweeps too, and rounds begin at greedy's mask and at the rounded one.
SMALL, LONGER = 1 << 19, (2, 4, 8)
OTHER_ROUNDS = 6  # rounds of search between which the other metrics' prices are computed anew


class StateDriver(PoolDriver):
    """The driver of a pool whose metrics are functions of a state."""

    accuracy, rougher = ACCURACY, ROUGHER

    def init(self) -> None:
        """The objective as a concave problem, and the tolerance."""
        problem, settings = self.problem, self.problem.settings
        self.concave = make_concave(problem, self.diversity, self.feasible)
        joint = self.concave.joint
        self.objective_span = span_of_objective([*self.diversity, *problem.objective.quality], settings.calibrate)
        rougher = self.rougher if joint is not None and joint.curves.worth else 1
        self.tolerance = self.accuracy * self.objective_span * rougher / max(settings.coverage.search, 1)

    def step(self) -> None:
        """The fractional optimum, by `tangent.maximise`."""
        with share_part(0, 0.2):
            record = closing(self.tolerance, self.note)
            self.found = maximise(self.concave, self.feasible.uniform_start(), self.tolerance, STEPS, record)

    def postprocess(self) -> Draft:
        """The optimum rounded and improved by local search, with an upper bound."""
        with share_part(0.2, 1):
            p, price = self.found.p, self.found.price
            mask = torch.from_numpy(self.search(self.concave, p, price))
        at = self.concave.price(self.concave.states(mask.double()))
        return self.certified(mask, p, at)

    def search(self, concave: Concave, p: torch.Tensor, price: torch.Tensor) -> np.ndarray:
        """The best mask (N,) found from a fractional optimum p (N,) at these prices (N,)."""
        settings, feasible = self.problem.settings, concave.feasible
        effort = search.Effort(search=settings.coverage.search)
        selected = feasible.round(p, price).numpy()
        if concave.joint is not None:
            selected = to_mask(concave, price, selected, self.objective_span, effort, p)
        more = concave.joint is None or len(concave.metrics) > 1  # than coverage
        if more and len(self.problem) * self.problem.pool.dimensions**2 <= TRIED:
            values = self.problem.objective.values if concave is self.concave else concave.values
            selected = swap_by_value(feasible.limits, torch.from_numpy(selected), values, concave.gradient).numpy()
        return selected

    def certified(
        self, mask: torch.Tensor, p: torch.Tensor, price: torch.Tensor, repeat: torch.Tensor | None = None
    ) -> Draft:
        """The answer, with the fractional optimum's bound. price: (N,) per unit of the budget, times the budget."""
        objective, found = self.problem.objective, self.found
        rounding = rounding_of(objective.margin, terms=len(self.problem) + self.problem.pool.dimensions)
        self.note({"objective": found.value, "relaxed": found.value, "upper_bound": found.bound + rounding})
        last = self.history[-1]
        price = price * torch.from_numpy(self.problem.limits.weights) / self.concave.size
        return Draft(mask, p.float(), price, last["upper_bound"], last["relaxed"], tuple(self.history), repeat)


def make_concave(problem: Problem, terms: list[Term], feasible: Feasible) -> Concave:
    """f as a concave problem, its coverages joined into one."""
    covers = [(term.metric, term.scale) for term in terms if isinstance(term.metric, Coverage)]
    metrics: list[StateMetric] = [SummedCoverage.of(*zip(*covers, strict=True))] if covers else []
    scales = [1.0] * len(metrics)
    for term in terms:
        if isinstance(term.metric, StateMetric) and not isinstance(term.metric, Coverage):
            metrics.append(term.metric)
            scales.append(term.scale)
    return Concave(metrics, scales, problem.objective.linear, feasible, problem.size)


def closing(tolerance: float, record: Record) -> Record:
    """`record`, which also tells how far the gap has closed: its digits, of those between the first gap and what will
    do."""
    first: float | None = None

    def told(step: dict[str, float]) -> None:
        nonlocal first
        record(step)
        gap = max(step["upper_bound"] - step["objective"], tolerance)
        first = first or gap
        if first > tolerance:
            tell_share(math.log(first / gap) / math.log(first / tolerance))

    return told


def to_mask(
    concave: Concave,
    price: torch.Tensor,
    selected: np.ndarray,
    objective_span: float,
    effort: search.Effort,
    p: torch.Tensor,  # (N,) the fractional optimum
) -> np.ndarray:
    """The best mask found by local search from a rounded one (N,), by exact gains of coverage.

    Other metrics enter by their prices, which are computed anew between rounds.
    objective_span: f from a random selection to the best.
    """
    limits, weights, joint = concave.feasible.limits, concave.feasible.limits.weights, concave.joint
    assert joint is not None
    dual, size = concave.feasible.dual(price), concave.size
    per_token, above = dual.level / size, (price - dual.lower).numpy() * weights / size
    if len(concave.metrics) == 1:
        linear = concave.linear.numpy() * weights / concave.size
        starts = [(selected, effort)]
        if len(joint.rows.index) <= SMALL:
            grown = fill_in_order(limits, search.grow_greedily(joint, linear, limits, size))
            starts += [(selected, replace(effort, search=times * effort.search)) for times in LONGER]
            starts += [(start, replace(effort, search=0)) for start in (grown, selected)]
        found, at = [], search.Optimum(per_token, above, p.numpy(), dual.multipliers / size)
        for number, (start, own) in enumerate(starts):
            with share_part(number / len(starts), (number + 1) / len(starts)):
                found.append(search.improve(joint, linear, limits, start, objective_span, own, size, at))
        return max(found, key=lambda mask: _value(concave, mask))
    rest = Concave(concave.metrics[1:], concave.scales[1:], concave.linear, concave.feasible, concave.size)
    best, reached = selected, _value(concave, selected)
    at = search.Optimum(per_token, multipliers=dual.multipliers / size)
    for number in range(OTHER_ROUNDS):
        linear = rest.price(rest.states(torch.from_numpy(selected).double())).numpy() * weights / concave.size
        with share_part(number / OTHER_ROUNDS, (number + 1) / OTHER_ROUNDS):
            own = search.Effort(rounds=2, search=0)
            selected = search.improve(joint, linear, limits, selected, objective_span, own, size, at)
        value = _value(concave, selected)
        if value <= reached:
            break
        best, reached = selected, value
    return best


def _value(concave: Concave, selected: np.ndarray) -> float:
    p = torch.from_numpy(selected).double()
    return concave.value(p, concave.states(p))


def span_of_objective(terms: Sequence[Term], calibrated: bool) -> float:
    """The span of the objective of these terms, from a random selection to each term's own best.

    Uncalibrated, where these are not known: a hundredth of the terms' scales.
    """
    if calibrated:
        return max(sum(abs(term.scale * (term.one - term.zero)) for term in terms), 1e-12)
    return max(sum(abs(term.scale) for term in terms), 1e-12) * 1e-2


def best_alone(metric: StateMetric, feasible: Feasible, zero: float) -> float:
    """The fractional optimum of a metric alone. zero: the median of random selections."""
    if isinstance(metric, Coverage):
        metric = SummedCoverage.of([metric], [1.0])
    if isinstance(metric, SummedCoverage):
        metric = metric.used()
    nothing = torch.zeros(len(feasible.weights), dtype=torch.float64)
    concave = Concave([metric], [1.0], nothing, feasible, feasible.limits.size)
    return maximise(concave, feasible.uniform(), ROUGH * max(abs(zero), 1e-9), ROUGH_STEPS, lambda step: None).value


# -- repeats: a document may be taken up to r = `select.repeat` times under a budget in tokens
#
# The fractional problem treats a document of weight w as one of weight r·w that is taken in part, so `tangent` gives
# the optimum with its bound. Integer counts are a mask over copies: each document is offered one copy more than the
# fractional optimum takes (rounded up), at most r, and rounding and search treat each copy as a document. The bound
# holds for integer counts too. (Repeating the most wanted documents: SoftDedup, arXiv 2407.06654; Olmix.)


@dataclass(frozen=True, eq=False)
class Copies:
    """A `StateMetric` over copies of documents: `index` (n,) names the document of each copy."""

    metric: StateMetric
    index: np.ndarray
    documents: int

    def state(self, mass: np.ndarray) -> np.ndarray:
        return self.metric.state(np.bincount(self.index, mass, minlength=self.documents))

    def of_state(self, state: np.ndarray) -> float:
        return self.metric.of_state(state)

    def slope(self, state: np.ndarray) -> np.ndarray:
        return self.metric.slope(state)

    def inside(self, state: np.ndarray) -> bool:
        return self.metric.inside(state)

    def products(self, slope: np.ndarray) -> np.ndarray:
        return self.metric.products(slope)[self.index]


class RepeatDriver(StateDriver):
    """The driver of a pool whose documents may be taken several times; the draft's `repeat` (N,) says how often each
    is.

    :raises ConfigError: a metric for which the effect of a second copy of a document is not defined.
    :raises InputError: of `run`: no selection is within the limits.
    """

    accuracy, rougher = REPEATED, 1

    def __init__(self, problem: Problem, terms: list[Term], progress: Report) -> None:
        refuse([term.metric for term in terms])
        super().__init__(problem, terms, Feasible(problem.limits.repeated(problem.settings.repeat)), progress)

    def postprocess(self) -> Draft:
        """Whole numbers of the optimum's copies, with an upper bound."""
        problem, found, most = self.problem, self.found, self.problem.settings.repeat
        times, counts = (most * found.p).numpy(), None
        offered = np.minimum(most, np.ceil(times - 1e-9).astype(np.int64) + 1)  # copies
        for ways in (offered, np.full(len(problem), most)):
            with suppress(InputError):  # if these copies hold no selection within the limits, all copies may
                counts = self.in_whole_numbers(times, np.repeat(np.arange(len(problem)), ways))
                if problem.limits.violations_of_counts(counts, most):
                    counts = filled(problem, counts, found.price.numpy())
                if not problem.limits.violations_of_counts(counts, most):
                    break
        if counts is None:
            raise InputError(NO_SELECTION)
        whole = torch.from_numpy(counts)
        price = self.concave.price(self.concave.states(whole / most))
        return self.certified(whole > 0, torch.from_numpy(times), price, whole)

    def in_whole_numbers(self, times: np.ndarray, index: np.ndarray) -> np.ndarray:
        """(N,) int: how often each document is taken, by rounding the optimum's `times` (N,) and searching over copies.

        index: (n,) row numbers of the copies offered.
        """
        concave, joint, count = self.concave, self.concave.joint, len(self.problem)
        number = np.arange(len(index)) - np.searchsorted(index, index)  # which copy of its document each is
        feasible = Feasible(self.problem.limits.copies(index, self.problem.settings.repeat))
        if feasible.everything:
            return np.bincount(index, minlength=count)
        p, at = torch.from_numpy(np.clip(times[index] - number, 0, 1)), torch.from_numpy(index)
        copies: list[StateMetric] = [Copies(metric, index, count) for metric in concave.metrics]
        if joint is not None:
            copies[0] = joint.take(index)
        over = Concave(copies, concave.scales, concave.linear[at], feasible, concave.size)
        return np.bincount(index[self.search(over, p, self.found.price[at])], minlength=count)


def refuse(metrics: Sequence[Metric | None]) -> None:
    """:raises ConfigError: a metric for which the effect of a second copy of a document is not defined."""
    strange = [metric.name for metric in metrics if metric is not None and not isinstance(metric, StateMetric)]
    if strange:
        raise ConfigError(
            f"select.repeat: to {', '.join(strange)} a second copy of a document changes nothing, or it is not known "
            "what; repeat is for coverage, Pair_simi and DiSF, or set select.repeat to 1"
        )


def filled(problem: Problem, counts: np.ndarray, price: np.ndarray) -> np.ndarray:
    """(N,) counts after spending the rest of the budget on copies that still fit, by price. No change under limits."""
    if problem.limits:
        return counts
    most = problem.settings.repeat
    index = np.repeat(np.arange(len(counts)), most)
    number = np.arange(len(index)) % most  # which copy of its document each is
    selected = number < counts[index]
    top_up(problem.limits.copies(index, most), np.lexsort((number, -price[index])), selected)
    return np.bincount(index[selected], minlength=len(counts))
