"""Peak memory of a run that identifies languages, looks for test items and replaces personal data, by input size.

    python benchmarks/workbench_memory.py '../shared/data/real/real-*.parquet' '../shared/data/tasks/*.jsonl.gz' \\
        [--documents 4000] [--times 1 2 4]

The input is so many real documents, and as many times of them, each copy with a line of its own, in shards of 1,000.
Memory is the greatest resident set of the process (`ru_maxrss` counts pages of mapped files that are resident, too).
`--plain` runs the same without the three.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

SHARD = 1000


def paths(pattern: str) -> list[str]:
    return sorted(str(path) for path in Path("/").glob(str(Path(pattern).resolve()).lstrip("/")))


def write(texts: list[str], times: int, folder: Path) -> None:
    folder.mkdir()
    every = [f"{text}\nCopy {copy} of it." if copy else text for copy in range(times) for text in texts]
    for first in range(0, len(every), SHARD):
        part = every[first : first + SHARD]
        pq.write_table(pa.table({"text": part}), folder / f"part-{first // SHARD:04}.parquet")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("tests")
    parser.add_argument("--documents", type=int, default=4000)
    parser.add_argument("--times", type=int, nargs="+", default=[1, 2, 4])
    parser.add_argument("--plain", action="store_true")
    given = parser.parse_args()
    held = pa.concat_tables([pq.read_table(path, columns=["text"]) for path in paths(given.corpus)])["text"]
    texts = [text for text in held.to_pylist() if text and text.strip()][: given.documents]
    tests = f"[{', '.join(paths(given.tests))}]"
    three = ["filter.identify=always", f"filter.decontaminate={tests}", "release.personal=replace"]
    settings = ["corpus.group_bytes=0", *([] if given.plain else three)]
    print("| documents | MB | peak memory, GiB | processor seconds | seconds |\n|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as work:
        for times in given.times:
            source, out = Path(work) / f"in-{times}", Path(work) / f"out-{times}"
            write(texts, times, source)
            command = [sys.executable, "-m", "datamask.cli", "curate", "--json", "-i", str(source), "-o", str(out)]
            began = time.perf_counter()
            process = subprocess.Popen(
                [*command, *(part for one in settings for part in ("--set", one))],
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
            assert process.stdout
            told = process.stdout.read()
            _, status, used = os.wait4(process.pid, 0)
            if status:
                sys.exit(f"the run of {len(texts) * times:,} documents failed")
            found = json.loads(told)
            size = sum(len(text.encode()) for text in texts) * times / 1e6
            print(
                f"| {found['documents']['read']:,} | {size:.0f} | {used.ru_maxrss / 2**20:.2f} | "
                f"{used.ru_utime + used.ru_stime:.0f} | {time.perf_counter() - began:.0f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
