"""Masks, filters and scores joined with the index: what became of every row read, without a word of text; and of the
rows that are no documents where they stand in the user's own files, why, and how they begin."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import COPY_COLUMNS, counts_copies
from datamask.corpus.columns import texts_of
from datamask.corpus.plan import Part, Shard
from datamask.corpus.read import TOPIC
from datamask.duck import tables
from datamask.errors import ConservationError
from datamask.stages import ShardFiles, required

DECISIONS = pa.schema(
    [
        ("shard", pa.string()),
        ("chunk_id", pa.int64()),
        ("id", pa.string()),
        ("outcome", pa.string()),
        ("reason", pa.string()),
        ("quality_score", pa.float32()),
        ("probability", pa.float32()),
        ("price", pa.float32()),
        ("token_count", pa.int64()),
    ]
)

TOPICS = pa.field(TOPIC, pa.string())  # where documents have vectors
REPEAT = pa.field("repeat", pa.int32())  # where documents may be taken several times
DETAIL = pa.field("detail", pa.string())  # where test items are looked for: what a document holds, as JSON
COPIES = [pa.field(name, pa.int32()) for name in COPY_COLUMNS]  # where they are counted; null in quarantine
ADDED = ([REPEAT], COPIES, [TOPICS], [DETAIL])
QUARANTINED = pa.schema(
    [
        ("shard", pa.string()),
        ("chunk_id", pa.int64()),
        ("file", pa.string()),
        ("row", pa.int64()),  # in the file, from 0; of JSON lines the line
        ("id", pa.string()),
        ("reason", pa.string()),
        ("excerpt", pa.string()),
    ]
)
LENGTH = "length"  # the column made of token counts
LENGTHS = (0, 64, 256, 1024, 4096, 16_384)  # tokens at which a bin begins
BINS = [
    f"{low:,} to {high - 1:,} tokens" if high else f"{low:,} tokens and more"
    for low, high in pairwise([*LENGTHS, None])
]
NONE = "(none)"  # null, or empty


def schema_of(settings: Mapping[str, Any], topics: bool = False) -> pa.Schema:
    """The columns of a release's decisions, by its settings as plain data, and whether it has topics."""
    select, filters = (settings.get(name) for name in ("select", "filter"))  # a manifest may hold anything
    repeat = select.get("repeat") if isinstance(select, Mapping) else None
    repeated = isinstance(repeat, int) and repeat > 1
    detailed = isinstance(filters, Mapping) and bool(filters.get("decontaminate"))
    there = zip(ADDED, (repeated, counts_copies(settings), topics, detailed), strict=True)
    return pa.schema([*DECISIONS, *chain(*(added for added, has in there if has))])


# A mask's reason `filter:<name>`: a filter before the selection; one after it takes from what is selected.
_JOIN = """
SELECT $shard AS shard, chunk_id, i.id,
  CASE WHEN i.reason IS NOT NULL THEN 'quarantined'
       WHEN starts_with(m.reason, 'filter:') OR (m.selected AND f.reason IS NOT NULL) THEN 'filtered'
       WHEN m.selected THEN 'selected'
       WHEN m.reason IS NOT NULL THEN 'not_selected' END AS outcome,
  CASE WHEN i.reason IS NOT NULL THEN i.reason
       WHEN starts_with(m.reason, 'filter:') THEN m.reason[8:]
       WHEN m.selected THEN f.reason
       ELSE nullif(m.reason, 'not_selected') END AS reason,
  s.quality_score, m.probability, m.price, i.token_count, {repeat}{copies} t.topic,
  CASE WHEN i.reason IS NULL AND f.reason IS NOT NULL AND (m.selected OR m.reason = 'filter:' || f.reason)
       THEN f.detail END AS detail, i.characters, i.bytes
FROM index_rows i LEFT JOIN mask_rows m USING (chunk_id) LEFT JOIN score_rows s USING (chunk_id)
  LEFT JOIN filter_rows f USING (chunk_id) LEFT JOIN topic_rows t USING (chunk_id)
ORDER BY chunk_id
"""
_REPEAT = "CASE WHEN m.selected AND f.reason IS NULL THEN m.repeat ELSE 0 END::INTEGER AS repeat,"


