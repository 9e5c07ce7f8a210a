"""Lazy greedy for facility location plus a modular term (Minoux 1978), candidates re-evaluated a batch at a time.

Marginal gains only fall as documents are added, so a gain computed earlier is an upper bound on the present one. The
best candidate is found as soon as its fresh gain is no less than every stale gain.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Columns = Callable[[Tensor], Tensor]  # row numbers (b,) -> similarity of every point to them, (points, b)

BATCH = 256  # columns evaluated at a time: a matrix product, not a loop
TIE = 1e-12


@dataclass(frozen=True)
class Picks:
    """ranking (k,) int64: candidates in the order picked; gains (k,) float64: what each added to the objective."""

    ranking: Tensor
    gains: Tensor


def lazy_greedy(
    columns: Columns, candidates: int, k: int, modular: Tensor | None = None, floor: float = 0.0, scale: float = 1.0
) -> Picks:
    """Greedily picks k of `candidates` (numbered from 0).

    The objective is scale · Σ_points max(floor, greatest similarity to a pick) + Σ_picks modular.
    modular: (candidates,) float64, zeros if None. Ties go to the lower number.
    """
    gain = torch.full((candidates,), torch.inf, dtype=torch.float64)
    modular = torch.zeros(candidates, dtype=torch.float64) if modular is None else modular.cpu().double()
    best: Tensor | None = None

    def evaluate(numbers: Tensor) -> None:
        nonlocal best
        similarity = columns(numbers)
        if best is None:
            best = torch.full((len(similarity),), floor, dtype=similarity.dtype, device=similarity.device)
        rise = (similarity - best[:, None]).clamp_(min=0).sum(0, dtype=torch.float64)
        gain[numbers] = scale * rise.cpu() + modular[numbers]

    for part in torch.arange(candidates).split(BATCH):
        evaluate(part)
    ranking, gains = torch.empty(k, dtype=torch.int64), torch.empty(k, dtype=torch.float64)
    for pick in range(k):
        stale = torch.ones(candidates, dtype=torch.bool)
        if pick == 0:
            stale[:] = False
        batch = 8
        while True:
            bound = torch.where(stale, gain, -torch.inf)
            fresh = torch.where(stale, -torch.inf, gain)
            leader = int(fresh.argmax())
            ahead = bound > fresh[leader] - TIE  # ties are evaluated too, since the lower number wins them
            count = int(ahead.sum())
            if not count:
                break
            numbers = bound.topk(min(batch, count)).indices
            evaluate(numbers)
            stale[numbers] = False
            batch = min(2 * batch, BATCH)
        ranking[pick], gains[pick] = leader, gain[leader]
        gain[leader] = -torch.inf
        assert best is not None
        best = torch.maximum(best, columns(ranking[pick : pick + 1])[:, 0])
    return Picks(ranking, gains)
