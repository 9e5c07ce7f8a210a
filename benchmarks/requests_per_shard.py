"""Requests to an object store per shard: the pipeline with input, work folder and output on S3 (moto's, on loopback).

    python benchmarks/requests_per_shard.py --input '../shared/data/real/real-0*.parquet' [--rows 200] [--shards 4 12]

The difference between two corpora that differ in their number of shards alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections import Counter
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parents[1]))
from datamask import storage
from datamask.corpus.inputs import find_inputs
from tests.object_store import running

SETTINGS = [
    "corpus.group_bytes=0",
    "select.scope=shard",
    "select.semantic_duplicates=null",
    "encoder.fit_documents=500",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--rows", type=int, default=200)
    parser.add_argument("--shards", type=int, nargs=2, default=[4, 12])
    arguments = parser.parse_args()
    table = pa.concat_tables([pq.read_table(file.path) for file in find_inputs(arguments.input)[0]][:1])
    found = []
    with running() as store:
        fs, _ = storage.filesystem("s3://corpus")
        for shards in arguments.shards:
            place = f"corpus/{shards}"
            for number in range(shards):
                pq.write_table(table.slice(number * arguments.rows, arguments.rows), buffer := BytesIO())
                fs.pipe_file(f"{place}/in/part-{number:03d}.parquet", buffer.getvalue())
            store.requests.clear()
            settings = [part for one in SETTINGS for part in ("--set", one)]
            arguments_ = ["--input", f"s3://{place}/in", "--output", f"s3://{place}/out", "--json", *settings]
            command = [sys.executable, "-m", "datamask.cli", "curate", *arguments_]
            subprocess.run(command, check=True, env=os.environ, stdout=subprocess.DEVNULL)
            found.append(Counter(method for method, _ in store.requests))
    few, many = arguments.shards
    print(f"| request | {few} shards | {many} shards | a shard |\n|---|--:|--:|--:|")
    for method in sorted(found[0] | found[1]):
        slope = (found[1][method] - found[0][method]) / (many - few)
        print(f"| {method} | {found[0][method]} | {found[1][method]} | {slope:.1f} |")


if __name__ == "__main__":
    main()
