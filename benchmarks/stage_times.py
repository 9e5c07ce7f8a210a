"""What each stage of the default pipeline costs, and how that compares with the fastest pass over the same text.

    git worktree add ../before 93a0a69
    python benchmarks/stage_times.py --data '../shared/data/real/real-00000*' --against ../before

Every stage is called on every shard, one after the other, in one process without Prefect, and its processor seconds
(all threads, the system's included) are noted: they hold better on a busy machine than wall time. Each checkout has a
process of its own, run once before on few documents, so that nothing is compiled while it is timed. Files of both that
have the same name, which their inputs and settings make, are compared. The floor reads every text once: pyarrow
decompresses parquet, and a compiled loop counts words in the bytes.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent.parent
READ = ("signatures", "index", "embed", "score", "atoms")  # stages that read every text
STAGES = ("imports", "convert", "encoder", "quality", "signatures", "index", "embed", "score", "atoms", "filter",
          "duplicates", "prices", "mask", "export", "report")  # fmt: skip


def processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def measure(inputs: list[str], out: str) -> dict[str, Any]:
    """Seconds of each stage, (processor, wall), on this process's checkout."""
    found: dict[str, tuple[float, float]] = {}

    def timed(stage: str, run: Callable[[], Any]) -> Any:
        before, began = processor_seconds(), time.perf_counter()
        result = run()
        cpu, wall = found.get(stage, (0.0, 0.0))
        found[stage] = (cpu + processor_seconds() - before, wall + time.perf_counter() - began)
        print(f"{stage:<12}{found[stage][0]:8.2f}{found[stage][1]:8.2f}", file=sys.stderr, flush=True)
        return result

    def imported() -> None:
        import sklearn.manifold  # noqa: F401
        import torch

        import datamask.report.report
        import datamask.text.word_tables

        datamask.text.word_tables.tables()
        torch.set_num_threads(os.cpu_count() or 1)

    timed("imports", imported)
    from datamask.config import Config
    from datamask.corpus.convert import convert_shard
    from datamask.corpus.index import index_shard
    from datamask.corpus.shards import plan_shards
    from datamask.encoders.choose import prepare_encoder
    from datamask.encoders.embed import embed_shard
    from datamask.filter.duplicates import find_duplicates
    from datamask.filter.filters import filter_corpus
    from datamask.filter.signatures import sign_shard
    from datamask.pipeline import STAGES as DECLARED
    from datamask.quality import prepare_quality, score_shard
    from datamask.release.publication import publish
    from datamask.release.release_folder import Provenance
    from datamask.release.staging import export
    from datamask.report.report import write_report
    from datamask.selection.stage import learn_prices, mask_shard
    from datamask.stages import ShardFiles

    config = Config.model_validate({"corpus": {"input": inputs}})
    work = f"{out}/work"
    shards = timed("convert", lambda: [convert_shard(s, config, work) for s in plan_shards(config.corpus, work).shards])
    encoder = timed("encoder", lambda: prepare_encoder(shards, config, work))
    quality = timed("quality", lambda: prepare_quality(shards, encoder, config, work))
    files = [ShardFiles(shard) for shard in shards]

    def each(stage: str, name: str, run: Callable[[ShardFiles], Any]) -> None:
        files[:] = timed(stage, lambda: [replace(own, **{name: run(own)}) for own in files])

    each("signatures", "signatures", lambda own: sign_shard(own.shard, config, work))
    each("index", "index", lambda own: index_shard(own.shard, encoder, config, work))
    each("embed", "embeddings", lambda own: embed_shard(own, encoder, config, work))
    each("score", "scores", lambda own: score_shard(own, quality, encoder, config, work))
    each("atoms", "atoms", lambda own: DECLARED["atoms"].call(files=own, shard=own.shard, config=config, work=work))
    filters = timed("filter", lambda: filter_corpus(files, config, work))
    files = [replace(own, filters=output) for own, output in zip(files, filters, strict=True)]
    duplicates = timed("duplicates", lambda: find_duplicates(files, config, work))
    files = [replace(own, duplicates=output) for own, output in zip(files, duplicates, strict=True)]
    prices = timed("prices", lambda: learn_prices(files, config, work))
    each("mask", "masks", lambda own: mask_shard(own, prices, config, work))
    provenance = Provenance(encoder.as_dict(), quality.as_dict(), dict(prices.facts))
    staged = timed("export", lambda: export(files, config, out, provenance))
    timed("report", lambda: publish(staged, write_report(staged, files, config, provenance.certificate).pictures))
    rows = sum(shard.rows or 0 for shard in shards)
    return {"documents": rows, "seconds": found}


