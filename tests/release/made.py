"""A small corpus with every stage's files, made straight from the contract, so that no other stage is needed."""

from __future__ import annotations

from dataclasses import replace
from hashlib import blake2b, sha256
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamask import storage
from datamask.config import Config, validate
from datamask.corpus.plan import Part, Shard
from datamask.filter.filters import filter_corpus
from datamask.release.publication import publish
from datamask.release.release_folder import Provenance
from datamask.release.staging import export
from datamask.stages import ShardFiles

INDEX = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("id", pa.string()),
        ("token_count", pa.int64()),
        ("characters", pa.int64()),
        ("bytes", pa.int64()),
        ("text_hash", pa.binary(16)),
        ("reason", pa.string()),
        ("excerpt", pa.string()),
    ]
)
SCORES = pa.schema(
    [("chunk_id", pa.int64()), ("rules", pa.float32()), ("rules.words", pa.float32()), ("quality_score", pa.float32())]
)
MASKS = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("selected", pa.bool_()),
        ("probability", pa.float32()),
        ("price", pa.float32()),
        ("reason", pa.string()),
    ]
)
EMBEDDINGS = pa.schema([("chunk_id", pa.int64()), ("feature_arr", pa.list_(pa.float16(), 8))])
PROVENANCE = Provenance(
    {"name": "static", "key": "e" * 16, "dimensions": 8}, {"scorers": ["rules"]}, {"gap": 0.001, "objective": 1.5}
)


def documents(
    rows: int, seed: int = 0, dumps: tuple[str | None, ...] = ("CC-MAIN-2020-05", "CC-MAIN-2021-04", None)
) -> pa.Table:
    """FineWeb's columns and a nested one; some texts twice, some null or empty, some with odd characters."""
    rng = np.random.default_rng(seed)
    words = ["river", "stone", "naïve", "北京", "data", "mask", '"quoted"', "emoji 🎭", "tab\there", "new\nline"]
    texts: list[str | None] = [" ".join(rng.choice(words, int(rng.integers(1, 60)))) for _ in range(rows)]
    for row in range(0, rows, 7):
        texts[row] = texts[(row + 3) % rows]
    for row, text in ((5, None), (11, ""), (23, "   ")):
        if row < rows:
            texts[row] = text
    names = [dumps[int(n)] for n in rng.integers(0, len(dumps), rows)]
    return pa.table(
        {
            "text": pa.array(texts, pa.string()),
            "id": pa.array([f"doc-{seed}-{row}" if row % 5 else None for row in range(rows)]),
            "dump": pa.array(names, pa.string()),
            "url": pa.array([f"https://example.org/{seed}/{row}" for row in range(rows)]),
            "language": pa.array([("en", "fr", "zh", None)[int(n)] for n in rng.integers(0, 4, rows)]),
            "token_count": pa.array(
                [len((text or "").split()) if row % 3 else None for row, text in enumerate(texts)], pa.int64()
            ),
            "meta": pa.array([{"tags": ["a", f"t{row}"], "n": row} for row in range(rows)]),
        }
    )


