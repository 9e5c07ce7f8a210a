"""The fractional optimum, with its bound, of a concave objective that depends on the mask through linear sums (states).

    f(p) = Σ_i w_i p_i linear_i / size + Σ_m scale_m D_m(Σ_i w_i p_i v_i / size)

Coverage (one number for each atom), pairwise (d numbers) and DiSF (a d × d matrix) are of this kind (`StateMetric`).
The ascent is by accelerated projected gradient steps with restarts (Nesterov 1983; O'Donoghue & Candès 2015), each
document's as long as its curvature allows (`scaling`). At every point the tangent plane gives an upper
bound over all feasible selections. A state is a sum over documents, so shards can each compute their part of it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch

from datamask.selection.cover.sharpen import climb
from datamask.selection.driver import Iteration, Record
from datamask.selection.metrics.base import StateMetric
from datamask.selection.metrics.coverage import SummedCoverage
from datamask.selection.problem.feasible import Feasible, triple

GROW, FALL, BACKTRACKS = 1.1, 0.5, 30  # step length after and within a line search; trials of a line search, at most
DECIDED = 1e-6  # a p this close to 0 or 1 is decided
# Every SCREEN steps the undecided documents are counted. Then WIDER times as many, or FEWEST, are solved alone, unless
# they are more than the share MOST of all.
SCREEN, MOST, WIDER, FEWEST = 20, 0.6, 1.5, 2048
INNER = 160  # steps at most on the undecided alone: with 80 momentum begins anew too often (benchmarks/LOG.md)
# A document's step is divided by the root of its curvature. This takes fewer steps than no division, or a division by
# the curvature itself (benchmarks/LOG.md). LEAST_CURVED: a smaller share of the median curvature counts as this share.
LEAST_CURVED = 1e-2


@dataclass(frozen=True, eq=False)
class Concave:
    """f on a feasible set. base: the states of documents that are fixed; offset: their part of the linear sum."""

    metrics: Sequence[StateMetric]
    scales: Sequence[float]
    linear: torch.Tensor  # (N,) float64: as in `Objective.linear`
    feasible: Feasible
    size: float  # the whole budget
    base: Sequence[np.ndarray] | None = None
    offset: float = 0.0

    def __len__(self) -> int:
        return len(self.linear)

    @property
    def joint(self) -> SummedCoverage | None:
        """All coverages, which are joined into the first metric; None without."""
        first = self.metrics[0] if self.metrics else None
        return first if isinstance(first, SummedCoverage) else None

    def states(self, p: torch.Tensor) -> list[np.ndarray]:
        """Each metric's state at p (N,), `base` included."""
        mass = (p * self.feasible.weights).numpy() / self.size
        found = [metric.state(mass) for metric in self.metrics]
        return found if self.base is None else [own + held for own, held in zip(found, self.base, strict=True)]

    def value(self, p: torch.Tensor, states: Sequence[np.ndarray]) -> float:
        """f(p), given its states. p: (N,)."""
        total = product(self.linear, self.feasible.weights, p) / self.size + self.offset
        return total + sum(
            scale * metric.of_state(state)
            for scale, metric, state in zip(self.scales, self.metrics, states, strict=True)
        )

    def price(self, states: Sequence[np.ndarray]) -> torch.Tensor:
        """(N,) the gradient of f at these states, per unit of the budget, times `size`."""
        total = self.linear.numpy().copy()
        for scale, metric, state in zip(self.scales, self.metrics, states, strict=True):
            total += scale * metric.products(metric.slope(state))
        return torch.from_numpy(total)

    def gradient(self, p: torch.Tensor) -> torch.Tensor:
        """(N,) the gradient of f at p (N,), per document."""
        return self.price(self.states(p)) * self.feasible.weights / self.size

    def values(self, masks: torch.Tensor) -> torch.Tensor:
        """f of each mask: (G, N) -> (G,) float64."""
        return torch.tensor([self.value(p, self.states(p)) for p in masks.double()], dtype=torch.float64)

    def inside(self, states: Sequence[np.ndarray]) -> bool:
        """Whether f is defined at these states."""
        return all(metric.inside(state) for metric, state in zip(self.metrics, states, strict=True))

    def bound(self, p: torch.Tensor, value: float, price: torch.Tensor) -> float:
        """An upper bound on f: the maximum over the feasible set of the tangent plane at p (N,)."""
        _, most = self.feasible.respond(price)
        return value + (most - product(self.feasible.weights, price, p)) / self.size


