"""Rows of shards, streamed: under our column names, each with its chunk_id, whatever the files look like.

for batch in read_batches(shard, config, columns=["text", "url"]):
    batch["chunk_id"], batch["text"]
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import lru_cache
from hashlib import blake2b
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask.config import Config
from datamask.corpus.columns import (
    FINEWEB,
    RESTATED,
    Column,
    complete,
    recognise,
    shown_names,
    spelled,
    union_schema,
    with_fields,
    with_values,
)
from datamask.corpus.held_text import HELD_TEXT
from datamask.corpus.plan import Part, Shard
from datamask.corpus.project import EXTRA, project
from datamask.corpus.streams import damage
from datamask.errors import ConservationError, InputError, nearest, several, some
from datamask.stages import ShardFiles
from datamask.storage import METADATA_KEY, open_parquet, read_table

CHUNK_ID = pa.field("chunk_id", pa.int64())
# the file beside a shard (`identify`): a row per row
BESIDE = pa.schema([CHUNK_ID, *(FINEWEB.field(name) for name in ("language", "language_score"))])
BATCH_ROWS = 1000
BATCH_BYTES = 64 << 20  # of a batch, on average over its row group: rows may be long
INDEX_COLUMNS = ("id", "token_count", "characters")  # see index_columns
TOPIC = "topic"  # of the topics file, where there is one
SAMPLE_FACTOR = 50  # sample_texts looks at so many times the rows it returns, at least SAMPLE_ROWS
SAMPLE_ROWS = 500_000
FOOTERS = 16  # opened at a time
SCHEMAS = 50_000  # of files that this process remembers


def shard_schema(shard: Shard, config: Config) -> pa.Schema:
    """The shard's columns under our names, without chunk_id: FineWeb's first, then the others.

    :raises InputError: see `columns.recognise` and `columns.union_schema`.
    """
    return corpus_schema([shard], config)


def corpus_schema(shards: Sequence[Shard], config: Config) -> pa.Schema:
    """The columns of all (converted) shards: what a release's files have in common.

    :raises InputError: a column's types exclude each other.
    """
    parts = [(shard, part) for shard in sorted(shards, key=lambda shard: shard.name) for part in shard.parts]
    with ThreadPoolExecutor(min(FOOTERS, len(parts) or 1), thread_name_prefix="footers") as pool:
        schemas = list(pool.map(lambda each: (_users_file(*each), _part_schema(each[1], config)), parts))
    beside = [(shard.beside.path, BESIDE.remove(0)) for shard in shards if shard.beside]
    return complete(union_schema([*schemas, *beside[:1]]))


def _users_file(shard: Shard, part: Part) -> str:
    if not shard.converted_from:
        return part.path
    others = len(shard.converted_from) - 1
    return shard.converted_from[0].path + (f" (or {several(others, 'file')} read with it)" if others else "")


def check_columns(shards: Sequence[Shard], config: Config) -> None:
    """Whether every column that corpus.columns names is in a file of the corpus (converted shards).

    :raises InputError: one is in none; names the columns that are there.
    """
    lacking = {name: theirs for name, theirs in config.corpus.columns.items() if name not in config.corpus.drop}
    there: dict[str, None] = {}
    for shard in shards:
        for own in shard_schema(shard, config).names:
            lacking.pop(own, None)
        for part in shard.converted_from or shard.parts if lacking else ():
            names = shard_schema(shard, config)  # a column that is not renamed is called as in the file
            if part.format == "parquet":
                with damage(part.path), open_parquet(part.path) as file:
                    names = file.schema_arrow
            there |= dict.fromkeys(spelled(names))
    for name, theirs in lacking.items():
        raise InputError(
            f"corpus.columns.{name}: no file has a column {theirs!r}{nearest(theirs, there)} "
            f"(columns there are: {shown_names(list(there))})"
        )


def read_batches(
    shard: Shard,
    config: Config,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    schema: pa.Schema | None = None,
    only: np.ndarray | None = None,
) -> Iterator[pa.RecordBatch]:
    """The rows of a (converted) shard in order: chunk_id first, then `columns`.

    :param columns: our names; None: all of `schema`. One of FineWeb's that the files lack is null. `_reason` and
        `_excerpt` (why a row is no document, where reading tells) may be asked for too.
    :param batch_rows: greatest number of rows of a batch; fewer where rows are long.
    :param schema: of `corpus_schema`, to have the same columns and types for every shard; None: the shard's own.
    :param only: bool[rows of the shard]; row groups without a true one are not read.
    :raises InputError: a file is damaged, or has no such column; names it.
    """
    schema = schema or shard_schema(shard, config)
    wanted = _wanted(schema, columns, shard)
    if shard.beside and {*BESIDE.names[1:]} & {*wanted.names}:
        alone = replace(shard, beside=None)
        yield from _with_beside(read_batches(alone, config, columns, batch_rows, schema, only), shard)
        return
    first = 0
    for part in shard.parts:
        with damage(part.path), open_parquet(part.path) as file:
            known = _columns_of(file, part, config.corpus.columns, config.corpus.drop)
            sources = _sources(file, part, known, wanted)
            for group in _row_groups(file, part):
                rows = file.metadata.row_group(group).num_rows
                if only is None or only[first : first + rows].any():
                    at = first
                    for batch in _group_batches(file, part, group, known, sources, batch_rows):
                        yield _numbered(with_values(batch, part), at, known, wanted)
                        at += batch.num_rows
                first += rows


def _with_beside(batches: Iterator[pa.RecordBatch], shard: Shard) -> Iterator[pa.RecordBatch]:
    assert shard.beside is not None
    table = read_table(shard.beside.path, BESIDE.names[1:])
    for batch in batches:
        own = table.slice(batch["chunk_id"][0].as_py() if batch.num_rows else 0, batch.num_rows)
        for name in table.column_names:
            if (place := batch.schema.get_field_index(name)) >= 0:
                batch = batch.set_column(place, batch.schema.field(place), own[name].combine_chunks())
        yield batch


def index_columns(schema: pa.Schema) -> list[str]:
    """The columns of documents that are the index's: a corpus's own column characters goes before ours.

    :param schema: of the corpus.
    """
    return [name for name in INDEX_COLUMNS if name != "characters" or name not in schema.names]


def read_documents(
    files: ShardFiles,
    config: Config,
    columns: Sequence[str] | None = None,
    batch_rows: int = BATCH_ROWS,
    schema: pa.Schema | None = None,
) -> Iterator[pa.RecordBatch]:
    """`read_batches` without the rows in quarantine; `index_columns` are the index's, and the topic is the topics
    file's, where there is one.

    :raises InputError: index and shard differ in rows, or see `read_batches`.
    """
    if files.index is None:
        raise ValueError(f"shard {files.shard.name} has no index yet")
    schema = schema or shard_schema(files.shard, config)
    names = list(columns) if columns is not None else list(dict.fromkeys([*schema.names, "id", "token_count"]))
    ours = [*index_columns(schema), *([TOPIC] if files.topics else [])]
    indexed = [name for name in names if name in ours]
    index = read_table(files.index.path, ["chunk_id", "reason", *(name for name in indexed if name != TOPIC)])
    good = np.asarray(index["reason"].is_null())
    if TOPIC in indexed:
        index = index.append_column(TOPIC, read_topics(files, good))
    read = [name for name in names if name not in ours]
    if not read:
        documents = index.filter(pa.array(good)).select(["chunk_id", *names])
        yield from documents.combine_chunks().to_batches(batch_rows)
        return
    first = 0
    for batch in read_batches(files.shard, config, read, batch_rows, schema):
        rows = batch.num_rows
        kept = pa.array(good[first : first + rows])
        if len(kept) < rows:
            break
        own = index.slice(first, rows).select(indexed).combine_chunks()
        first += rows
        arrays = [own[name].combine_chunks() if name in indexed else batch[name] for name in ["chunk_id", *names]]
        documents = pa.RecordBatch.from_arrays(arrays, names=["chunk_id", *names]).filter(kept)
        if documents.num_rows:
            yield documents
    else:
        if first == len(good):
            return
    raise index_differs(files.shard, len(good))


def index_differs(shard: Shard, rows: int) -> InputError:
    """The error of a shard that was changed after so many rows of it were indexed."""
    return InputError(
        f"shard {shard.name}: {several(rows, 'row')} of it were indexed, and there are others now: a file of it was "
        f"changed meanwhile ({some([part.path for part in shard.parts], 3)}); run again, when nobody writes there"
    )


def read_topics(files: ShardFiles, good: np.ndarray) -> pa.ChunkedArray:
    """(rows,) topics of a shard's rows, null of those that are no documents.

    :param good: bool[rows of the shard], which are documents.
    :raises ConservationError: topics and index differ in rows.
    """
    assert files.topics is not None
    topics = read_table(files.topics.path, [TOPIC])[TOPIC]
    if len(topics) != good.sum():
        raise ConservationError(
            f"shard {files.shard.name}: {good.sum()} documents in its index, {len(topics)} topics; remove the topics"
        )
    return scattered(topics, good)


def scattered(values: pa.Array | pa.ChunkedArray, where: np.ndarray) -> pa.Array | pa.ChunkedArray:
    """(rows,) the values at the rows where it is true, null at the others."""
    return values.take(pa.array(np.cumsum(where) - 1, mask=~where))


def sample_texts(shards: Sequence[Shard], config: Config, documents: int, seed: int) -> list[str]:
    """The texts of about `documents` rows (fewer if there are fewer), none empty, chosen by a hash of the text.

    The choice depends on the texts and the seed, not on the order, number or names of shards. Of a corpus with more
    than SAMPLE_FACTOR · documents rows, so many are looked at (`sample_rows`).
    """
    salt = seed.to_bytes(8, "little", signed=True)
    batches = sample_rows(shards, config, ["text"], max(SAMPLE_ROWS, SAMPLE_FACTOR * documents), salt)
    texts = (text for batch in batches for text in batch["text"].to_pylist() if text and not text.isspace())
    hashed = ((blake2b(text.encode(), digest_size=8, salt=salt).digest(), text) for text in texts)
    return [text for _, text in heapq.nsmallest(documents, hashed)]


def sample_rows(
    shards: Sequence[Shard], config: Config, columns: Sequence[str], rows: int, salt: bytes = b""
) -> Iterator[pa.RecordBatch]:
    """`read_batches` of about so many rows, from everywhere in the corpus: of row groups in the order of a hash of
    (file's content, number). Of a corpus with no more rows all of them."""
    groups = []
    with ThreadPoolExecutor(FOOTERS, thread_name_prefix="footers") as pool:
        for shard, sizes in [(shard, pool.map(_sizes_of_groups, shard.parts)) for shard in shards]:
            first = 0
            for part, found in zip(shard.parts, sizes, strict=True):
                for group, size in found.items():
                    digest = blake2b(f"{part.fingerprint}/{group}".encode(), digest_size=8, salt=salt).digest()
                    groups.append((digest, shard, slice(first, first + size)))
                    first += size
    chosen: dict[str, tuple[Shard, list[slice]]] = {}
    for _, shard, place in sorted(groups, key=lambda group: group[0]):
        if rows <= 0:
            break
        chosen.setdefault(shard.name, (shard, []))[1].append(place)
        rows -= place.stop - place.start
    for shard, places in chosen.values():
        only = np.zeros(max(place.stop for place in places), bool)
        for place in places:
            only[place] = True
        yield from read_batches(shard, config, columns, only=only)


@lru_cache(SCHEMAS)
def _sizes_of_groups(part: Part) -> Mapping[int, int]:
    """The rows of each row group of a part, by its number in the file."""
    with damage(part.path), open_parquet(part.path) as file:
        return {group: file.metadata.row_group(group).num_rows for group in _row_groups(file, part)}


# ---------------------------------------------------------------- some rows


def rows_at(shard: Shard, config: Config, chunk_ids: np.ndarray, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Some rows of a corpus shard, in its order: chunk_id, then these columns. Row groups with none are not read."""
    only = np.zeros(int(max(chunk_ids, default=-1)) + 1, bool)
    only[chunk_ids] = True
    for batch in read_batches(shard, config, names, only=only):
        if (kept := np.isin(batch["chunk_id"].to_numpy(), chunk_ids)).any():
            yield batch.filter(pa.array(kept))


def documents_at(
    shards: Iterable[Shard], config: Config, places: Iterable[tuple[str, int]], names: Sequence[str]
) -> dict[tuple[str, int], dict[str, Any]]:
    """Those of the columns that a shard has, of rows by place: a shard's name and a chunk_id. Other places are left
    out."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for name, chunk_id in places:
        wanted[name].add(chunk_id)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for shard in shards:
        if ids := sorted(wanted[shard.name]):
            schema = shard_schema(shard, config)
            present = [name for name in names if name in schema.names]
            for batch in rows_at(shard, config, np.array(ids, np.int64), present):
                found |= {(shard.name, row.pop("chunk_id")): row for row in batch.to_pylist()}
    return found


def corpus_columns(shard: Shard, config: Config, names: Sequence[str]) -> pa.Table:
    """All rows of those of the columns that the shard has, in order."""
    schema = shard_schema(shard, config)
    present = [name for name in names if name in schema.names]
    if not present:
        return pa.table({})
    return pa.Table.from_batches(list(read_batches(shard, config, present, schema=schema))).select(present)


# ---------------------------------------------------------------- a file


def _numbered(batch: pa.RecordBatch, first: int, known: Sequence[Column], wanted: pa.Schema) -> pa.RecordBatch:
    names = {*batch.schema.names} - {column.path[0] for column in known}
    own = [batch.column(field.name) if field.name in names else None for field in EXTRA]
    projected = project(batch, known, wanted, *own)
    ids = pa.array(np.arange(first, first + batch.num_rows, dtype=np.int64))
    return pa.RecordBatch.from_arrays([ids, *projected.columns], schema=pa.schema([CHUNK_ID, *wanted]))


def _columns_of(file: pq.ParquetFile, part: Part, mapping: Mapping[str, str], drop: Sequence[str]) -> list[Column]:
    """The columns of a corpus file, or of one that `convert_shard` wrote (already under our names)."""
    schema = with_fields(_schema(file), part)
    if METADATA_KEY in (schema.metadata or {}):
        return [
            Column(field.name, (field.name,), field.type, (field.metadata or {}).get(RESTATED, b""))
            for field in schema
            if field not in EXTRA
        ]
    return recognise(schema, mapping, part.path, drop)


def _row_groups(file: pq.ParquetFile, part: Part) -> range:
    return range(*(part.row_groups or (0, file.metadata.num_row_groups)))


def _schema(file: pq.ParquetFile) -> pa.Schema:
    """The arrow schema; its metadata tells whether datamask converted the file (the footer's, added at its end)."""
    stored = (file.metadata.metadata or {}).get(METADATA_KEY)
    schema = file.schema_arrow
    ours = stored is not None and all(field.name in schema.names for field in EXTRA)
    return schema.with_metadata({METADATA_KEY: stored} if ours else None)


def _part_schema(part: Part, config: Config) -> pa.Schema:
    """Of a file's footer, which is opened once in this process: a corpus of many files is asked for often."""
    whole = replace(part, bytes=0, row_groups=None, rows=None)
    return _file_schema(whole, tuple(sorted(config.corpus.columns.items())), tuple(config.corpus.drop))


@lru_cache(SCHEMAS)
def _file_schema(part: Part, columns: tuple[tuple[str, str], ...], drop: tuple[str, ...]) -> pa.Schema:
    with damage(part.path), open_parquet(part.path) as file:
        return pa.schema([column.field for column in _columns_of(file, part, dict(columns), drop)])


def _wanted(schema: pa.Schema, columns: Sequence[str] | None, shard: Shard) -> pa.Schema:
    fields = {field.name: field for field in (*EXTRA, *FINEWEB, *schema)}
    names = [name for name in (schema.names if columns is None else columns) if name != CHUNK_ID.name]
    for name in names:
        if name not in fields:
            raise InputError(
                f"{shard.parts[0].path}: no column {name!r}{nearest(name, schema.names)} "
                f"(columns there are: {', '.join(schema.names)})"
            )
    return pa.schema([fields[name] for name in names])


def _sources(file: pq.ParquetFile, part: Part, known: Sequence[Column], wanted: pa.Schema) -> list[str]:
    """The file's own names of the wanted columns; text too when `_reason` is asked for."""
    names = {*wanted.names, *(["text"] if "_reason" in wanted.names or "_excerpt" in wanted.names else [])}
    extra = [field.name for field in EXTRA if METADATA_KEY in (_schema(file).metadata or {})]
    given = {name for name, _ in part.read_as.folders}
    own = (".".join(column.path) for column in known if column.name in names and column.path[0] not in given)
    return list(dict.fromkeys([*own, *extra]))


def _group_batches(
    file: pq.ParquetFile, part: Part, group: int, known: Sequence[Column], sources: list[str], rows: int
) -> Iterator[pa.RecordBatch]:
    """`_batches`, where the text may come from what the run holds."""
    held, metadata, schema = HELD_TEXT.get(), file.metadata.row_group(group), file.schema_arrow
    name = next((column.path[0] for column in known if column.name == "text" and len(column.path) == 1), "")
    place, text = schema.get_field_index(name), None
    if held and metadata.num_rows and name in sources and place >= 0 and pa.types.is_string(schema.field(place).type):
        leaf = next(number for number, column in enumerate(file.schema) if column.path == name)
        size = metadata.column(leaf).total_uncompressed_size
        parts = (batch.column(0) for batch in _batches(file, group, [name], rows))
        text = held.column((part.path, part.fingerprint, group, name), size, parts)
    if text is None:
        yield from _batches(file, group, sources, rows)
        return
    first = 0
    for batch in _batches(file, group, [source for source in sources if source != name], rows):
        own = text.slice(first, batch.num_rows)
        if batch.num_rows < len(text):  # a copy: who looks at bytes finds a batch's own at the buffer's beginning
            own = pa.concat_arrays([own, own.slice(0, 0)])
        first += batch.num_rows
        yield pa.RecordBatch.from_arrays([*batch.columns, own], names=[*batch.schema.names, name])


def _batches(file: pq.ParquetFile, group: int, sources: list[str], rows: int) -> Iterator[pa.RecordBatch]:
    """Batches of a row group; when no column is wanted, batches that have their number of rows alone."""
    metadata = file.metadata.row_group(group)
    average = max(metadata.total_byte_size // max(metadata.num_rows, 1), 1)
    size = max(1, min(rows, BATCH_BYTES // average))
    found = 0
    for batch in file.iter_batches(size, row_groups=[group], columns=sources, use_threads=False):
        found += batch.num_rows
        yield batch
    if found != metadata.num_rows:
        raise pa.ArrowInvalid(f"{found} rows in a row group of {metadata.num_rows}")
