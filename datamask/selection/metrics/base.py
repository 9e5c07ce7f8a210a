"""What a diversity metric is.

`Metric` is all the policy gradient needs. A metric whose relaxation to fractional masks is concave can add
`relaxed` (`RelaxedMetric`) and works with the relaxation too. A `MixtureMetric` sees a mask only through a sum over its
documents, of which it is any concave function: so shards select jointly by adding up sums. Coverage is one. Pairwise
and DiSF are `MomentMetric`s, D(p) = −‖Σ_i p_i w_i v_i‖² / size²: what a quadratic gains on a line is known.
"""

from __future__ import annotations

from abc import abstractmethod
from functools import reduce
from typing import ClassVar, NamedTuple, Protocol, runtime_checkable

import numpy as np
import torch

from datamask.selection.problem.pool import Pool

ROWS = 8192  # gathered at a time


class Metric(Protocol):
    """D(S) for sets of documents.

    name: canonical, lower case. Constructed once per problem:
    pool: the candidates; weights: (N,) float64, what a document takes of the budget (1, or its tokens);
    size: the budget, in the same unit.
    columns, if the class has it: names of the corpus's columns that it reads as `pool.groups[name]`, (N,) values:
    strings in a curation and in `datamask select`, '' where null; in `select` what `groups` gives.
    solve_relaxed(problem, term, feasible) -> Draft, if the class has it: how solver `relaxation` solves a problem with
    this metric alone; for metrics whose relaxation is not smooth (facility location).
    """

    name: ClassVar[str]

    def __init__(self, pool: Pool, weights: torch.Tensor, size: float) -> None: ...

    def value(self, masks: torch.Tensor) -> torch.Tensor:
        """Raw D of each mask. masks: (G, N) bool; returns (G,) float64, as exact as is feasible."""


@runtime_checkable
class RelaxedMetric(Protocol):
    """A metric that extends to fractional masks as a concave function."""

    def relaxed(self, mask: torch.Tensor) -> tuple[float, torch.Tensor]:
        """mask: (N,) float64 in [0, 1]. The raw value, not below `value` at 0/1 masks, and a supergradient (N,)."""


@runtime_checkable
class StateMetric(Protocol):
    """D as a concave function of the state Σ_i mass_i v_i, mass_i = p_i w_i / size the document's share of the budget.

    p need not be 0 or 1: a document that is repeated counts as often.
    """

    @abstractmethod
    def of_state(self, state: np.ndarray) -> float:
        """Raw D."""

    @abstractmethod
    def slope(self, state: np.ndarray) -> np.ndarray:
        """Its gradient, of the state's shape."""

    @abstractmethod
    def state(self, mass: np.ndarray) -> np.ndarray:
        """Σ_i mass_i v_i, float64. mass: (N,) shares of the budget."""

    @abstractmethod
    def products(self, slope: np.ndarray) -> np.ndarray:
        """⟨slope, v_i⟩ of every document: (N,) float64."""

    @abstractmethod
    def inside(self, state: np.ndarray) -> bool:
        """Whether D is defined there (an extrapolated state may not be)."""


class Slopes(NamedTuple):
    """Where a descent in the slope of a state begins: (j,) each, of the j numbers of the state that D depends on."""

    used: np.ndarray  # (J,) bool: which these are
    first: np.ndarray  # the slope at the state
    unit: np.ndarray  # in which the second derivatives of D's conjugate are alike there
    least: np.ndarray  # what the slope must not fall below


class MaskState:
    """A `RelaxedMetric` as a `StateMetric`: its state is the mask, in shares of the budget (N,)."""

    def __init__(self, metric: RelaxedMetric, share: np.ndarray) -> None:
        """share: (N,) what each document takes of the budget, as a share of it."""
        self.metric, self.share = metric, share
        self.latest: tuple[np.ndarray, float, np.ndarray] | None = None  # value and slope at the last state

    def state(self, mass: np.ndarray) -> np.ndarray:
        return mass

    def _at(self, state: np.ndarray) -> tuple[float, np.ndarray]:
        if self.latest is None or not np.array_equal(self.latest[0], state):
            value, slope = self.metric.relaxed(torch.from_numpy((state / self.share).clip(0, 1)))
            self.latest = state, float(value), slope.cpu().double().numpy() / self.share
        return self.latest[1:]

    def of_state(self, state: np.ndarray) -> float:
        return self._at(state)[0]

    def slope(self, state: np.ndarray) -> np.ndarray:
        return self._at(state)[1]

    def inside(self, state: np.ndarray) -> bool:
        return bool((state >= 0).all() and (state <= self.share * (1 + 1e-9)).all())

    def products(self, slope: np.ndarray) -> np.ndarray:
        return slope


