"""The driver of a selection, and of every iteration in it: prices documents, solves the undecided, finds a mask.

    draft = StateDriver(problem, terms, feasible, progress).run()    # one pool, held by one process
    found = CoverRounds(shards, config, folder, maps).run()          # groups of documents, on any workers
    found = Spectral(quadratic, start, tolerance, steps).run()       # a fractional optimum

init         the terms, and the first point
step         the undecided documents are solved, the others fixed; the solution is the next point. Of a pool all are
             undecided, and one step solves it. Of groups, those whose prices are near the cut are gathered
terminate    whether another step would not help
postprocess  the mask, its exact objective, and a bound for all documents

A metric takes part by its state, a sum over documents: one number an atom (`cover.solve`, `cover.cover_shards`), d or
d² numbers (`solvers.relaxation`, `moment_rounds`). In groups both go on alike (`price_rounds`). Documents that are
fixed, as in a refresh, are part of the state (`selection.extension`); documents that are repeated are copies
(`cover.solve`). A kind of step is such a class
too, as in optimistix: spectral steps where the state is a matrix (`solvers.ascent`), Newton's where it is a vector
(`solvers.newton`), accelerated ones for coverage and for metrics of one's own (`cover.tangent`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Generic, TypeVar

from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.problem import Draft, Problem, Term
from datamask.selection.solvers import Report

Found = TypeVar("Found")
Record = Callable[[dict[str, float]], None]


class Iteration(ABC, Generic[Found]):
    """Steps until the last one, or one that no longer helps. A subclass sets the first three before `run`."""

    tolerance: float  # absolute
    steps: int  # at most
    record: Record | None = None  # called with the facts of each step
    patience: int = 0  # steps over which progress is judged; 0: it is not
    least: float = 0.1  # progress over these, as a share of the tolerance, that counts as a stall

    done = 0  # steps made
    stuck = False  # whether no step rises any more

    def run(self) -> Found:
        """The result of the whole iteration."""
        self.missing: list[float] = []  # after each step: the gap, or minus the value where there is no bound
        self.init()
        while not (self.stuck or self.done >= self.steps or self.stalled or self.terminate()):
            self.step()
            self.done += not self.stuck
        return self.postprocess()

    @property
    def stalled(self) -> bool:
        """Whether the last `patience` steps brought at most `least` of the tolerance."""
        long = self.patience and len(self.missing) > self.patience
        return bool(long) and self.missing[-1 - self.patience] - self.missing[-1] <= self.least * self.tolerance

    @abstractmethod
    def init(self) -> None:
        """Evaluates the start."""

    @abstractmethod
    def step(self) -> None:
        """Makes a step and evaluates where it ends; sets `stuck` if there is none to make."""

    def terminate(self) -> bool:
        """Whether what was found is good enough; False where all steps are made."""
        return False

    @abstractmethod
    def postprocess(self) -> Found:
        """What was found."""


class PoolDriver(Iteration[Draft]):
    """The driver of one pool."""

    steps = 1

    def __init__(self, problem: Problem, terms: Sequence[Term], feasible: Feasible, progress: Report) -> None:
        """terms: of diversity, those that count. feasible: the masks within the limits."""
        self.problem, self.diversity, self.feasible, self.progress = problem, list(terms), feasible, progress
        self.history: list[dict[str, float]] = []

    def note(self, step: Mapping[str, float]) -> None:
        """Adds a step's values, the objective's constant aside, to the history."""
        constant = self.problem.objective.constant
        self.history.append({"step": len(self.history), **{name: value + constant for name, value in step.items()}})
        self.progress(self.history[-1])
