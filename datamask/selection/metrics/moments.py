"""Pairwise (published name `Pair_simi`) and DiSF (Fan et al., "Diversified File Selection", arXiv 2505.00422)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from typing import ClassVar

import numpy as np
import torch

from datamask.errors import InputError
from datamask.selection.metrics.base import ROWS, MomentMetric, Slopes
from datamask.selection.problem.problem import Term

EPSILON = 1e-8  # added to the variance before its root (published code)
RESOLVED = 4.0  # least deviation of a column, in units in the last place of its root mean square
SHORT = 1e-6  # share of √d; shorter standardised rows are scaled by 1 / SHORT, the others to the length √d
NARROW = 16.0  # distance of a mean from 0, in deviations, beyond which float32 standardises too coarsely
BLOCK = 192  # columns of a symmetric product that are multiplied at a time
UNIT = 1e-4  # the published code divides its sum of squares by 10,000


class Pairwise(MomentMetric):
    """D(S) = −‖Σ_{i∈S} w_i x_i‖² / size², the mean over all pairs, each document with itself included."""

    name: ClassVar[str] = "pairwise"
    incremental: ClassVar[str] = "moment"  # how greedy follows its gains
    vector: ClassVar[bool] = True

    def moment(self, z: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return mask.to(z.dtype) @ z

    def row_products(self, z: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        return z @ moment.to(z.dtype)

    def squares(self, z: torch.Tensor) -> torch.Tensor:
        return torch.ones(len(z), device=z.device)  # unit rows

    def error(self, rows: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        length = float(torch.linalg.vector_norm(moment.double()))
        each = torch.finfo(rows.dtype).eps * (2 * rows.shape[1] + 16) * length
        return torch.full((len(rows),), each, dtype=torch.float64, device=rows.device)

    def kernel(self, z: torch.Tensor) -> torch.Tensor:
        return z @ z.T


class DiSF(MomentMetric):
    """D(S) = −Σ_{a≠b} C_ab² / 10000 with C = Σ_{i∈S} w_i z_i z_iᵀ / size; z: standardised over the pool, of length √d.

    Over the pool, because then D is a concave quadratic in the mask; `exact` is the published statistic, with
    columns standardised over the selection itself. A correlation matrix has the trace d whatever is selected, and so
    has C when every z has the length √d, the condition under which a small norm means even eigenvalues (Fan et al.,
    section 3). Rows of the lengths that standardising leaves reward short vectors, the documents near the mean,
    instead: benchmarks/LOG.md has both, measured by the published statistic.
    """

    name: ClassVar[str] = "disf"
    incremental: ClassVar[str] = "moment"  # how greedy follows its gains
    unit: ClassVar[float] = UNIT
    dense: ClassVar[float] = 0.7
    bf16: ClassVar[bool] = True

    @cached_property
    def standard(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Mean (d,) and √(unbiased variance + EPSILON) (d,) of the pool's unit features, float64.

        Infinite for a column that varies by less than the features' number format resolves. Such a column counts as
        constant, since it holds rounding alone.

        :raises InputError: that is so of most columns, though the documents differ.
        """
        count, d = 0, self.pool.dimensions
        mean = torch.zeros(d, dtype=torch.float64, device=self.pool.device)
        squares, lengths = torch.zeros_like(mean), torch.zeros_like(mean)
        dtype = torch.float64 if self.pool.is_small else torch.float32
        for _, rows in self.pool.blocks(dtype=dtype):  # merged as by Chan, Golub and LeVeque (1979): no cancellation
            middle = rows.mean(dim=0)
            centred = rows - middle
            here = centred.mean(dim=0, dtype=torch.float64)
            apart = middle.double() + here - mean
            total = count + len(rows)
            squares += centred.square().sum(dim=0, dtype=torch.float64) - len(rows) * here.square()
            squares += apart.square() * (count * len(rows) / total)
            lengths += rows.square().sum(dim=0, dtype=torch.float64)
            mean += apart * (len(rows) / total)
            count = total
        variance = squares.clamp(min=0) / max(count - 1, 1)
        stored = self.pool.features.dtype
        resolution = RESOLVED * max(torch.finfo(stored).eps, 4e-16) * (lengths / count).sqrt()
        blurred = variance.sqrt() <= resolution
        varies = variance.sqrt() > RESOLVED * 4e-16 * (lengths / count).sqrt()
        if int((blurred & varies).sum()) > d / 2:
            raise InputError(
                f"DiSF cannot standardise these features: {int((blurred & varies).sum())} of {d} columns vary by less "
                f"than {str(stored).removeprefix('torch.')} resolves, in which they are stored; give them in a finer "
                "format, take away what all documents have in common, or use another algorithm"
            )
        return mean, torch.where(blurred, torch.inf, (variance + EPSILON).sqrt())

    @cached_property
    def rounding(self) -> float:
        """What float64 leaves uncertain of a value: the rounding of z, at a typical row, through the d² products of C.

        A span no wider than that is no span (`Term.rate`)."""
        mean, deviation = self.standard
        varied = 1 - (EPSILON / deviation.square()) * deviation.isfinite()  # of a row's square length, a column's share
        length = max(float(varied[deviation.isfinite()].clamp(min=0).sum()) ** 0.5, SHORT * len(mean) ** 0.5)
        blur = torch.finfo(torch.float64).eps * (1 + float(torch.linalg.vector_norm(mean / deviation)) / length)
        return 4 * UNIT * len(mean) ** 2 * blur

    @cached_property
    def reads(self) -> torch.dtype:
        """float64 where float32 would blur what a column varies by (narrow cones); z is rounded after that."""
        mean, deviation = self.standard
        if self.pool.is_small or float((mean.abs() / deviation).max()) > NARROW:
            return torch.float64
        return torch.float32

    def prepare(self, rows: torch.Tensor) -> torch.Tensor:
        mean, deviation = self.standard
        return whiten(rows, mean.to(rows.dtype), deviation.to(rows.dtype))

    def error(self, rows: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """|zᵀMz| is at most d·‖M‖, ‖M‖ at most the greatest row sum of |M|. 2d sums round zᵀMz; standardising rounds
        z, the more the nearer its row is to the mean (Higham, Accuracy and Stability of Numerical Algorithms, 3.1).
        """
        mean, deviation = self.standard
        unit = torch.finfo(rows.dtype).eps
        d = len(mean)
        raw = (rows.double() - mean) / deviation
        length = torch.linalg.vector_norm(raw, dim=1).clamp(min=SHORT * d**0.5)
        blur = unit * (6 * (1 + torch.linalg.vector_norm(mean / deviation) / length) + d)
        largest = float(moment.double().abs().sum(dim=1).max())
        return d * largest * (unit * (2 * d + 16) + 2 * blur + blur.square())

    def moment(self, z: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        return gram_of(z * mask.to(z.dtype)[:, None], z).fill_diagonal_(0)

    def row_products(self, z: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        exact = torch.promote_types(z.dtype, torch.float32)
        total = torch.zeros(len(z), dtype=exact, device=z.device)
        for part, later in triangle(z):  # an entry beside the diagonal blocks counts with its mirror image
            factor = moment[later, part].to(z.dtype, copy=True)
            factor[part.stop - part.start :] += moment[part, part.stop :].T.to(z.dtype)
            total += ((z[:, later] @ factor) * z[:, part]).sum(dim=1, dtype=exact)
        return total

    def squares(self, z: torch.Tensor) -> torch.Tensor:
        square = z.square()
        return square.sum(dim=1).square() - square.square().sum(dim=1)

    def kernel(self, z: torch.Tensor) -> torch.Tensor:
        square = z.square()
        return (z @ z.T).float().square() - (square @ square.T).float()

    def exact(self, mask: torch.Tensor) -> float:
        """The published statistic of one mask, negated: columns standardised over the selection itself, float64.

        C = ZᵀZ / (n − 1) with Z the selected rows, centred and divided by √(unbiased variance + 1e-8).
        """
        index = mask.bool().nonzero()[:, 0].to(self.pool.device)
        parts = (self.exact_sums(self.pool.rows(part, torch.float64)) for part in index.split(ROWS))
        return self.of_sums(len(index), *reduce(lambda a, b: (a[0] + b[0], a[1] + b[1]), parts))

    def exact_sums(self, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """What `of_sums` needs of some selected unit rows (n, d) float64: (d,) and (d, d), to be added up."""
        centred = rows - self.standard[0]
        return centred.sum(dim=0), gram_of(centred, centred)

    @staticmethod
    def of_sums(count: int, total: torch.Tensor, gram: torch.Tensor) -> float:
        """The published statistic, negated, of `count` rows with these sums."""
        if count < 2:
            return 0.0
        covariance = (gram - torch.outer(total, total) / count) / (count - 1)
        deviation = (covariance.diagonal().clamp(min=0) + EPSILON).sqrt()
        correlation = (covariance / torch.outer(deviation, deviation)).fill_diagonal_(0)
        return -UNIT * float(correlation.square().sum())


@dataclass(frozen=True, eq=False)
class SummedMoments:
    """A weighted sum of moment metrics as a function of a state, its documents elsewhere: −Σ_m scale_m ‖s_m‖².

    The state (J,) has the moments' numbers, in shares of the budget, one after the other.
    """

    scales: Sequence[float] = ()  # the metrics' units included
    shapes: Sequence[tuple[int, ...]] = ()

    @classmethod
    def of(cls, terms: Sequence[Term]) -> SummedMoments:
        """The sum of these terms that are of such metrics."""
        metrics = [(term.scale, term.metric) for term in terms if isinstance(term.metric, MomentMetric)]
        shapes = [(metric.pool.dimensions,) * (1 if metric.vector else 2) for _, metric in metrics]
        return cls([scale * metric.unit for scale, metric in metrics], shapes)

    @property
    def factors(self) -> np.ndarray:
        """(J,) the scale of each number's moment."""
        return np.repeat(self.scales, [math.prod(shape) for shape in self.shapes])

    def unflatten(self, state: np.ndarray) -> list[torch.Tensor]:
        """The moments."""
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts = zip(np.split(state, ends), self.shapes, strict=True)
        return [torch.from_numpy(part.reshape(shape)) for part, shape in parts]

    def flatten(self, moments: Iterable[torch.Tensor]) -> np.ndarray:
        """(J,) float64: the state of these moments."""
        return np.concatenate([np.zeros(0), *(moment.double().cpu().numpy().ravel() for moment in moments)])

    def of_state(self, state: np.ndarray) -> float:
        return -float(self.factors @ np.square(state))

    def slope(self, state: np.ndarray) -> np.ndarray:
        return -2 * self.factors * state

    def slopes_from(self, state: np.ndarray) -> Slopes:
        """As `SummedCoverage.slopes_from`."""
        used = self.factors > 0
        unit = np.sqrt(2 * self.factors[used])
        return Slopes(used, self.slope(state)[used], unit, np.full(len(unit), -np.inf))

    def at_slope(self, slope: np.ndarray, used: np.ndarray) -> np.ndarray:
        """As `SummedCoverage.at_slope`."""
        found = np.zeros(len(used))
        found[used] = -slope / (2 * self.factors[used])
        return found


def whiten(rows: torch.Tensor, mean: torch.Tensor, deviation: torch.Tensor) -> torch.Tensor:
    """Rows (n, d) standardised by `mean` and `deviation` (d,) and brought to the length √d; in proportion shorter where
    they are within SHORT·√d of the mean, 0 at it."""
    z, root = (rows - mean) / deviation, rows.shape[1] ** 0.5
    return z * (root / torch.linalg.vector_norm(z, dim=1, keepdim=True).clamp(min=SHORT * root))


def triangle(z: torch.Tensor) -> list[tuple[slice, slice]]:
    """Which blocks of a symmetric (d, d) matrix say the whole: its block rows, each from the diagonal on to the right.

    On a GPU, and where d is small, one block: many small products take longer there than what they leave out.
    """
    d = z.shape[1]
    size = BLOCK if z.device.type == "cpu" and d >= 2 * BLOCK else d
    return [(slice(start, min(start + size, d)), slice(start, d)) for start in range(0, d, size)]


def gram_of(weighted: torch.Tensor, z: torch.Tensor) -> torch.Tensor:
    """weightedᵀ z (d, d), which is symmetric as `weighted` is z (n, d) with each row times a number."""
    found = z.new_empty(z.shape[1], z.shape[1])
    for part, later in triangle(z):
        block = weighted[:, part].T @ z[:, later]
        found[part, later] = block
        found[later, part] = block.T
    return found
