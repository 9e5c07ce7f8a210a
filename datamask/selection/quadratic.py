"""Quality plus moment metrics as one concave quadratic, f(p) = Σ_i w_i l_i p_i − Σ_m c_m ‖M_m(p)‖², and its parts.

Everything the relaxation runs (`ascent`, `newton`, `swaps`, the calibration) takes a `Quadratic`. `undecided` is the
same problem on the documents near the cut, with the others' moments as a constant: most of a pool is decided early.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from datamask.selection.feasible import Feasible
from datamask.selection.limits import Limits
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.problem import Pool

BLOCK_ROWS = 4096
MOST = 0.7  # of a pool: where more than that is undecided, nothing is gained by leaving the rest out
UNDECIDED = 0.12  # of a pool, at least, and so many documents at least:
UNDECIDED_ROWS = 8192
WIDER = 2.0  # times the fractional documents


class Prepared:
    """A metric's prepared rows, held once in `dtype` (bf16: half the memory of float32, four times its speed)."""

    def __init__(
        self,
        metric: MomentMetric,
        dtype: torch.dtype = torch.float32,
        z: torch.Tensor | None = None,
        pool: Pool | None = None,  # whose rows, if not the metric's own pool's: prepared with the metric's statistics
    ) -> None:
        self.metric = metric
        pool = metric.pool if pool is None else pool
        if z is not None:
            self.z = z.to(dtype)
            return
        self.z = torch.empty(len(pool), pool.dimensions, dtype=dtype, device=pool.device)
        for part, block in pool.blocks(BLOCK_ROWS):
            self.z[part] = metric.prepare(block).to(dtype)

    def take(self, index: torch.Tensor) -> Prepared:
        """These rows alone (copied)."""
        return Prepared(self.metric, self.z.dtype, z=self.z[index.to(self.z.device)])

    def moment(self, mask: torch.Tensor) -> torch.Tensor:
        """Σ_i mask_i v_i, float32 sums over blocks. mask: (N,), zero rows are not touched."""
        index = mask.nonzero()[:, 0]
        dense = len(index) > self.metric.dense * len(mask)
        values = (mask if dense else mask[index]).to(self.z.device, torch.float32)
        total: torch.Tensor | None = None
        for start in range(0, max(len(values), 1), BLOCK_ROWS):
            part = slice(start, start + BLOCK_ROWS)
            rows = self.z[part] if dense else self.z[index[part].to(self.z.device)]
            moment = self.metric.moment(rows, values[part]).float()
            total = moment if total is None else total.add_(moment)
        assert total is not None
        return total

    def squares(self) -> torch.Tensor:
        """‖v_i‖² of every row: (N,) float64 on the CPU."""
        parts = [self.metric.squares(part.float()).cpu() for part in self.z.split(BLOCK_ROWS)]
        return torch.cat(parts).double()

    def products(self, moment: torch.Tensor) -> torch.Tensor:
        """⟨moment, v_i⟩ of every row: (N,) float64 on the CPU."""
        parts = [self.metric.products(part, moment).float().cpu() for part in self.z.split(BLOCK_ROWS)]
        return torch.cat(parts).double()

    def kernel(self, index: torch.Tensor) -> torch.Tensor:
        """⟨v_i, v_j⟩ of these rows with one another: (n, n) float32."""
        return self.metric.kernel(self.z[index.to(self.z.device)]).float()


def row_type(metric: MomentMetric, count: int) -> torch.dtype:
    """bf16 where products of `count` rows are the cost, or their float32 would be more than a GiB."""
    numbers = count * metric.pool.dimensions
    return torch.bfloat16 if numbers > (1 << 20 if metric.bf16 else 1 << 28) else torch.float32


def exact_price(
    pool: Pool,
    metrics: Sequence[MomentMetric],
    coefficients: Sequence[float],
    linear: torch.Tensor,
    moments: Sequence[torch.Tensor],
) -> torch.Tensor:
    """(N,) float64: `Quadratic.price` in float32 from a pool's features themselves, not from prepared rows."""
    price = linear.clone()
    for part, rows in pool.blocks():
        for metric, c, moment in zip(metrics, coefficients, moments, strict=True):
            price[part] -= 2 * c * metric.products(metric.prepare(rows), moment.float()).double().cpu()
    return price


def spread(coefficients: Sequence[float], moments: Sequence[torch.Tensor]) -> float:
    """Σ_m c_m ‖moments_m‖²."""
    return sum(c * float(moment.double().square().sum()) for c, moment in zip(coefficients, moments, strict=True))


