"""Text formats planned and converted by this checkout and by another: processor seconds, and the rows that each reads.

    python benchmarks/corpus_beside.py ../datamask-0.1.0/.venv/bin/python --megabytes 1000

The other is the Python of its virtual environment. Files are made for it, one at a time, and removed.
"""

from __future__ import annotations

import argparse
import csv
import io
import json
import lzma
import random
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

BLOCK_ROWS = 10_000  # about 20 MB, repeated
READ = """
import resource, sys, tempfile
from datamask.config import Config, Corpus
from datamask.corpus import convert_shard, plan_shards, read_batches
def used():
    found = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in found)
config = Config(corpus=Corpus(input=[sys.argv[1]]))
before = used()
with tempfile.TemporaryDirectory(dir=sys.argv[2]) as work:
    shards = [convert_shard(shard, config, work) for shard in plan_shards(config.corpus, work).shards]
    print(used() - before, sum(shard.rows for shard in shards))
"""


def rows() -> list[tuple[str, str]]:
    """(id, text) of a block: texts of made-up words, with commas, quotation marks and ends of lines."""
    generator = random.Random(0)
    words = ["".join(generator.choices("abdeilmnorstu", k=generator.randint(2, 9))) for _ in range(5000)]
    words += ["said,", '"so"', "naïve", "end.\n"]
    return [(f"doc-{n}", " ".join(generator.choices(words, k=300))) for n in range(BLOCK_ROWS)]


def blocks(kind: str) -> Iterator[bytes]:
    """The head of a file of this kind, then the block that is repeated."""
    found = rows()
    if kind == "csv":
        sink = io.StringIO(newline="")
        csv.writer(sink).writerows(found)
        yield b"id,text\r\n"
        yield sink.getvalue().encode()
    elif kind == "jsonl.xz":
        yield b""
        yield "".join(json.dumps({"id": id_, "text": text}) + "\n" for id_, text in found).encode()
    else:
        yield b""
        yield b"".join(map(record, found))


def record(row: tuple[str, str]) -> bytes:
    """A page as a server answers it."""
    paragraphs = "".join(f"<p>{part}</p>\n" for part in row[1].split("\n"))
    body = f"<html><head><title>{row[0]}</title></head><body><article>{paragraphs}</article></body></html>".encode()
    block = b"HTTP/1.1 200 OK\r\nContent-Type: text/html; charset=utf-8\r\n\r\n" + body
    head = (
        f"WARC/1.0\r\nWARC-Type: response\r\nWARC-Record-ID: <urn:{row[0]}>\r\nWARC-Date: 2024-01-01T00:00:00Z\r\n"
        f"Content-Type: application/http; msgtype=response\r\nContent-Length: {len(block)}\r\n\r\n"
    )
    return head.encode() + block + b"\r\n\r\n"


def write(path: Path, kind: str, size: int) -> None:
    """A file of so many bytes, as they are before they are packed; each block is a stream of its own."""
    head, block = blocks(kind)
    packed = lzma.compress(block, preset=1) if kind.endswith(".xz") else block
    with path.open("wb") as file:
        file.write(head)
        for _ in range(-(-size // len(block))):
            file.write(packed)


def main() -> None:
    """Prints the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("other", help="the other checkout's Python")
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--kind", nargs="*", default=["csv", "jsonl.xz", "warc"])
    parser.add_argument("--folder", help="where files are made, twice their size; None: the system's")
    arguments = parser.parse_args()
    print(
        "| file | rows | the other, CPU s | this one, CPU s | this / the other |\n|---|---:|---:|---:|---:|", flush=True
    )
    for kind in arguments.kind:
        with tempfile.TemporaryDirectory(dir=arguments.folder) as folder:
            path = Path(folder, f"a.{kind}")
            write(path, kind, arguments.megabytes * 1_000_000)
            told = [
                subprocess.run([python, "-c", READ, path, folder], check=True, capture_output=True, text=True).stdout
                for python in (arguments.other, sys.executable)
            ]
        (other, other_rows), (ours, our_rows) = (line.split() for line in told)
        same = our_rows if our_rows == other_rows else f"{our_rows}, the other {other_rows}"
        ratio = float(ours) / float(other)
        print(f"| {kind} | {same} | {float(other):.1f} | {float(ours):.1f} | {ratio:.2f} |", flush=True)


if __name__ == "__main__":
    main()
