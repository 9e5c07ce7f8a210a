"""Refresh over days: what each day's new shards cost, and how near the release comes to curating all of it at once.

    python benchmarks/refresh_days.py --input '../shared/data/real/real-0*.parquet' [--documents 3000 500 1000 2000]

The first day is curated. Each further day adds its shards and refreshes, once with `run.refresh: solve` and once with
`run.refresh: prices`, each in an output folder of its own, and once more with nothing new. Then all days are curated
from the start. A release's objective is held against the solver's at the same number of documents among all days'
candidates, twice: with the features and scores that the refresh has (the first day's encoder), and with those of the
curation from the start (an encoder fitted on all days).
Seconds: the stages' work, and the wall time of the whole command.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from refresh_shard import COMMAND, run

from datamask.corpus.inputs import find_inputs
from datamask.report.embedded import load_corpus
from datamask.selection.arrays import solve
from datamask.selection.problem.pool import make_problem

SHARDS = 3  # a day


def write_day(table: pa.Table, day: int, folder: Path) -> None:
    each = -(-table.num_rows // SHARDS)
    for shard in range(SHARDS):
        pq.write_table(table.slice(shard * each, each), folder / f"day-{day}-{shard}.parquet")


def row(day: int, how: str, new: int, found: dict[str, Any], wall: float) -> str:
    seconds = {line["stage"]: line["seconds"] for line in found["stages"]}
    per_new = [seconds.pop(stage) for stage in ("index", "embed", "score")]
    numbers = " | ".join(f"{value:.1f}" for value in (*per_new, 1000 * sum(per_new) / new, sum(seconds.values()), wall))
    how += " (solved)" if how == "prices" and not found["certificate"]["continues"] else ""
    share = found["documents"]["selected"] / found["documents"]["read"]
    return f"| {day} | {how} | {new:,} | {numbers} | {found['documents']['selected']:,} ({share:.2%}) |"


def beside(reference: str, release: str) -> tuple[float, int, int]:
    """A release's objective over the solver's at the same number of documents; that number; documents that are no
    candidates in the curation from the start (semantic duplicates there)."""
    corpus = load_corpus(reference, 10**9)
    names = [files.shard.name for files in corpus.sample.files]
    place = {
        (names[shard], chunk): row
        for row, (shard, chunk) in enumerate(
            zip(corpus.sample.shard[corpus.rows], corpus.sample.chunk_id[corpus.rows], strict=True)
        )
    }
    table = pq.read_table(Path(release) / "data", columns=["shard", "chunk_id"]).to_pylist()
    chosen = [place.get((entry["shard"], entry["chunk_id"])) for entry in table]
    rows = [number for number in chosen if number is not None]
    settings = corpus.settings(budget_documents=len(rows), select_ratio=None)
    problem = make_problem(corpus.pool(settings), settings)
    mask = np.zeros(len(corpus), bool)
    mask[rows] = True
    objective = problem.objective.evaluate(torch.from_numpy(mask)).objective
    return objective / solve(problem).objective, len(rows), len(chosen) - len(rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--documents", type=int, nargs="+", default=[3000, 500, 1000, 2000], help="of each day")
    parser.add_argument("--sort", help="a column: days of different documents, instead of days of the same mixture")
    parser.add_argument("--set", action="append", default=[])
    arguments = parser.parse_args()
    settings = [part for one in ("corpus.group_bytes=0", *arguments.set) for part in ("--set", one)]
    tables = [pq.read_table(file.path) for file in find_inputs(arguments.input)[0] if file.format == "parquet"]
    table = pa.concat_tables(tables, promote_options="permissive")
    wanted = sum(arguments.documents)
    if arguments.sort:  # days that differ, as dumps of different sites do
        table = table.slice(0, wanted).sort_by(arguments.sort)
    folder = Path(tempfile.mkdtemp(prefix="datamask-days-"))
    try:
        (corpus := folder / "corpus").mkdir()
        given = ["--input", str(corpus), *settings]
        print(
            "| day | how | new | index s | embed s | score s | ms a new one | other stages s | command s | selected |"
        )
        print("|---:|---|--:|--:|--:|--:|--:|--:|--:|--:|")
        start, releases = 0, {}
        for day, documents in enumerate(arguments.documents, 1):
            write_day(table.slice(start, documents), day, corpus)
            start += documents
            if day == 1:
                found, wall = run("curate", *given, "--output", str(folder / "solve"))
                print(row(day, "curate", documents, found, wall), flush=True)
                shutil.copytree(folder / "solve", folder / "prices", symlinks=True)
                continue
            for how in ("solve", "prices"):
                found, wall = run("refresh", *given, "--output", str(folder / how), "--set", f"run.refresh={how}")
                releases[how] = found["release"]
                print(row(day, how, documents, found, wall), flush=True)
        for how in ("solve", "prices"):
            found, wall = run("refresh", *given, "--output", str(folder / how), "--set", f"run.refresh={how}")
            assert not found["new"], found
            print(f"nothing new ({how}): {wall:.1f} s, the whole command", flush=True)
        found, wall = run("curate", *given, "--output", str(folder / "start"))
        print(row(0, "all from the start", start, found, wall) + "\n", flush=True)
        print("Objective over the solver's at the same number of documents, on all days' candidates\n")
        print("| release | documents | with the first day's encoder | with one fitted on all days |\n|---|--:|--:|--:|")
        for how, release in releases.items():
            own, kept, _ = beside(str(folder / how), release)
            start, _, missing = beside(str(folder / "start"), release)
            print(f"| {how} | {kept:,} | {own:.4f} | {start:.4f} ({missing} are no candidates there) |", flush=True)
        print(subprocess.run([*COMMAND, "releases", str(folder / "solve")], capture_output=True, text=True).stdout)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
