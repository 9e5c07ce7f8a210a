"""Reading a corpus, beside what else reads one: speed on one core, and memory as the corpus grows.

    python benchmarks/corpus_reading.py ../shared/data/real

Every row of the tables is a process of its own, so that memory is its own too.
"""

from __future__ import annotations

import contextlib
import gzip
import io
import multiprocessing
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.json
import pyarrow.parquet as pq


def measure(function: Callable[..., int], *arguments: Any) -> tuple[float, int, float]:
    """(seconds, documents, peak MiB above what the imports left) of a call in a fresh process with one thread."""
    context = multiprocessing.get_context("spawn")
    results = context.SimpleQueue()
    process = context.Process(target=_child, args=(function, arguments, results))
    process.start()
    found = results.get()
    process.join()
    if isinstance(found, str):
        raise SystemExit(found)
    return found


def _child(function: Callable[..., int], arguments: tuple[Any, ...], results: Any) -> None:
    pa.set_cpu_count(1)
    function(*arguments, True)  # imports
    before = _peak()
    started = time.perf_counter()
    try:
        documents = function(*arguments, False)
    except Exception as error:
        results.put(f"{type(error).__name__}: {error}")
        raise
    seconds = time.perf_counter() - started
    results.put((seconds, documents, _peak() - before))


def _peak() -> float:
    """MiB; the high-water mark of this process's own memory (getrusage's includes the parent's at the fork)."""
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


# ---------------------------------------------------------------- what is compared


def bare(files: list[str], dry: bool) -> int:
    """pyarrow's own batches of the text and id, touched by nothing."""
    return (
        0
        if dry
        else sum(b.num_rows for f in files for b in pq.ParquetFile(f).iter_batches(1000, columns=["text", "id"]))
    )


def ours(files: list[str], dry: bool) -> int:
    """read_batches: renamed, cast, UTF-8 checked, numbered."""
    from datamask.config import Config, Corpus
    from datamask.corpus.read import read_batches
    from datamask.corpus.shards import plan_shards

    if dry:
        return 0
    config = Config(corpus=Corpus(input=files))
    with tempfile.TemporaryDirectory() as work:
        shards = plan_shards(config.corpus, work).shards
        return sum(b.num_rows for shard in shards for b in read_batches(shard, config, ["text", "id"]))


def datatrove(files: list[str], dry: bool) -> int:
    """datatrove's ParquetReader: a Document object a row."""
    from datatrove.pipeline.readers import ParquetReader

    folder = str(Path(files[0]).parent)
    return 0 if dry else sum(1 for _ in ParquetReader(folder, glob_pattern="real-*.parquet").run())


def convert(path: str, dry: bool) -> int:
    """convert_shard: two passes, every line accounted for."""
    from datamask.config import Config, Corpus
    from datamask.corpus.convert import convert_shard
    from datamask.corpus.shards import plan_shards

    if dry:
        return 0
    config = Config(corpus=Corpus(input=[path]))
    with tempfile.TemporaryDirectory() as work:
        return convert_shard(plan_shards(config.corpus, work).shards[0], config, work).rows or 0


def with_datasets(path: str, dry: bool) -> int:
    """datasets.load_dataset("json") and to_parquet (snappy)."""
    from datasets import disable_progress_bars, load_dataset

    disable_progress_bars()
    if dry:
        return 0
    with tempfile.TemporaryDirectory() as work:
        found = load_dataset("json", data_files=path, split="train", cache_dir=work)
        found.to_parquet(f"{work}/x.parquet")
        return len(found)


def with_arrow(path: str, dry: bool) -> int:
    """pyarrow.json.read_json, the whole file at once, and write_table."""
    if dry:
        return 0
    with tempfile.TemporaryDirectory() as work:
        table = pa.json.read_json(path, pa.json.ReadOptions(use_threads=False, block_size=64 << 20))
        pq.write_table(table, f"{work}/x.parquet", compression="zstd")
        return table.num_rows


