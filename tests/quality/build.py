"""Small scored corpora on disk."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask import storage
from datamask.config import Config, validate
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import index_shard
from datamask.corpus.shards import plan_shards
from datamask.quality import prepare_quality, score_shard
from datamask.stages import ShardFiles


@dataclass(frozen=True)
class Encoder:
    """What scoring asks of an Any."""

    kind: str = "column"
    name: str = "vector"
    fingerprint: str = "vectors"
    dimensions: int = 8
    quality_head: str | None = None


ENCODER = Encoder()


def corpus(folder: Path, records: Sequence[dict[str, Any]], name: str = "part.parquet") -> Path:
    """A parquet file of the records."""
    folder.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(list(records)), folder / name, row_group_size=50)
    return folder / name


def configure(path: Path, **quality: Any) -> Config:
    return validate({"corpus": {"input": [str(path)], "group_bytes": 0}, "quality": quality})


def shards(config: Config, work: str, encoder: Any = ENCODER) -> list[ShardFiles]:
    """Planned, converted and indexed; shards that bring vectors have embeddings too."""
    found = []
    for shard in plan_shards(config.corpus, work).shards:
        shard = convert_shard(shard, config, work)
        files = ShardFiles(shard, index=index_shard(shard, encoder, config, work))
        found.append(files)
    return found


def embed(files: ShardFiles, work: str, vectors: np.ndarray, encoder_scores: np.ndarray | None = None) -> ShardFiles:
    """With an embeddings file of the given rows for the documents out of quarantine."""
    index = storage.read_table(files.index.path, ["chunk_id", "reason"])
    ids = index.filter(index["reason"].is_null())["chunk_id"]
    flat = pa.array(vectors.astype(np.float16).ravel(), pa.float16())
    table = pa.table(
        {"chunk_id": ids, "feature_arr": pa.FixedSizeListArray.from_arrays(flat, vectors.shape[1])}
        | ({} if encoder_scores is None else {"encoder_score": pa.array(encoder_scores, pa.float32())})
    )
    key = storage.key("test", vectors.tolist(), None if encoder_scores is None else encoder_scores.tolist())
    url = storage.join(work, "embeddings", f"{files.shard.name}-{key}.parquet")
    return replace(files, embeddings=storage.write_output(url, key, table.schema, [table]))


def scored(config: Config, work: str, files: Sequence[ShardFiles], encoder: Any = ENCODER) -> list[ShardFiles]:
    quality = prepare_quality([one.shard for one in files], encoder, config, work)
    return [replace(one, scores=score_shard(one, quality, encoder, config, work)) for one in files]


def table(files: Sequence[ShardFiles]) -> pa.Table:
    return pa.concat_tables([storage.read_table(one.scores.path) for one in files])
