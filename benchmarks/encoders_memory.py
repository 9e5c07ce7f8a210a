"""Peak memory of embedding (and scoring) one shard of 1 GB of text: flat, whatever the shard's size.

    python benchmarks/encoders_memory.py --data '../shared/data/real/real-*.parquet' --gigabytes 1

The shard repeats the real documents, each copy with a line of its own. Memory is the process's resident set without
the pages of mapped files, which the system takes back when it needs them; sampled ten times a second.
"""

from __future__ import annotations

import argparse
import itertools
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

import duckdb
import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from datamask.config import validate
from datamask.corpus.convert import convert_shard
from datamask.corpus.index import index_shard
from datamask.corpus.shards import plan_shards
from datamask.encoders.choose import prepare_encoder
from datamask.encoders.embed import embed_shard
from datamask.quality import prepare_quality, score_shard
from datamask.stages import ShardFiles


def write_shard(pattern: str, path: Path, size: int) -> int:
    """A parquet file with `size` bytes of text; returns its rows."""
    texts = [
        t for (t,) in duckdb.sql(f"select text from read_parquet('{pattern}') where length(trim(text)) > 0").fetchall()
    ]
    rows, held = 0, 0
    columns = pa.schema([("text", pa.string()), ("token_count", pa.int64())])
    with pq.ParquetWriter(path, columns, compression="zstd") as writer:
        for copy in itertools.count():
            for first in range(0, len(texts), 1000):
                part = [f"{text}\n({copy})" for text in texts[first : first + 1000]]
                table = pa.table({"text": part, "token_count": [len(text) // 4 for text in part]})
                writer.write_table(table)
                rows, held = rows + len(part), held + table.nbytes
                if held >= size:
                    return rows
    raise AssertionError


class Watch:
    """Resident memory of this process (without mapped files) over a call's progress."""

    def __init__(self, rows: int) -> None:
        self._process = psutil.Process()
        self._rows = rows
        self._done = 0
        self._lock = threading.Lock()
        self.samples: list[tuple[float, float]] = []  # share done, MiB
        self._stop = threading.Event()

    def progress(self, rows: int) -> None:
        with self._lock:
            self._done += rows

    def run(self, call: Callable[[], object]) -> float:
        sampler = threading.Thread(target=self._sample, daemon=True)
        sampler.start()
        began = time.perf_counter()
        call()
        seconds = time.perf_counter() - began
        self._stop.set()
        sampler.join()
        return seconds

    def _sample(self) -> None:
        while not self._stop.wait(0.1):
            info = self._process.memory_info()
            self.samples.append((self._done / self._rows, (info.rss - info.shared) / 2**20))

    def curve(self) -> list[float]:
        """Greatest memory in each tenth of the rows."""
        shares = np.array([share for share, _ in self.samples])
        memory = np.array([memory for _, memory in self.samples])
        tenths = np.minimum((shares * 10).astype(int), 9)
        return [
            float(memory[tenths == tenth].max()) if (tenths == tenth).any() else float("nan") for tenth in range(10)
        ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", required=True, help="parquet files with text")
    parser.add_argument("--gigabytes", type=float, default=1)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        work = f"{folder}/work"
        rows = write_shard(arguments.data, Path(folder) / "shard.parquet", int(arguments.gigabytes * 1e9))
        corpus = {"input": [f"{folder}/shard.parquet"], "shard_rows": rows + 1}
        config = validate({"corpus": corpus, "encoder": {"fit_documents": 2000}})
        (planned,) = plan_shards(config.corpus, work).shards
        shard = convert_shard(planned, config, work)
        encoder = prepare_encoder([shard], config, work)
        quality = prepare_quality([shard], encoder, config, work)
        index = index_shard(shard, encoder, config, work)
        print(f"one shard: {rows} documents, {arguments.gigabytes:g} GB of text; MiB at each tenth of the documents\n")
        print("| stage | docs/s | " + " | ".join(f"{tenth * 10}%" for tenth in range(1, 11)) + " |")
        print("|---|---|" + "---|" * 10)
        files = ShardFiles(shard, index=index)
        stages: dict[str, Callable[[Callable[[int], None]], object]] = {
            "embed (static)": lambda progress: embed_shard(files, encoder, config, work, progress),
            "score (heuristic)": lambda progress: score_shard(files, quality, encoder, config, work, progress),
        }
        for name, stage in stages.items():
            watch = Watch(rows)
            seconds = watch.run(partial(stage, watch.progress))
            print(
                f"| {name} | {rows / seconds:,.0f} | " + " | ".join(f"{value:.0f}" for value in watch.curve()) + " |",
                flush=True,
            )


if __name__ == "__main__":
    main()