@dataclass(eq=False)
class AscentResult:
    """The best point of an ascent, with the least upper bound found."""

    p: torch.Tensor  # (N,) float64
    states: list[np.ndarray]
    value: float
    price: torch.Tensor
    bound: float
    step: float
    steps: int = 0  # made


def maximise(problem: Concave, start: torch.Tensor, tolerance: float, steps: int, record: Record) -> AscentResult:
    """Ascends until the bound is within `tolerance` of the value, or for `steps` over all documents.

    A coverage alone is swept first, document by document (`sharpen.climb`). Once most documents are decided, the
    undecided alone are solved in between. start: (N,) float64, feasible.
    """

    def few(found: AscentResult) -> bool:
        return undecided(problem, found) is not None

    found = Accelerated(problem, climbed(problem, start), tolerance, 0, record=record).run()
    scale, spent = scaling(problem, found.p), 0
    while found.bound - found.value > tolerance and spent < steps:
        first = FirstStep(scale, found.step, found.bound)
        before, part = found.bound - found.value, undecided(problem, found)
        if part is None:
            found = Accelerated(problem, found.p, tolerance, steps - spent, first, record, few).run()
        else:
            index, inside = part
            of_part = FirstStep(None if scale is None else scale[index], found.step)
            inner = Accelerated(inside, found.p[index], max(tolerance / 3, before / 50), INNER, of_part).run()
            p = found.p.clone()
            p[index] = inner.p
            spent += inner.steps // 3
            found = Accelerated(problem, p, tolerance, 3, first._replace(length=inner.step), record).run()
            if before - (found.bound - found.value) < before / 10:  # some fixed documents were not decided after all
                spent += found.steps
                first = FirstStep(scale, found.step, found.bound)
                found = Accelerated(problem, found.p, tolerance, SCREEN, first, record).run()
        spent += found.steps
    return found


def climbed(problem: Concave, start: torch.Tensor) -> torch.Tensor:
    """A feasible p (N,) to begin with, by sweeps from `start`; `start` itself where f is not one coverage."""
    feasible, joint = problem.feasible, problem.joint
    if joint is None or len(problem.metrics) > 1:
        return start
    limits, states = feasible.limits, problem.states(start)
    dual = feasible.dual(problem.price(states))
    mass, linear = (1 - joint.alpha) * limits.weights, problem.linear.numpy() * limits.weights
    prices = np.append(dual.level, dual.multipliers / limits.scale) / problem.size
    p = climb(joint, limits, mass / problem.size, linear / problem.size, start.numpy(), joint.level(states[0]), prices)
    return feasible.project(torch.from_numpy(np.where(p <= 0, -1.0, np.where(p >= 1, 2.0, p))))  # 0 and 1 stay


def scaling(problem: Concave, p: torch.Tensor) -> torch.Tensor | None:
    """(N,) the root of each document's curvature per unit of the budget, −∂²f/∂p_i² · size² / w_i, over their median:
    at p (N,). None where a metric does not tell it."""
    if not all(hasattr(metric, "curvature") for metric in problem.metrics):
        return None
    states = problem.states(p)
    found = np.zeros(len(problem))
    for scale, metric, state in zip(problem.scales, problem.metrics, states, strict=True):
        found += scale * metric.curvature(state)  # type: ignore[attr-defined]
    found *= problem.feasible.limits.weights
    middle = float(np.median(found))
    return torch.from_numpy(np.sqrt(np.maximum(found / middle, LEAST_CURVED))) if middle > 0 else None


class FirstStep(NamedTuple):
    """What an ascent begins with."""

    scale: torch.Tensor | None = None  # (N,) each document's step is divided by this
    length: float | None = None  # of the first step; None: one over the prices' deviation
    bound: float = float("inf")  # known before