@dataclass
class Conservation:
    """Rows of a shard or of the whole corpus, by what became of them."""

    rows: int = 0
    selected: int = 0
    not_selected: int = 0
    filtered: Counter[str] = field(default_factory=Counter)
    quarantined: Counter[str] = field(default_factory=Counter)
    tokens_read: int = 0
    tokens_selected: int = 0
    characters_read: int = 0
    characters_selected: int = 0

    def add(self, other: Conservation) -> None:
        for name, value in vars(other).items():
            if isinstance(value, Counter):
                getattr(self, name).update(value)
            else:
                setattr(self, name, getattr(self, name) + value)

    def check(self, where: str) -> None:
        """:raises ConservationError: the rows do not add up."""
        parts = (self.selected, self.not_selected, self.filtered.total(), self.quarantined.total())
        if self.rows != sum(parts):
            raise ConservationError(
                f"{where}: {self.rows} rows read, but {' + '.join(map(str, parts))} = {sum(parts)} "
                "selected + not selected + filtered + quarantined"
            )

    def to_json(self) -> dict[str, Any]:
        causes = {name: dict(sorted(getattr(self, name).items())) for name in ("filtered", "quarantined")}
        return {**vars(self), **causes}


def decide(files: ShardFiles, connection: duckdb.DuckDBPyConnection) -> tuple[pa.Table, Conservation]:
    """A row per row read, by chunk_id: DECISIONS with what may be added, and characters and bytes; and their sums.

    :raises ConservationError: a row has no decision, or two, or a mask decides about a row that was not read.
    """
    name = files.shard.name
    columns = ["chunk_id", "id", "token_count", "characters", "bytes", "reason"]
    index = storage.read_table(required(files.index).path, columns)
    masks = storage.read_table(required(files.masks).path)
    counted = storage.read_table(files.copies.path) if files.copies else None
    scored = required(files.scores).path
    scores = storage.read_table(scored, ["chunk_id", "quality_score"]) if counted is None else counted
    filters, topics = (
        storage.read_table(output.path, ["chunk_id", *names])
        if output
        else pa.table({"chunk_id": pa.nulls(0, pa.int64()), **dict.fromkeys(names, pa.nulls(0, pa.string()))})
        for output, names in ((files.filters, ("reason", "detail")), (files.topics, (TOPIC,)))
    )
    copies = "".join(f"s.{name}, " for name in COPY_COLUMNS if counted is not None)
    query = _JOIN.format(repeat=_REPEAT if "repeat" in masks.column_names else "", copies=copies)
    with tables(
        connection, index_rows=index, mask_rows=masks, score_rows=scores, filter_rows=filters, topic_rows=topics
    ):
        joined = connection.sql(query, params={"shard": name}).to_arrow_table()
    documents = index["reason"].null_count
    if joined.num_rows != index.num_rows or masks.num_rows != documents:
        raise ConservationError(
            f"shard {name}: {index.num_rows} rows read, {documents} of them documents, "
            f"but {masks.num_rows} rows in its masks and {joined.num_rows} joined"
        )
    if undecided := joined["outcome"].null_count:
        raise ConservationError(f"shard {name}: {undecided} rows are neither selected nor have a reason why not")
    found = sum_decisions(joined)
    found.check(f"shard {name}")
    return joined, found