class MixtureMetric(StateMetric):
    """A metric that says what v and D of a state are; value, gradient and calibration follow."""

    name: ClassVar[str]

    def __init__(self, pool: Pool, weights: torch.Tensor, size: float) -> None:
        self.pool, self.weights, self.size = pool, weights.cpu().numpy(), size

    def value(self, masks: torch.Tensor) -> torch.Tensor:
        """Raw D of each mask, float64. masks: (G, N)."""
        shares = masks.cpu().double().numpy() * (self.weights / self.size)
        return torch.tensor([self.of_state(self.state(share)) for share in shares], dtype=torch.float64)

    def relaxed(self, mask: torch.Tensor) -> tuple[float, torch.Tensor]:
        """Raw D of a fractional mask (N,), and its gradient (N,)."""
        share = self.weights / self.size
        state = self.state(mask.cpu().double().numpy() * share)
        return self.of_state(state), torch.from_numpy(self.products(self.slope(state)) * share)


class MomentMetric(MixtureMetric):
    """D(p) = −unit · ‖M(p)‖² / size², M(p) = Σ_i p_i w_i v_i; v_i is x_i (pairwise) or the off-diagonal of z_i z_iᵀ.

    A subclass says what z, M and their products are; everything else (value, gradient, line search, calibration,
    certificate, sums over shards) follows from these.
    """

    name: ClassVar[str]
    unit: ClassVar[float] = 1.0  # published code's scale of the value
    dense: ClassVar[float] = 0.05  # share of rows above which a moment reads all of them rather than gather some
    vector: ClassVar[bool] = False  # v_i is x_i itself: M is (d,), and no rows need preparing
    bf16: ClassVar[bool] = False  # whether the ascent may hold z in bfloat16: where matrix products are its cost

    @property
    def reads(self) -> torch.dtype:
        """In which format rows are to be read for `prepare`."""
        return torch.float32

    # -- what a subclass defines, on prepared rows z (n, d)

    def prepare(self, rows: torch.Tensor) -> torch.Tensor:
        """Unit rows (n, d) float -> z (n, d): identity, or standardised over the pool."""
        return rows

    def moment(self, z: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Σ_i mask_i v_i of these rows: (d,) or (d, d). z: (n, d); mask: (n,), weights included."""
        raise NotImplementedError

    def row_products(self, z: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """⟨moment, v_i⟩ of these rows: (n,)."""
        raise NotImplementedError

    def squares(self, z: torch.Tensor) -> torch.Tensor:
        """‖v_i‖² of these rows: (n,)."""
        raise NotImplementedError

    def kernel(self, z: torch.Tensor) -> torch.Tensor:
        """⟨v_i, v_j⟩ of these rows with one another: (n, n)."""
        raise NotImplementedError

    def error(self, rows: torch.Tensor, moment: torch.Tensor) -> torch.Tensor:
        """(n,) no less than what rounding does to `row_products(prepare(rows), moment)`, rows (n, d) as stored."""
        raise NotImplementedError

    # -- what follows

    def state(self, mass: np.ndarray) -> np.ndarray:
        return self.sum_over(self.pool, torch.from_numpy(mass)).cpu().numpy()

    def of_state(self, state: np.ndarray) -> float:
        return -self.unit * float(np.square(state).sum())

    def slope(self, state: np.ndarray) -> np.ndarray:
        return -2 * self.unit * state

    def inside(self, state: np.ndarray) -> bool:
        return True

    def products(self, slope: np.ndarray) -> np.ndarray:
        moment = torch.from_numpy(slope).to(self.pool.device)
        blocks = self.pool.blocks(dtype=torch.float64)  # with float32, rounding would stop the ascent early
        parts = [self.row_products(self.prepare(rows), moment) for _, rows in blocks]
        return torch.cat(parts).cpu().double().numpy()

    def sum_over(self, pool: Pool, mass: torch.Tensor, dtype: torch.dtype = torch.float64) -> torch.Tensor:
        """Σ_i mass_i v_i of a pool's documents, prepared with this metric's statistics; float64, of terms in `dtype`.

        mass: (N,); only the rows where it is not zero are read.
        """
        mass = mass.to(pool.device, dtype)
        parts = mass.nonzero()[:, 0].split(ROWS)  # one empty part, where all are zero
        moments = (self.moment(self.prepare(pool.rows(part, dtype)), mass[part]).double() for part in parts)
        return reduce(torch.Tensor.add_, moments)
