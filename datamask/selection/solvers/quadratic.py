"""Quality plus moment metrics as one concave quadratic, f(p) = Σ_i w_i l_i p_i − Σ_m c_m ‖M_m(p)‖², and its parts.

`ascent`, `newton` and the calibration all take a `Quadratic`, and swaps improve a mask of one. Most documents of a pool
are decided early: `Quadratic.undecided` is the same problem on the documents near the cut alone, with the others'
moments as a constant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

import numpy as np
import torch

from datamask.compiling import compiled
from datamask.selection.metrics.base import MomentMetric
from datamask.selection.problem.feasible import Feasible
from datamask.selection.problem.limits import GRAIN, Limits, allowed, book_row, running_sums
from datamask.selection.problem.pool import Pool

BLOCK_ROWS = {True: 2048, False: 4096}  # rows read at a time: of a metric whose moment is a vector (True), a matrix
# The sub-problem of the undecided holds max(WIDER · open documents, UNDECIDED · N, UNDECIDED_ROWS) documents; it is not
# used when that exceeds MOST · N, since leaving out the few others would gain nothing.
MOST = 0.7
UNDECIDED = 0.12
UNDECIDED_ROWS = 8192
WIDER = 1.2
ROWS = 2048  # documents priced at a time
# Documents on each side of the window: if all metrics' moments are vectors (rounding loses less there), and otherwise.
WINDOW = {True: 512, False: 1024}
ROUNDS = 40
TRIED = 32  # the best entrants are tried so many at a time, each against every selected document of the window
SIDE, TRIAL_ROUNDS = 8, 50  # by value: candidates to leave, and as many to enter, every pair of which is tried; rounds


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
    near = (price + error > dual.lower).nonzero()[:, 0]
    exact, margin, level = price[near], error[near], dual.lower[near]
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


# -- local search on a mask: swap a selected for an unselected document while that raises the objective
#
# Only documents whose price is near the cut can gain from a swap. A round takes the best of them, one or two thousand
# (the window), computes their kernel ⟨v_i, v_j⟩, and makes the best swaps one pair at a time with exact gains. Then all
# prices are computed anew, which reads the pool once. It ends when a round gains less than the tolerance.


def swap_by_kernel(
    quadratic: Quadratic, selected: torch.Tensor, tolerance: float
) -> tuple[torch.Tensor, list[torch.Tensor], torch.Tensor]:
    """A mask (N,) no worse than `selected` (N,) bool and within the same limits, its moments, and all prices (N,).

    Stops when a round gains less than `tolerance` (absolute), after `ROUNDS`, or where no swap gains.
    """
    mask, weights, self_terms = selected.clone(), quadratic.feasible.weights, quadratic.self_terms
    moments = quadratic.moments(mask.double())
    limits = quadratic.feasible.limits
    left, side = ROUNDS, WINDOW[all(rows.metric.vector for rows in quadratic.prepared)]
    while True:
        price = quadratic.price(moments)
        if not left:
            break
        gain = weights * price  # the marginal value of taking a document, to first order
        above = weights * quadratic.feasible.reduced(price) if limits else gain  # net of the limits' dual prices
        enter = torch.where(mask, -torch.inf, above - self_terms) / weights
        leave = torch.where(mask, -above - self_terms, -torch.inf) / weights
        out = leave.topk(min(side, int(mask.sum()))).indices
        into = enter.topk(min(side, int((~mask).sum()))).indices
        window = torch.cat([out, into])
        kernel = np.zeros((len(window), len(window)), np.float32)
        for rows, c in zip(quadratic.prepared, quadratic.coefficients, strict=True):
            kernel += c * rows.metric.kernel(rows.rows(window)).float().cpu().numpy()
        kernel *= np.outer(weights[window], weights[window]).astype(np.float32)
        charged = (gain - above)[window].numpy()
        marginal, documents = gain[window].numpy(), window.numpy()
        changed = best_swaps(kernel, marginal, charged, limits, mask.numpy(), documents, tolerance / side)
        if not len(changed):
            break
        moved = torch.from_numpy(changed)
        swapped = mask.clone()
        swapped[moved] = ~mask[moved]
        then, _ = quadratic.moved(moments, swapped.double(), swapped.double() - mask.double())
        gained = quadratic.value(swapped.double(), then) - quadratic.value(mask.double(), moments)
        if gained > 0:  # gains computed from bf16 rows may be wrong, so the true change decides
            mask, moments = swapped, then
        left = left - 1 if gained >= tolerance else 0
    return mask, moments, price


def best_swaps(
    kernel: np.ndarray,  # (n, n) float32 Σ_m c_m w_i w_j ⟨v_i, v_j⟩
    gain: np.ndarray,  # (n,) marginal value of taking each document, to first order
    charged: np.ndarray,  # (n,) what the limits' dual prices charge for it; the greatest gain − charged is tried first
    limits: Limits,
    mask: np.ndarray,  # (N,) bool, what is selected
    window: np.ndarray,  # (n,) row numbers
    least: float,  # the least gain of a swap: tolerance / side, so that the swaps left undone sum to < the tolerance
) -> np.ndarray:
    """The row numbers of the documents that enter or leave by the best swaps of the window, within the limits."""
    grain, spent = GRAIN * max(limits.size, 1.0), float(limits.weights[mask].sum())
    budget = np.array([spent, limits.size - limits.unspent - grain, limits.size + grain])
    if limits.counted:
        budget[1:] = -np.inf, np.inf  # one for one
    inside = mask[window]
    floor = max(least, 1e-9 * float(np.abs(gain).max() + kernel.diagonal().max()))
    swap_best(kernel, gain.copy(), charged, inside, floor, budget, running_sums(limits, mask, window))
    return window[inside != mask[window]]


def swap_by_value(
    limits: Limits,
    selected: torch.Tensor,  # (N,) bool
    values: Callable[[torch.Tensor], torch.Tensor],  # masks (G, N) bool -> (G,), the objective
    gradient: Callable[
        [torch.Tensor], torch.Tensor
    ],  # mask (N,) float64 -> (N,), the objective's, which picks what is tried
) -> torch.Tensor:
    """Local search by the objective of trial masks, where only values and gradients are known.

    A mask (N,) bool whose objective is no less than that of `selected`, within the same limits. Tried are swaps, and
    one document more or less.
    """
    value = float(values(selected[None])[0])
    for _ in range(TRIAL_ROUNDS):
        slope = gradient(selected.double())
        out = torch.where(selected, -slope, -torch.inf).topk(min(SIDE, int(selected.sum()))).indices
        into = torch.where(selected, -torch.inf, slope).topk(min(SIDE, int((~selected).sum()))).indices
        trials = selected.repeat(len(out) + 1, len(into) + 1, 1)
        trials[torch.arange(len(out)), :, out] = False
        trials[:, torch.arange(len(into)), into] = True
        trials = trials.flatten(0, 1)
        trials = trials[[bool(mask.any()) and not limits.violations(mask) for mask in trials.numpy()]]
        if not len(trials):
            break
        found = values(trials).cpu()
        if float(found.max()) <= value + 1e-9 * (1 + abs(value)):
            break
        selected, value = trials[int(found.argmax())], float(found.max())
    return selected


@compiled
def swap_best(kernel, gain, charged, inside, floor, budget, sums):  # type: ignore[no-untyped-def]
    """Makes the best swap, one after the other, until none gains more than `floor`. The first three as `best_swaps` has
    them; inside: (n,) bool, which are selected; budget: (3,) what is spent, the least and the most that may be.

    gain, inside, budget and sums are written to.
    """
    weights = sums.weights
    n = len(gain)
    self_terms = np.empty(n, np.float64)
    for i in range(n):
        self_terms[i] = kernel[i, i]
    steepest = self_terms.max()
    refused = np.zeros(n, np.bool_)  # entrants with which no swap has gained since the last swap
    best = np.empty(TRIED, np.int64)
    score = np.empty(TRIED, np.float64)
    leaves, gained = np.empty(n, np.float64), np.empty(n, np.float64)
    for _ in range(8 * n):
        found = 0
        highest = -np.inf
        cheapest = -np.inf
        for i in range(n):
            leaves[i] = -gain[i] - self_terms[i] if inside[i] else -np.inf
            cheapest = max(cheapest, leaves[i])
            if not (inside[i] or refused[i]):
                highest = max(highest, gain[i] - self_terms[i])
                tried = gain[i] - self_terms[i] - charged[i]
                if found < TRIED or tried > score[found - 1]:
                    place = found if found < TRIED else TRIED - 1
                    found = place + 1
                    while place and score[place - 1] < tried:
                        score[place] = score[place - 1]
                        best[place] = best[place - 1]
                        place -= 1
                    score[place] = tried
                    best[place] = i
        if highest + cheapest + 2 * steepest <= floor:
            break
        most = floor
        comes, goes = -1, -1
        least, largest = budget[1] - budget[0], budget[2] - budget[0]
        for i in best[:found]:
            enters = gain[i] - self_terms[i]
            if enters + cheapest + 2 * steepest <= most:
                continue
            row, comer = kernel[i], weights[i]
            for j in range(n):  # without a branch, so that the processor takes several at a time
                change = comer - weights[j]
                fits = (change >= least) & (change <= largest)
                gained[j] = enters + leaves[j] + 2 * row[j] if fits else -np.inf
            for j in range(n):
                if gained[j] > most and allowed(j, i, 0.0, np.inf, sums):
                    most = gained[j]
                    comes, goes = i, j
        if comes < 0:
            for i in best[:found]:
                refused[i] = True
            continue
        inside[comes], inside[goes] = True, False
        for i in range(n):
            gain[i] -= 2 * (kernel[comes, i] - kernel[goes, i])
        budget[0] += weights[comes] - weights[goes]
        book_row(comes, 1.0, sums)
        book_row(goes, -1.0, sums)
        refused[:] = False
