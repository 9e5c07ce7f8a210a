"""A small corpus on disk with every stage's files, made by hand to the contract in docs/architecture.md."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask import storage
from datamask.config import Config, validate
from datamask.corpus.plan import Part, Shard
from datamask.selection.arrays import select
from datamask.stages import ShardFiles

DIMENSIONS = 32
HOSTILE = "</script><script>alert('x')</script><img src=http://evil.example/x onerror=alert(1)> \u202egnp.exe\x00\x07"
ROWS = (180, 170, 150)
DOMAINS = ("web", "news", "legal", "code")


def corpus(
    folder: Path, ratio: float = 0.2, metric: str = "pairwise"
) -> tuple[list[ShardFiles], Config, dict[str, Any]]:
    """(all_files, config, certificate): 500 rows in three shards, four topics; 9 quarantined, 20 too long, 30 copies.

    The first and second row of every shard have hostile texts.
    """
    generator = np.random.default_rng(3)
    config = validate({"select": {"select_ratio": ratio, "algorithm": metric, "lamb": 0.5}})
    total = sum(ROWS)
    topic = generator.integers(0, len(DOMAINS), total)
    centres = generator.normal(size=(len(DOMAINS), DIMENSIONS))
    features = centres[topic] + 0.9 * generator.normal(size=(total, DIMENSIONS))
    features[470:] = features[400:430] + 0.001 * generator.normal(size=(30, DIMENSIONS))
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    tokens = generator.lognormal(5, 1, total).astype(np.int64) + 1
    quality = np.clip(0.3 + 0.15 * topic + 0.1 * generator.normal(size=total), 0, 1).astype(np.float32)
    reason = np.array([None] * total, dtype=object)
    reason[::60] = "empty"
    outcome = np.array(["not_selected"] * total, dtype=object)
    outcome[[reason_ is not None for reason_ in reason]] = None
    outcome[5:25] = np.where([r is None for r in reason[5:25]], "filter:max_tokens", None)
    outcome[470:] = np.where([r is None for r in reason[470:]], "filter:semantic_duplicate", None)
    candidates = np.flatnonzero(outcome == "not_selected")
    chosen = select(features[candidates], quality[candidates], settings=config.select)
    outcome[candidates[chosen.selected]] = None
    price = np.full(total, -1.0, dtype=np.float32)
    price[candidates] = chosen.price
    probability = np.zeros(total, dtype=np.float32)
    probability[candidates] = chosen.probability
    all_files, first = [], 0
    for number, rows in enumerate(ROWS):
        part = slice(first, first + rows)
        good = np.array([r is None for r in reason[part]])
        ids = np.flatnonzero(good)
        path = folder / f"part-{number}.parquet"
        texts = [HOSTILE if n < 2 else f"Text {first + n} about {DOMAINS[topic[first + n]]}." for n in range(rows)]
        columns = {
            "text": texts,
            "id": [f"<b>{first + n}</b>" for n in range(rows)],
            "language": ["en" if n % 3 else "de" for n in range(rows)],
            "domain": [DOMAINS[t] for t in topic[part]],
        }
        pq.write_table(pa.table(columns), path, row_group_size=64)
        shard = Shard(
            f"part-{number}", (Part(str(path), "parquet", f"fp{number}", path.stat().st_size),), f"fp{number}"
        )
        index = {
            "chunk_id": pa.array(range(rows)),
            "id": pa.array([f"<b>{first + n}</b>" for n in range(rows)]),
            "token_count": pa.array(tokens[part]),
            "characters": pa.array(tokens[part] * 4),
            "reason": pa.array(reason[part].tolist(), pa.string()),
        }
        vectors = pa.FixedSizeListArray.from_arrays(features[part][good].astype(np.float16).ravel(), DIMENSIONS)
        scores = {
            "chunk_id": ids,
            "heuristic": quality[part][good],
            "heuristic.words": tokens[part][good].astype(np.float32),
            "quality_score": quality[part][good],
        }
        kept = outcome[part][good]
        masks = {
            "chunk_id": ids,
            "selected": np.array([r is None for r in kept]),
            "probability": probability[part][good],
            "price": price[part][good],
            "reason": pa.array(kept.tolist(), pa.string()),
        }
        all_files.append(
            ShardFiles(
                shard,
                index=write(folder, f"index-{number}", index),
                embeddings=write(folder, f"embeddings-{number}", {"chunk_id": ids, "feature_arr": vectors}),
                scores=write(folder, f"scores-{number}", scores),
                duplicates=write(folder, f"duplicates-{number}", _duplicates(kept, ids, first)),
                masks=write(folder, f"masks-{number}", masks),
            )
        )
        first += rows
    return all_files, config, chosen.facts()


def _duplicates(kept: np.ndarray, ids: np.ndarray, first: int) -> dict[str, Any]:
    """Row 470 + n of the corpus is a copy of row 400 + n, which is row 50 + n of the third shard."""
    copies = ids[[reason == "filter:semantic_duplicate" for reason in kept]]
    return {
        "chunk_id": pa.array(copies, pa.int64()),
        "duplicate_of_shard": pa.array(["part-2"] * len(copies), pa.string()),
        "duplicate_of": pa.array(50 + copies + first - 470, pa.int64()),
        "kind": pa.array(["near"] * len(copies), pa.string()),
        "similarity": pa.array([0.999] * len(copies), pa.float32()),
    }


def write(folder: Path, name: str, columns: dict[str, Any]) -> storage.Output:
    table = pa.table(columns)
    return storage.write_output(str(folder / f"{name}.parquet"), name, table.schema, [table], row_group_rows=50)
