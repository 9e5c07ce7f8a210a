"""The sparse matrix A ≥ 0 of documents × atoms, and the target distribution t over the atoms.

    atoms = make_atoms(pool, weights, settings)
    atoms.rows.scores(price), atoms.rows.state(mass), atoms.targets["embedding"]

The parts are column blocks of one matrix, so that a solver passes over the rows once:
- embedding: A_ij = exp((x_i·y_j − 1) / τ) for the `NEAREST` anchors y of a document; t is uniform over the anchors.
  Coverage is then a kernel density of the selection, evaluated at a sample of the pool (the anchors). An anchor covers
  itself, which favours the sampled documents (benchmarks/LOG.md compares this with leaving self-coverage out).
- n-grams: a document's hashed uni- and bigrams as shares that add up to 1. t: the pool's own shares, each document
  counted by its quality (part "ngrams"), or the target's (part "target").
- n-grams that saturate (part "ngrams" by `curve: saturating`): one over the document's weight for each that it holds,
  so that the state counts documents. t: the same for every one that any document holds. They stand last.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import reduce

import numpy as np
import torch
from scipy.sparse import csr_array

from datamask.compiling import blocks_of
from datamask.config import ResolvedSelect
from datamask.errors import ConfigError, InputError
from datamask.selection.cover import compiled
from datamask.selection.cover.compiled import SHARED, index_type, lay_rows, share_rows, taken_rows
from datamask.selection.problem.pool import SMALL, Pool, least_hashes, row_hashes

NEAREST = 128  # a document's kernel is kept at so many of its nearest anchors
BLOCK = 2048  # rows of the kernel computed at a time
JUDGED = 1000  # documents, those with the least hashes, of whose quality `word_worth` takes the quantiles
LOW, HIGH = 0.05, 0.95  # the quantiles
PARTS = ("embedding", "ngrams", "target")


@dataclass(frozen=True, eq=False)
class AtomRows:
    """A sparse matrix of N rows and `width` atoms."""

    start: np.ndarray  # (N + 1,) int64
    index: np.ndarray  # uint16, or uint32: `index_type`
    value: np.ndarray  # float32, in a small pool float64; not negative
    width: int

    def __len__(self) -> int:
        return len(self.start) - 1

    @property
    def arrays(self) -> compiled.Rows:
        """The matrix as the compiled loops take it."""
        return compiled.Rows(self.start, self.index, self.value)

    def scores(self, price: np.ndarray) -> np.ndarray:
        """(N,) float64: A · price. price: (width,)."""
        return self._by_rows(compiled.scores, price)

    def curvatures(self, price: np.ndarray) -> np.ndarray:
        """(N,) float64: A² · price, of the squares of A's numbers. price: (width,)."""
        return self._by_rows(compiled.curvatures, price)

    def state(self, mass: np.ndarray) -> np.ndarray:
        """(width,) float64: Aᵀ · mass. mass: (N,). The blocks of rows are added in their order."""
        mass = np.ascontiguousarray(mass, np.float64)
        firsts = [0] if len(self.index) < SHARED else [first for first, _ in blocks_of(len(self))]
        parts = {first: np.zeros(self.width) for first in firsts}

        def work(first: int, last: int) -> None:
            compiled.add_state(self.start, self.index, self.value, mass, parts[first], first, last)

        share_rows(work, len(self), len(self.index))
        return sum(parts.values(), np.zeros(self.width))

    def gains(
        self, mixture: compiled.Mixture, documents: compiled.Documents, which: np.ndarray, found: np.ndarray
    ) -> None:
        """Fills found (N,) at the rows `which`, as `compiled.row_gains` does."""

        def work(first: int, last: int) -> None:
            compiled.row_gains(self.arrays, mixture, documents, which, found, first, last)

        share_rows(work, len(which), len(self.index))

    def _by_rows(self, loop: Callable[..., None], price: np.ndarray) -> np.ndarray:
        found = np.zeros(len(self))
        share_rows(lambda first, last: loop(*self.arrays, price, found, first, last), len(self), len(self.index))
        return found

    def take(self, rows: np.ndarray) -> AtomRows:
        """These rows, in this order (copied)."""
        return AtomRows(*taken_rows(self.arrays, rows), self.width)

    def within(self, used: np.ndarray) -> AtomRows:
        """The same rows without the numbers of atoms that are not `used` (width,) bool."""
        if used.all():
            return self
        start = np.zeros(len(self) + 1, np.int64)
        compiled.count_used(self.start, self.index, used, start)
        kept = used[self.index]
        return AtomRows(start, self.index[kept], self.value[kept], self.width)


