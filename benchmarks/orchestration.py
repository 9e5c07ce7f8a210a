"""What Prefect costs: 1,000 small shards through the flow, beside the same stages called plainly, in one run.

    python benchmarks/orchestration.py --input '../shared/data/real/real-0000*' [--shards 1000] [--rows 30]

Both begin from nothing in a folder of their own and must end in the same data files.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

os.environ |= {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
os.environ |= {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL", "PREFECT_LOGGING_TO_API_ENABLED": "false"}

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from datamask.config import Config, load
from datamask.corpus import convert_shard, index_shard, plan_shards
from datamask.corpus.inputs import find_inputs
from datamask.encoders import embed_shard, prepare_encoder
from datamask.filter import find_duplicates, sign_shard
from datamask.filter.filters import filter_corpus
from datamask.quality import prepare_quality, score_shard
from datamask.release import export, publish
from datamask.release.release_folder import Provenance
from datamask.report import write_report
from datamask.selection import learn_prices, mask_shard
from datamask.stages import ShardFiles, silent


def plainly(config: Config, out: str, workers: int) -> str:
    """The stages as plain calls on as many threads; the release's path."""
    from flows.curate import portable

    work = f"{out}/work"
    with ThreadPoolExecutor(workers) as pool:
        shards = list(
            pool.map(lambda shard: convert_shard(shard, config, work), plan_shards(config.corpus, work).shards)
        )
        encoder = prepare_encoder(shards, config, work)
        quality = prepare_quality(shards, encoder, config, work)

        def embedded_and_scored(shard):
            files = ShardFiles(shard)
            files = replace(files, index=index_shard(shard, encoder, config, work, silent))
            files = replace(files, embeddings=embed_shard(files, encoder, config, work, silent))
            files = replace(files, scores=score_shard(files, quality, encoder, config, work, silent))
            return replace(files, signatures=sign_shard(shard, config, work))

        files = list(pool.map(embedded_and_scored, shards))
        files = [replace(f, filters=o) for f, o in zip(files, filter_corpus(files, config, work), strict=True)]
        files = [replace(f, duplicates=o) for f, o in zip(files, find_duplicates(files, config, work), strict=True)]
        prices = learn_prices(files, config, work)
        masks = pool.map(lambda f: mask_shard(f, prices, config, work), files)
        files = [replace(f, masks=o) for f, o in zip(files, masks, strict=True)]
    certificate = {**prices.facts, "prices": prices.key}
    staged = export(files, config, out, Provenance(portable(encoder, work), quality.as_dict(), certificate, ()))
    report = write_report(staged, files, config, certificate)
    return publish(staged, report.pictures).path


def with_prefect(config: Config, out: str) -> str:
    from flows.curate import curate

    return str(curate(config=config, output=out)["release"])


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
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="datamask-orchestration-"))
    try:
        (folder / "corpus").mkdir()
        split(arguments.input, folder / "corpus", arguments.shards, arguments.rows)
        settings = [f"corpus.input=[{folder / 'corpus'}]", "corpus.group_bytes=0", f"run.workers={arguments.workers}"]
        settings += ["encoder.dimensions=256", "encoder.fit_documents=2000"]
        few = load(overrides=[f"corpus.input=[{folder / 'corpus' / 'part-0000*'}]", *settings[1:]])
        plainly(few, str(folder / "warm"), arguments.workers)  # libraries are loaded once per process
        from prefect import flow

        flow(lambda: None)()  # and so is Prefect's own start
        print(f"{arguments.shards} shards of {arguments.rows} documents, {arguments.workers} threads\n")
        print("| | seconds | of processors | beside plain calls | same data files |\n|---|---:|---:|---|---|")
        plain, used, expected = 0.0, 0.0, ""
        for turn in range(arguments.repeat):  # in turns, for a machine's speed changes
            for size in (None, *arguments.shards_per_task):
                more = [f"run.shards_per_task={size}"] if size else []
                config, out = load(overrides=[*settings, *more]), str(folder / f"out-{turn}-{size}")
                processors, began = processor_seconds(), time.perf_counter()
                release = plainly(config, out, arguments.workers) if size is None else with_prefect(config, out)
                seconds, processors = time.perf_counter() - began, processor_seconds() - processors
                if size is None:
                    plain, used, expected = seconds, processors, digest(release)
                    print(f"| plain calls | {seconds:.1f} | {processors:.1f} | | |", flush=True)
                    continue
                name = f"flow, {f'{size} shard a task' if size else 'shards per task by default'}"
                more_of = f"{seconds / plain - 1:+.1%}; {processors / used - 1:+.1%}"
                same = "yes" if digest(release) == expected else "NO"
                print(f"| {name} | {seconds:.1f} | {processors:.1f} | {more_of} | {same} |", flush=True)
                shutil.rmtree(out)
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
