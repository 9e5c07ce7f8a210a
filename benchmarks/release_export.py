"""Merge and export of a large corpus beside DuckDB's bare COPY of the same rows, in one run.

    python benchmarks/release_export.py --real ../shared/data/real --folder /tmp/release-export

The corpus is made once by cutting and perturbing real text (parquet files with a `text` column under --real). Each
measurement is a process of its own; its memory is the greatest resident set, and without the pages of mapped files.
`ours` is filter_corpus (exact duplicates over all shards), export (masks and scores joined, decisions and quarantine
written, text streamed into files) and publish (sha256, card, manifest, rename). DuckDB only copies.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from datamask import storage
from datamask.config import validate
from datamask.corpus.plan import Part, Shard
from datamask.filter.filters import filter_corpus
from datamask.release.publication import publish
from datamask.release.release_folder import Provenance
from datamask.release.staging import export
from datamask.stages import ShardFiles
from datamask.storage import Output

SHARD_ROWS = 100_000
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
MASKS = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("selected", pa.bool_()),
        ("probability", pa.float32()),
        ("price", pa.float32()),
        ("reason", pa.string()),
    ]
)
SCORES = pa.schema([("chunk_id", pa.int64()), ("heuristic", pa.float32()), ("quality_score", pa.float32())])


# ---------------------------------------------------------------- the corpus


def make(folder: Path, real: Path, documents: int, text_bytes: int) -> None:
    """Shards of SHARD_ROWS documents and the stages' files; a document is a slice of real text with words exchanged."""
    texts = [
        t for f in sorted(real.glob("*.parquet")) for t in pq.read_table(f, columns=["text"])["text"].to_pylist() if t
    ]
    pool = "\n".join(texts)
    words = np.array(sorted({w for t in texts[:2000] for w in t.split() if 2 < len(w) < 12})[:20_000])
    mean = text_bytes // documents
    shards = -(-documents // SHARD_ROWS)
    for number in range(shards):
        rng = np.random.default_rng(number)
        rows = min(SHARD_ROWS, documents - number * SHARD_ROWS)
        lengths = np.clip(rng.lognormal(np.log(mean) - 0.32, 0.8, rows), 100, 40 * mean).astype(int)
        starts = rng.integers(0, len(pool) - lengths.max(), rows)
        swaps = rng.choice(words, (rows, 4))
        out = []
        for start, length, (a, b, c, d) in zip(starts.tolist(), lengths.tolist(), swaps.tolist(), strict=True):
            piece = pool[start : start + length]
            third = length // 3
            out.append(f"{a} {b}. {piece[:third]} {c} {piece[third : 2 * third]} {d} {piece[2 * third :]}")
        for row in range(0, rows, 100):  # one in a hundred is a copy
            out[row] = out[(row + 37) % rows]
        write_shard(folder, number, out, rng)
        print(f"  made shard {number + 1} of {shards}", end="\r", flush=True)
    print()


def write_shard(folder: Path, number: int, texts: list[str], rng: np.random.Generator) -> None:
    name, rows = f"c{number:04d}", len(texts)
    ids = [f"<urn:uuid:{number:08x}-{row:012x}>" for row in range(rows)]
    tokens = np.array([len(t) // 5 for t in texts])
    text = pa.array(texts, pa.string())
    table = pa.table(
        {
            "text": text,
            "id": ids,
            "dump": pa.repeat(f"CC-MAIN-20{13 + number % 10}-20", rows),
            "url": [f"https://example.org/{number}/{row}" for row in range(rows)],
            "date": pa.repeat("2020-01-01T00:00:00Z", rows),
            "file_path": pa.repeat(f"s3://commoncrawl/crawl-data/{number}.warc.gz", rows),
            "language": pa.repeat("en", rows),
            "language_score": rng.random(rows),
            "token_count": tokens,
        }
    )
    path = folder / "input" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, row_group_size=10_000, compression="zstd")
    chunk = np.arange(rows)
    hashes = [hashlib.blake2b(t.encode(), digest_size=16).digest() for t in texts]
    sizes = [len(t.encode()) for t in texts]
    nulls = pa.nulls(rows, pa.string())
    lengths = [len(t) for t in texts]
    score = rng.random(rows).astype(np.float32)
    stages = {
        "index": pa.table(
            [chunk, ids, tokens, lengths, sizes, pa.array(hashes, pa.binary(16)), nulls, nulls], schema=INDEX
        ),
        "scores": pa.table([chunk, score, score], schema=SCORES),
    }
    for stage, content in stages.items():
        storage.write_output(
            str(folder / "stages" / stage / f"{name}.parquet"), f"{number:016x}", content.schema, [content]
        )


def shard_files(folder: Path, out: Path) -> list[ShardFiles]:
    found = []
    for path in sorted((folder / "input").glob("*.parquet")):
        rows = pq.read_metadata(path).num_rows
        part = Part(str(path), "parquet", path.stem, path.stat().st_size, None, rows)
        outputs = {
            stage: Output(str(folder / "stages" / stage / path.name), f"{int(path.stem[1:]):016x}", rows)
            for stage in ("index", "scores")
        }
        found.append(ShardFiles(Shard(path.stem, (part,), path.stem), **outputs))
    return found


def with_masks(files: ShardFiles, filters: Output, out: Path, share: float) -> ShardFiles:
    reasons = storage.read_table(filters.path)["reason"]
    rows = len(reasons)
    drawn = np.random.default_rng(int(files.shard.name[1:]) + 1).random(rows) < share
    selected = drawn & np.asarray(reasons.is_null())
    names = [
        None if s else "not_selected" if r is None else f"filter:{r}"
        for s, r in zip(selected, reasons.to_pylist(), strict=True)
    ]
    columns = [
        np.arange(rows),
        selected,
        selected.astype(np.float32),
        drawn.astype(np.float32),
        pa.array(names, pa.string()),
    ]
    path = str(out / "work" / "masks" / f"{files.shard.name}.parquet")
    return replace(
        files, filters=filters, masks=storage.write_output(path, filters.key, MASKS, [pa.table(columns, schema=MASKS)])
    )


# ---------------------------------------------------------------- the measurements


def ours(folder: Path, out: Path, share: float, memory: str) -> dict[str, Any]:
    config = validate({"filter": {"memory_limit": memory}})
    files = shard_files(folder, out)
    started = time.perf_counter()
    filters = filter_corpus(files, config, str(out / "work"))
    filtered = time.perf_counter()
    files = [with_masks(f, o, out, share) for f, o in zip(files, filters, strict=True)]
    selection = time.perf_counter()
    staged = export(files, config, str(out), Provenance({}, {}, {}))
    exported = time.perf_counter()
    release = publish(staged)
    published = time.perf_counter()
    rows = release.manifest()["conservation"]["total"]["selected"]
    size = sum(item["bytes"] for item in release.manifest()["files"] if item["path"].startswith("data/"))
    return {
        "filter": filtered - started,
        "export": exported - selection,
        "publish": published - exported,
        "seconds": published - started - (selection - filtered),
        "rows": rows,
        "bytes": size,
    }


def bare(folder: Path, out: Path, share: float, memory: str) -> dict[str, Any]:
    """DuckDB alone: the rows that `ours` published, by file and row, copied with zstd."""
    [release] = (folder / f"ours-{share}" / "releases").glob("0*")
    wanted = (
        "CREATE TABLE wanted AS SELECT shard || '.parquet' AS name, chunk_id AS row "
        f"FROM '{release}/decisions/*.parquet' WHERE outcome = 'selected'"
    )
    chosen = (
        f"SELECT c.* EXCLUDE (filename, file_row_number) FROM "
        f"read_parquet('{folder}/input/*.parquet', filename=true, file_row_number=true) c "
        "SEMI JOIN wanted ON parse_filename(c.filename) = wanted.name AND c.file_row_number = wanted.row"
    )
    return copy(chosen, out, memory, wanted)


def whole(folder: Path, out: Path, share: float, memory: str) -> dict[str, Any]:
    """DuckDB alone, with nothing to choose: every row of the input."""
    return copy(f"SELECT * FROM '{folder}/input/*.parquet'", out, memory)


def copy(query: str, out: Path, memory: str, before: str | None = None) -> dict[str, Any]:
    """COPY within the memory; if that does not suffice, without the rows' order, and then with four times as much."""
    import duckdb

    for limit, ordered in ((memory, True), (memory, False), ("4GB", True)):
        shutil.rmtree(out, ignore_errors=True)
        out.mkdir(parents=True)
        with duckdb.connect(config={"memory_limit": limit, "temp_directory": str(out / "tmp")}) as connection:
            connection.execute(f"SET preserve_insertion_order = {ordered}")
            if before:
                connection.execute(before).fetchall()
            started = time.perf_counter()
            try:
                [(rows,)] = connection.execute(
                    f"COPY ({query}) TO '{out}/copy.parquet' (FORMAT parquet, COMPRESSION zstd)"
                ).fetchall()
            except duckdb.OutOfMemoryException:
                continue
            seconds = time.perf_counter() - started
        note = f"memory_limit {limit}" + ("" if ordered else ", order of rows given up")
        return {"seconds": seconds, "rows": rows, "bytes": (out / "copy.parquet").stat().st_size, "note": note}
    raise SystemExit("DuckDB's COPY ran out of memory every way")


def measured(action: str, arguments: argparse.Namespace, share: float) -> dict[str, Any]:
    """Runs an action in a process of its own, with its greatest memory."""
    out = arguments.folder / f"{action}-{share}"
    shutil.rmtree(out, ignore_errors=True)
    os.sync()
    command = [sys.executable, __file__, "--action", action, "--folder", str(arguments.folder), "--share", str(share)]
    process = subprocess.Popen([*command, "--memory", arguments.memory], stdout=subprocess.PIPE, text=True)
    peaks = {"resident": 0, "own": 0}
    done = threading.Event()

    def watch() -> None:
        child = psutil.Process(process.pid)
        while not done.wait(0.05):
            try:
                info = child.memory_info()
            except psutil.Error:
                return
            peaks["resident"] = max(peaks["resident"], info.rss)
            peaks["own"] = max(peaks["own"], info.rss - info.shared)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    printed, _ = process.communicate()
    done.set()
    watcher.join()
    if process.returncode:
        raise SystemExit(f"{action} failed")
    return {**json.loads(printed.splitlines()[-1]), **peaks}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folder", type=Path, required=True, help="scratch: about 8 GB")
    parser.add_argument("--real", type=Path, help="folder with parquet files of real text")
    parser.add_argument("--documents", type=int, default=2_000_000)
    parser.add_argument("--text-bytes", type=int, default=5_200_000_000)
    parser.add_argument("--memory", default="1GB", help="DuckDB's memory_limit, ours and its own")
    parser.add_argument("--share", type=float, default=1.0, help="of the documents that pass the filters, selected")
    parser.add_argument("--make-only", action="store_true", help="make the corpus, measure nothing")
    parser.add_argument("--action", choices=["ours", "bare", "whole"])
    arguments = parser.parse_args()
    if arguments.action:
        out = arguments.folder / f"{arguments.action}-{arguments.share}"
        print(json.dumps(globals()[arguments.action](arguments.folder, out, arguments.share, arguments.memory)))
        return
    marker = arguments.folder / f"made-{arguments.documents}-{arguments.text_bytes}"
    if not marker.exists():
        make(arguments.folder, arguments.real, arguments.documents, arguments.text_bytes)
        marker.touch()
    if arguments.make_only:
        return
    print("| | rows | seconds | times DuckDB's COPY | resident GiB | without mapped files | GB written |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    for share in dict.fromkeys([arguments.share, 0.1]):
        mine = measured("ours", arguments, share)
        copies = {"bare": measured("bare", arguments, share)}
        if share == 1.0:
            copies["whole"] = measured("whole", arguments, share)
        base = copies["bare"]["seconds"]
        labels = {"bare": "COPY of the same rows", "whole": "COPY of every row, no choice"}
        rows = [(f"datamask, {share:.0%}, memory_limit {arguments.memory}", mine)]
        rows += [(f"DuckDB {labels[name]}, {found['note']}", found) for name, found in copies.items()]
        for label, row in rows:
            print(
                f"| {label} | {row['rows']:,} | {row['seconds']:.1f} | {row['seconds'] / base:.2f} | "
                f"{row['resident'] / 2**30:.2f} | {row['own'] / 2**30:.2f} | {row['bytes'] / 1e9:.2f} |"
            )
        print(f"  (filter {mine['filter']:.1f} s, export {mine['export']:.1f} s, publish {mine['publish']:.1f} s)")


if __name__ == "__main__":
    main()
