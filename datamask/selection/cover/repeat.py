"""Repeats: a document may be taken up to r = `select.repeat` times under a budget in tokens.

The fractional problem treats a document of weight w as one of weight r·w that is taken in part, so `tangent` gives the
optimum with its bound. Integer counts are a mask over copies: each document is offered one copy more than the
fractional optimum takes (rounded up), at most r, and rounding and search treat each copy as a document. The bound holds
for integer counts too. (Repeating the most wanted documents: SoftDedup, arXiv 2407.06654; Olmix.)
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from datamask.errors import ConfigError, InputError
from datamask.selection.cover.curves import SummedCoverage
from datamask.selection.cover.greedy_search import Effort
from datamask.selection.cover.solve import STEPS, TRIED, make_concave, recorder, span_of_objective, to_mask
from datamask.selection.cover.tangent import Concave, StateMetric, as_state, maximise
from datamask.selection.engine.quadratic import rounding_of
from datamask.selection.engine.swaps import swap_by_value
from datamask.selection.problem.feasible import Feasible, top_up
from datamask.selection.problem.objective import Term
from datamask.selection.result import Draft

if TYPE_CHECKING:
    from datamask.selection.problem.problem import Problem
    from datamask.selection.solvers import Report

ACCURACY = 5e-5  # tolerance of the fractional optimum, as a share of the objective's span


@dataclass(frozen=True, eq=False)
class Copies:
    """A `StateMetric` over copies of documents: `index` (n,) names the document of each copy."""

    metric: StateMetric
    index: np.ndarray
    documents: int

    def state(self, mass: np.ndarray) -> np.ndarray:
        """The metric's state. mass: (n,) of the copies."""
        return self.metric.state(np.bincount(self.index, mass, minlength=self.documents))

    def of_state(self, state: np.ndarray) -> float:
        """D at this state."""
        return self.metric.of_state(state)

    def slope(self, state: np.ndarray) -> np.ndarray:
        """The gradient with respect to the state."""
        return self.metric.slope(state)

    def inside(self, state: np.ndarray) -> bool:
        """Whether D is defined at this state."""
        return self.metric.inside(state)

    def products(self, slope: np.ndarray) -> np.ndarray:
        """⟨slope, v⟩ of every copy: (n,)."""
        return self.metric.products(slope)[self.index]


def solve_repeats(problem: Problem, terms: list[Term], progress: Report) -> Draft:
    """Solves the problem with repeats; the draft's `repeat` (N,) says how often each document is taken.

    :raises ConfigError: a metric for which the effect of a second copy of a document is not defined.
    :raises InputError: no selection is within the limits.
    """
    refuse(terms)
    objective, most = problem.objective, problem.settings.repeat
    limits = problem.limits.repeated(most)
    feasible = Feasible(limits)
    concave, joint, _ = make_concave(problem, terms, feasible)
    record, history = recorder(objective, progress)
    objective_span = span_of_objective([*terms, *objective.quality], problem.settings.calibrate)
    found = maximise(concave, feasible.uniform_start(), ACCURACY * objective_span, STEPS, record)
    times = (most * found.p).numpy()
    counts = None
    for index in (offered(times, most), np.repeat(np.arange(len(problem)), most)):
        with suppress(InputError):  # if these copies hold no selection within the limits, all copies may
            counts = in_whole_numbers(problem, concave, joint, (times, found.price), index, objective_span)
            if not within(problem, counts):
                counts = filled(problem, counts, found.price.numpy())
            if within(problem, counts):
                break
    if counts is None:
        raise InputError("no selection holds all limits at once (budget, quotas, length_tolerance); loosen one of them")
    price = concave.price(concave.states(torch.from_numpy(counts / most))) * problem.weights.cpu() / problem.size
    rounding = rounding_of(objective.margin, terms=len(problem) + problem.pool.dimensions)
    bound, relaxed = found.bound + objective.constant + rounding, found.value + objective.constant
    history.append({"step": len(history), "objective": relaxed, "relaxed": relaxed, "upper_bound": bound})
    whole = torch.from_numpy(counts)
    return Draft(whole > 0, torch.from_numpy(times).float(), price, bound, relaxed, tuple(history), repeat=whole)


def refuse(terms: list[Term]) -> None:
    """Refuses metrics that repeats are not defined for.

    :raises ConfigError: as `solve_repeats`.
    """
    strange = [term.name for term in terms if as_state(term.metric) is None]
    if strange:
        raise ConfigError(
            f"select.repeat: to {', '.join(strange)} a second copy of a document changes nothing, or it is not known "
            "what; repeat is for coverage, Pair_simi and DiSF, or set select.repeat to 1"
        )


def offered(times: np.ndarray, most: int) -> np.ndarray:
    """Row numbers (n,) of the copies offered to rounding, ascending. times: (N,) how often the optimum takes each."""
    ways = np.minimum(most, np.ceil(times - 1e-9).astype(np.int64) + 1)
    return np.repeat(np.arange(len(times)), ways)


def in_whole_numbers(
    problem: Problem,
    concave: Concave,
    joint: SummedCoverage | None,
    fractional: tuple[np.ndarray, torch.Tensor],  # times (N,), price per unit (N,)
    index: np.ndarray,
    objective_span: float,
) -> np.ndarray:
    """(N,) int: how often each document is taken, by rounding the fractional optimum and searching over copies.

    index: (n,) row numbers of the copies offered; objective_span: from a random selection to the best.
    """
    times, price = fractional
    count = len(problem)
    number = np.arange(len(index)) - np.searchsorted(index, index)  # which copy of its document each is
    limits = problem.limits.copies(index, problem.settings.repeat)
    feasible = Feasible(limits)
    if feasible.everything:
        return np.bincount(index, minlength=count)
    p, at = torch.from_numpy(np.clip(times[index] - number, 0, 1)), torch.from_numpy(index)
    copies: list[StateMetric] = [Copies(metric, index, count) for metric in concave.metrics]
    if joint is not None:
        joint = joint.take(index)
        copies[0] = joint
    over = Concave(copies, concave.scales, concave.linear[at], feasible, concave.size)
    selected = feasible.round(p, price[at]).numpy()
    if copies:
        effort = Effort(search=problem.settings.coverage.search, seed=problem.settings.seed)
        selected = to_mask(over, joint, price[at], selected, objective_span, effort, p)
    if count * problem.pool.dimensions**2 <= TRIED and (joint is None or len(copies) > 1):
        selected = swap_by_value(limits, torch.from_numpy(selected), over.values, over.gradient).numpy()
    return np.bincount(index[selected], minlength=count)


def within(problem: Problem, counts: np.ndarray) -> bool:
    """Whether these counts (N,) stay within the budget and the limits and leave no more unspent than is allowed."""
    copies = np.repeat(np.arange(len(problem)), counts)
    return not problem.limits.copies(copies, problem.settings.repeat).violations(np.ones(len(copies), bool))


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
