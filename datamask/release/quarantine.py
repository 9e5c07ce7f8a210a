"""The rows that are no documents: where they stand in the user's own files, why, and how they begin."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.corpus.plan import Part, Shard
from datamask.stages import ShardFiles, required

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
