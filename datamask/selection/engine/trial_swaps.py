"""Local search on a mask by evaluating the objective of trial swaps, for metrics that offer only values and gradients.

(For pairwise and DiSF, `datamask.selection.engine.swaps` has the exact gain of every swap from their kernel.)
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    from datamask.selection.problem.problem import Problem


SIDE = 8  # candidates to leave, and as many to enter: every pair of them is tried
ROUNDS = 50


def improve(problem: Problem, selected: Tensor, gradient: Callable[[Tensor], Tensor]) -> Tensor:
    """A mask (N,) bool whose objective is no less than that of `selected`, within the same limits.

    gradient: mask (N,) float64 -> gradient (N,) of the objective, which picks the documents to try.
    """
    value = float(problem.objective.values(selected[None])[0])
    for _ in range(ROUNDS):
        slope = gradient(selected.double())
        out = torch.where(selected, -slope, -torch.inf).topk(min(SIDE, int(selected.sum()))).indices
        into = torch.where(selected, -torch.inf, slope).topk(min(SIDE, int((~selected).sum()))).indices
        trials = selected.repeat(len(out) * len(into), 1)
        rows = torch.arange(len(trials))
        trials[rows, out.repeat_interleave(len(into))] = False
        trials[rows, into.repeat(len(out))] = True
        trials = trials[[not problem.limits.violations(mask) for mask in trials.numpy()]]
        if not len(trials):
            break
        found = problem.objective.values(trials).cpu()
        if float(found.max()) <= value + 1e-9 * (1 + abs(value)):
            break
        selected, value = trials[int(found.argmax())], float(found.max())
    return selected
