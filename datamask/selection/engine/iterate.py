"""One way to run every iteration of the selection's solvers.

    found = Spectral(quadratic, start, tolerance, steps).run()

A kind of step is a class with `init`, `step`, `terminate` and `postprocess`, as in optimistix and in the driver of
groups (`sharded.driver`): spectral steps where the state is a matrix (`ascent`), Newton's where it is a vector
(`newton`), accelerated ones for coverage and for metrics of one's own (`cover.tangent`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Generic, TypeVar

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

    @abstractmethod
    def terminate(self) -> bool:
        """Whether what was found is good enough."""

    @abstractmethod
    def postprocess(self) -> Found:
        """What was found."""