class Accelerated(Iteration[AscentResult]):
    """Projected ascent with momentum until the bound is within `tolerance` of the value."""

    def __init__(
        self,
        problem: Concave,
        start: torch.Tensor,  # (N,) float64, feasible
        tolerance: float,
        steps: int,
        first: FirstStep = FirstStep(),
        record: Record | None = None,
        enough: Callable[[AscentResult], bool] | None = None,  # called every `SCREEN` steps: whether to stop
    ) -> None:
        self.problem, self.p, self.tolerance, self.steps = problem, start, tolerance, steps
        self.scale, self.length, self.bound = first
        self.record, self.enough = record, enough

    def init(self) -> None:
        weights = self.problem.feasible.weights
        self.norm = weights if self.scale is None else weights * self.scale
        self.states = self.problem.states(self.p)
        self.value = self.problem.value(self.p, self.states)
        self.last_p, self.last_states, self.pace = self.p, self.states, 1.0
        self.best = AscentResult(self.p, self.states, -np.inf, self.p, self.bound, 0.0)  # of a value below any
        self.look()

    def look(self) -> None:
        """Evaluates price and bound at y: the present p, carried on by its momentum."""
        problem = self.problem
        faster = (1 + (1 + 4 * self.pace * self.pace) ** 0.5) / 2
        share, self.pace = (self.pace - 1) / faster, faster
        self.y, at = self.p, self.states
        if share > 0 and len(self.missing) < self.steps:
            pairs = zip(self.states, self.last_states, strict=True)
            ahead = [now + share * (now - before) for now, before in pairs]
            if problem.inside(ahead):
                self.y, at = self.p + share * (self.p - self.last_p), ahead
        self.here = problem.value(self.y, at)
        self.price = problem.price(at)
        self.bound = min(self.bound, problem.bound(self.y, self.here, self.price))
        if self.value >= self.best.value:
            self.best = AscentResult(self.p, self.states, self.value, self.price, self.bound, self.length or 0.0)
        self.best.bound = self.bound
        self.missing.append(self.bound - self.value)
        if self.record is not None:
            self.record({"objective": self.value, "upper_bound": self.bound})

    def step(self) -> None:
        problem, price, y = self.problem, self.price, self.y
        weights, feasible = problem.feasible.weights, problem.feasible
        length = self.length or 1.0 / max(float(price.std(correction=0)), 1e-30)
        for _ in range(BACKTRACKS):
            target = feasible.project(y + length * (price if self.scale is None else price / self.scale), self.scale)
            ends = problem.states(target)
            move = target - y
            rise = (product(weights, price, move) - product(self.norm, move, move) / (2 * length)) / problem.size
            reached = problem.value(target, ends)
            if reached >= self.here + rise - 1e-13 * (1 + abs(self.here)):
                break
            length *= FALL
        if product(self.norm, y - target, target - self.p) > 0:  # the momentum points away from the ascent: restart
            self.pace = 1.0
        self.last_p, self.last_states = self.p, self.states
        self.p, self.states, self.value = target, ends, reached
        self.best.step, self.length = length, length * GROW
        self.look()

    def terminate(self) -> bool:
        looked = self.enough is not None and self.done % SCREEN == SCREEN - 1
        return self.missing[-1] <= self.tolerance or bool(looked and self.enough and self.enough(self.best))

    def postprocess(self) -> AscentResult:
        """The best point, with the least bound."""
        self.best.steps = self.done
        return self.best


def undecided(problem: Concave, found: AscentResult) -> tuple[torch.Tensor, Concave] | None:
    """Row numbers of the documents that are fractional or near the cut, and f of these with the others fixed.

    None where they are too many, or where the problem has several metrics.
    """
    feasible, weights = problem.feasible, problem.feasible.weights
    if len(problem.metrics) != 1 or not hasattr(problem.metrics[0], "take"):
        return None
    metric, p, price = problem.metrics[0], found.p, found.price
    near = feasible.near_cut(p, price, DECIDED, WIDER, FEWEST, MOST)
    if near is None:
        return None
    held = torch.where(near, 0.0, p)
    index = near.nonzero()[:, 0]
    limits = feasible.limits.part(index.numpy(), held.numpy())
    if not limits.fits():
        return None
    part = Concave(
        [metric.take(index.numpy())],
        problem.scales,
        problem.linear[index],
        Feasible(limits),
        problem.size,
        problem.states(held),
        problem.offset + product(problem.linear, weights, held) / problem.size,
    )
    return index, part


def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> float:
    """Σ a_i b_i c_i. (N,) float64 each."""
    return float(triple(a.numpy(), b.numpy(), c.numpy()))