@dataclass(frozen=True, eq=False)
class Atoms:
    """A pool's atoms with the target distribution of each part."""

    rows: AtomRows
    targets: Mapping[str, np.ndarray]  # part -> (width,) t, adding up to 1
    bend: int  # the first column of n-grams that saturate
    anchors: np.ndarray  # (a, d) float32 unit rows, whose atoms come first
    mean: np.ndarray  # (width,) the whole pool's mixture


def make_atoms(pool: Pool, weights: np.ndarray, settings: ResolvedSelect) -> Atoms:
    """The atoms of a pool under these settings; kept on the pool, so they are made once. weights: (N,).

    :raises ConfigError: a part needs texts or a target that the pool has not.
    """
    parts = parts_of(settings)
    of_words = [part for part in parts if part != "embedding"]
    kept = vars(pool).setdefault("_atoms", {})
    how = settings.coverage
    chosen = (how.temperature, how.anchors, how.curve, how.document_weights)
    key = (tuple(parts), chosen, settings.seed, weights.tobytes())
    if key in kept:
        return kept[key]
    if of_words and pool.ngrams is None:
        raise ConfigError(
            f"coverage of {' and '.join(of_words)} needs the documents' texts; pass texts, or cover the embedding alone"
        )
    if "target" in parts and pool.target is None:
        raise ConfigError("coverage of a target needs one; set select.target to files, or pass target texts")
    hashes = row_hashes(pool.features, settings.seed)
    first = least_hashes(hashes, how.anchors if "embedding" in parts else 0)
    anchors = pool.rows(first, _reads(pool)).cpu().numpy()
    rows, bend = lay_atoms(settings, weights, pool, anchors, pool.ngrams if of_words else None, _exactness(pool))
    words, worth = rows.state(weights) if of_words else np.zeros(len(anchors)), None
    if weighs_documents(settings):
        judged = pool.quality[least_hashes(hashes, JUDGED)]
        by = word_worth(pool.quality, pool.quality_weights, quality_ranges(judged))
        worth = rows.state(weights * by)
    targets = targets_of(settings, len(anchors), words, worth, pool.target)
    kept[key] = Atoms(rows, targets, bend, anchors.astype(np.float32), rows.state(weights / weights.sum()))
    return kept[key]


def lay_atoms(
    settings: ResolvedSelect,
    weights: np.ndarray,  # (N,)
    pool: Pool | None,  # of the documents; None where there are no anchors
    anchors: np.ndarray,  # (a, d) unit rows
    counts: csr_array | None,  # (N, J) of the documents' n-grams, if words are covered
    dtype: type = np.float32,  # of the numbers of words
) -> tuple[AtomRows, int]:
    """The rows of these documents, and the first column that saturates."""
    blocks = [kernel(pool, anchors, settings.coverage.temperature)] if pool is not None and len(anchors) else []
    saturated = saturates(settings)
    if counts is not None and not (saturated and "target" not in parts_of(settings)):
        blocks.append(shares(counts, dtype))
    if counts is not None and saturated:
        blocks.append(hit_rows(counts, weights, dtype))
    rows = reduce(beside, blocks)
    return rows, rows.width - blocks[-1].width if saturated else rows.width


def parts_of(settings: ResolvedSelect) -> list[str]:
    """The parts of coverage that are in the objective."""
    return [name.removeprefix("coverage-") for name in settings.metrics if name.startswith("coverage-")]


def saturates(settings: ResolvedSelect) -> bool:
    """Whether the pool's words are covered by the saturating curve."""
    return "coverage-ngrams" in settings.metrics and settings.coverage.curve == "saturating"


def weighs_documents(settings: ResolvedSelect) -> bool:
    """Whether documents count by their quality in words to be covered."""
    words = "coverage-ngrams" in settings.metrics and not saturates(settings)
    return words and settings.coverage.document_weights == "quality"


def quality_ranges(quality: np.ndarray) -> np.ndarray:
    """(Q, 2): of each column what counts nothing and what counts fully: 0, or where scores are negative their quantile
    `LOW`; and their quantile `HIGH`, so that single scores far off do not make all others alike. quality: (n, Q)."""
    low, high = np.quantile(quality, [LOW, HIGH], axis=0)
    return np.stack([np.minimum(low, 0.0), high], axis=1)


def word_worth(quality: np.ndarray, quality_weights: np.ndarray, ranges: np.ndarray) -> np.ndarray:
    """(n,) float64 from 0 to 1: by how much documents count in the words to be covered; 1 for all in a column whose
    range is empty. quality: (n, Q); quality_weights: (Q,), adding up to 1; ranges: (Q, 2)."""
    low, width = ranges[:, 0], ranges[:, 1] - ranges[:, 0]
    share = np.clip((quality - low) / np.where(width > 0, width, 1.0), 0.0, 1.0)
    found: np.ndarray = np.where(width > 0, share, 1.0) @ quality_weights
    return found


