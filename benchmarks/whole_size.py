"""The whole command on made corpora of several sizes: seconds of every stage, what near-duplicates take, memory.

    python benchmarks/whole_size.py '../shared/data/real/real-0*.parquet' [--documents 60000 1000000] \\
        [--engine threads dask] [--letters 1200]

A document is sentences, about as many letters as asked. Each is made of two real ones of its language, as far as the
corpus states it, three words of the one and three of the other in turn: whole sentences of so few would come in so
many documents that all were a template's. From the second shard on, every tenth document is a copy of one of the shard
before, with one word in ten replaced. Shards have 25,000. Seconds are by the clock, as the command tells them, and
stages overlap; memory is the greatest resident set of any one process. Engines must end in the same data files.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import json
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from kill_flow import digests
from workbench_memory import SENTENCE

from datamask.storage import expand_patterns

SHARD = 25_000
WORDS = 3  # of a sentence in a row
COPIES, CHANGED = 0.1, 0.1  # share of documents that are copies, and of their words that are replaced


def sentences(pattern: str) -> dict[str, list[str]]:
    """Each language's sentences of 30 to 300 letters; documents whose language is not stated are one of their own."""
    found: dict[str, set[str]] = defaultdict(set)
    for path in expand_patterns([pattern]):
        table = pq.read_table(path, columns=["text", "language"])
        for text, language in zip(table["text"].to_pylist(), table["language"].to_pylist(), strict=True):
            found[language or "none"].update(s for s in SENTENCE.split(text or "") if 30 <= len(s) <= 300)
    return {language: sorted(known) for language, known in sorted(found.items()) if len(known) >= 500}


def mixed(one: str, other: str) -> str:
    """Three words of the one, then three of the other, to the end of the shorter."""
    found: list[str] = []
    for first, second in zip(_runs(one), _runs(other), strict=False):
        found += first + second
    return " ".join(found)


def _runs(sentence: str) -> Iterator[list[str]]:
    words = sentence.split()
    return (words[at : at + WORDS] for at in range(0, len(words), WORDS))


def write(known: dict[str, list[str]], documents: int, letters: int, folder: Path) -> float:
    """MB of text written."""
    draw = random.Random(7)
    folder.mkdir()
    languages, weights = list(known), [len(some) for some in known.values()]
    size, last = 0, [("", "")]
    for first in range(0, documents, SHARD):
        rows = []
        for _ in range(min(SHARD, documents - first)):
            if draw.random() < COPIES and last[0][0]:
                text, language = draw.choice(last)
                words = text.split(" ")
                for _ in range(max(1, int(CHANGED * len(words)))):
                    words[draw.randrange(len(words))] = draw.choice(words)
                rows.append((" ".join(words), language))
                continue
            language = draw.choices(languages, weights)[0]
            parts: list[str] = []
            wanted = draw.expovariate(1 / letters) + letters / 4
            while sum(map(len, parts)) < wanted:
                parts.append(mixed(draw.choice(known[language]), draw.choice(known[language])))
            rows.append((" ".join(parts), language))
        last = rows[:1000]
        size += sum(len(text.encode()) for text, _ in rows)
        table = pa.table({"text": [text for text, _ in rows], "language": [language for _, language in rows]})
        pq.write_table(table, folder / f"part-{first // SHARD:04}.parquet", row_group_size=1000)
    return size / 1e6


def run(source: Path, out: Path, engine: str) -> tuple[dict[str, Any], float, float, float]:
    """What the command says; seconds by the clock and of processors; GiB of its largest process."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    command = [sys.executable, "-m", "datamask.cli", "curate", "--json", "-i", str(source), "-o", str(out)]
    command += ["--set", f"run.engine={engine}"]
    with tempfile.TemporaryFile("w+") as printed, tempfile.TemporaryFile("w+") as told:
        process = subprocess.Popen(command, stdout=printed, stderr=told)
        most = 0.0
        while process.poll() is None:
            with contextlib.suppress(psutil.Error):
                tree = psutil.Process(process.pid)
                most = max(most, *(one.memory_info().rss / 2**30 for one in (tree, *tree.children(recursive=True))))
            time.sleep(0.2)
        for file in (printed, told):
            file.seek(0)
        if process.returncode:
            sys.exit(told.read())
        found: dict[str, Any] = json.loads(printed.read())
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    used = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    found["stages"] = {one["stage"]: one["seconds"] for one in found["stages"]}
    return found, time.perf_counter() - began, used, most


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("--documents", type=int, nargs="+", default=[60_000, 1_000_000])
    parser.add_argument("--engine", nargs="+", default=["threads"])
    parser.add_argument("--letters", type=int, default=1200)
    parser.add_argument("--folder", help="where to work, instead of a temporary folder; what is made stays there")
    given = parser.parse_args()
    known = sentences(given.corpus)
    found = []
    with tempfile.TemporaryDirectory() as temporary:
        for documents in given.documents:
            folder = Path(given.folder or temporary)
            folder.mkdir(exist_ok=True)
            size = write(known, documents, given.letters, folder / f"in-{documents}")
            for engine in given.engine:
                told, wall, used, most = run(folder / f"in-{documents}", folder / f"out-{documents}-{engine}", engine)
                files = json.dumps(digests(Path(told["release"])))
                digest = hashlib.sha256(files.encode()).hexdigest()[:16]
                found.append((documents, size, engine, told, wall, used, most, digest))
                print(json.dumps(found[-1]), file=sys.stderr, flush=True)
    stages = list(found[0][3]["stages"])
    print("| | " + " | ".join(f"{one[0]:,}, {one[2]}" for one in found) + " |\n|---|" + "--:|" * len(found))
    print("| MB of text | " + " | ".join(f"{one[1]:,.0f}" for one in found) + " |")
    for stage in stages:
        print(f"| {stage}, s | " + " | ".join(f"{one[3]['stages'].get(stage, 0):.0f}" for one in found) + " |")
    for reason in ("near_duplicate", "contained"):
        print(
            f"| {reason} | " + " | ".join(f"{one[3]['documents']['filtered'].get(reason, 0):,}" for one in found) + " |"
        )
    print("| all, s | " + " | ".join(f"{one[4]:.0f}" for one in found) + " |")
    print("| processor seconds | " + " | ".join(f"{one[5]:.0f}" for one in found) + " |")
    print("| GiB, largest process | " + " | ".join(f"{one[6]:.2f}" for one in found) + " |")
    print("| data and decisions | " + " | ".join(one[7] for one in found) + " |")


if __name__ == "__main__":
    main()
