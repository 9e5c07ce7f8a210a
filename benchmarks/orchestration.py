"""What Prefect costs: 1,000 small shards through the flow, beside the same stages called plainly, in one run.

    python benchmarks/orchestration.py --input '../shared/data/real/real-0000*' [--shards 1000] [--rows 30] [--again]

Both begin from nothing in a folder of their own and must end in the same data files. With `--again` the flow is run
once more over what is there, which is all of its planning, listing and bookkeeping; then by stage, in ms a shard.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
import time
from pathlib import Path
from typing import Any

os.environ |= {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
os.environ |= {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL", "PREFECT_LOGGING_TO_API_ENABLED": "false"}

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from datamask import run
from datamask.config import Config, load_config
from datamask.corpus.inputs import find_inputs
from datamask.progress import BOARD, Board
from flows.commands import begin_server
from flows.session import session


def plainly(config: Config, out: str, workers: int) -> str:
    """The stages on as many threads, without Prefect; the release's path."""
    return run.curate(config.model_copy(update={"run": config.run.model_copy(update={"workers": workers})}), out).path


def with_prefect(config: Config, out: str) -> dict[str, Any]:
    """What the flow returns."""
    from flows.curate import curate

    found: dict[str, Any] = curate(config=config, output=out)
    return found


def split(inputs: list[str], folder: Path, shards: int, rows: int) -> None:
    tables = [pq.read_table(file.path) for file in find_inputs(inputs)[0] if file.format == "parquet"]
    table = pa.concat_tables(tables, promote_options="permissive")
    for number in range(shards):
        start = (number * rows) % max(table.num_rows - rows, 1)
        pq.write_table(table.slice(start, rows), folder / f"part-{number:05d}.parquet")


def processor_seconds() -> float:
    """Of this process and of Prefect's server, which it started."""
    this = psutil.Process()
    return sum(sum(each.cpu_times()[:2]) for each in (this, *this.children(recursive=True)))


def digest(release: str) -> str:
    total = hashlib.sha256()
    for path in sorted(Path(release, "data").rglob("*.parquet")):
        total.update(path.read_bytes())
    return total.hexdigest()[:16]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--shards", type=int, default=1000)
    parser.add_argument("--rows", type=int, default=30)
    parser.add_argument("--workers", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--repeat", type=int, default=2)
    parser.add_argument("--shards-per-task", type=int, nargs="+", default=[0, 1], help="0: the default")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--flow-alone", action="store_true", help="no plain calls to hold it against")
    parser.add_argument("--again", action="store_true", help="the flow once more, over what is there")
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="datamask-orchestration-"))
    server = begin_server()
    try:
        (folder / "corpus").mkdir()
        split(arguments.input, folder / "corpus", arguments.shards, arguments.rows)
        settings = [f"corpus.input=[{folder / 'corpus'}]", "corpus.group_bytes=0", f"run.workers={arguments.workers}"]
        settings += ["encoder.dimensions=256", "encoder.fit_documents=2000", *arguments.set]
        with session(server, shown=False):
            measure(arguments, settings, folder)
    finally:
        shutil.rmtree(folder)


def measure(arguments: argparse.Namespace, settings: list[str], folder: Path) -> None:
    """The lines of the table, each with a folder of its own."""
    few = load_config(overrides=[f"corpus.input=[{folder / 'corpus' / 'part-0000*'}]", *settings[1:]])
    plainly(few, str(folder / "warm"), arguments.workers)  # libraries are loaded once per process
    from prefect import flow

    flow(lambda: None)()  # and so is Prefect's own start
    print(f"{arguments.shards} shards of {arguments.rows} documents, {arguments.workers} threads\n")
    print("| | seconds | of processors | beside plain calls | same data files |\n|---|---:|---:|---|---|")
    plain, used, expected = 0.0, 0.0, ""
    again = ""
    for turn in range(arguments.repeat):  # in turns, for a machine's speed changes
        for size in (*([] if arguments.flow_alone else [None]), *arguments.shards_per_task):
            more = [f"run.shards_per_task={size}"] if size else []
            config, out = load_config(overrides=[*settings, *more]), str(folder / f"out-{turn}-{size}")
            processors, began = processor_seconds(), time.perf_counter()
            release = plainly(config, out, arguments.workers) if size is None else with_prefect(config, out)["release"]
            seconds, processors = time.perf_counter() - began, processor_seconds() - processors
            if size is None:
                plain, used, expected = seconds, processors, digest(release)
                print(f"| plain calls | {seconds:.1f} | {processors:.1f} | | |", flush=True)
            else:
                name = f"flow, {f'{size} shard a task' if size else 'shards per task by default'}"
                more_of = f"{seconds / plain - 1:+.1%}; {processors / used - 1:+.1%}" if plain else ""
                same = ("yes" if digest(release) == expected else "NO") if plain else ""
                print(f"| {name} | {seconds:.1f} | {processors:.1f} | {more_of} | {same} |", flush=True)
                if arguments.again and not again:
                    again = bookkeeping(config, out, arguments.shards)
            shutil.rmtree(out)
    if again:
        print(f"\n| everything is there | seconds | ms a shard |\n|---|--:|--:|\n{again}")


def bookkeeping(config: Config, out: str, shards: int) -> str:
    """The flow over what is there: a line a stage, from its begin to its end, and the flow as a whole."""
    board, began = Board(), time.perf_counter()
    token = BOARD.set(board)
    found = with_prefect(config, out)
    assert not found["new"]
    BOARD.reset(token)
    lines = [(line.stage, line.last - line.started) for line in board.stages.values()]
    lines.append(("the flow", time.perf_counter() - began))
    return "\n".join(f"| {stage} | {seconds:.2f} | {1000 * seconds / shards:.3f} |" for stage, seconds in lines)


if __name__ == "__main__":
    main()
