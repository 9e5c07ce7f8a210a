"""Small corpora on disk for the tests."""

from __future__ import annotations

import gzip
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from datamask.config import Config, Corpus
from datamask.corpus.convert import convert_shard
from datamask.corpus.plan import Plan, Shard
from datamask.corpus.read import read_batches
from datamask.corpus.shards import plan_shards


def rows(count: int, first: int = 0) -> list[dict[str, Any]]:
    """FineWeb records with distinct texts."""
    return [
        {
            "text": f"Document number {n} speaks of {n * n}.",
            "id": f"doc-{n}",
            "dump": "D",
            "language": "en",
            "token_count": n,
        }
        for n in range(first, first + count)
    ]


def write(path: Path, records: Sequence[dict[str, Any]], row_group: int = 1000) -> Path:
    """Records as the format that the name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".parquet":
        pq.write_table(pa.Table.from_pylist(list(records)), path, row_group_size=row_group)
        return path
    data = "".join(json.dumps(record, ensure_ascii=False) + "\n" for record in records).encode()
    if path.suffix == ".gz":
        data = gzip.compress(data, mtime=0)
    if path.suffix == ".zst":
        data = zstandard.compress(data)
    path.write_bytes(data)
    return path


def plan(
    tmp_path: Path, *inputs: Path | str, previous: Plan | None = None, **settings: Any
) -> tuple[Plan, Config, str]:
    """The plan of inputs, the configuration it was made with, and the work folder."""
    corpus = Corpus(input=[str(path) for path in inputs], **settings)
    work = str(tmp_path / "work")
    return plan_shards(corpus, work, previous), Config(corpus=corpus), work


def shards(tmp_path: Path, *inputs: Path | str, **settings: Any) -> tuple[list[Shard], Config, str]:
    """The converted shards of inputs."""
    planned, config, work = plan(tmp_path, *inputs, **settings)
    return [convert_shard(shard, config, work) for shard in planned.shards], config, work


def read(
    tmp_path: Path, *inputs: Path | str, columns: list[str] | None = None, **settings: Any
) -> list[dict[str, Any]]:
    """All rows of all shards."""
    found, config, _ = shards(tmp_path, *inputs, **settings)
    return [row for shard in found for batch in read_batches(shard, config, columns) for row in batch.to_pylist()]