@dataclass(frozen=True, eq=False)
class Quadratic:
    """f(p) = offset + Σ_i w_i linear_i p_i − Σ_m coefficients_m ‖base_m + M_m(p)‖² over `feasible`, w its weights."""

    prepared: Sequence[Prepared]
    coefficients: Sequence[float]
    linear: torch.Tensor  # (N,) float64 on the CPU, per unit of weight
    feasible: Feasible
    base: Sequence[torch.Tensor] | None = None  # moments of what is selected beside these documents
    offset: float = 0.0

    def __len__(self) -> int:
        return len(self.linear)

    @cached_property
    def own(self) -> torch.Tensor:
        """(N,) float64: Σ_m c_m w_i² ‖v_i‖², what a document costs against itself."""
        total = torch.zeros_like(self.linear)
        for c, rows in zip(self.coefficients, self.prepared, strict=True):
            total += c * self.feasible.weights.square() * rows.squares()
        return total

    def moments(self, p: torch.Tensor) -> list[torch.Tensor]:
        """base + M(p) of each metric. p: (N,)."""
        found = [rows.moment(p * self.feasible.weights) for rows in self.prepared]
        return found if self.base is None else [m.add_(rest) for m, rest in zip(found, self.base, strict=True)]

    def spread(self, moments: Sequence[torch.Tensor]) -> float:
        return spread(self.coefficients, moments)

    def value(self, p: torch.Tensor, moments: Sequence[torch.Tensor]) -> float:
        return self.offset + float((self.feasible.weights * self.linear) @ p) - self.spread(moments)

    def price(self, moments: Sequence[torch.Tensor]) -> torch.Tensor:
        """(N,) ∇f per unit of weight where the moments are these. Reads all rows once."""
        price = self.linear.clone()
        for rows, c, moment in zip(self.prepared, self.coefficients, moments, strict=True):
            price -= 2 * c * rows.products(moment)
        return price

    def bound(self, moments: Sequence[torch.Tensor], price: torch.Tensor) -> tuple[float, torch.Tensor]:
        """No feasible S has more, and the s that f's tangent prefers: −‖M‖² ≤ ‖m‖² − 2⟨m, M⟩ for any m at all.

        price: (N,) `self.price(moments)`, or the same from more exact rows.
        """
        response, most = self.feasible.respond(price)
        held = 0.0
        if self.base is not None:
            parts = zip(self.coefficients, moments, self.base, strict=True)
            held = 2 * sum(c * float((moment.double() * rest.double()).sum()) for c, moment, rest in parts)
        return self.offset + most + self.spread(moments) - held, response

    def rounding(self, p: torch.Tensor) -> float:
        """What p loses on average when every document is drawn with its p_i: a mask pays own_i, p only p_i² of it."""
        return float(self.own @ (p - p.square()))

    def undecided(self, p: torch.Tensor, price: torch.Tensor) -> tuple[torch.Tensor, Quadratic] | None:
        """Row numbers of the documents that are fractional, near the cut or on its wrong side, and f of these, the
        others left as they are. None where that is most of them, or where limits tie all documents together."""
        weights, limits = self.feasible.weights, self.feasible.limits
        above = price - self.feasible.cut(price)
        open_ = ((p > 0) & (p < 1)) | ((p == 0) & (above > 0)) | ((p == 1) & (above < 0))
        wanted = int(max(WIDER * int(open_.sum()), UNDECIDED * len(p), UNDECIDED_ROWS))
        if limits or wanted > MOST * len(p):
            return None
        near = open_.clone()
        near[above.abs().topk(wanted, largest=False).indices] = True
        taken = ~near & (p == 1)
        index = near.nonzero()[:, 0]
        left = limits.size - float(weights[taken].sum())
        if not 0 < left < float(weights[index].sum()):
            return None
        part = Quadratic(
            [rows.take(index) for rows in self.prepared],
            self.coefficients,
            self.linear[index],
            Feasible(Limits(limits.weights[index.numpy()], left)),
            self.moments(taken.double()),
            self.offset + float((weights * self.linear)[taken].sum()),
        )
        return index, part


def sampled(whole: Quadratic, rows: np.ndarray) -> Quadratic:
    """The problem on a sample, each document of which stands for as many as its share of the weight asks."""
    index = torch.from_numpy(rows)
    weights = whole.feasible.weights[index]
    share = float(weights.sum() / whole.feasible.weights.sum())
    return Quadratic(
        [part.take(index) for part in whole.prepared],
        [c / share**2 for c in whole.coefficients],
        whole.linear[index] / share,
        Feasible(Limits(weights.numpy(), whole.feasible.size * share)),
    )