def targets_of(
    settings: ResolvedSelect, anchors: int, state: np.ndarray, worth: np.ndarray | None, target: np.ndarray | None
) -> dict[str, np.ndarray]:
    """The target distribution t of each part: over all columns, adding up to 1.

    anchors: their number. state: of the whole pool, over all columns; worth: the same with documents counted by their
    worth, which are the words to be covered unless what is worth anything holds no word. target: (J,) counts, for the
    part "target".

    :raises InputError: there is no word to cover.
    """
    found, words = {}, state[anchors:]
    if worth is not None and worth[anchors:].sum() > 0:
        words = worth[anchors:]
    for part in parts_of(settings):
        t = found[part] = np.zeros(anchors + len(words))
        if part == "embedding":
            t[:anchors] = 1 / anchors
            continue
        if part == "target":
            assert target is not None
            first, wanted = anchors, target
        elif saturates(settings):
            first = anchors if target is None or "coverage-target" not in settings.metrics else anchors + len(target)
            wanted = (words[first - anchors :] > 0).astype(np.float64)
        else:
            first, wanted = anchors, words
        if not wanted.sum() > 0:
            raise InputError(f"coverage of {part}: there is no word in its texts; nothing could be covered")
        t[first : first + len(wanted)] = wanted / wanted.sum()
    return found


def _exactness(pool: Pool) -> type:
    """The type of the rows' numbers: float64 where vectors and words are both few."""
    few = pool.ngrams is None or pool.ngrams.nnz <= SMALL
    return np.float64 if pool.is_small and few else np.float32


def _reads(pool: Pool) -> torch.dtype:
    """The type in which the kernel is computed: float64 in a small pool, so that it is exact to the last digits."""
    return torch.float64 if pool.is_small else torch.float32


def kernel(pool: Pool, anchors: np.ndarray, temperature: float) -> AtomRows:
    """The kernel exp((cosine − 1) / temperature) of each document with its `NEAREST` anchors: (N, a) sparse.

    anchors: (a, d) unit rows.
    """
    dtype = _reads(pool)
    ys = torch.from_numpy(anchors).to(pool.device, dtype)
    count = min(NEAREST, len(anchors))
    index = np.empty((len(pool), count), np.uint16)
    value: np.ndarray = np.empty((len(pool), count), _exactness(pool))
    for part, rows in pool.blocks(BLOCK, dtype):
        near, which = (rows @ ys.T).topk(count, dim=1, sorted=False)
        which, place = which.sort(dim=1)
        index[part] = which.cpu().numpy()
        value[part] = ((near.gather(1, place) - 1) / temperature).exp_().cpu().numpy()
    start = np.arange(len(pool) + 1, dtype=np.int64) * count
    return AtomRows(start, index.ravel(), value.ravel(), len(anchors))


def shares(counts: csr_array, dtype: type = np.float32) -> AtomRows:
    """Sparse counts (N, J) divided by their row's sum; a row without words stays empty."""
    start = counts.indptr.astype(np.int64)
    value = counts.data.astype(dtype)
    compiled.to_shares(start, value)
    return AtomRows(start, counts.indices.astype(index_type(counts.shape[1])), value, counts.shape[1])


def hit_rows(counts: csr_array, weights: np.ndarray, dtype: type = np.float32) -> AtomRows:
    """(N, J) one over a document's weight where it holds a word: its share of the budget times that, and times the
    budget, is one document. weights: (N,), positive."""
    if not (counts.data > 0).all():
        counts = counts.copy()
        counts.eliminate_zeros()
    start = counts.indptr.astype(np.int64)
    value: np.ndarray = np.repeat((1 / weights).astype(dtype), np.diff(start))
    return AtomRows(start, counts.indices.astype(index_type(counts.shape[1])), value, counts.shape[1])


def beside(left: AtomRows, right: AtomRows) -> AtomRows:
    """Both matrices' columns side by side: (N, left.width + right.width)."""
    here, there = np.diff(left.start), np.diff(right.start)
    start = np.concatenate([[0], np.cumsum(here + there)])
    kind = index_type(left.width + right.width)
    to, rows = (np.empty(start[-1], kind), np.empty(start[-1], left.value.dtype)), np.arange(len(left))
    lay_rows(left.arrays, rows, start[:-1], to)
    lay_rows(right.arrays, rows, start[:-1] + here, to, left.width)
    return AtomRows(start, *to, left.width + right.width)
