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
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch

from datamask.selection.metrics.base import MomentMetric
from datamask.selection.problem.feasible import Feasible, triple
from datamask.selection.problem.limits import Limits

Record = Callable[[dict[str, float]], None]
GROW, FALL, BACKTRACKS = 1.1, 0.5, 30  # step length after and within a line search; trials of a line search, at most
DECIDED = 1e-6  # a p this close to 0 or 1 is decided
# Every SCREEN steps the undecided documents are counted. Then WIDER times as many, or FEWEST, are solved alone, unless
# they are more than the share MOST of all.
SCREEN, MOST, WIDER, FEWEST = 20, 0.6, 1.5, 2048
INNER = 80  # steps at most on the undecided alone
# A document's step is divided by the root of its curvature. This takes fewer steps than no division, or a division by
# the curvature itself (benchmarks/LOG.md). LEAST_CURVED: a smaller share of the median curvature counts as this share.
LEAST_CURVED = 1e-2


class StateMetric(Protocol):
    """D as a concave function of Σ_i mass_i v_i, mass_i = p_i w_i / size."""

    def state(self, mass: np.ndarray) -> np.ndarray:
        """Σ_i mass_i v_i. mass: (N,)."""
        ...

    def of_state(self, state: np.ndarray) -> float:
        """D at this state."""
        ...

    def slope(self, state: np.ndarray) -> np.ndarray:
        """dD / dstate, of the state's shape."""
        ...

    def inside(self, state: np.ndarray) -> bool:
        """Whether D is defined at this state."""
        ...

    def products(self, slope: np.ndarray) -> np.ndarray:
        """⟨slope, v_i⟩ of every document: (N,)."""
        ...


class OfMoment:
    """A quadratic metric (pairwise, DiSF) as a `StateMetric`."""

    def __init__(self, metric: MomentMetric) -> None:
        self.metric = metric

    def state(self, mass: np.ndarray) -> np.ndarray:
        """Σ_i mass_i v_i. mass: (N,)."""
        return self.metric.sum_over(self.metric.pool, torch.from_numpy(mass)).cpu().numpy()

    def of_state(self, state: np.ndarray) -> float:
        """D at this state."""
        return -self.metric.unit * float(np.square(state).sum())

    def slope(self, state: np.ndarray) -> np.ndarray:
        """dD / dstate, of the state's shape."""
        return -2 * self.metric.unit * state

    def inside(self, state: np.ndarray) -> bool:
        """True: a quadratic is defined everywhere."""
        return True

    def products(self, slope: np.ndarray) -> np.ndarray:
        """⟨slope, v_i⟩ of every document: (N,) float64."""
        moment, metric = torch.from_numpy(slope).to(self.metric.pool.device), self.metric
        blocks = metric.pool.blocks(dtype=torch.float64)  # with float32, rounding would stop the ascent early
        parts = [metric.products(metric.prepare(rows), moment) for _, rows in blocks]
        return torch.cat(parts).cpu().double().numpy()


def as_state(metric: Any) -> StateMetric | None:
    """The metric as a `StateMetric`, or None if it is not a function of linear sums."""
    if isinstance(metric, MomentMetric):
        return OfMoment(metric)
    return metric if all(hasattr(metric, name) for name in ("state", "of_state", "slope", "products")) else None


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


def maximise(problem: Concave, start: torch.Tensor, tolerance: float, steps: int, record: Record) -> AscentResult:
    """Ascends until the bound is within `tolerance` of the value, or for `steps` over all documents.

    Once most documents are decided, the undecided alone are solved in between. start: (N,) float64, feasible.
    """
    spent, scale = 0, scaling(problem, start)

    def few(found: AscentResult) -> bool:
        return undecided(problem, found) is not None

    found, spent = ascend(problem, start, tolerance, steps, FirstStep(scale), record=record, enough=few)
    while found.bound - found.value > tolerance and spent < steps:
        before = found.bound - found.value
        part = undecided(problem, found)
        if part is None:
            found, more = ascend(
                problem, found.p, tolerance, steps - spent, FirstStep(scale, found.step), record, found.bound, few
            )
        else:
            index, inside = part
            of_part = None if scale is None else scale[index]
            inner, more = ascend(
                inside, found.p[index], max(tolerance / 3, before / 20), INNER, FirstStep(of_part, found.step)
            )
            p = found.p.clone()
            p[index] = inner.p
            spent += more // 3
            found, more = ascend(problem, p, tolerance, 3, FirstStep(scale, inner.step), record, found.bound)
            if before - (found.bound - found.value) < before / 10:  # some fixed documents were not decided after all
                found, again = ascend(
                    problem, found.p, tolerance, SCREEN, FirstStep(scale, found.step), record, found.bound
                )
                more += again
        spent += more
    return found