def make_shard(folder: Path, name: str, table: pa.Table, row_groups: int = 64) -> ShardFiles:
    """The corpus file, and index, scores and embeddings as the stages write them."""
    path = folder / "input" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=row_groups)
    fingerprint = storage.fingerprint(str(path))
    part = Part(str(path), "parquet", fingerprint, path.stat().st_size, None, table.num_rows)
    files = ShardFiles(Shard(name, (part,), fingerprint))
    work = str(folder / "out" / "work")
    texts = table["text"].to_pylist()
    given = table["token_count"].to_pylist() if "token_count" in table.column_names else [None] * len(texts)
    ids = table["id"].to_pylist() if "id" in table.column_names else [None] * len(texts)
    index = []
    for row, text in enumerate(texts):
        reason = "null_text" if text is None else "empty_text" if not text.strip() else None
        index.append(
            {
                "chunk_id": row,
                "id": ids[row] or f"{name}/{row:06d}",
                "token_count": None if reason else (given[row] if given[row] is not None else len(text.split())),
                "characters": None if reason else len(text),
                "bytes": None if reason else len(text.encode()),
                "text_hash": None
                if reason
                else blake2b(" ".join(text.lower().split()).encode(), digest_size=16).digest(),
                "reason": reason,
                "excerpt": text[:20] if reason and text else None,
            }
        )
    good = [row for row in index if row["reason"] is None]
    rng = np.random.default_rng(int(fingerprint[:8], 16))
    scores = rng.random(len(good)).round(1)
    vectors = rng.standard_normal((len(good), 8))
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    tables = {
        "index": pa.Table.from_pylist(index, INDEX),
        "scores": pa.table(
            [
                [row["chunk_id"] for row in good],
                scores.astype(np.float32),
                np.array([row["token_count"] for row in good], np.float32),
                scores.astype(np.float32),
            ],
            schema=SCORES,
        ),
        "embeddings": pa.table(
            [
                [row["chunk_id"] for row in good],
                pa.FixedSizeListArray.from_arrays(pa.array(vectors.astype(np.float16).reshape(-1)), 8),
            ],
            schema=EMBEDDINGS,
        ),
    }
    for stage, content in tables.items():
        key = storage.key(stage, fingerprint, name)
        url = storage.join(work, stage, f"{name}-{key}.parquet")
        files = replace(files, **{stage: storage.write_output(url, key, content.schema, [content])})
    return files


def make_masks(files: ShardFiles, folder: Path, share: float = 0.5, seed: int = 0, filters: bool = True) -> ShardFiles:
    """Selects `share` of what the filters passed, at random."""
    scores = storage.read_table(files.scores.path)
    reasons = (
        storage.read_table(files.filters.path)["reason"]
        if filters and files.filters
        else pa.nulls(scores.num_rows, pa.string())
    )
    passed = pc.is_null(reasons).to_numpy(zero_copy_only=False)
    drawn = np.random.default_rng([seed, scores.num_rows]).random(scores.num_rows)
    selected = passed & (drawn < share)
    named = [
        None if s else "not_selected" if r is None else f"filter:{r}"
        for s, r in zip(selected, reasons.to_pylist(), strict=True)
    ]
    table = pa.table(
        [
            scores["chunk_id"],
            selected,
            np.where(selected, 1.0, 0.0).astype(np.float32),
            (drawn - 0.5).astype(np.float32),
            pa.array(named, pa.string()),
        ],
        schema=MASKS,
    )
    key = storage.key("mask", files.scores.key, files.filters.key if files.filters else None, share, seed)
    url = storage.join(str(folder / "out" / "work"), "masks", f"{files.shard.name}-{key}.parquet")
    return replace(files, masks=storage.write_output(url, key, MASKS, [table]))


def digests(folder: str | Path, skip: tuple[str, ...] = ()) -> dict[str, str]:
    """sha256 of the folder's files by their path in it."""
    files = sorted(path for path in Path(folder).rglob("*") if path.is_file() and path.name not in skip)
    return {path.relative_to(folder).as_posix(): sha256(path.read_bytes()).hexdigest() for path in files}


def make_corpus(folder: Path, rows: tuple[int, ...] = (150, 90, 200), **settings) -> list[ShardFiles]:
    tables = [documents(count, seed, **settings) for seed, count in enumerate(rows)]
    return [make_shard(folder, f"s{number}", table) for number, table in enumerate(tables)]


def settings(**sections) -> Config:
    return validate(sections)


def staged(
    folder: Path,
    config: Config = Config(),
    files: list[ShardFiles] | None = None,
    share: float = 0.5,
    provenance=PROVENANCE,
):
    """Filters, masks and export of a corpus made for it."""
    out = str(folder / "out")
    files = files or make_corpus(folder)
    filters = filter_corpus(files, config, f"{out}/work")
    files = [make_masks(replace(f, filters=o), folder, share) for f, o in zip(files, filters, strict=True)]
    return files, export(files, config, out, provenance)


def released(folder: Path, config: Config = Config(), files: list[ShardFiles] | None = None, share: float = 0.5):
    files, stage = staged(folder, config, files, share)
    return files, publish(stage)
