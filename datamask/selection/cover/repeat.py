"""Weights: a document may be taken up to `select.repeat` times, p in [0, r] under a budget in tokens.

A document taken r times at most is one of weight r·w that is taken in part: p = r·q, q in [0, 1], and the fractional
optimum with its bound is `tangent`'s. Whole numbers are a mask over copies: a document is there once, and as often more
as the fractional optimum takes it and once beyond, and rounding and search see each copy as a document. The bound holds
for both, for whole numbers are fractional ones. (Repeating what is wanted most: SoftDedup, arXiv 2407.06654; Olmix.)
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from datamask.errors import ConfigError, InputError
from datamask.selection.cover.joint import Joint
from datamask.selection.cover.solve import STEPS, TRIED, make_concave, recorder, spread_of, to_mask
from datamask.selection.cover.tangent import Concave, StateMetric, as_state, maximise
from datamask.selection.engine.quadratic import rounding_of
from datamask.selection.problem.feasible import Feasible, fill_in_order, top_up
from datamask.selection.problem.limits import Limits
from datamask.selection.problem.objective import Term
from datamask.selection.result import Draft

if TYPE_CHECKING:
    from datamask.selection.problem.pool import Problem
    from datamask.selection.solvers import Report

ACCURACY = 5e-5  # of the objective's scale: how near its own bound the fractional optimum is brought
ROUGH = 1e-2  # of a term's own best
RANDOM_SETS = 16
SIDE, ROUNDS = 8, 50  # of copies tried in exchanges, a side; rounds at most


@dataclass(frozen=True, eq=False)
class Copies:
    """A metric over copies: documents `index` (n,), some of them more than once."""

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


def solve(problem: Problem, terms: list[Term], progress: Report) -> Draft:
    """:raises ConfigError: a metric of which repeating a document cannot be said to change anything."""
    refuse(terms)
    objective, most = problem.objective, problem.settings.repeat
    limits = problem.limits.repeated(most)
    feasible = Feasible(limits)
    concave, joint, _ = make_concave(problem, terms, feasible)
    record, history = recorder(objective, progress)
    spread = spread_of([*terms, *objective.quality], problem.settings.calibrate)
    found = maximise(concave, feasible.alike(), ACCURACY * spread, STEPS, record)
    times = (most * found.p).numpy()
    counts = None
    for index in (offered(times, most), np.repeat(np.arange(len(problem)), most)):
        with suppress(InputError):  # these copies hold no selection within the limits; all of them may
            counts = in_whole_numbers(problem, concave, joint, (times, found.price), index, spread)
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
    """:raises ConfigError: as `solve`."""
    strange = [term.name for term in terms if as_state(term.metric) is None]
    if strange:
        raise ConfigError(
            f"select.repeat: to {', '.join(strange)} a second copy of a document changes nothing, or it is not known "
            "what; repeat is for coverage, Pair_simi, DiSF, vendi and logdet, or set select.repeat to 1"
        )


def offered(times: np.ndarray, most: int) -> np.ndarray:
    """Row numbers (n,), ascending, a row as often as a whole number may take it. times: (N,) fractional."""
    ways = np.minimum(most, np.ceil(times - 1e-9).astype(np.int64) + 1)
    return np.repeat(np.arange(len(times)), ways)


def in_whole_numbers(
    problem: Problem,
    concave: Concave,
    joint: Joint | None,
    fractional: tuple[np.ndarray, torch.Tensor],  # times (N,), price per unit (N,)
    index: np.ndarray,
    spread: float,
) -> np.ndarray:
    """(N,) how often each document is taken."""
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
        selected = to_mask(over, joint, price[at], selected, spread, problem.settings.seed)
    if count * problem.pool.dimensions**2 <= TRIED and (joint is None or len(copies) > 1):
        selected = by_trial(over, limits, selected)
    return np.bincount(index[selected], minlength=count)


def within(problem: Problem, counts: np.ndarray) -> bool:
    """Whether whole numbers (N,) hold the budget, of which no more may be left than fits, and all limits."""
    copies = np.repeat(np.arange(len(problem)), counts)
    return not problem.limits.copies(copies, problem.settings.repeat).violations(np.ones(len(copies), bool))


def filled(problem: Problem, counts: np.ndarray, price: np.ndarray) -> np.ndarray:
    """(N,) counts with what is left of the budget spent, by price, on whatever still fits; limits are left alone."""
    if problem.limits:
        return counts
    most = problem.settings.repeat
    index = np.repeat(np.arange(len(counts)), most)
    number = np.arange(len(index)) % most  # which copy of its document each is
    selected = number < counts[index]
    top_up(problem.limits.copies(index, most), np.lexsort((number, -price[index])), selected)
    return np.bincount(index[selected], minlength=len(counts))


def by_trial(over: Concave, limits: Limits, selected: np.ndarray) -> np.ndarray:
    """Exchanges, additions and removals of single copies judged by their values, among the best and worst by price."""
    reached = _value(over, selected)
    for _ in range(ROUNDS):
        price = over.price(over.states(torch.from_numpy(selected).double())).numpy()
        order = np.argsort(-price, kind="stable")
        outside, inside = order[~selected[order]][:SIDE], order[selected[order]][::-1][:SIDE]
        best = None
        for out, into in product([None, *inside], [None, *outside]):
            other = selected.copy()
            if out is not None:
                other[out] = False
            if into is not None:
                other[into] = True
            if float(limits.weights @ other) > limits.size + 1e-9 or limits.violations(other):
                continue
            value = _value(over, other)
            if value > reached + 1e-9 * (1 + abs(reached)):
                best, reached = other, value
        if best is None:
            break
        selected = best
    return selected


def _value(concave: Concave, mask: np.ndarray) -> float:
    p = torch.from_numpy(mask).double()
    return concave.value(p, concave.states(p))


def span(problem: Problem, metric: Any) -> tuple[float, float]:
    """A metric's mean over random choices, and its own best fractional one.

    A random choice takes every document once before it takes one twice.
    """
    state = as_state(metric)
    if state is None:
        refuse([Term(metric.name, 0.0, 0.0, 1.0, metric=metric)])
    assert state is not None
    weights, most, generator = problem.limits.weights, problem.settings.repeat, problem.generator(stream=11)
    plain = Limits(weights, problem.size)
    every = plain.copies(np.tile(np.arange(len(weights)), most), most)
    values = []
    for _ in range(RANDOM_SETS):
        order = generator.permutation(len(weights))
        chosen = fill_in_order(every, np.concatenate([order + len(weights) * turn for turn in range(most)]))
        counts = chosen.reshape(most, -1).sum(axis=0)
        values.append(state.of_state(state.state(counts * weights / problem.size)))
    feasible = Feasible(plain.repeated(most))
    nothing = torch.zeros(len(weights), dtype=torch.float64)
    concave = Concave([state], [1.0], nothing, feasible, problem.size)
    zero = float(np.mean(values))
    found = maximise(concave, feasible.even(), ROUGH * max(abs(zero), 1e-9), 60, lambda step: None)
    return zero, max(found.value, *values)