def index(path: str, tokenizer: str | None, dry: bool) -> int:
    """index_shard: id, characters, hash of the normalised text, quarantine, tokens (words without a tokenizer)."""
    from datamask.config import Config, Corpus
    from datamask.corpus.index import index_shard
    from datamask.corpus.shards import plan_shards
    from datamask.models.encoder_ref import EncoderRef
    from datamask.models.tokens import load_tokenizer

    kind, folder = ("static", tokenizer) if tokenizer else ("column", "")
    encoder = EncoderRef(kind, "", folder, None, "bench", 768, 512, "first", "", "float32")
    if dry:
        return int(load_tokenizer(encoder).count(["a"])[0]) if tokenizer else 0
    config = Config(corpus=Corpus(input=[path], shard_rows=10**9))
    with tempfile.TemporaryDirectory() as work:
        return sum(index_shard(s, encoder, config, work).rows for s in plan_shards(config.corpus, work).shards)


# ---------------------------------------------------------------- tables


def main() -> None:
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "../shared/data/real").resolve()
    files = [str(path) for path in sorted(root.glob("real-*.parquet"))]
    texts = [text for file in files for text in pq.read_table(file, columns=["text"])["text"].to_pylist()]
    megabytes = sum(len(text.encode()) for text in texts) / 1e6
    print(f"{len(texts)} documents, {megabytes:.0f} MB of text\n")
    with tempfile.TemporaryDirectory() as folder:
        print("| read text and id | documents/s, first run | second run | MiB |\n|---|---:|---:|---:|")
        for name, function in {"pyarrow, bare": bare, "datamask": ours, "datatrove": datatrove}.items():
            runs = [measure(function, files) for _ in range(2)]
            rates = " | ".join(f"{documents / seconds:,.0f}" for seconds, documents, _ in runs)
            print(f"| {name} | {rates} | {max(peak for *_, peak in runs):.0f} |", flush=True)

        lines = Path(folder) / "x.jsonl"
        lines.write_bytes(gzip.decompress((root / "real-extra.jsonl.gz").read_bytes()) * 8)
        size = lines.stat().st_size / 1e6
        broken = Path(folder) / "broken.jsonl"
        broken.write_bytes(lines.read_bytes() + b'{"text": "cut\n')
        print(f"\n| {size:.0f} MB of JSON lines to parquet | MB/s | MiB | with one broken line |\n|---|---:|---:|---|")
        for name, function in {"datamask": convert, "datasets": with_datasets, "pyarrow": with_arrow}.items():
            seconds, documents, peak = measure(function, str(lines))
            print(
                f"| {name} | {size / seconds:.0f} | {peak:.0f} | {_try(function, str(broken), documents)} |", flush=True
            )

        from datamask.encoders.static import fit_tokens

        Path(folder, "tokenizer").mkdir()
        fit_tokens(texts[:4000], 30_000, 512, 0)[0].save(str(Path(folder) / "tokenizer" / "tokenizer.json"))
        print("\n| index | documents | documents/s | MB of text/s | MiB |\n|---|---:|---:|---:|---:|")
        table = pq.read_table(files[0]).drop_columns("token_count")
        share = sum(len(t.encode()) for t in table["text"].to_pylist()) / 1e6
        for copies, tokenizer in ((1, None), (4, None), (12, None), (1, f"{folder}/tokenizer")):
            path = Path(folder) / "big.parquet"
            with pq.ParquetWriter(path, table.schema, compression="zstd") as writer:
                for _ in range(copies):
                    writer.write_table(table)
            seconds, documents, peak = measure(index, str(path), tokenizer)
            what = "tokens by a 30,000-token BPE" if tokenizer else "words for tokens"
            rate = f"{documents / seconds:,.0f} | {copies * share / seconds:,.0f} | {peak:.0f}"
            print(f"| {what} | {documents:,} | {rate} |", flush=True)


def _try(function: Callable[..., int], path: str, expected: int) -> str:
    try:
        with contextlib.redirect_stderr(io.StringIO()):
            documents = measure(function, path)[1]
    except SystemExit as error:
        return f"fails: {str(error).splitlines()[0][:80]}"
    return f"{documents - expected} row more, in quarantine" if documents > expected else "lost without a word"


if __name__ == "__main__":
    main()