def floor(inputs: list[str]) -> tuple[int, float, float]:
    """Bytes of all texts, and processor seconds: reading them from parquet, and a loop over every byte."""
    import numpy as np
    import pyarrow as pa
    import pyarrow.compute as pc

    from datamask.compiling import compiled
    from datamask.config import Config
    from datamask.corpus.convert import convert_shard
    from datamask.corpus.read import read_batches
    from datamask.corpus.shards import plan_shards

    @compiled
    def words(text: np.ndarray) -> int:
        found, before = 0, False
        for byte in text:
            letter = byte > 32
            found += letter and not before
            before = letter
        return found

    words(np.zeros(1, np.uint8))
    config = Config.model_validate({"corpus": {"input": inputs}})
    with tempfile.TemporaryDirectory() as work:
        shards = [convert_shard(shard, config, work) for shard in plan_shards(config.corpus, work).shards]
        began = processor_seconds()
        texts = [batch["text"] for shard in shards for batch in read_batches(shard, config, ["text"])]
        read = processor_seconds() - began
    began = processor_seconds()
    for text in texts:
        joined = pc.binary_join(pa.ListArray.from_arrays([0, len(text)], text.fill_null("")), "")
        words(np.frombuffer(joined.buffers()[2], np.uint8))
    return sum(pc.sum(pc.binary_length(text)).as_py() for text in texts), read, processor_seconds() - began


def run(checkout: Path, inputs: list[str], out: Path) -> dict[str, Any]:
    """`measure` in a process of its own, on the code of a checkout."""
    environment = {**os.environ, "PYTHONPATH": str(checkout)}
    command = [sys.executable, __file__, "--out", str(out), "--data", *inputs]
    done = subprocess.run(command, env=environment, cwd=checkout, capture_output=True, text=True)
    if done.returncode:
        sys.exit(done.stderr)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def files_of(out: Path) -> dict[str, str]:
    """The stages' files and the masks of a run: name, to a hash of the bytes."""
    return {
        str(path.relative_to(out)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted((out / "work").glob("*/*"))
        if path.suffix in (".parquet", ".safetensors", ".npz")
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", nargs="+", required=True)
    parser.add_argument("--against", type=Path, help="a checkout of another version")
    parser.add_argument("--few", help="a smaller input, on which everything is compiled first")
    parser.add_argument("--out", type=Path, help="measure this version alone, and keep what it makes there")
    arguments = parser.parse_args()
    if arguments.out:
        print(json.dumps(measure(arguments.data, str(arguments.out))))
        return
    checkouts = {"before": arguments.against.resolve(), "now": HERE} if arguments.against else {"now": HERE}
    with tempfile.TemporaryDirectory() as folder:
        found = {}
        for name, checkout in checkouts.items():
            run(checkout, [arguments.few or arguments.data[0]], Path(folder) / f"{name}-few")
            found[name] = run(checkout, arguments.data, Path(folder) / name)
        files = {name: files_of(Path(folder) / name) for name in checkouts}
    print(f"{found['now']['documents']:,} documents; processor seconds\n")
    print("| stage | " + " | ".join(found) + " |\n|---|" + "--:|" * len(found))
    for stage in STAGES:
        print(f"| {stage} | " + " | ".join(f"{one['seconds'][stage][0]:.1f}" for one in found.values()) + " |")
    totals = [sum(cpu for cpu, _ in one["seconds"].values()) for one in found.values()]
    print("| all | " + " | ".join(f"{total:.1f}" for total in totals) + " |")
    size, read, loop = floor(arguments.data)
    for name, one in found.items():
        text = sum(one["seconds"][stage][0] for stage in READ)
        print(
            f"\n{name}: the stages that read every text take {text:.1f} s, {size / 1e6 / text:.1f} MB a second; "
            f"the floor, {size / 1e6:.0f} MB read in {read:.2f} s and looked at in {loop:.2f} s, is "
            f"{size / 1e6 / (read + loop):.0f} MB a second, {text / (read + loop):.0f} times as fast"
        )
    if arguments.against:
        both = files["before"].keys() & files["now"].keys()
        same = sum(files["before"][name] == files["now"][name] for name in both)
        print(f"\n{same} of {len(both)} files of the same name are the same, byte for byte")


if __name__ == "__main__":
    main()
