"""Refresh with one new shard: seconds of each stage beside those of the whole run, and whether the result is the same.

    python benchmarks/refresh_shard.py --input '../shared/data/real/real-0*.parquet' [--shards 200] [--documents 20000]
        [--set section.name=value …] [--place 0.5]

All shards but one are curated; the one, which lies at `place` among the others by its name, is added, and the folder
is refreshed. Beside it the same refresh in a folder that knows of the first release nothing but what it fitted:
encoder, score and topics; with `--set run.refresh=prices`, which selects beside them, its decisions too. The data
files, decisions and quarantine of both must be the same, byte for byte. `redone` counts the stages' files that the
refresh wrote and that the first run had written for the same shard.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from kill_flow import digests

from datamask.corpus.inputs import find_inputs
from datamask.pipeline import STAGES

COMMAND = (sys.executable, "-m", "datamask.cli")
FITTED = ("tokenizer", "encoder", "quality", "topics/model-*", "prices/*")  # what both refreshes take over
KEY = re.compile(r"-[0-9a-f]{16}\.")


def run(*arguments: str) -> tuple[dict[str, Any], float]:
    """The JSON of a datamask command, and its wall time in seconds."""
    began = time.perf_counter()
    done = subprocess.run([*COMMAND, *arguments, "--json"], capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    return json.loads(done.stdout), time.perf_counter() - began


def write_shards(table: pa.Table, shards: int, folder: Path) -> list[Path]:
    paths = []
    for shard in range(shards):
        first, last = (table.num_rows * (shard + side) // shards for side in (0, 1))
        paths.append(folder / f"s-{shard:05d}.parquet")
        pq.write_table(table.slice(first, last - first), paths[-1])
    return paths


def shard_files(out: Path) -> dict[str, set[str]]:
    """The stages' files of each shard: stage, to shard and key."""
    work = out / "work"
    found = {}
    for stage in sorted(path.name for path in work.iterdir() if path.is_dir()):
        found[stage] = {path.name for path in (work / stage).glob("s-*") if KEY.search(path.name)}
    return found


def redone(before: dict[str, set[str]], after: dict[str, set[str]]) -> Counter[str]:
    counts: Counter[str] = Counter()
    for stage, names in after.items():
        known = {KEY.split(name)[0] for name in before.get(stage, ())}
        counts[stage] = sum(KEY.split(name)[0] in known for name in names - before.get(stage, set()))
    return counts


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--place", type=float, default=0.5, help="of the new shard among the others by name")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    settings = [part for one in ("corpus.group_bytes=0", *arguments.set) for part in ("--set", one)]
    tables = [pq.read_table(file.path) for file in find_inputs(arguments.input).files if file.format == "parquet"]
    table = pa.concat_tables(tables, promote_options="permissive").slice(0, arguments.documents)
    folder = Path(tempfile.mkdtemp(prefix="datamask-shard-"))
    try:
        (corpus := folder / "corpus").mkdir()
        paths = write_shards(table, arguments.shards, corpus)
        new = paths[round(arguments.place * (arguments.shards - 1))]
        new.rename(folder / new.name)
        out, fresh = folder / "out", folder / "fresh"
        given = ["--input", str(corpus), *settings]
        first, first_wall = run("curate", *given, "--output", str(out))
        before = shard_files(out)
        (fresh / "work").mkdir(parents=True)
        shutil.copytree(out / "releases", fresh / "releases", symlinks=True)
        shutil.copy(out / "latest", fresh / "latest", follow_symlinks=False)
        for path in (path for pattern in FITTED for path in (out / "work").glob(pattern)):
            to = fresh / path.relative_to(out)
            to.parent.mkdir(exist_ok=True)
            shutil.copytree(path, to) if path.is_dir() else shutil.copy(path, to)
        (folder / new.name).rename(new)
        second, second_wall = run("refresh", *given, "--output", str(out))
        whole, whole_wall = run("refresh", *given, "--output", str(fresh))
        counts = redone(before, shard_files(out))
        runs = [{line["stage"]: line for line in found["stages"]} for found in (first, second, whole)]
        print("| stage | first run s | refresh s | everything at once s | files of old shards redone |")
        print("|---|--:|--:|--:|--:|")
        for stage in runs[2]:
            seconds = " | ".join(f"{found[stage]['seconds']:.2f}" if stage in found else "" for found in runs)
            print(f"| {stage} | {seconds} | {counts[STAGES[stage].folder or ''] or ''} |")
        print(f"| the command | {first_wall:.1f} | {second_wall:.1f} | {whole_wall:.1f} | |\n")
        found, wanted = digests(Path(second["release"])), digests(Path(whole["release"]))
        other = [name for name in {*found, *wanted} if found.get(name) != wanted.get(name)]
        print(f"{len(wanted)} files of data, decisions and quarantine, {len(other)} of them other: {sorted(other)[:3]}")
        earlier = digests(out / "releases" / Path(first["release"]).name)
        same = sum(earlier.get(name) == digest for name, digest in found.items())
        print(f"{same} of the refreshed release's {len(found)} files are the first release's, byte for byte")
        if other:  # where they part
            for stage, names in shard_files(out).items():
                print(stage, len(names ^ shard_files(fresh).get(stage, set())), "files have other keys")
        sys.exit(bool(other))
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
