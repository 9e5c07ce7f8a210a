"""Pairwise diversity (published name `Pair_simi`): the mean cosine of selected pairs, negated."""

from __future__ import annotations

from typing import ClassVar

import torch

from datamask.selection.metrics.base import MomentMetric


class Pairwise(MomentMetric):
    """D(S) = −‖Σ_{i∈S} w_i x_i‖² / size², the mean over all pairs, each document with itself included."""

    name: ClassVar[str] = "pairwise"
    incremental: ClassVar[str] = "moment"  # how greedy follows its gains
    vector: ClassVar[bool] = True

    def moment(self, z: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """See `MomentMetric.moment`: (d,)."""
        return mask.to(z.dtype) @ z

    def products(self, z: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """See `MomentMetric.products`."""
        return z @ moment.to(z.dtype)

    def squares(self, z: torch.Tensor) -> torch.Tensor:
        """See `MomentMetric.squares`: ones, since rows have unit length."""
        return torch.ones(len(z), device=z.device)  # unit rows

    def error(self, rows: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """See `MomentMetric.error`."""
        length = float(torch.linalg.vector_norm(moment.double()))
        each = torch.finfo(rows.dtype).eps * (2 * rows.shape[1] + 16) * length
        return torch.full((len(rows),), each, dtype=torch.float64, device=rows.device)

    def kernel(self, z: torch.Tensor) -> torch.Tensor:
        """See `MomentMetric.kernel`: the cosines."""
        return z @ z.T
