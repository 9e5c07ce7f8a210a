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
from datamask.selection.cover.solve import Mixture
from datamask.selection.cover.tangent import Concave, StateMetric, as_state
from datamask.selection.problem.feasible import Feasible, top_up
from datamask.selection.problem.problem import Term
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


class Repeats(Mixture):
    """The driver of a pool whose documents may be taken several times; the draft's `repeat` (N,) says how often each
    is.

    :raises ConfigError: a metric for which the effect of a second copy of a document is not defined.
    :raises InputError: of `run`: no selection is within the limits.
    """

    accuracy, rougher = ACCURACY, 1

    def __init__(self, problem: Problem, terms: list[Term], progress: Report) -> None:
        refuse(terms)
        super().__init__(problem, terms, Feasible(problem.limits.repeated(problem.settings.repeat)), progress)

    def postprocess(self) -> Draft:
        """Whole numbers of the optimum's copies, with an upper bound."""
        problem, found, most = self.problem, self.found, self.problem.settings.repeat
        times, counts = (most * found.p).numpy(), None
        for index in (offered(times, most), np.repeat(np.arange(len(problem)), most)):
            with suppress(InputError):  # if these copies hold no selection within the limits, all copies may
                counts = self.in_whole_numbers(times, index)
                if not within(problem, counts):
                    counts = filled(problem, counts, found.price.numpy())
                if within(problem, counts):
                    break
        if counts is None:
            raise InputError(
                "no selection holds all limits at once (budget, quotas, length_tolerance); loosen one of them"
            )
        whole = torch.from_numpy(counts)
        price = self.concave.price(self.concave.states(whole / most))
        return self.certified(whole > 0, torch.from_numpy(times), price, whole)

    def in_whole_numbers(self, times: np.ndarray, index: np.ndarray) -> np.ndarray:
        """(N,) int: how often each document is taken, by rounding the optimum's `times` (N,) and searching over copies.

        index: (n,) row numbers of the copies offered.
        """
        concave, joint, count = self.concave, self.joint, len(self.problem)
        number = np.arange(len(index)) - np.searchsorted(index, index)  # which copy of its document each is
        feasible = Feasible(self.problem.limits.copies(index, self.problem.settings.repeat))
        if feasible.everything:
            return np.bincount(index, minlength=count)
        p, at = torch.from_numpy(np.clip(times[index] - number, 0, 1)), torch.from_numpy(index)
        copies: list[StateMetric] = [Copies(metric, index, count) for metric in concave.metrics]
        if joint is not None:
            joint = joint.take(index)
            copies[0] = joint
        over = Concave(copies, concave.scales, concave.linear[at], feasible, concave.size)
        return np.bincount(index[self.search(over, joint, p, self.found.price[at])], minlength=count)


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
