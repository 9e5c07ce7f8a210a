"""The pool of documents that are selected from, what a budget is in it, and which of them are nearly the same."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import torch
from scipy.sparse import csr_array

from datamask.config import ResolvedSelect
from datamask.encoders.clusters import SAMPLE, nearest_centroids, spherical_kmeans
from datamask.errors import ConfigError, InputError

REORDERED_BYTES = 1 << 32  # greatest size of features that are copied in the order of their content
SMALL = 1 << 22  # numbers in a pool's features, up to which they are read in float64
HASHED = 32  # leading numbers of a row that its hash covers
CLUSTER_DOCUMENTS = 8192  # mean documents of a cluster; all pairs of a smaller pool are compared
PROBES = 2  # nearest clusters in which a document is compared
BF16_MARGIN = 0.01  # bfloat16 rounds each factor by at most 2⁻⁹: a product of unit rows is off by less than this
BLOCK_ROWS = 2048  # rows converted at a time: 6 MB of float32 at d = 768 stay in the cache


@dataclass(eq=False)
class Pool:
    """The candidate documents.

    features: (N, d) of any float type, numpy (also memory-mapped) or torch; not copied, but held as a tensor over the
    same memory. Rows are brought to unit length when read.
    quality: (N,) or (N, Q); `quality_weights` (Q,) are the columns' weights.
    tokens: (N,) positive, needed by a token budget and a length bound. groups: column name -> (N,) values,
    for quotas, and for metrics that declare `columns`.

    :raises InputError: wrong shapes, or a row that is not finite or all zero; the message names the rows.
    """

    features: Any
    quality: Any
    tokens: Any = None
    groups: Mapping[str, Any] = field(default_factory=dict)
    quality_weights: Any = None
    device: Any = "cpu"
    ngrams: Any = None  # (N, J) scipy.sparse counts (`text.ngrams.count_ngrams`), for coverage of words
    target: Any = None  # (J,) counts of a target's n-grams
    inverse_norm: torch.Tensor = field(init=False, repr=False)  # (N,) float32

    def __post_init__(self) -> None:
        features = self.features
        if isinstance(features, torch.Tensor):
            features = features.detach()
            if features.dtype not in (torch.float16, torch.float32, torch.float64):  # bfloat16, which numpy lacks
                features = features.float()
        else:
            try:
                features = np.asarray(features) if not isinstance(features, np.ndarray) else features
                if features.dtype == object and features.ndim == 1 and len(features):  # a column of lists
                    features = np.stack(list(features))
                if features.ndim == 2 and not np.issubdtype(features.dtype, np.floating):
                    features = features.astype(np.float32)
            except ValueError as error:
                raise InputError(f"features must be one (documents, dimensions) array: {error}") from error
            features = _tensor(features) if features.ndim == 2 else features
        if features.ndim != 2 or 0 in features.shape:
            found = tuple(features.shape) or type(self.features).__name__
            raise InputError(f"features must have the shape (documents, dimensions), found {found}")
        self.features = features
        self.device = torch.device(self.device)
        self.quality = _column(self.quality, "quality", len(features), dimensions=2)
        columns = self.quality.shape[1]
        weights = (
            np.ones(columns) if self.quality_weights is None else np.asarray(self.quality_weights, dtype=np.float64)
        )
        if weights.shape != (columns,) or not np.isfinite(weights).all() or (weights < 0).any() or not weights.sum():
            raise InputError(
                f"quality_weights must be {columns} numbers, none negative and not all zero, found {weights.tolist()}"
            )
        self.quality_weights = weights / weights.sum()
        if self.tokens is not None:
            self.tokens = _column(self.tokens, "tokens", len(features))
            if (self.tokens <= 0).any():
                raise InputError(f"tokens must be positive; not so in {_rows(np.flatnonzero(self.tokens <= 0))}")
        if self.ngrams is not None and self.ngrams.shape[0] != len(features):
            raise InputError(f"{self.ngrams.shape[0]} texts for {len(features)} documents; each needs one")
        if not hasattr(self.groups, "keys"):
            raise InputError(f"groups must be a mapping, column name -> values, found {type(self.groups).__name__}")
        self.groups = dict(self.groups)  # of a data frame too
        for name, values in self.groups.items():
            if len(values) != len(features):
                raise InputError(f"group column {name!r} has {len(values)} values for {len(features)} documents")
        self.inverse_norm = self._check_rows()

    def __len__(self) -> int:
        return len(self.features)

    @property
    def dimensions(self) -> int:
        """d, the features' width."""
        return int(self.features.shape[1])

    def rows(self, index: Any, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        """(n, d) unit rows of this type on the pool's device. index: a slice, or row numbers (any array).

        `inverse_norm` is float32: in float64, rows are divided by a norm computed in float64.
        """
        if isinstance(index, np.ndarray):
            index = torch.from_numpy(index)
        here, there = (
            (index, index) if isinstance(index, slice) else (index.to(self.features.device), index.to(self.device))
        )
        stored = self.features[here] if isinstance(here, slice) else self.features.index_select(0, here)
        taken = stored.to(self.device, dtype)
        if dtype == torch.float64:
            norm = 1 / torch.linalg.vector_norm(taken, dim=1, keepdim=True)
        else:
            norm = self.inverse_norm[there].to(dtype)[:, None]
        return taken * norm if taken is stored else taken.mul_(norm)  # in place only if `taken` is a copy

    def blocks(
        self, rows: int = BLOCK_ROWS, dtype: torch.dtype = torch.float32
    ) -> Iterator[tuple[slice, torch.Tensor]]:
        """Yields (slice, unit rows) from first to last, holding one block at a time."""
        for start in range(0, len(self), rows):
            part = slice(start, min(start + rows, len(self)))
            yield part, self.rows(part, dtype)

    @property
    def is_small(self) -> bool:
        """Whether the pool is so small that reading it in float64 costs next to nothing."""
        return len(self) * self.dimensions <= SMALL

    def take(self, index: np.ndarray) -> Pool:
        """The pool of these rows (copied)."""
        return replace(
            self,
            features=self.features.index_select(0, torch.from_numpy(index).to(self.features.device)),
            quality=self.quality[index],
            tokens=None if self.tokens is None else self.tokens[index],
            groups={name: np.asarray(values)[index] for name, values in self.groups.items()},
            ngrams=None if self.ngrams is None else csr_array(self.ngrams)[index],
        )

    def _check_rows(self) -> torch.Tensor:
        norms = torch.empty(len(self), dtype=torch.float32)
        wide = torch.float64 if self.is_small else torch.float32
        for start in range(0, len(self), BLOCK_ROWS):
            block = self.features[start : start + BLOCK_ROWS].to(wide)
            norms[start : start + BLOCK_ROWS] = torch.linalg.vector_norm(block, dim=1).cpu()
        bad = np.flatnonzero(~((norms > 0) & torch.isfinite(norms)).numpy())
        if len(bad):
            raise InputError(
                f"features of {_rows(bad)} are not finite or all zero; "
                "embed those documents again or leave them out before selecting"
            )
        return (1 / norms).to(self.device)


def in_order_of_content(pool: Pool, seed: int) -> np.ndarray | None:
    """(N,) row numbers in the order of a hash of each document's features, quality, tokens and groups.

    Solving the pool in this order makes ties, sums and random draws independent of the order of the input; only
    documents equal in all of these are interchangeable. None where copying the features would cost too much
    (`REORDERED_BYTES`).
    """
    if pool.features.numel() * pool.features.element_size() > REORDERED_BYTES:
        return None
    generator = np.random.default_rng([seed, 11])
    words = -(-pool.dimensions * pool.features.element_size() // 8)
    factors = np.random.default_rng([seed, 12]).integers(1, 2**63, words, dtype=np.uint64) | np.uint64(1)
    found = np.zeros(len(pool), dtype=np.uint64)
    columns = [pool.quality, *([] if pool.tokens is None else [pool.tokens[:, None]])]
    columns += [np.char.encode(np.asarray(values).astype(str), "utf-8")[:, None] for values in pool.groups.values()]
    for start in range(0, len(pool), BLOCK_ROWS):
        part = slice(start, start + BLOCK_ROWS)
        found[part] = _words(pool.features[part].cpu().contiguous().view(torch.uint8).numpy()) @ factors
    for column in columns:
        own = _words(np.ascontiguousarray(column).view(np.uint8).reshape(len(pool), -1))
        found ^= own @ (generator.integers(1, 2**63, own.shape[1], dtype=np.uint64) | np.uint64(1))
        found *= np.uint64(0x9E3779B97F4A7C15)
        found ^= found >> np.uint64(31)
    return np.argsort(found, kind="stable")


def _words(rows: np.ndarray) -> np.ndarray:
    """(n, bytes) uint8 as (n, words) uint64, filled up with zeros."""
    missing = -rows.shape[1] % 8
    rows = np.pad(rows, ((0, 0), (0, missing))) if missing else rows
    return np.ascontiguousarray(rows).view(np.uint64)


def budget_of(settings: ResolvedSelect, count: int, tokens: tuple[float, float] | None) -> tuple[str, float]:
    """The budget's unit and its size in that unit. tokens: of all `count` documents, and of the shortest.

    Raises as `make_problem`.
    """
    if tokens is None and (settings.in_tokens or settings.length_tolerance is not None):
        need = settings.budget_name if settings.in_tokens else "length_tolerance"
        raise ConfigError(f"{need} needs the documents' token counts; pass tokens, or set another budget")
    if settings.in_tokens and tokens is not None:
        total, least = tokens
        size = float(settings.budget_tokens or round((settings.token_ratio or 0) * total))
        asked = f"budget_tokens {size:.0f}"
        if not settings.budget_tokens:
            asked = f"token_ratio {settings.token_ratio:g} of {total:.0f} tokens, {size:.0f},"
        if size > total * settings.repeat:
            times = f", each {settings.repeat} times" if settings.repeat > 1 else ""
            raise InputError(f"{asked} is more than the pool's {total:.0f} tokens{times}; lower it")
        if size < least:
            raise InputError(f"{asked} is less than the shortest document's {least:.0f}; raise it")
        return "tokens", size
    size = float(settings.budget_documents or round((settings.select_ratio or 0) * count))
    if size > count:
        raise InputError(f"budget_documents {size:.0f} is more than the pool's {count} documents; lower it")
    if size < 1:
        raise InputError(
            f"select_ratio {settings.select_ratio} of {count} documents is not one document; "
            f"set at least {1 / count:.2g}, or budget_documents"
        )
    return "documents", size


def quality_names(columns: int) -> list[str]:
    """The names of so many columns of quality among the terms."""
    return ["quality"] if columns == 1 else [f"quality_{column}" for column in range(columns)]


def _tensor(values: np.ndarray) -> torch.Tensor:
    """A tensor over the same memory where torch supports its type and strides, else a float32 copy.

    It is never written to: the memory may be a file mapped read-only.
    """
    if values.dtype not in (np.float16, np.float32, np.float64) or min(values.strides) < 0:
        values = np.ascontiguousarray(values, dtype=np.float32)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        return torch.from_numpy(values)


def _column(values: Any, name: str, rows: int, dimensions: int = 1) -> np.ndarray:
    if isinstance(values, torch.Tensor):
        values = values.detach().cpu()
    try:
        column = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"{name} must be numbers: {error}") from error
    if dimensions == 2 and column.ndim == 1:
        column = column[:, None]
    if column.ndim != dimensions or len(column) != rows:
        raise InputError(f"{name} must have a value for each of the {rows} documents, found shape {column.shape}")
    bad = np.flatnonzero(~np.isfinite(column.reshape(rows, -1)).all(axis=1))
    if len(bad):
        raise InputError(
            f"{name} of {_rows(bad)} is not a finite number; score those documents again or leave them out"
        )
    return column


def _rows(numbers: np.ndarray) -> str:
    shown = ", ".join(str(number) for number in numbers[:5])
    return f"row {shown}" if len(numbers) == 1 else f"{len(numbers)} rows ({shown}{', …' if len(numbers) > 5 else ''})"


def row_hashes(features: Any, seed: int) -> np.ndarray:
    """(N,) uint64 hashes of each row's first `HASHED` numbers: equal for equal rows, whatever their shard or order."""
    rows = features[:, :HASHED]
    rows = np.ascontiguousarray(rows.cpu().numpy() if isinstance(rows, torch.Tensor) else rows)
    bits = rows.view(np.dtype(f"u{rows.dtype.itemsize}")).astype(np.uint64)
    factors = np.random.default_rng(seed).integers(1, 2**63, rows.shape[1], dtype=np.uint64) | np.uint64(1)
    found = (bits * factors).sum(axis=1, dtype=np.uint64)
    found ^= found >> np.uint64(31)
    found *= np.uint64(0x9E3779B97F4A7C15)
    return found ^ (found >> np.uint64(29))


def least_hashes(hashes: np.ndarray, count: int) -> np.ndarray:
    """The numbers of the documents with the least hashes, in their order: the same whatever their order or shard."""
    return np.argsort(hashes, kind="stable")[:count]


# -- near-duplicates by cosine, as SemDeDup finds them (arXiv 2303.09540): within clusters of spherical k-means
#
# SemDeDup drops a document that resembles any earlier one of its cluster, even one that is dropped itself, and so whole
# chains of similar documents. `repeats_kept` drops only what resembles a kept document. `max_earlier_similarity` is
# SemDeDup's own statistic M. `find_repeats` takes near-duplicates out of a pool before a solver sees it.


def cluster_pool(pool: Pool, clusters: int, probes: int, seed: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Unit centroids (clusters, d), fitted on a random sample of the pool, and the numbers (N, probes) of those nearest
    to each document."""
    generator = torch.Generator().manual_seed(seed)
    sample = torch.randperm(len(pool), generator=generator)[: SAMPLE * clusters].sort().values
    centroids = spherical_kmeans(pool.rows(sample), clusters, generator)
    return centroids, torch.cat([nearest_centroids(rows, centroids, probes) for _, rows in pool.blocks()])


def product_dtype(device: torch.device) -> torch.dtype:
    """bf16 where the processor multiplies matrices in it, else float32 (TF32 on a GPU that has it and no bf16)."""
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported() else torch.float32
    return torch.bfloat16 if torch.ops.mkldnn._is_mkldnn_bf16_supported() else torch.float32


def max_earlier_similarity(rows: torch.Tensor, block: int = BLOCK_ROWS) -> torch.Tensor:
    """SemDeDup's M (n,): the greatest cosine of each row (n, d) with an earlier one; 0 for the first."""
    unit = torch.nn.functional.normalize(rows.float(), dim=1)
    found = torch.zeros(len(unit))
    for start in range(0, len(unit), block):
        part = unit[start : start + block]
        similarity = part @ unit[: start + len(part)].T
        found[start : start + len(part)] = similarity.tril(start - 1).amax(dim=1).cpu()  # with earlier ones alone
    return found


def repeats_kept(
    rows: torch.Tensor, threshold: float, candidates: torch.Tensor | None = None, block: int = BLOCK_ROWS
) -> torch.Tensor:
    """Goes through unit rows (n, d) in order and keeps each whose cosine to every kept one is at most `threshold`.

    Returns which are not kept (n,) bool. candidates (n,) bool: rows to look at; the others neither stay nor take one
    out. Products may run in bfloat16; every row that comes near the threshold is decided again in float32, so that the
    block size never matters.
    """
    count, device, low = len(rows), rows.device, product_dtype(rows.device)
    repeats = torch.zeros(count, dtype=torch.bool)
    alive = torch.arange(count) if candidates is None else candidates.nonzero().flatten()
    kept_rows = torch.empty(len(alive), rows.shape[1], dtype=low, device=device)
    kept_numbers = torch.empty(len(alive), dtype=torch.int64)
    kept = 0
    for numbers in alive.split(block):
        part = torch.nn.functional.normalize(rows.index_select(0, numbers.to(device)).float(), dim=1)
        if kept:
            near = (part.to(low) @ kept_rows[:kept].T).amax(dim=1).cpu() > threshold - BF16_MARGIN
            for suspects in near.nonzero().flatten().split(256):
                best = _greatest(part[suspects.to(device)], rows, kept_numbers[:kept])
                repeats[numbers[suspects[best > threshold]]] = True
        free = (~repeats[numbers]).nonzero().flatten()
        new = part[free.to(device)]
        over = (new @ new.T).cpu().tril(-1) > threshold
        stays = torch.ones(len(free), dtype=torch.bool)
        for i in over.any(dim=1).nonzero().flatten().tolist():
            stays[i] = not bool((over[i] & stays).any())
        repeats[numbers[free[~stays]]] = True
        added = numbers[free[stays]]
        kept_rows[kept : kept + len(added)] = new[stays.to(device)].to(low)
        kept_numbers[kept : kept + len(added)] = added
        kept += len(added)
    return repeats


def _greatest(part: torch.Tensor, rows: torch.Tensor, numbers: torch.Tensor) -> torch.Tensor:
    """The greatest float32 cosine of each row of `part` with the rows of these numbers."""
    best = torch.full((len(part),), -2.0)
    for some in numbers.split(8 * BLOCK_ROWS):
        others = torch.nn.functional.normalize(rows.index_select(0, some.to(rows.device)).float(), dim=1)
        best = torch.maximum(best, (part @ others.T).amax(dim=1).cpu())
    return best


def find_repeats(pool: Pool, quality: np.ndarray, epsilon: float, seed: int) -> np.ndarray:
    """(N,) bool: documents whose cosine to a better one that stays exceeds 1 − ε. The better one has the greater
    quality (N,); ties, the lower row number."""
    best_first = torch.from_numpy(np.argsort(-quality, kind="stable"))
    clusters = -(-len(pool) // CLUSTER_DOCUMENTS)
    gone = torch.zeros(len(pool), dtype=torch.bool)
    if clusters == 1:
        members = torch.zeros(len(pool), 1, dtype=torch.int64)
    else:
        members = cluster_pool(pool, clusters, PROBES, seed)[1].cpu()
    for cluster in range(clusters):
        mine = best_first[(members[best_first] == cluster).any(1)]
        if len(mine):
            gone[mine[repeats_kept(pool.rows(mine), 1 - epsilon, ~gone[mine])]] = True
    return gone.numpy()
