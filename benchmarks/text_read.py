"""How often a default run reads the corpus's text, and who reads it.

    python benchmarks/text_read.py '../shared/data/real/real-0*.parquet'
    python benchmarks/text_read.py '../shared/data/real/real-0*.parquet' --against ../before     # another checkout

Counted are the bytes of the column `text` that come out of the files, in a run by `datamask.run.curate`, with the wall
and processor seconds of the run; once more where nothing stays in memory, as of a corpus that is much larger. What is
compiled is compiled in a run before, on the first thousand documents.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from threading import Lock
from types import FrameType
from typing import Any
from unittest.mock import patch

HERE = Path(__file__).resolve().parent.parent
SECONDS = (("seconds", "wall"), ("processor seconds", "seconds"))
READERS = ("corpus/read.py", "corpus/reading.py", "corpus/held_text.py", "text_read.py", "heapq.py")


def measure(inputs: list[str], out: str, settings: Sequence[str] = (), holds: bool = True) -> dict[str, Any]:
    """Bytes of text read, by the function that asked for them, and the run's seconds; of this process's checkout.

    :param holds: text that is decoded once stays in memory, as far as there is room.
    """
    import pyarrow.compute as pc

    from datamask.config import load_config, validate
    from datamask.corpus import read
    from datamask.engine import Engine
    from datamask.run import curate

    found: Counter[str] = Counter()
    lock, batches = Lock(), read._batches

    def counted(*arguments: Any) -> Iterator[Any]:
        asked = asked_by(sys._getframe(1))
        for batch in batches(*arguments):
            if "text" in batch.schema.names:
                size = pc.sum(pc.binary_length(batch["text"])).as_py() or 0
                with lock:  # shards are read by several threads
                    found[asked] += size
            yield batch

    config = load_config(overrides=settings).model_dump(mode="json")
    config["corpus"]["input"] = inputs
    began, before = time.perf_counter(), resource.getrusage(resource.RUSAGE_SELF)
    with patch.object(read, "_batches", counted), patch.object(Engine, "holds_text", holds, create=True):
        curate(validate(config, "the settings"), out)
    wall, after = time.perf_counter() - began, resource.getrusage(resource.RUSAGE_SELF)
    seconds = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return {"read": dict(found), "wall": wall, "seconds": seconds}


def asked_by(frame: FrameType | None) -> str:
    """The first function outside the modules that read, as module.function."""
    while frame and (frame.f_code.co_filename.endswith(READERS) or frame.f_code.co_name.startswith("<")):
        frame = frame.f_back
    return f"{frame.f_globals['__name__']}.{frame.f_code.co_name}" if frame else "?"


def size_of(inputs: list[str]) -> int:
    """Bytes of the corpus's text."""
    import pyarrow.compute as pc
    import pyarrow.parquet as pq

    columns = [pq.read_table(path, columns=["text"])["text"] for path in inputs]
    return sum(pc.sum(pc.binary_length(column)).as_py() for column in columns)


def first_rows(path: str, to: str) -> str:
    """Writes a file's first thousand rows; returns its path."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    pq.write_table(pa.Table.from_batches([next(pq.ParquetFile(path).iter_batches(1000))]), to)
    return to


def run(checkout: Path, inputs: list[str], holds: bool = True) -> dict[str, Any]:
    """`measure` in a process of its own, on the code of a checkout, compiled before."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    done: dict[str, Any] = {}
    for few in (True, False):
        with tempfile.TemporaryDirectory() as folder:
            some = [first_rows(inputs[0], f"{folder}/few.parquet")] if few else inputs
            command = [sys.executable, __file__, "--out", f"{folder}/out", *["--hold-nothing"] * (not holds), *some]
            ended = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True)
        if ended.returncode:
            sys.exit(ended.stderr)
        done = json.loads(ended.stdout.splitlines()[-1])
    return done


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("inputs", nargs="+", help="parquet files")
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--hold-nothing", action="store_true", help="with --out: decode anew what is read again")
    parser.add_argument("--out", help="run once, on the code that is imported, into this folder")
    arguments = parser.parse_args()
    if arguments.out:
        print(json.dumps(measure(arguments.inputs, arguments.out, holds=not arguments.hold_nothing)))
        return
    inputs = [
        str(path) for name in arguments.inputs for path in sorted(Path(name).resolve().parent.glob(Path(name).name))
    ]
    checkouts = {"before": arguments.against.resolve()} if arguments.against else {}
    size = size_of(inputs)
    found = {name: run(checkout, inputs) for name, checkout in {**checkouts, "now": HERE}.items()}
    found["nothing held"] = run(HERE, inputs, holds=False)
    read = {name: Counter(one["read"]) for name, one in found.items()}
    most = sum(read.values(), Counter())
    rows = [(asked, [f"{own[asked] / size:.2f}" for own in read.values()]) for asked, _ in most.most_common()]
    rows.append(("in all, of the corpus's text", [f"{own.total() / size:.2f}" for own in read.values()]))
    rows += [(f"{what} of the run", [f"{one[key]:.1f}" for one in found.values()]) for what, key in SECONDS]
    print(f"{size / 1e6:.1f} MB of text\n")
    print(f"| text read by | {' | '.join(found)} |\n|---|{'--:|' * len(found)}")
    for what, figures in rows:
        print(f"| {what} | {' | '.join(figures)} |")


if __name__ == "__main__":
    main()
