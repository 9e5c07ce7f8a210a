"""Facility location (published name `Facility`): how near every document of the pool is to a selected one."""

from __future__ import annotations

from typing import ClassVar

import torch

from datamask.selection.problem import Pool

TILE = 4096


class FacilityLocation:
    """D(S) = (1/N)·Σ_{i∈pool} max_{j∈S} x_i·x_j. Monotone submodular where cosines are not negative."""

    name: ClassVar[str] = "facility"

    def __init__(self, pool: Pool, weights: torch.Tensor, size: float) -> None:
        self.pool, self.weights, self.size = pool, weights, size

    def value(self, masks: torch.Tensor) -> torch.Tensor:
        """Raw D of each mask. masks: (G, N); returns (G,) float64 (cosines in float32, their mean in float64)."""
        return torch.tensor([self.coverage(mask.nonzero()[:, 0]).mean() for mask in masks], dtype=torch.float64)

    def coverage(self, selected: torch.Tensor, of: torch.Tensor | None = None) -> torch.Tensor:
        """Each document's cosine to the nearest selected one. selected, of (None: all): row numbers."""
        rows = torch.arange(len(self.pool), device=self.pool.device) if of is None else of
        if not len(selected):
            return torch.zeros(len(rows), dtype=torch.float64)
        best = torch.full((len(rows),), -torch.inf, device=self.pool.device)
        for chosen in selected.split(TILE):
            centres = self.pool.rows(chosen)
            for start in range(0, len(rows), TILE):
                part = slice(start, start + TILE)
                similarity = self.pool.rows(rows[part]) @ centres.T
                best[part] = torch.maximum(best[part], similarity.amax(dim=1))
        return best.double()
