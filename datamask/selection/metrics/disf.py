"""DiSF diversity: decorrelated feature dimensions (Fan et al., "Diversified File Selection", arXiv 2505.00422)."""

from __future__ import annotations

from functools import cached_property
from typing import ClassVar

import torch

from datamask.selection.metrics.base import MomentMetric

EPSILON = 1e-8  # added to the variance before its root (published code)
UNIT = 1e-4  # the published code divides its sum of squares by 10,000


class DiSF(MomentMetric):
    """D(S) = −Σ_{a≠b} C_ab² / 10000 with C = Σ_{i∈S} w_i z_i z_iᵀ / size; z: standardised over the pool, of length √d.

    Over the pool, because then D is a concave quadratic in the mask; `exact` is the published statistic, with
    columns standardised over the selection itself. A correlation matrix has the trace d whatever is selected, and so
    has C when every z has the length √d, the condition under which a small norm means even eigenvalues (Fan et al.,
    section 3). Rows of the lengths that standardising leaves reward short vectors, the documents near the mean,
    instead: benchmarks/LOG.md has both, measured by the published statistic.
    """

    name: ClassVar[str] = "disf"
    unit: ClassVar[float] = UNIT
    dense: ClassVar[float] = 0.7
    bf16: ClassVar[bool] = True

    @cached_property
    def standard(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean (d,) and standard deviation (d,) of the pool's features, float64."""
        total = torch.zeros(self.pool.dimensions, dtype=torch.float64, device=self.pool.device)
        squares = torch.zeros_like(total)
        shift = self.pool.rows(slice(0, 1), torch.float64)[0]  # a point of the cloud: no cancellation in the variance
        for _, rows in self.pool.blocks():
            centred = rows - shift.float()
            total += centred.sum(dim=0, dtype=torch.float64)
            squares += centred.square().sum(dim=0, dtype=torch.float64)
        count = len(self.pool)
        mean = total / count
        variance = (squares - count * mean.square()).clamp(min=0) / max(count - 1, 1)
        return mean + shift, (variance + EPSILON).sqrt()

    def prepare(self, rows: torch.Tensor) -> torch.Tensor:
        mean, deviation = self.standard
        return whiten(rows, mean.to(rows.dtype), deviation.to(rows.dtype))

    def moment(self, z: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        moment = (z * mask.to(z.dtype)[:, None]).T @ z
        return moment.fill_diagonal_(0)

    def products(self, z: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        return ((z @ moment.to(z.dtype)) * z).sum(dim=1, dtype=torch.promote_types(z.dtype, torch.float32))

    def squares(self, z: torch.Tensor) -> torch.Tensor:
        square = z.square()
        return square.sum(dim=1).square() - square.square().sum(dim=1)

    def kernel(self, z: torch.Tensor) -> torch.Tensor:
        square = z.square()
        return (z @ z.T).float().square() - (square @ square.T).float()

    def exact(self, mask: torch.Tensor, rows: int = 8192) -> float:
        """The published statistic of one mask, negated: columns standardised over the selection itself, float64.

        C = ZᵀZ / (n − 1) with Z the selected rows, centred and divided by √(unbiased variance + 1e-8).
        """
        index = mask.bool().nonzero()[:, 0]
        total, gram = self.exact_sums(self.pool.rows(index[:rows], torch.float64))
        for part in index[rows:].split(rows):
            more = self.exact_sums(self.pool.rows(part, torch.float64))
            total, gram = total + more[0], gram + more[1]
        return self.of_sums(len(index), total, gram)

    def exact_sums(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What `of_sums` needs of some selected unit rows (n, d) float64: (d,) and (d, d), to be added up."""
        centred = rows - self.standard[0]
        return centred.sum(dim=0), centred.T @ centred

    @staticmethod
    def of_sums(count: int, total: torch.Tensor, gram: torch.Tensor) -> float:
        """The published statistic, negated, of `count` rows with these sums."""
        if count < 2:
            return 0.0
        covariance = (gram - torch.outer(total, total) / count) / (count - 1)
        deviation = (covariance.diagonal().clamp(min=0) + EPSILON).sqrt()
        correlation = (covariance / torch.outer(deviation, deviation)).fill_diagonal_(0)
        return -UNIT * float(correlation.square().sum())


def whiten(rows: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    """Rows (n, d) standardised by `mean` and `deviation` (d,) and brought to the length √d (a row at the mean: 0)."""
    z = (rows - mean) / deviation
    return z * (z.shape[1] ** 0.5 / torch.linalg.vector_norm(z, dim=1, keepdim=True).clamp(min=1e-12))
