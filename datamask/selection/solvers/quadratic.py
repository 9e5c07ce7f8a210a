"""Quality plus moment metrics as one concave quadratic, f(p) = Σ_i w_i l_i p_i − Σ_m c_m ‖M_m(p)‖², and its parts.

`ascent`, `newton`, `swaps` and the calibration all take a `Quadratic`. Most documents of a pool are decided early:
`Quadratic.undecided` is the same problem on the documents near the cut alone, with the others' moments as a constant.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import torch

from datamask.selection.metrics.base import MomentMetric
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.pool import Pool

BLOCK_ROWS = {True: 2048, False: 4096}  # rows read at a time: of a metric whose moment is a vector (True), a matrix
# The sub-problem of the undecided holds max(WIDER · open documents, UNDECIDED · N, UNDECIDED_ROWS) documents; it is not
# used when that exceeds MOST · N, since leaving out the few others would gain nothing.
MOST = 0.7
UNDECIDED = 0.12
UNDECIDED_ROWS = 8192
WIDER = 1.2
ROWS = 2048  # documents priced at a time


@dataclass(frozen=True, eq=False)
class Prepared:
    """A metric's prepared rows, `scale` times `z`."""

    metric: MomentMetric
    z: torch.Tensor  # (N, d)
    scale: torch.Tensor | None = None  # (N,) float32

    def take(self, index: torch.Tensor) -> Prepared:
        """These rows alone (copied)."""
        index = index.to(self.z.device)
        return Prepared(self.metric, self.z.index_select(0, index), None if self.scale is None else self.scale[index])

    def rows(self, index: torch.Tensor) -> torch.Tensor:
        """(n, d) these rows: bf16 where they are held in bf16, else float32."""
        part = self.take(index)
        z = part.z if part.z.dtype == torch.bfloat16 else part.z.float()
        return z if part.scale is None else z * part.scale[:, None]

    def moment(self, mask: torch.Tensor) -> torch.Tensor:
        """Σ_i mask_i v_i, summed over blocks in float32. mask: (N,); if few entries are not 0, only they are read."""
        index = mask.nonzero()[:, 0].to(self.z.device)
        sparse = len(index) <= self.metric.dense * len(mask)
        values = mask.to(self.z.device, torch.float32)
        values = values if self.scale is None else values * self.scale
        values = values[index] if sparse else values
        blocks = self._blocks(index if sparse else None)
        return reduce(torch.Tensor.add_, (self.metric.moment(rows, values[part]).float() for part, rows in blocks))

    def squares(self) -> torch.Tensor:
        """‖v_i‖² of every row: (N,) float64 on the CPU."""
        if self.metric.vector:
            return torch.ones(len(self.z), dtype=torch.float64)
        return torch.cat([self.metric.squares(rows.float()).cpu() for _, rows in self._blocks()]).double()

    def products(self, moment: torch.Tensor) -> torch.Tensor:
        """⟨moment, v_i⟩ of every row: (N,) float64 on the CPU."""
        products = torch.cat([self.metric.row_products(rows, moment).float() for _, rows in self._blocks()])
        return (products if self.scale is None else products * self.scale).cpu().double()

    def _blocks(self, index: torch.Tensor | None = None) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yields (slice, rows of z) over all rows or those of `index`: at least one block, in bf16 or float32.

        Rows held in float16 or float64 are converted in one buffer, which the next block overwrites.
        """
        size = BLOCK_ROWS[self.metric.vector]
        count = len(self.z) if index is None else len(index)
        as_held = self.z.dtype in (torch.bfloat16, torch.float32)
        wide = None if as_held else self.z.new_empty(min(size, count), self.z.shape[1], dtype=torch.float32)
        for start in range(0, max(count, 1), size):
            part = slice(start, min(start + size, count))
            rows = self.z[part] if index is None else self.z.index_select(0, index[part])
            yield part, rows if wide is None else wide[: len(rows)].copy_(rows)

    def kernel(self, index: torch.Tensor) -> torch.Tensor:
        """(n, n) float32: ⟨v_i, v_j⟩ of these rows with one another."""
        return self.metric.kernel(self.rows(index)).float()


def prepare(metric: MomentMetric, pool: Pool | None = None, rows: torch.Tensor | None = None) -> Prepared:
    """The metric's prepared rows of its own pool or of `pool`: all of them, or only `rows` (copied).

    A metric whose moment is a vector (pairwise) reads the features as they are stored: reading float16 and converting
    it in the cache is twice as fast as reading float32, and takes no memory. Other metrics' rows are of `row_type`.
    """
    pool = metric.pool if pool is None else pool
    if metric.vector:
        features = pool.features.to(pool.device)
        whole = Prepared(metric, features.float() if features.dtype == torch.bfloat16 else features, pool.inverse_norm)
        return whole if rows is None else whole.take(rows)
    dtype = row_type(metric, len(pool if rows is None else rows))
    if rows is not None:
        return Prepared(metric, metric.prepare(pool.rows(rows, metric.reads)).to(dtype))
    z = torch.empty(len(pool), pool.dimensions, dtype=dtype, device=pool.device)
    for part, block in pool.blocks(dtype=metric.reads):
        z[part] = metric.prepare(block).to(dtype)
    return Prepared(metric, z)


def row_type(metric: MomentMetric, count: int) -> torch.dtype:
    """The type in which `count` prepared rows are held: bf16 for more than 2²⁰ numbers where the metric allows it.

    For other metrics bf16 is used above 2²⁸ numbers, which would take more than a GiB in float32.
    """
    numbers = count * metric.pool.dimensions
    return torch.bfloat16 if numbers > (1 << 20 if metric.bf16 else 1 << 28) else torch.float32


def priced(
    pool: Pool,
    metrics: Sequence[MomentMetric],
    coefficients: Sequence[float],
    linear: torch.Tensor,  # (N,) or (n,): of all documents, or of `rows`
    moments: Sequence[torch.Tensor],
    rows: torch.Tensor | None = None,
    errors: bool = False,
) -> tuple[torch.Tensor, torch.Tensor]:
    """(N,) float64 each: `Quadratic.price`, computed from the pool's features themselves instead of from prepared rows;
    and an upper bound on the rounding error of each price, zeros unless `errors`.

    Products are taken in float64 for `rows` alone and for small pools, else in float32.
    """
    price, error = linear.clone(), torch.zeros_like(linear)
    count = len(linear)
    for start in range(0, count, ROWS):
        part = slice(start, min(start + ROWS, count))
        here = part if rows is None else rows[part]
        for metric, c, moment in zip(metrics, coefficients, moments, strict=True):
            dtype = torch.float64 if rows is not None or pool.is_small else metric.reads
            block = pool.rows(here, dtype)
            z = metric.prepare(block)
            z = z if rows is not None or pool.is_small else z.float()
            price[part] -= 2 * c * metric.row_products(z, moment.to(z)).double().cpu()
            if errors:
                error[part] += 2 * c * metric.error(block.to(z.dtype), moment).cpu()
    return price, error


def certified(
    pool: Pool,
    metrics: Sequence[MomentMetric],
    coefficients: Sequence[float],
    linear: torch.Tensor,
    feasible: Feasible,
    moments: Sequence[torch.Tensor],
    constant: float = 0.0,
) -> float:
    """An upper bound on the objective of every selection within the budget and the limits, rounding errors included.

    By the tangent bound −‖M‖² ≤ ‖m‖² − 2⟨m, M⟩ for any m, it is a sum of positive parts of prices. All prices are
    computed in float32 with a bound on their error; those that may be positive are computed again in float64, and the
    rounding of float64 itself is added.
    """
    price, error = priced(pool, metrics, coefficients, linear, moments, errors=True)
    _, dual = feasible.answer(price)
    thresholds = dual.thresholds(price)
    near = (price + error > thresholds).nonzero()[:, 0]
    level = thresholds if thresholds.ndim == 0 else thresholds[near]
    exact, margin = price[near], error[near]
    if not pool.is_small:
        exact, margin = priced(pool, metrics, coefficients, linear[near], moments, near.to(pool.device), errors=True)
    weights, norms = feasible.weights[near], weighted_norms(coefficients, moments)
    held = feasible.limits.held(dual.level, dual.multipliers)
    found = float(weights @ (exact - level).clamp(min=0)) + held + norms
    summed, terms = float(weights @ (exact.abs() + level.abs())), len(linear) + sum(map(torch.numel, moments))
    rounding = rounding_of(summed, held, norms, constant, terms=terms)
    return found + constant + float(weights @ margin) + rounding


def rounding_of(*parts: float, terms: int) -> float:
    """An upper bound on the float64 rounding error of a sum of `terms` numbers.

    parts: numbers whose absolute values add up to at least the sum of the absolute values of the terms.
    """
    return 2.0**-52 * (8 + terms) * sum(abs(part) for part in parts)


def weighted_norms(coefficients: Sequence[float], moments: Sequence[torch.Tensor]) -> float:
    """Σ_m c_m ‖moments_m‖²."""
    return sum(c * float(moment.double().square().sum()) for c, moment in zip(coefficients, moments, strict=True))


@dataclass(frozen=True, eq=False)
class Quadratic:
    """f(p) = offset + Σ_i w_i linear_i p_i − Σ_m coefficients_m ‖base_m + M_m(p)‖² over `feasible`, w its weights."""

    prepared: Sequence[Prepared]
    coefficients: Sequence[float]
    linear: torch.Tensor  # (N,) float64 on the CPU, per unit of weight
    feasible: Feasible
    base: Sequence[torch.Tensor] | None = None  # moments of documents selected outside this problem
    offset: float = 0.0

    def __len__(self) -> int:
        return len(self.linear)

    @cached_property
    def self_terms(self) -> torch.Tensor:
        """(N,) float64: the self-terms Σ_m c_m w_i² ‖v_i‖², each document's part of the diagonal of the quadratic."""
        total = torch.zeros_like(self.linear)
        for c, rows in zip(self.coefficients, self.prepared, strict=True):
            total += c * self.feasible.weights.square() * rows.squares()
        return total

    def moments(self, p: torch.Tensor) -> list[torch.Tensor]:
        """base + M(p), one moment for each metric. p: (N,)."""
        found = [rows.moment(p * self.feasible.weights) for rows in self.prepared]
        return found if self.base is None else [m.add_(rest) for m, rest in zip(found, self.base, strict=True)]

    def moved(
        self, moments: Sequence[torch.Tensor], target: torch.Tensor, toward: torch.Tensor
    ) -> tuple[list[torch.Tensor], list[torch.Tensor]]:
        """The moments of `target` (N,), and by how much they differ from `moments`, which are those of target − toward.

        Of the two, what has fewer rows that are not 0 is summed; the other follows.
        """
        if int((toward != 0).sum()) < int((target != 0).sum()):
            changes = [rows.moment(toward * self.feasible.weights) for rows in self.prepared]
            return [m + change for m, change in zip(moments, changes, strict=True)], changes
        ends = self.moments(target)
        return ends, [end - m for m, end in zip(moments, ends, strict=True)]

    def value(self, p: torch.Tensor, moments: Sequence[torch.Tensor]) -> float:
        """f(p), given its moments. p: (N,)."""
        linear = float((self.feasible.weights * self.linear) @ p)
        return self.offset + linear - weighted_norms(self.coefficients, moments)

    def price(self, moments: Sequence[torch.Tensor]) -> torch.Tensor:
        """(N,) ∇f per unit of weight at a selection with these moments. Reads all rows once."""
        price = self.linear.clone()
        for rows, c, moment in zip(self.prepared, self.coefficients, moments, strict=True):
            price -= 2 * c * rows.products(moment)
        return price

    def bound(self, moments: Sequence[torch.Tensor], price: torch.Tensor) -> tuple[float, torch.Tensor]:
        """An upper bound on f over the feasible set, and the feasible s (N,) that maximises f's tangent.

        It is the tangent bound −‖M‖² ≤ ‖m‖² − 2⟨m, M⟩, which holds for any moments m.
        price: (N,) `self.price(moments)`, or the same from more exact rows.
        """
        response, most = self.feasible.respond(price)
        held = 0.0
        if self.base is not None:
            parts = zip(self.coefficients, moments, self.base, strict=True)
            held = 2 * sum(c * float((moment.double() * rest.double()).sum()) for c, moment, rest in parts)
        return self.offset + most + weighted_norms(self.coefficients, moments) - held, response

    def rounding(self, p: torch.Tensor) -> float:
        """The expected loss of f when each document is drawn independently with probability p_i: Σ own_i (p_i − p_i²).

        A mask pays a document's self-term own_i in full, a fractional p only p_i² of it.
        """
        return float(self.self_terms @ (p - p.square()))

    def undecided(self, p: torch.Tensor, price: torch.Tensor) -> tuple[torch.Tensor, Quadratic] | None:
        """Row numbers of the undecided documents, and the problem on these alone with the others fixed.

        None where these are most of the pool, or the fixed ones leave no budget for them.
        """
        weights, limits = self.feasible.weights, self.feasible.limits
        near = self.feasible.near_cut(p, price, 0.0, WIDER, max(UNDECIDED * len(p), UNDECIDED_ROWS), MOST)
        if near is None:
            return None
        taken = ~near & (p == 1)
        index = near.nonzero()[:, 0]
        left = limits.size - float(weights[taken].sum())
        if not 0 < left < float(weights[index].sum()):
            return None
        part = Quadratic(
            [rows.take(index) for rows in self.prepared],
            self.coefficients,
            self.linear[index],
            Feasible(limits.part(index.numpy(), taken.numpy())),
            self.moments(taken.double()),
            self.offset + float((weights * self.linear)[taken].sum()),
        )
        return index, part
