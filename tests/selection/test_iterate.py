"""When an iteration ends: its last step, a stall, a point that is good enough, no step to make."""

from __future__ import annotations

import pytest

from datamask.selection.driver import Iteration


class Halving(Iteration[float]):
    """The gap falls by `factor` a step, to `floor`."""

    def __init__(self, factor: float, floor: float, tolerance: float, steps: int, last: int = 1000) -> None:
        self.factor, self.floor, self.tolerance, self.steps, self.last = factor, floor, tolerance, steps, last

    def init(self) -> None:
        self.gap = 1.0
        self.missing.append(self.gap)

    def step(self) -> None:
        self.stuck = self.done == self.last
        if not self.stuck:
            self.gap = max(self.floor, self.gap * self.factor)
            self.missing.append(self.gap)

    def terminate(self) -> bool:
        return self.gap <= self.tolerance

    def postprocess(self) -> float:
        return self.gap


@pytest.mark.parametrize(
    ("given", "patience", "steps"),
    [
        ((0.5, 0.0, 0.25, 100), 0, 2),  # good enough
        ((0.5, 0.0, 0.0, 7), 0, 7),  # the last step
        ((0.5, 0.0, 2.0, 7), 0, 0),  # good enough at the start
        ((0.5, 0.0, 0.0, 100, 4), 0, 4),  # no step to make: what was made counts
        ((0.5, 0.25, 0.1, 100), 3, 5),  # a stall: two steps bring something, three bring nothing
        ((0.5, 0.25, 0.1, 20), 0, 20),  # nobody asks for progress
    ],
)
def test_it_ends_for_one_of_four_reasons(given, patience, steps):
    iteration = Halving(*given)
    iteration.patience = patience
    assert iteration.run() == iteration.gap == min(iteration.missing)
    assert iteration.done == steps and len(iteration.missing) == steps + 1
