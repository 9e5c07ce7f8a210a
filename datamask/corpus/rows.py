"""Columns of some rows of a corpus shard, for what looks at single documents: the report and `explain`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from datamask import storage
from datamask.config import Config
from datamask.corpus.plan import Shard
from datamask.corpus.read import BESIDE, read_batches, shard_schema


def corpus_rows(
    shard: Shard, config: Config, chunk_ids: npt.NDArray[np.integer], names: Sequence[str]
) -> list[dict[str, Any]]:
    """Columns of some rows of a corpus shard, in the order asked, as far as the shard has them.

    Row groups that hold none of the rows are not read.
    """
    schema = shard_schema(shard, config)
    present = [name for name in names if name in schema.names]
    found: list[dict[str, Any]] = [{} for _ in chunk_ids]
    if not present:
        return found
    if shard.beside:
        found = corpus_rows(replace(shard, beside=None), config, chunk_ids, names)
        beside = [name for name in BESIDE.names[1:] if name in names]
        values = storage.read_table(shard.beside.path, beside).take(pa.array(chunk_ids)).to_pylist() if beside else []
        return [row | value for row, value in zip(found, values or [{}] * len(found), strict=True)]
    order = np.argsort(chunk_ids, kind="stable")
    ordered = np.asarray(chunk_ids)[order]
    first = 0
    for part in shard.parts:
        with storage.open_parquet(part.path) as file:
            sizes = [file.metadata.row_group(group).num_rows for group in range(file.num_row_groups)]
        for group in range(*(part.row_groups or (0, len(sizes)))):
            low, high = np.searchsorted(ordered, [first, first + sizes[group]])
            if high > low:
                run = replace(shard, parts=(replace(part, row_groups=(group, group + 1)),))
                batches = list(read_batches(run, config, present, schema=schema))
                table = pa.Table.from_batches(batches).select(present)
                rows = table.take(pa.array(ordered[low:high] - first)).to_pylist()
                for place, row in zip(order[low:high], rows, strict=True):
                    found[place] = row
            first += sizes[group]
    return found


def documents_at(
    shards: Iterable[Shard], config: Config, places: Iterable[tuple[str, int]], names: Sequence[str]
) -> dict[tuple[str, int], dict[str, Any]]:
    """Columns of rows of several shards, by place: a shard's name and a chunk_id; places in others are left out."""
    wanted: dict[str, set[int]] = defaultdict(set)
    for name, chunk_id in places:
        wanted[name].add(chunk_id)
    found: dict[tuple[str, int], dict[str, Any]] = {}
    for shard in shards:
        if ids := sorted(wanted[shard.name]):
            rows = corpus_rows(shard, config, np.array(ids, np.int64), names)
            found |= {(shard.name, chunk_id): row for chunk_id, row in zip(ids, rows, strict=True)}
    return found


def corpus_columns(shard: Shard, config: Config, names: Sequence[str]) -> pa.Table:
    """All rows of those of the columns that the shard has, in order."""
    schema = shard_schema(shard, config)
    present = [name for name in names if name in schema.names]
    if not present:
        return pa.table({})
    return pa.Table.from_batches(list(read_batches(shard, config, present, schema=schema))).select(present)
