"""Candidates for selection: a shard's, read from its stages' files, and why each other document is not one; or those of
a file of embedded, scored documents in DATAMASK's layout (chunk_id, quality_score, feature_arr), and its mask."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet
from scipy.sparse import csr_array, vstack

from datamask import storage
from datamask.config import COPY_COLUMNS, Config, ResolvedSelect
from datamask.corpus.columns import texts_of
from datamask.corpus.read import INDEX_COLUMNS, TOPIC, read_documents, shard_schema
from datamask.devices import pick_device
from datamask.encoders.vectors import read_features, read_vectors
from datamask.errors import ConfigError, ConservationError, InputError, nearest, some
from datamask.filter.forgotten import REASON as FORGOTTEN
from datamask.filter.resolve import REASONS as DUPLICATES
from datamask.maps import Handed, hand_on, handed
from datamask.selection.cover.counting import read_ngrams, reads_words, target_of
from datamask.selection.metrics import pool_columns
from datamask.selection.problem.pool import Pool
from datamask.selection.problem.problem import Selection
from datamask.shares import tell_share
from datamask.stages import ShardFiles, required

TOKENS = "token_count"
IN_MEMORY_BYTES = 1 << 30  # greatest size of features held in memory; larger ones lie in a temporary file


@dataclass(frozen=True, eq=False)
class Candidates:
    """The documents of a shard (D rows, not quarantined) and the N of them that may be selected."""

    shard: str
    chunk_id: np.ndarray  # (D,) int64, ascending
    reason: np.ndarray  # (D,) object: None for a candidate, else "filter:<name>"
    index: np.ndarray  # (N,) int64: the candidates' places in chunk_id
    quality: np.ndarray  # (N,) float64
    tokens: np.ndarray  # (N,) float64, at least 1

    def __len__(self) -> int:
        return len(self.index)


def read_candidates(files: ShardFiles, config: Config) -> Candidates:
    """The candidates of a scored and indexed shard.

    :raises ConservationError: the stages' files differ in rows.
    :raises InputError: see `read_features`.
    """
    name, scored, indexed = files.shard.name, required(files.scores), required(files.index)
    scores = storage.read_table(scored.path, ["chunk_id", "quality_score"])
    path = vectors_path(files, config)
    if config.selection.reads_vectors:
        chunk_id = _sorted_ids(storage.read_table(path, ["chunk_id"]), path)
        _same_rows(name, chunk_id, scores, "scores")
    else:
        chunk_id = _sorted_ids(scores, scored.path)
    reason = np.full(len(chunk_id), None, dtype=object)
    if files.duplicates is not None:
        duplicates = storage.read_table(files.duplicates.path, ["chunk_id", "kind"])
        places = np.searchsorted(chunk_id, duplicates["chunk_id"].to_numpy())
        reason[places] = [f"filter:{DUPLICATES[kind]}" for kind in duplicates["kind"].to_pylist()]
    if files.atoms is not None and not config.selection.coverage.leaks:
        atoms = storage.read_table(files.atoms.path, ["chunk_id", "leak"])
        _same_rows(name, chunk_id, atoms, "atoms")
        reason[np.asarray(atoms["leak"].is_valid())] = "filter:target_leak"
    if files.filters is not None:
        filters = storage.read_table(files.filters.path, ["chunk_id", "reason"])
        _same_rows(name, chunk_id, filters, "filters")
        found = filters["reason"].to_numpy(zero_copy_only=False)
        for row in np.flatnonzero([value is not None for value in found]):
            reason[row] = f"filter:{found[row]}"
    if files.copies is not None:
        scores = storage.read_table(files.copies.path, ["chunk_id", "quality_score", "reason"])
        _same_rows(name, chunk_id, scores, "copies")
        for row in np.flatnonzero(np.asarray(scores["reason"].is_valid())):
            late = f"filter:{scores['reason'][int(row)]}"
            reason[row] = late if late == f"filter:{FORGOTTEN}" else reason[row] or late
    index = np.flatnonzero([value is None for value in reason])
    counts = storage.read_table(indexed.path, ["chunk_id", "token_count", "reason"])
    counts = counts.filter(pa.compute.is_null(counts["reason"]))
    _same_rows(name, chunk_id, counts, "index")
    tokens = np.maximum(counts["token_count"].to_numpy().astype(np.float64), 1)
    quality = scores["quality_score"].to_numpy().astype(np.float64)
    return Candidates(name, chunk_id, reason, index, quality[index], tokens[index])


@dataclass(frozen=True)
class CandidateGroup:
    """The candidates of consecutive shards as paths of files, small enough to send to a worker that reads them."""

    vectors: tuple[str, ...]  # of the embeddings, or of the index where documents have no vectors
    facts: Handed  # quality, tokens, groups_<column>; index: places in the embeddings; ends: of the shards in index
    count: int
    columns: tuple[str, ...]  # names of the group columns
    words: tuple[str, ...] = ()  # paths of the atoms, where the algorithm covers words
    buckets: int = 0  # of the atoms

    def __len__(self) -> int:
        return self.count

    @property
    def quality(self) -> np.ndarray:
        """(N,) float64."""
        return self.facts.read("quality")[0]

    @property
    def tokens(self) -> np.ndarray:
        """(N,) float64, at least 1."""
        return self.facts.read("tokens")[0]

    @property
    def groups(self) -> Mapping[str, np.ndarray]:
        """Group column -> (N,) values."""
        return dict(zip(self.columns, self.facts.read(*(f"groups_{name}" for name in self.columns)), strict=True))

    def features(self, folder: str = "") -> np.ndarray:
        """(N, d), read one shard at a time: in memory, or of a folder in a file there if they are large.

        :raises InputError: shards whose features differ in width.
        """
        index, ends = self.facts.read("index", "ends")
        gathered: np.ndarray | None = None
        start = 0
        for path, at in zip(self.vectors, np.split(index, ends[:-1]), strict=True):
            if not len(at):
                continue
            rows = read_vectors(path)[at]
            if gathered is None:
                shape = (self.count, rows.shape[1])
                large = bool(folder) and 2 * shape[0] * shape[1] > IN_MEMORY_BYTES
                file = f"{folder}/features"
                gathered = storage.scratch_array(file, np.float16, shape) if large else np.empty(shape, rows.dtype)
            if rows.shape[1] != gathered.shape[1]:
                raise InputError(
                    f"features of {gathered.shape[1]} and of {rows.shape[1]} dimensions are in one corpus; "
                    "embed all shards with one encoder"
                )
            gathered[start : start + len(rows)] = rows
            start += len(rows)
        assert gathered is not None, "a group without candidates has no features"
        return gathered

    def ngrams(self) -> csr_array:
        """(N, buckets) counts of hashed n-grams."""
        index, ends = self.facts.read("index", "ends")
        places = zip(self.words, np.split(index, ends[:-1]), strict=True)
        return csr_array(vstack([read_ngrams(path, at, self.buckets) for path, at in places], format="csr"))


def gather_pool(group: CandidateGroup, settings: ResolvedSelect, folder: str) -> Pool:
    """The pool of a group's candidates. folder: for features that do not fit into memory.

    :raises InputError: there is no candidate, features differ in width, or as `Pool`.
    """
    if not len(group):
        raise InputError("no document is left to select from; loosen the filters")
    features, words, target = group.features(folder), None, None
    tell_share(0.25)
    if reads_words(settings):
        words, texts = group.ngrams(), target_of(settings)
        target = None if texts is None else texts.counts(settings.coverage.buckets)
    device = pick_device(settings.device)
    return Pool(features, group.quality, group.tokens, group.groups, device=device, ngrams=words, target=target)


def gather_candidates(state: Any, item: tuple[int, Sequence[ShardFiles]]) -> CandidateGroup:
    """The candidates of a group of shards, given with the group's number. A map of a round: see `datamask.maps`.

    :param state: has the `config`, and the `folder` of the rounds.
    :raises ConservationError, InputError: see `read_candidates`.
    """
    number, shards = item
    read = (read_candidates(files, state.config) for files in shards)
    return group_of(shards, read, state.config, state.folder, f"candidates-{number}")


def group_of(
    shards: Sequence[ShardFiles], read: Iterable[Candidates], config: Config, folder: str | None = None, name: str = ""
) -> CandidateGroup:
    """The candidates of some shards as a group: handed on in this folder by this name, or held. read: theirs, one shard
    after the other."""
    paths = tuple(vectors_path(files, config) for files in shards)
    words = tuple(files.atoms.path for files in shards if files.atoms)
    columns, buckets = pool_columns(config.selection), config.select.coverage.buckets
    found = handed(folder, name)
    if found is None:
        every = list(read)
        arrays = {
            name: np.concatenate([getattr(each, name) for each in every]) for name in ("quality", "tokens", "index")
        }
        groups = [_groups(files, config, each) for files, each in zip(shards, every, strict=True)]
        arrays |= {f"groups_{column}": np.concatenate([own[column] for own in groups]) for column in columns}
        found = hand_on(folder, name, **arrays, ends=np.cumsum([len(each) for each in every]))
    return CandidateGroup(paths, found, int(found.read("ends")[0][-1]), columns, words, buckets)


def vectors_path(files: ShardFiles, config: Config) -> str:
    """The file that `read_vectors` reads.

    :raises InputError: the settings read vectors, and the shard is not embedded.
    """
    if config.selection.reads_vectors:
        if files.embeddings is None:
            raise InputError(f"shard {files.shard.name} is not embedded, and {config.selection.metric} reads vectors")
        return files.embeddings.path
    return required(files.index).path


def duplicate_ids(chunk_id: np.ndarray) -> np.ndarray:
    """The values that occur more than once, ascending."""
    values, counts = np.unique(chunk_id, return_counts=True)
    return values[counts > 1]


def _groups(files: ShardFiles, config: Config, own: Candidates) -> dict[str, np.ndarray]:
    asked, found = pool_columns(config.selection), {}
    if files.copies and (counted := [name for name in asked if name in COPY_COLUMNS]):
        table = storage.read_table(files.copies.path, counted)
        found = {name: table[name].to_numpy().astype(str)[own.index] for name in counted}
    columns = [name for name in asked if name not in found]
    if not columns:
        return found
    known = {*shard_schema(files.shard, config).names, *INDEX_COLUMNS, *([TOPIC] if files.topics else [])}
    there = [column for column in columns if column in known]
    nothing = np.full(len(own), "", dtype=str)  # a column that only other shards have counts as null here
    batches: Sequence[pa.RecordBatch] = list(read_documents(files, config, there)) if there else []
    if not batches:
        return found | dict.fromkeys(columns, nothing)
    table = pa.Table.from_batches(batches)
    _same_rows(own.shard, own.chunk_id, table, "corpus shard")
    filled = {name: pa.compute.fill_null(texts_of(table[name]), "") for name in there}
    values = {name: column.to_numpy(zero_copy_only=False).astype(str)[own.index] for name, column in filled.items()}
    return found | {name: values.get(name, nothing) for name in columns}


def _sorted_ids(table: pa.Table, where: str) -> np.ndarray:
    chunk_id = table["chunk_id"].to_numpy()
    if (np.diff(chunk_id) <= 0).any():
        found = duplicate_ids(chunk_id)
        what = f"chunk_id {found[0]} occurs more than once" if len(found) else "chunk_ids are not ascending"
        raise InputError(f"{where}: {what}; remove the file and embed the shard again")
    return chunk_id


def _same_rows(shard: str, chunk_id: np.ndarray, table: pa.Table, what: str) -> None:
    if not np.array_equal(chunk_id, table["chunk_id"].to_numpy()):
        raise ConservationError(f"shard {shard}: {len(chunk_id)} embeddings and {table.num_rows} rows of {what} differ")


# ---------------------------------------------------------------- a user's own file


def read_pool(
    url: str, settings: ResolvedSelect, weights: Mapping[str, float] = {"quality_score": 1.0}
) -> tuple[pa.ChunkedArray, Pool]:
    """The column chunk_id, and the pool, of the columns that the settings need. weights: of the columns of quality.

    :raises InputError: no such file, not parquet, no rows, a column is missing or not numbers, a chunk_id comes twice,
        features of two widths, or as `Pool`.
    """
    columns, device = pool_columns(settings), pick_device(settings.device)
    needs_tokens = settings.in_tokens or settings.length_tolerance is not None
    wanted = ["chunk_id", "feature_arr", *weights, *([TOKENS] if needs_tokens else []), *columns]
    table = _read(url, list(dict.fromkeys(wanted)))
    if not table.num_rows:
        raise InputError(f"{url} has no rows")
    repeated = duplicate_ids(table["chunk_id"].to_numpy())
    if len(repeated):
        raise InputError(
            f"{url}: {len(repeated)} chunk_id occur more than once ({some(repeated, 5)}); each document needs its own"
        )
    features, quality = read_features(table, url), np.stack([_numbers(table, name, url) for name in weights], axis=1)
    tokens = _numbers(table, TOKENS, url) if needs_tokens else None
    groups = {name: texts_of(table[name]).fill_null("").to_numpy() for name in columns}
    return table["chunk_id"], Pool(features, quality, tokens, groups, tuple(weights.values()), device=device)


def write_mask(url: str, chunk_id: pa.ChunkedArray, selection: Selection, facts: dict[str, Any]) -> None:
    """Publishes chunk_id, selected, probability, and repeat where documents may be repeated, in the input's order.

    facts: for the file's metadata.
    """
    fields = [("chunk_id", chunk_id.type), ("selected", pa.bool_()), ("probability", pa.float32())]
    table = pa.table([chunk_id, selection.selected, selection.probability], schema=pa.schema(fields))
    if selection.repeat is not None:
        table = table.append_column("repeat", pa.array(selection.repeat))
    storage.write_output(url, storage.key("select", facts), table.schema, [table], lambda: facts)


def columns_of(url: str) -> list[str]:
    """The names of the file's columns.

    :raises InputError: no such file, or not parquet.
    """
    with _opened(url) as file:
        return list(file.schema_arrow.names)


def _read(url: str, wanted: list[str]) -> pa.Table:
    with _opened(url) as file:
        columns = file.schema_arrow.names
        missing = [name for name in wanted if name not in columns]
        if not missing:
            return file.read(columns=wanted)
    name = missing[0]
    raise InputError(f"{url} has no column {name}{nearest(name, columns)} (found: {', '.join(columns)})")


@contextmanager
def _opened(url: str) -> Iterator[pa.parquet.ParquetFile]:
    try:
        with storage.open_parquet(url) as file:
            yield file
    except FileNotFoundError as error:
        raise InputError(f"no such file: {url}") from error
    except IsADirectoryError as error:
        raise InputError(
            f"{url} is a folder; --input takes one parquet file (a whole corpus: datamask curate)"
        ) from error
    except (pa.ArrowInvalid, OSError) as error:
        raise InputError(
            f"{url} is not a parquet file that can be read: {' '.join(str(error).split())[:200]}"
        ) from error


def quality_weight(item: str) -> tuple[str, float]:
    """A column of quality and its weight. item: its name, or name=weight.

    :raises ConfigError: a weight is not a number.
    """
    name, equals, weight = item.partition("=")
    try:
        return name, float(weight) if equals else 1.0
    except ValueError as error:
        raise ConfigError(f"--quality {item}: expected a column, or column=weight") from error


def _numbers(table: pa.Table, name: str, url: str) -> np.ndarray:
    column = table[name]
    if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
        raise InputError(f"{url}: column {name} is {column.type}; it must hold numbers")
    if column.null_count:
        first = int(np.flatnonzero(column.is_null().to_numpy())[0])
        raise InputError(
            f"{url}: {column.null_count} rows have no {name} (the first: row {first}); score them or leave them out"
        )
    return column.to_numpy().astype(np.float64)
