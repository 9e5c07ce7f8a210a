"""Peak memory of languages, test items, personal data and duplicates by input size: each alone, and a run with all.

    python benchmarks/workbench_memory.py '../shared/data/real/real-*.parquet' '../shared/data/tasks/*.jsonl.gz' \\
        --maps [duplicates …]
    python benchmarks/workbench_memory.py '../shared/data/real/real-*.parquet' '../shared/data/tasks/*.jsonl.gz' \\
        [--documents 4000 16000 36000] [--plain] [--thirds]

The input is so many real documents, shuffled, in shards of 1,000; beyond as many as there are, documents of as many
characters made of their sentences, each another document's (`--thirds`: of a third of each of three, so that nearly all
hang together). Memory is a process's resident set (which counts resident pages of mapped files, too). `--maps` calls
each of the four on shard after shard, in a process of its own: what it has before the first shard, after the first, and
at most; personal data as export writes it, of every document; duplicates with quality drawn at random, after their
signatures. Without it the whole command runs, and what it has at most is told by what had ended last. `--plain` runs
the command without the first three.
"""

from __future__ import annotations

import argparse
import json
import random
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from datamask.storage import expand_patterns

SHARD = 1000
SENTENCE = re.compile(r"(?<=[.!?。])\s+|\n+")
Made = Callable[[list[list[str]], random.Random], str]
MAPS = ("languages", "test items", "personal data", "duplicates")


def write(texts: list[str], documents: int, folder: Path, made: Made) -> None:
    folder.mkdir()
    draw = random.Random(5)
    sentences = [SENTENCE.split(text) for text in texts] if documents > len(texts) else []
    for first in range(0, documents, SHARD):
        part = [
            texts[n] if n < len(texts) else made(sentences, draw) for n in range(first, min(first + SHARD, documents))
        ]
        pq.write_table(pa.table({"text": part}), folder / f"part-{first // SHARD:04}.parquet")


def mixed(sentences: list[list[str]], draw: random.Random) -> str:
    """A sentence of each of so many texts that it is as long as one."""
    length = sum(map(len, draw.choice(sentences)))
    parts: list[str] = []
    while length > 0:
        parts.append(draw.choice(draw.choice(sentences)))
        length -= max(1, len(parts[-1]))
    return " ".join(parts)


