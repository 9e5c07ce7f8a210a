"""The driver of a pool whose metrics are functions of a state, coverage among them: fractional optimum, bound, mask."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np
import torch

from datamask.selection.cover import greedy_search as search
from datamask.selection.cover.curves import SummedCoverage
from datamask.selection.cover.tangent import Concave, Record, StateMetric, as_state, maximise
from datamask.selection.engine.quadratic import rounding_of
from datamask.selection.engine.swaps import swap_by_value
from datamask.selection.metrics.coverage import Coverage
from datamask.selection.problem.feasible import Feasible, fill_in_order
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.problem import Term
from datamask.selection.result import Draft
from datamask.selection.sharded.driver import PoolDriver
from datamask.shares import share_part, tell_share

if TYPE_CHECKING:
    from datamask.selection.problem.problem import Problem

# Tolerance of the fractional optimum, as a share of the objective's span: judges do not tell apart what differs by so
# little (benchmarks/LOG.md). `coverage.search` asks for less.
ACCURACY = 1e-3
ROUGHER = 5  # times that where words saturate: no mask comes within a tenth of the span of it
STEPS, ROUGH = 400, 1e-2  # steps at most; tolerance of a term's own best, as a share of a random selection's value
TRIED = (
    1 << 22
)  # documents × dimensions² up to which swaps are tried by value, where other metrics stand beside coverage
OTHER_ROUNDS = 6  # rounds of search between which the other metrics' prices are computed anew


class Mixture(PoolDriver):
    """The driver of a pool whose metrics are functions of a state."""

    accuracy, rougher = ACCURACY, ROUGHER

    def init(self) -> None:
        """The objective as a concave problem, and the tolerance."""
        problem, settings = self.problem, self.problem.settings
        self.concave, self.joint, self.others = make_concave(problem, self.diversity, self.feasible)
        self.objective_span = span_of_objective([*self.diversity, *problem.objective.quality], settings.calibrate)
        rougher = self.rougher if self.joint is not None and self.joint.curves.worth else 1
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
            mask = torch.from_numpy(self.search(self.concave, self.joint, p, price))
        at = self.concave.price(self.concave.states(mask.double()))
        return self.certified(mask, p, at)

    def search(
        self, concave: Concave, joint: SummedCoverage | None, p: torch.Tensor, price: torch.Tensor
    ) -> np.ndarray:
        """The best mask (N,) found from a fractional optimum p (N,) at these prices (N,)."""
        settings, feasible = self.problem.settings, concave.feasible
        effort = search.Effort(search=settings.coverage.search, seed=settings.seed)
        selected = feasible.round(p, price).numpy()
        if concave.metrics:
            selected = to_mask(concave, joint, price, selected, self.objective_span, effort, p)
        if len(self.problem) * self.problem.pool.dimensions**2 <= TRIED and (joint is None or self.others):
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


def make_concave(
    problem: Problem, terms: list[Term], feasible: Feasible
) -> tuple[Concave, SummedCoverage | None, bool]:
    """f as a concave problem, its coverages joined into one (its first metric; None without), and whether there are
    other metrics."""
    objective, size = problem.objective, problem.size
    covers = [(term.scale, term.metric) for term in terms if isinstance(term.metric, Coverage)]
    others = [(term.scale, as_state(term.metric)) for term in terms if not isinstance(term.metric, Coverage)]
    metrics: list[StateMetric] = []
    scales: list[float] = []
    joint = None
    if covers:
        joint = SummedCoverage.of([metric for _, metric in covers], [scale for scale, _ in covers])
        metrics, scales = [joint], [1.0]
    for scale, metric in others:
        assert metric is not None
        metrics.append(metric)
        scales.append(scale)
    return Concave(metrics, scales, objective.linear, feasible, size), joint, bool(others)


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
    joint: SummedCoverage | None,
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
    limits, weights = concave.feasible.limits, concave.feasible.limits.weights
    if joint is None:
        return _by_prices(concave, selected)
    dual, size = concave.feasible.dual(price), concave.size
    per_token, above = dual.level / size, (price - dual.thresholds(price)).numpy() * weights / size
    if len(concave.metrics) == 1:
        linear = concave.linear.numpy() * weights / concave.size
        starts = [selected]
        if len(joint.rows.index) <= search.SMALL:  # rounding loses most there, and more starts cost little
            starts += [
                fill_in_order(limits, search.grow_greedily(joint, linear, limits, concave.size)),
                selected,
                selected,
            ]
        found, at = [], search.Optimum(per_token, above, p.numpy(), dual.multipliers / size)
        for number, start in enumerate(starts):
            with share_part(number / len(starts), (number + 1) / len(starts)):
                own, size = replace(effort, seed=effort.seed + number), concave.size
                mask = search.improve(joint, linear, limits, start, objective_span, own, size, at)
                found.append(mask)
        return max(found, key=lambda mask: _value(concave, mask))
    rest = Concave(concave.metrics[1:], concave.scales[1:], concave.linear, concave.feasible, concave.size)
    best, reached = selected, _value(concave, selected)
    for number in range(OTHER_ROUNDS):
        linear = rest.price(rest.states(torch.from_numpy(selected).double())).numpy() * weights / concave.size
        with share_part(number / OTHER_ROUNDS, (number + 1) / OTHER_ROUNDS):
            own, size = search.Effort(rounds=2, search=0, seed=number), concave.size
            at = search.Optimum(per_token, multipliers=dual.multipliers / size)
            selected = search.improve(joint, linear, limits, selected, objective_span, own, size, at)
        value = _value(concave, selected)
        if value <= reached:
            break
        best, reached = selected, value
    return best


def _by_prices(concave: Concave, selected: np.ndarray) -> np.ndarray:
    """Refills the mask in the order of prices at the present mask plus an inertia, with falling step sizes, and keeps
    what raises the objective."""
    reached = _value(concave, selected)
    for share in (0.5, 0.25, 0.1, 0.05, 0.02):
        held = torch.from_numpy(selected).double()
        price = concave.price(concave.states(held))
        cut = concave.feasible.cut(price)
        deviation = float((price - cut).abs().median()) or 1.0
        order = np.argsort(-(share * (price - cut) / deviation + held).numpy(), kind="stable")
        other = fill_in_order(concave.feasible.limits, order)
        value = _value(concave, other)
        if value > reached:
            selected, reached = other, value
    return selected


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


def best_alone(metric: StateMetric, limits: Limits, zero: float) -> float:
    """The best value of a metric found for a selection within the budget. zero: the mean of random selections."""
    joint = (
        SummedCoverage.of([metric], [1.0]).used()
        if isinstance(metric, Coverage)
        else metric
        if isinstance(metric, SummedCoverage)
        else None
    )
    feasible, nothing = Feasible(limits), torch.zeros(len(limits.weights), dtype=torch.float64)
    concave = Concave([joint or metric], [1.0], nothing, feasible, limits.size)
    with share_part(0, 0.1):
        rough = maximise(concave, feasible.uniform(), ROUGH * max(abs(zero), 1e-9), 60, lambda step: None)
    selected = feasible.round(rough.p, rough.price).numpy()
    if joint is None:
        return _value(concave, _by_prices(concave, selected))
    cut = feasible.cut(rough.price)
    per_token, above = cut / limits.size, (rough.price.numpy() - cut) * limits.weights / limits.size
    unit = max(rough.bound - zero, 1e-12)
    with share_part(0.1, 1):
        effort, at = search.Effort(rounds=1, search=1 / 6), search.Optimum(per_token, above, rough.p.numpy())
        best = search.improve(joint, nothing.numpy(), limits, selected, unit, effort, optimum=at)
    return _value(concave, best)
