"""What a run does for a shard beside its text: planned, looked up, driven through the engine, told of; ms a shard.

    python benchmarks/bookkeeping.py --input '../shared/data/real/real-0000*' [--shards 2000 20000]

A hundred shards of two documents are curated by plain calls; their files stand for those of as many shards as are asked
for, under names of their own. Nothing is computed then, so what is measured is all that Prefect and we add to the
stages' own work, and whether it grows with the shards alone. Processor seconds, Prefect's server included.
"""

from __future__ import annotations

import argparse
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from orchestration import plainly, processor_seconds, split
from prefect import flow

from datamask.config import Config, load_config
from datamask.corpus.shards import plan_shards
from datamask.driver import Driver
from datamask.maps import groups
from datamask.pipeline import Stage
from datamask.release.manifest import read_manifest, render_manifest
from datamask.release.release_folder import ReleaseFolder, find_release
from datamask.run_numbers import shard_rows
from datamask.stages import ShardFiles, record, recorded
from datamask.storage import Output, find_output
from flows.commands import begin_server
from flows.session import session
from flows.stage_runs import Stages

CURATED = 100  # shards
KINDS = ("index", "embeddings", "scores", "atoms", "masks")  # what a stage of the engine looks up here
STAGES = [Stage({"embeddings": "embed", "scores": "score", "masks": "mask"}.get(kind, kind), "shard", None, (),
                run=f"{__name__}:look", makes=kind) for kind in KINDS]  # fmt: skip


def look(files: ShardFiles, kind: str) -> Output:
    """A stage whose file is there."""
    output: Output = getattr(files, kind)
    found = find_output(output.path, output.key)
    assert found
    return found


class Looking(Driver):
    """Stages one after another that find everything done."""

    def given(self, stage: Stage) -> dict[str, Any]:
        return {"kind": stage.makes}


def driven(all_files: list[ShardFiles], config: Config) -> Stages:
    """The shards through stages that find everything done."""
    found: Any = None

    @flow(name="bookkeeping")
    def run() -> None:
        nonlocal found
        names = [stage.name for stage in STAGES]
        reads = {name: set(names[:place]) for place, name in enumerate(names)}
        with Stages(config) as found:
            driver = Looking(found, STAGES, reads, all_files)
            driver.drive()
            assert len(driver.files) == len(all_files)

    run()
    return found


def many(all_files: Sequence[ShardFiles], count: int) -> list[ShardFiles]:
    return [
        replace(files, shard=replace(files.shard, name=f"part-{number:06d}"))
        for number, files in ((number, all_files[number % len(all_files)]) for number in range(count))
    ]


def grown(manifest: dict[str, Any], count: int) -> dict[str, Any]:
    """A manifest of so many shards."""
    names = [item["shard"] for item in manifest["inputs"]]
    of = {f"part-{number:06d}": names[number % len(names)] for number in range(count)}
    inputs = {item["shard"]: item for item in manifest["inputs"]}
    sources = {item["shard"]: item for item in manifest["sources"]}
    shards = manifest["conservation"]["shards"]
    decisions = {item["path"]: item for item in manifest["files"] if item["path"].startswith("decisions/")}
    files = [item for item in manifest["files"] if item["path"] not in decisions]
    files += [{**next(iter(decisions.values())), "path": f"decisions/{name}.parquet"} for name in of]
    return {
        **manifest,
        "inputs": [{**inputs[old], "shard": name} for name, old in of.items()],
        "sources": [{**sources[old], "shard": name} for name, old in of.items()],
        "conservation": {**manifest["conservation"], "shards": {name: shards[old] for name, old in of.items()}},
        "files": files,
    }


def measure(count: int, folder: Path, config: Config) -> dict[str, float]:
    """Processor seconds by what they go to."""
    known, settings, _ = recorded(str(folder / "out"))
    all_files = many(known, count)
    (tiny := folder / f"tiny-{count}").mkdir()
    sources = sorted((folder / "corpus").iterdir())
    for number in range(count):
        os.link(sources[number % CURATED], tiny / f"part-{number:06d}.parquet")
    corpus = config.corpus.model_copy(update={"input": [str(tiny)]})
    manifest = grown(find_release(str(folder / "out")).manifest(), count)
    (release := folder / f"release-{count}").mkdir()
    found: dict[str, float] = {}

    def timed(name: str, work: Callable[[], Any]) -> Any:
        began = processor_seconds()
        result = work()
        found[name] = processor_seconds() - began
        return result

    timed("plan, every file hashed", lambda: plan_shards(corpus, str(folder / f"work-{count}")))
    timed("plan, again", lambda: plan_shards(corpus, str(folder / f"work-{count}")))
    outputs = [getattr(files, kind) for files in all_files for kind in KINDS]
    timed(f"looked up, {len(KINDS)} files each", lambda: [find_output(output.path, output.key) for output in outputs])
    stages = timed("driven through as many stages, and looked up", lambda: driven(all_files, config))
    timed("in groups", lambda: groups(all_files))
    timed("record of the run's files", lambda: record(str(release), all_files, settings))
    timed("manifest written", lambda: (release / "manifest.json").write_bytes(render_manifest(manifest)))
    timed("manifest read and checked", lambda: read_manifest(str(release)))
    timed("a row a shard for Prefect's UI", lambda: shard_rows(ReleaseFolder(str(release), "", ""), stages))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--input", nargs="+", required=True)
    parser.add_argument("--shards", type=int, nargs="+", default=[2000, 20_000])
    arguments = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="datamask-bookkeeping-"))
    server = begin_server()
    try:
        (folder / "corpus").mkdir()
        split(arguments.input, folder / "corpus", CURATED, 2)
        settings = [f"corpus.input=[{folder / 'corpus'}]", "corpus.group_bytes=0", "run.workers=2"]
        config = load_config(overrides=[*settings, "encoder.dimensions=256", "encoder.fit_documents=2000"])
        with session(server, shown=False):
            began = time.process_time()
            plainly(config, str(folder / "out"), 2)
            print(f"Plain calls of all stages: {1000 * (time.process_time() - began) / CURATED:.0f} ms a shard\n")
            runs = {count: measure(count, folder, config) for count in arguments.shards}
        print(f"| processor ms a shard, of | {' | '.join(f'{count:,} shards' for count in runs)} |")
        print(f"|---|{'--:|' * len(runs)}")
        for name in next(iter(runs.values())):
            print(f"| {name} | {' | '.join(f'{1000 * run[name] / count:.3f}' for count, run in runs.items())} |")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
