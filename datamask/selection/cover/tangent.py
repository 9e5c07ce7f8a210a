"""The fractional optimum of a concave objective that sees the mask through linear sums, with its bound.

    f(p) = Σ_i w_i p_i linear_i / size + Σ_m scale_m D_m(Σ_i w_i p_i v_i / size)

Coverage (one number an atom), Vendi and log-determinant (a d × d matrix), pairwise and DiSF are of this kind
(`StateMetric`). Accelerated projected gradient steps with restarts (Nesterov 1983; O'Donoghue & Candès 2015) ascend; at
every point the tangent plane bounds all feasible selections. A state is a sum over documents, so shards may each send
theirs: a round is one product with the atoms and one number an atom a shard.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch

from datamask.selection.metrics.base import MomentMetric
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import Limits

Record = Callable[[dict[str, float]], None]
GROW, FALL, BACKTRACKS = 1.1, 0.5, 30  # of a step's length
DECIDED = 1e-6
SCREEN, MOST, WIDER, FEWEST = 20, 0.6, 1.5, 2048  # steps on all before the undecided alone; share, margin, documents
INNER = 80  # steps on the undecided at a time


class StateMetric(Protocol):
    """D as a concave function of Σ_i mass_i v_i, mass_i = p_i w_i / size."""

    def state(self, mass: np.ndarray) -> np.ndarray: ...
    def of_state(self, state: np.ndarray) -> float: ...
    def slope(self, state: np.ndarray) -> np.ndarray: ...  # dD / dstate
    def inside(self, state: np.ndarray) -> bool: ...  # whether D is defined there
    def products(self, slope: np.ndarray) -> np.ndarray: ...  # ⟨slope, v_i⟩: (N,)


class OfMoment:
    """A quadratic metric (pairwise, DiSF) as a `StateMetric`."""

    def __init__(self, metric: MomentMetric) -> None:
        self.metric = metric

    def state(self, mass: np.ndarray) -> np.ndarray:
        return self.metric.sum_over(self.metric.pool, torch.from_numpy(mass)).cpu().numpy()

    def of_state(self, state: np.ndarray) -> float:
        return -self.metric.unit * float(np.square(state).sum())

    def slope(self, state: np.ndarray) -> np.ndarray:
        return -2 * self.metric.unit * state

    def inside(self, state: np.ndarray) -> bool:
        return True

    def products(self, slope: np.ndarray) -> np.ndarray:
        moment, metric = torch.from_numpy(slope).to(self.metric.pool.device), self.metric
        blocks = metric.pool.blocks(dtype=torch.float64)  # float32 would end the ascent where its rounding begins
        parts = [metric.products(metric.prepare(rows), moment) for _, rows in blocks]
        return torch.cat(parts).cpu().double().numpy()


def as_state(metric: Any) -> StateMetric | None:
    """The metric as one of linear sums, or None."""
    if isinstance(metric, MomentMetric):
        return OfMoment(metric)
    return metric if all(hasattr(metric, name) for name in ("state", "of_state", "slope", "products")) else None


@dataclass(frozen=True, eq=False)
class Concave:
    """f on a feasible set. `base`: states of documents that are left as they are, and their part of the linear sum."""

    metrics: Sequence[StateMetric]
    scales: Sequence[float]
    linear: torch.Tensor  # (N,) float64: of a whole budget of this document
    feasible: Feasible
    size: float  # of the whole budget
    base: Sequence[np.ndarray] | None = None
    offset: float = 0.0

    def __len__(self) -> int:
        return len(self.linear)

    def states(self, p: torch.Tensor) -> list[np.ndarray]:
        mass = (p * self.feasible.weights).numpy() / self.size
        found = [metric.state(mass) for metric in self.metrics]
        return found if self.base is None else [own + held for own, held in zip(found, self.base, strict=True)]

    def value(self, p: torch.Tensor, states: Sequence[np.ndarray]) -> float:
        total = float((self.linear * self.feasible.weights) @ p) / self.size + self.offset
        return total + sum(
            scale * metric.of_state(state)
            for scale, metric, state in zip(self.scales, self.metrics, states, strict=True)
        )

    def price(self, states: Sequence[np.ndarray]) -> torch.Tensor:
        """(N,) gain per unit of the budget, times size."""
        total = self.linear.numpy().copy()
        for scale, metric, state in zip(self.scales, self.metrics, states, strict=True):
            total += scale * metric.products(metric.slope(state))
        return torch.from_numpy(total)

    def inside(self, states: Sequence[np.ndarray]) -> bool:
        return all(metric.inside(state) for metric, state in zip(self.metrics, states, strict=True))

    def bound(self, p: torch.Tensor, value: float, price: torch.Tensor) -> float:
        """No feasible selection is worth more: the tangent plane at p, at its highest."""
        _, most = self.feasible.respond(price)
        return value + (most - float((self.feasible.weights * price) @ p)) / self.size


@dataclass(eq=False)
class Found:
    p: torch.Tensor  # (N,) float64
    states: list[np.ndarray]
    value: float
    price: torch.Tensor
    bound: float
    step: float


def maximise(problem: Concave, start: torch.Tensor, tolerance: float, steps: int, record: Record) -> Found:
    """To within `tolerance` of its bound, or `steps` over all documents; where most are decided, the others alone."""
    spent = 0

    def few(found: Found) -> bool:
        return undecided(problem, found) is not None

    found, spent = ascend(problem, start, tolerance, steps, record=record, enough=few)
    while found.bound - found.value > tolerance and spent < steps:
        before = found.bound - found.value
        part = undecided(problem, found)
        if part is None:
            found, more = ascend(problem, found.p, tolerance, steps - spent, found.step, record, found.bound, few)
        else:
            index, inside = part
            inner, more = ascend(inside, found.p[index], max(tolerance / 3, before / 20), INNER, found.step)
            p = found.p.clone()
            p[index] = inner.p
            spent += more // 3
            found, more = ascend(problem, p, tolerance, 3, inner.step, record, found.bound)
            if before - (found.bound - found.value) < before / 10:  # what was left out is not decided after all
                found, again = ascend(problem, found.p, tolerance, SCREEN, found.step, record, found.bound)
                more += again
        spent += more
    return found


def ascend(
    problem: Concave,
    start: torch.Tensor,  # (N,) float64, feasible
    tolerance: float,
    steps: int,
    step: float | None = None,
    record: Record | None = None,
    bound: float = float("inf"),
    enough: Callable[[Found], bool] | None = None,  # looked at every `SCREEN` steps: whether to stop
) -> tuple[Found, int]:
    """The best point on the way, and the steps made."""
    weights, size, feasible = problem.feasible.weights, problem.size, problem.feasible
    p, states = start, problem.states(start)
    value = problem.value(p, states)
    last_p, last_states, pace = p, states, 1.0
    best: Found | None = None
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
            best = Found(p, states, value, price, bound, step or 0.0)
        best.bound = bound
        if record is not None:
            record({"objective": value, "upper_bound": bound})
        if bound - value <= tolerance or number == steps:
            break
        if enough is not None and number % SCREEN == SCREEN - 1 and enough(best):
            break
        step = step or 1.0 / max(float(price.std(correction=0)), 1e-30)
        for _ in range(BACKTRACKS):
            target = feasible.project(y + step * price)
            ends = problem.states(target)
            move = target - y
            rise = (float((weights * price) @ move) - float((weights * move) @ move) / (2 * step)) / size
            reached = problem.value(target, ends)
            if reached >= here + rise - 1e-13 * (1 + abs(here)):
                break
            step *= FALL
        if float((weights * (y - target)) @ (target - p)) > 0:  # the momentum leads away: begin anew
            pace = 1.0
        last_p, last_states = p, states
        p, states, value = target, ends, reached
        best.step = step
        step *= GROW
    assert best is not None
    return best, number


def undecided(problem: Concave, found: Found) -> tuple[torch.Tensor, Concave] | None:
    """The documents that are fractional or near the cut, and f of these; None where that is no use."""
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
        problem.offset + float((problem.linear * weights) @ held) / problem.size,
    )
    return index, part
