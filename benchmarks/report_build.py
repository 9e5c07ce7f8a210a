"""Time, memory and size of the report as the corpus grows: built from made-up stage files of so many rows.

    python benchmarks/report_build.py --rows 38000 500000 2000000

The page's samples are bounded, so seconds grow only with reading the small columns, and the page does not grow at all.
"""

from __future__ import annotations

import argparse
import resource
import tempfile
import time
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from datamask import storage
from datamask.config import validate
from datamask.corpus.plan import Part, Shard
from datamask.release.release_folder import Staged
from datamask.report.report import write_report
from datamask.stages import ShardFiles

SHARD_ROWS = 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, nargs="+", default=[38_000, 200_000, 2_000_000])
    parser.add_argument("--dimensions", type=int, default=768)
    parser.add_argument("--folder", help="where to put the made-up files; they need 2 bytes a dimension a row")
    arguments = parser.parse_args()
    print("| rows | seconds | page, MB | peak, GiB |\n|---:|---:|---:|---:|")
    for rows in arguments.rows:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as name:
            folder = Path(name)
            all_files = [_shard(folder, n, min(SHARD_ROWS, rows - n * SHARD_ROWS), arguments.dimensions)
                         for n in range(-(-rows // SHARD_ROWS))]  # fmt: skip
            config = validate({"select": {"algorithm": "pairwise"}})
            staged = Staged(str(folder / "release"), name, "key")
            storage.write_json(staged.draft, {"provenance": {"failed": []}, "skipped": []})
            began = time.perf_counter()
            write_report(staged, all_files, config, {"objective": 0.5})
            seconds = time.perf_counter() - began
            page = (folder / "release" / "report.html").stat().st_size / 1e6
            peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
            print(f"| {rows:,} | {seconds:.1f} | {page:.2f} | {peak:.2f} |", flush=True)


def _shard(folder: Path, number: int, rows: int, dimensions: int) -> ShardFiles:
    generator = np.random.default_rng(number)
    ids = np.arange(rows)
    texts = [f"Document {n} of shard {number}. " + "Some words to read. " * 20 for n in range(rows)]
    path = folder / f"corpus-{number}.parquet"
    source = generator.integers(0, 12, rows)
    columns = {"text": texts, "id": [f"{number}/{n}" for n in range(rows)], "source": [f"source {s}" for s in source]}
    pq.write_table(pa.table(columns), path, row_group_size=10_000, compression="zstd")
    quality = (0.04 * source + generator.random(rows)).astype(np.float32)
    selected = quality > np.quantile(quality, 0.9)
    tokens = generator.lognormal(6, 1, rows).astype(np.int64) + 1
    features = generator.standard_normal((rows, dimensions), dtype=np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    vectors = pa.FixedSizeListArray.from_arrays(features.astype(np.float16).ravel(), dimensions)

    def write(stage: str, columns: dict) -> storage.Output:
        table = pa.table({"chunk_id": ids, **columns})
        return storage.write_output(str(folder / f"{stage}-{number}.parquet"), "key", table.schema, [table])

    reason = pa.array(np.where(selected, None, "not_selected").tolist(), pa.string())
    probability = selected.astype(np.float32)
    return ShardFiles(
        Shard(f"shard-{number:05d}", (Part(str(path), "parquet", str(number), path.stat().st_size),), str(number)),
        index=write("index", {"token_count": tokens, "reason": pa.nulls(rows, pa.string())}),
        embeddings=write("embeddings", {"feature_arr": vectors}),
        scores=write("scores", {"heuristic": quality, "quality_score": quality}),
        masks=write("masks", {"selected": selected, "probability": probability, "price": quality, "reason": reason}),
    )


if __name__ == "__main__":
    main()