def thirds(sentences: list[list[str]], draw: random.Random) -> str:
    """A third of each of three texts, whole sentences in a row."""
    runs = []
    for text in draw.sample(sentences, 3):
        begin = draw.randrange(len(text))
        runs.append(" ".join(text[begin : begin + -(-len(text) // 3)]))
    return "\n".join(runs)


# ---------------------------------------------------------------- each alone


def alone(what: str, folder: str, tests: list[str]) -> None:
    """Prints GiB before the first shard, after it, and at most; and seconds of the processor for all shards."""
    from datamask import storage
    from datamask.config import Config
    from datamask.corpus.convert import convert_shard
    from datamask.corpus.identify import identify_shard
    from datamask.corpus.read import corpus_schema
    from datamask.corpus.shards import plan_shards
    from datamask.filter.contamination import common_rows, contaminated
    from datamask.filter.duplicates import find_duplicates
    from datamask.filter.leaks import find_leaks, items_of
    from datamask.filter.signatures import sign_shard
    from datamask.release.data_files import DataLayout, RowRange, Stripe, write_stripe
    from datamask.release.personal import PersonalRules, find_personal_data
    from datamask.stages import ShardFiles

    settings = {
        "corpus": {"input": [folder], "group_bytes": 0},
        "filter": {"identify": "always", "decontaminate": tests},
        "release": {"personal": "replace"},
    }
    config = Config.model_validate(settings)
    with tempfile.TemporaryDirectory() as work:
        shards = [convert_shard(shard, config, work) for shard in plan_shards(config.corpus, work).shards]
        index = pa.schema([("chunk_id", pa.int64()), ("reason", pa.string())])
        files: list[ShardFiles] = []
        for shard in shards:
            table = pa.table([pa.array(range(SHARD)), pa.nulls(SHARD, pa.string())], index)
            output = storage.write_output(f"{work}/index/{shard.name}.parquet", shard.name, index, [table])
            quality = np.random.default_rng(len(files)).normal(size=SHARD).astype(np.float32)
            scored = pa.table({"chunk_id": np.arange(SHARD), "quality_score": quality})
            scores = storage.write_output(f"{work}/scores/{shard.name}.parquet", shard.name, scored.schema, [scored])
            files.append(ShardFiles(shard, index=output, scores=scores, filters=output))
        layout = DataLayout.of(corpus_schema(shards, config), personal=True)

        def decisions(one: ShardFiles) -> pa.Table:
            ids = np.arange(SHARD)
            return pa.table(
                {
                    "chunk_id": ids,
                    "id": ids.astype(str),
                    "outcome": ["selected"] * SHARD,
                    "quality_score": np.zeros(SHARD, np.float32),
                    "probability": np.ones(SHARD, np.float32),
                    "token_count": ids,
                }
            )

        def one(number: int) -> Any:
            if what == "languages":
                return identify_shard(shards[number], config, work)
            if what == "test items":
                return ShardFiles(shards[number], leaks=find_leaks(files[number].shard, config, work))
            if what == "duplicates":
                return replace(files[number], signatures=sign_shard(shards[number], config, work))
            stripe = Stripe(number, [RowRange(number, 0, SHARD - 1)], SHARD)
            return write_stripe(stripe, {number: files[number]}, config, layout, {None: "x"}, work, decisions)

        if what == "test items":
            items_of(config).rows  # noqa: B018
        if what == "personal data":
            find_personal_data("Call +1 202 555 0143.", PersonalRules.of(config.release))  # loads the library
        process = psutil.Process()
        seen = [process.memory_info().rss]
        began = time.process_time()
        done = []
        for number in range(len(shards)):
            done.append(one(number))
            seen.append(process.memory_info().rss)
        if what == "test items":
            common = common_rows(done, config)
            for each in done:
                contaminated(each, config, common)
        if what == "duplicates":
            find_duplicates(done, config, work)
        took = time.process_time() - began
        print(json.dumps([seen[0] / 2**30, seen[1] / 2**30, greatest(), took]))


def greatest() -> float:
    """GiB of this program's greatest resident set (`ru_maxrss` has that of the process it was forked from, too)."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 2**20


def maps(which: Sequence[str], texts: list[str], sizes: list[int], tests: list[str], made: Made) -> None:
    print("| | documents | MB | before, GiB | after one shard | at most | processor seconds |")
    print("|---|--:|--:|--:|--:|--:|--:|")
    with tempfile.TemporaryDirectory() as work:
        for documents in sizes:
            write(texts, documents, Path(work) / str(documents), made)
        for what in which:
            for documents in sizes:
                folder = Path(work) / str(documents)
                told = subprocess.check_output(
                    [sys.executable, __file__, str(folder), *tests, "--alone", what], stderr=subprocess.DEVNULL
                )
                before, after, most, took = json.loads(told)
                print(
                    f"| {what} | {documents:,} | {size(folder):.0f} | {before:.2f} | {after:.2f} | {most:.2f} | "
                    f"{took:.0f} |",
                    flush=True,
                )


def size(folder: Path) -> float:
    """MB of text."""
    return sum(pq.read_table(path)["text"].nbytes for path in sorted(folder.iterdir())) / 1e6


# ---------------------------------------------------------------- the whole command


def runs(texts: list[str], sizes: list[int], settings: list[str], made: Made) -> None:
    with tempfile.TemporaryDirectory() as work:
        for documents in sizes:
            source, out = Path(work) / f"in-{documents}", Path(work) / f"out-{documents}"
            write(texts, documents, source, made)
            command = [sys.executable, "-m", "datamask.cli", "curate", "--json", "-i", str(source), "-o", str(out)]
            began = time.perf_counter()
            process = subprocess.Popen(
                [*command, *(part for one in settings for part in ("--set", one))],
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                text=True,
            )
            most: dict[str, float] = {}
            ended = ["start"]
            watched = threading.Thread(target=follow, args=(process, ended), daemon=True)
            watched.start()
            tree = psutil.Process(process.pid)
            while process.poll() is None:
                try:
                    held = tree.memory_info().rss / 2**30
                except psutil.Error:
                    break
                most[ended[0]] = max(most.get(ended[0], 0), held)
                time.sleep(0.05)
            if process.wait():
                sys.exit(f"the run of {documents:,} documents failed")
            print(
                f"\n{documents:,} documents, {size(source):.0f} MB: {max(most.values()):.2f} GiB at most, "
                f"{time.perf_counter() - began:.0f} s. By what had ended: "
                + ", ".join(f"{stage} {held:.2f}" for stage, held in most.items()),
                flush=True,
            )


def follow(process: subprocess.Popen[str], ended: list[str]) -> None:
    """Keeps the stage that the command said had ended last."""
    assert process.stderr
    for line in process.stderr:
        words = line.split()
        if len(words) > 2 and words[-1] == "s" and " after " not in line:
            ended[0] = words[0]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("corpus")
    parser.add_argument("tests", nargs="+")
    parser.add_argument("--documents", type=int, nargs="+", default=[4000, 16000, 36000])
    parser.add_argument("--maps", nargs="*", choices=MAPS)
    parser.add_argument("--alone", choices=MAPS, help=argparse.SUPPRESS)
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--thirds", dest="made", action="store_const", const=thirds, default=mixed)
    given = parser.parse_args()
    if given.alone:
        alone(given.alone, given.corpus, given.tests)
        return
    held = pa.concat_tables([pq.read_table(path, columns=["text"]) for path in expand_patterns([given.corpus])])["text"]
    texts = [text for text in held.to_pylist() if text and text.strip()]
    random.Random(3).shuffle(texts)
    tests = expand_patterns(given.tests)
    if given.maps is not None:
        maps(given.maps or MAPS, texts, given.documents, tests, given.made)
        return
    three = ["filter.identify=always", f"filter.decontaminate=[{', '.join(tests)}]", "release.personal=replace"]
    runs(texts, given.documents, ["corpus.group_bytes=0", *([] if given.plain else three)], given.made)


if __name__ == "__main__":
    main()