def scaling(problem: Concave, p: torch.Tensor) -> torch.Tensor | None:
    """(N,) the root of each document's curvature per unit of the budget, −∂²f/∂p_i² · size² / w_i, over their median:
    at p (N,). None where there are limits, whose projection knows one norm, or where a metric does not tell it."""
    if problem.feasible.limits or not all(hasattr(metric, "curvature") for metric in problem.metrics):
        return None
    states = problem.states(p)
    found = np.zeros(len(problem))
    for scale, metric, state in zip(problem.scales, problem.metrics, states, strict=True):
        found += scale * metric.curvature(state)  # type: ignore[attr-defined]
    found *= problem.feasible.limits.weights
    middle = float(np.median(found))
    return torch.from_numpy(np.sqrt(np.maximum(found / middle, LEAST_CURVED))) if middle > 0 else None


class FirstStep(NamedTuple):
    """How far the first step goes."""

    scale: torch.Tensor | None = None  # (N,) each document's step is divided by this
    length: float | None = None  # None: one over the prices' deviation


def ascend(
    problem: Concave,
    start: torch.Tensor,  # (N,) float64, feasible
    tolerance: float,
    steps: int,
    first: FirstStep = FirstStep(),
    record: Record | None = None,
    bound: float = float("inf"),
    enough: Callable[[AscentResult], bool] | None = None,  # called every `SCREEN` steps: whether to stop
) -> tuple[AscentResult, int]:
    """Accelerated projected ascent; returns the best point and the number of steps made."""
    weights, size, feasible = problem.feasible.weights, problem.size, problem.feasible
    scale, step = first
    norm = weights if scale is None else weights * scale
    p, states = start, problem.states(start)
    value = problem.value(p, states)
    last_p, last_states, pace = p, states, 1.0
    best: AscentResult | None = None
    for number in range(steps + 1):
        faster = (1 + (1 + 4 * pace * pace) ** 0.5) / 2
        share = (pace - 1) / faster
        y, at = p, states
        if share > 0 and number < steps:
            ahead = [now + share * (now - before) for now, before in zip(states, last_states, strict=True)]
            if problem.inside(ahead):
                y, at = p + share * (p - last_p), ahead
        pace = faster
        here = problem.value(y, at)
        price = problem.price(at)
        bound = min(bound, problem.bound(y, here, price))
        if best is None or value >= best.value:
            best = AscentResult(p, states, value, price, bound, step or 0.0)
        best.bound = bound
        if record is not None:
            record({"objective": value, "upper_bound": bound})
        if bound - value <= tolerance or number == steps:
            break
        if enough is not None and number % SCREEN == SCREEN - 1 and enough(best):
            break
        step = step or 1.0 / max(float(price.std(correction=0)), 1e-30)
        for _ in range(BACKTRACKS):
            target = feasible.project(y + step * (price if scale is None else price / scale), scale)
            ends = problem.states(target)
            move = target - y
            rise = (product(weights, price, move) - product(norm, move, move) / (2 * step)) / size
            reached = problem.value(target, ends)
            if reached >= here + rise - 1e-13 * (1 + abs(here)):
                break
            step *= FALL
        if product(norm, y - target, target - p) > 0:  # the momentum points away from the ascent: restart
            pace = 1.0
        last_p, last_states = p, states
        p, states, value = target, ends, reached
        best.step = step
        step *= GROW
    assert best is not None
    return best, number


def undecided(problem: Concave, found: AscentResult) -> tuple[torch.Tensor, Concave] | None:
    """Row numbers of the documents that are fractional or near the cut, and f of these with the others fixed.

    None where they are too many, or where the problem has limits or several metrics.
    """
    limits, weights = problem.feasible.limits, problem.feasible.weights
    if limits or len(problem.metrics) != 1 or not hasattr(problem.metrics[0], "take"):
        return None
    metric, p, price = problem.metrics[0], found.p, found.price
    above = price - problem.feasible.cut(price)
    free = (p > DECIDED) & (p < 1 - DECIDED) | (p <= DECIDED) & (above > 0) | (p >= 1 - DECIDED) & (above < 0)
    wanted = int(max(WIDER * int(free.sum()), FEWEST))
    if wanted > MOST * len(p):
        return None
    near = free.clone()
    near[above.abs().topk(wanted, largest=False).indices] = True
    held = torch.where(near, 0.0, p)
    index = near.nonzero()[:, 0]
    left = limits.size - float(weights @ held)
    if not 0 < left < float(weights[index].sum()):
        return None
    part = Concave(
        [metric.take(index.numpy())],
        problem.scales,
        problem.linear[index],
        Feasible(Limits(limits.weights[index.numpy()], left)),
        problem.size,
        problem.states(held),
        problem.offset + product(problem.linear, weights, held) / problem.size,
    )
    return index, part


def product(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> float:
    """Σ a_i b_i c_i. (N,) float64 each."""
    return float(triple(a.numpy(), b.numpy(), c.numpy()))