def sum_decisions(decided: pa.Table) -> Conservation:
    """The numbers of DECISIONS rows; of characters too where the table has them. What is selected counts as often as
    it is repeated in tokens and characters, once in rows."""
    outcome = decided["outcome"]
    selected = pc.equal(outcome, "selected")

    def total(column: str, of: pa.ChunkedArray | None = None) -> int:
        if column not in decided.column_names:
            return 0
        values = decided[column] if of is None else pc.if_else(of, decided[column], 0)
        if of is not None and "repeat" in decided.column_names:
            values = pc.multiply(values, decided["repeat"].cast(pa.int64()))
        return pc.sum(values).as_py() or 0

    return Conservation(
        rows=decided.num_rows,
        selected=pc.sum(selected).as_py() or 0,
        not_selected=pc.sum(pc.equal(outcome, "not_selected")).as_py() or 0,
        filtered=count_values(decided["reason"].filter(pc.equal(outcome, "filtered"))),
        quarantined=count_values(decided["reason"].filter(pc.equal(outcome, "quarantined"))),
        tokens_read=total("token_count"),
        tokens_selected=total("token_count", selected),
        characters_read=total("characters"),
        characters_selected=total("characters", selected),
    )


def count_values(values: pa.Array | pa.ChunkedArray) -> Counter[str]:
    return Counter({item["values"]: item["counts"] for item in pc.value_counts(values).to_pylist()})


# ---------------------------------------------------------------- quarantine


def quarantine_rows(files: ShardFiles) -> pa.Table:
    index = storage.read_table(required(files.index).path, ["chunk_id", "id", "reason", "excerpt"])
    rows = index.filter(pc.is_valid(index["reason"]))
    if not rows.num_rows:
        return QUARANTINED.empty_table()
    ids = rows["chunk_id"].to_numpy()
    runs = row_runs(files.shard)
    first_ids, first_rows = np.array([run.chunk_id for run in runs]), np.array([run.row for run in runs])
    place = np.searchsorted(first_ids, ids, side="right") - 1
    return pa.table(
        [
            pa.repeat(files.shard.name, len(ids)),
            rows["chunk_id"],
            pa.array([run.part.path for run in runs]).take(pa.array(place)),
            ids - first_ids[place] + first_rows[place],
            rows["id"],
            rows["reason"],
            rows["excerpt"],
        ],
        schema=QUARANTINED,
    )


@dataclass(frozen=True)
class RowRun:
    """A run of rows of one of the user's own files."""

    part: Part  # with its number of rows
    chunk_id: int  # of its first row in the shard
    row: int  # number of that row in the file


def row_runs(shard: Shard) -> list[RowRun]:
    """Where the shard's rows come from, in order; a converted file names the files it was made of."""
    found = []
    chunk_id = 0
    for part in shard.parts:
        with storage.open_parquet(part.path) as file:
            metadata = file.metadata
        groups = range(*part.row_groups) if part.row_groups else range(metadata.num_row_groups)
        before = sum(metadata.row_group(group).num_rows for group in range(groups.start))
        pieces = [(part, sum(metadata.row_group(group).num_rows for group in groups))]
        if shard.converted_from:
            stored = json.loads(metadata.metadata[storage.METADATA_KEY])
            pieces = list(zip(shard.converted_from, stored["facts"]["rows_of_parts"], strict=True))
        for piece, rows in pieces:
            found.append(RowRun(replace(piece, rows=rows), chunk_id, before))
            chunk_id += rows
    return found


# ---------------------------------------------------------------- groups of documents


def as_strings(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Values as text; null where a column's type has none (lists, structures)."""
    if pa.types.is_nested(column.type):
        return pa.chunked_array([pa.nulls(len(column), pa.string())])
    return texts_of(column)


def with_none(values: pa.Array | pa.ChunkedArray) -> pa.Array | pa.ChunkedArray:
    """Texts, and `NONE` for null and empty ones."""
    filled = pc.fill_null(values, "")
    return pc.if_else(pc.equal(filled, ""), NONE, filled)


def length_bins(tokens: pa.Array | pa.ChunkedArray) -> pa.Array:
    """The names of the bins of LENGTHS."""
    counts = np.asarray(pc.fill_null(tokens, 0))
    places = np.searchsorted(np.array(LENGTHS), counts, "right") - 1
    return pa.DictionaryArray.from_arrays(pa.array(places.clip(0), pa.int32()), pa.array(BINS)).cast(pa.string())
