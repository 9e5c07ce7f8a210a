"""What a corpus will cost: counts it, times a sample of every stage on this machine, and scales up.

    datamask plan 'dumps/*.parquet' --workers 8
    datamask plan data --config my.yaml --documents 23000000000    # a corpus that is not here

The model (docs/scale.md): a stage takes a fixed time a run and a time per document, per worker; those that look at a
sample of the corpus run on one worker and stop growing (`pipeline.STAGES` says which). Two samples, one four times the
other, give both times. No Prefect.
"""

from __future__ import annotations

import json
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import numpy as np
import typer

from datamask import storage
from datamask.config import Config, load_config
from datamask.corpus.convert import convert_shard
from datamask.corpus.inputs import find_inputs
from datamask.corpus.read import corpus_schema, read_batches
from datamask.corpus.shards import plan_shards
from datamask.engine import Engine
from datamask.errors import InputError, several
from datamask.options import ConfigOption, JsonOption, SetOption, prints_aside
from datamask.pipeline import STAGES, Stage
from datamask.release import printing
from datamask.work import Done, Work

if TYPE_CHECKING:
    import pyarrow as pa

T = TypeVar("T")

SAMPLE = 2000  # documents of the larger sample
REPORTED = 5_000  # documents after which the report hardly grows: report/examples.py draws 500 of each choice, a tenth
JOINT_DOCUMENTS = 500_000  # up to so many are selected from as one problem (selection/stage.py)
FITTED = ("tokenizer", "encoder")
FOOTERS = 50  # parquet files whose rows are counted; the rest by their size


@dataclass(frozen=True)
class StageCost:
    """One stage: `fixed` seconds a run, `seconds` and `bytes` per document (of work/ or the release), peak memory.

    A stage that looks at a sample stops growing at `most` documents.
    """

    stage: str
    fixed: float
    seconds: float
    bytes: float
    peak_bytes: int
    most: int | None = None

    def hours(self, documents: int, workers: int) -> float:
        """Hours that the stage takes for so many documents on so many workers."""
        alone = STAGES[self.stage].by == "one" or (self.stage == "prices" and documents <= JOINT_DOCUMENTS)
        share = 1 if alone else workers
        return (self.fixed + self.seconds * self._seen(documents) / share) / 3600

    def storage(self, documents: int) -> float:
        """Bytes that the stage stores for so many documents."""
        return self.bytes * self._seen(documents)

    def _seen(self, documents: int) -> int:
        return min(documents, self.most or documents)


@dataclass(frozen=True)
class Costs:
    """What `datamask plan` found."""

    files: int
    corpus_bytes: int
    documents: int
    sampled: int
    workers: int
    stages: tuple[StageCost, ...]

    def as_json(self) -> dict[str, Any]:
        """The costs of every stage and in all, ready for JSON."""
        stages = [
            {
                "stage": stage.stage,
                "hours": stage.hours(self.documents, self.workers),
                "worker_hours": stage.hours(self.documents, 1),
                "storage_bytes": stage.storage(self.documents),
                "peak_bytes": stage.peak_bytes,
            }
            for stage in self.stages
        ]
        return {
            "files": self.files,
            "bytes": self.corpus_bytes,
            "documents": self.documents,
            "sampled": self.sampled,
            "workers": self.workers,
            "hours": sum(stage["hours"] for stage in stages),
            "stages": stages,
        }


def plan_run(
    input: Annotated[list[str], typer.Argument(help="Files, folders or globs.")],
    workers: Annotated[int, typer.Option(min=1, help="Workers that share the shards.")] = 1,
    documents: Annotated[int | None, typer.Option(min=1, help="Documents, if the corpus is larger than INPUT.")] = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Time a sample of each stage here and say what the whole corpus will cost."""
    chosen = load_config(config, set_ or [])
    chosen = chosen.model_copy(update={"corpus": chosen.corpus.model_copy(update={"input": input})})
    with prints_aside(as_json):
        found = estimate(chosen, workers, documents)
    if as_json:
        print(json.dumps(found.as_json()))
    else:
        _show(found)


def estimate(config: Config, workers: int = 1, documents: int | None = None) -> Costs:
    """Counts the corpus and measures its stages on two samples.

    :raises InputError: the input matches nothing or cannot be read.
    """
    from datamask.quality.prepare import SAMPLE_ROWS  # with the compiler, which `--help` does not wait for

    files = find_inputs(config.corpus.input).files
    folder = Path(tempfile.mkdtemp(prefix="datamask-plan-"))
    try:
        every, per_byte = _sample(config, files, folder, max(SAMPLE, config.encoder.fit_documents))
        rows = every.take(np.linspace(0, every.num_rows - 1, min(SAMPLE, every.num_rows)).astype(int))
        size = sum(file.size for file in files)
        few = rows.slice(0, rows.num_rows // 4)
        if not few.num_rows:
            found = several(rows.num_rows, "row")
            raise InputError(f"{found} in what was read, too few to time stages by: curate it at once")
        _measure(config, folder, "first", few)  # what is loaded on the way is no cost of the smaller sample
        small = _measure(config, folder, "small", few)
        large = _measure(config, folder, "large", rows)
        most = {"quality": SAMPLE_ROWS, "report": REPORTED}
        costs = {name: _fit(small[name], large[name], most.get(name)) for name in large}
        costs |= _fits(config, folder, every)
        stages = tuple(costs.values())
        return Costs(len(files), size, documents or round(per_byte * size), rows.num_rows, workers, stages)
    finally:
        shutil.rmtree(folder)


@dataclass(frozen=True)
class _Measured:
    stage: str
    documents: int
    seconds: float
    bytes: int
    peak_bytes: int


def _fit(small: _Measured, large: _Measured, most: int | None) -> StageCost:
    """Fixed and per-document time through both samples; never negative."""
    slope = max(0.0, (large.seconds - small.seconds) / max(1, large.documents - small.documents))
    fixed = max(0.0, large.seconds - slope * large.documents)
    return StageCost(large.stage, fixed, slope, large.bytes / large.documents, large.peak_bytes, most)


def _fits(config: Config, folder: Path, rows: pa.Table) -> dict[str, StageCost]:
    """The encoder fitted on as many documents as it will be: its time bends with the vocabulary, no line fits it."""
    found = _measure(config, folder, "encoder", rows, only=FITTED)
    nothing = _Measured("", 0, 0.0, 0, 0)
    return {name: _fit(nothing, found[name], config.encoder.fit_documents) for name in FITTED if name in found}


def _sample(config: Config, files: Any, folder: Path, documents: int) -> tuple[pa.Table, float]:
    """Documents from all over the input, and documents per byte of it."""
    import pyarrow as pa

    step = max(1, len(files) // FOOTERS)
    chosen = [file.path for file in files[::step]][:FOOTERS]
    corpus = config.corpus.model_copy(update={"input": chosen})
    shards = [convert_shard(shard, config, str(folder)) for shard in plan_shards(corpus, str(folder)).shards]
    rows = sum(shard.rows or 0 for shard in shards)
    size = sum(file.size for file in files if file.path in set(chosen))
    schema = corpus_schema(shards, config)
    parts: list[pa.RecordBatch] = []
    each = -(-documents // len(shards))
    for shard in shards:
        left = each
        for batch in read_batches(shard, config, schema=schema):
            parts.append(batch.slice(0, left))
            left -= parts[-1].num_rows
            if not left:
                break
    return pa.Table.from_batches(parts).slice(0, documents), rows / max(size, 1)


def _measure(config: Config, folder: Path, name: str, rows: pa.Table, only: Sequence[str] = ()) -> dict[str, _Measured]:
    """Every stage once on these documents, in one shard, as the pipeline runs it; `only`: these, and what they read."""
    import pyarrow.parquet as pq

    from datamask.run import Run

    place = folder / name
    place.mkdir()
    pq.write_table(rows, place / "sample.parquet", compression="zstd")
    corpus = config.corpus.model_copy(update={"input": [str(place / "sample.parquet")], "columns": {}})
    config = config.model_copy(update={"corpus": corpus})
    out = str(place / "out")
    with _OneByOne(config, place, rows.num_rows) as engine:
        plan = engine.run(STAGES["plan"], settings=corpus, work=storage.join(out, "work"), previous=None)
        run = Run(engine, plan, out)
        if only:
            run.keep_to(only)
            run.measure_and_decide()
        else:
            run.publish()
    return engine.found


class _OneByOne(Engine):
    """Does work at once, in this process, and measures each stage while no other is at work."""

    holds_text = False  # the whole corpus is larger than what a run holds

    def __init__(self, config: Config, place: Path, documents: int) -> None:
        super().__init__(config)
        self.found: dict[str, _Measured] = {}
        self._place, self._documents = place, documents
        self._alone, self._depth = threading.RLock(), 0

    def submit(self, work: Work) -> Future[Done]:
        future: Future[Done] = Future()
        folders = [self._place / "out" / "work" / (stage.folder or "") for stage in work.stages]
        before = [_size(folder) for folder in folders]
        done = self._measured(work.stage.name, work)
        if len(work.stages) > 1:  # what was read once is each stage's as far as it worked
            whole = self.found[work.stage.name]
            for number, stage in enumerate(work.stages):
                share = sum(result.made[number].seconds for result in done.result) / max(done.seconds, 1e-9)
                size = _size(folders[number]) - before[number]
                self.found[stage.name] = replace(whole, stage=stage.name, seconds=whole.seconds * share, bytes=size)
        future.set_result(done)
        return future

    def rounds(self, stage: Stage, *how: Any, **given: Any) -> Any:
        return self._measured(stage.name, partial(super().rounds, stage, *how, **given))

    def _measured(self, stage: str, run: Callable[[], T]) -> T:
        with self._alone:
            if self._depth:  # a part of a stage that is measured
                return run()
            self._depth += 1
            before = _size(self._place)
            try:
                with _Peak() as peak:
                    began = time.perf_counter()
                    result = run()
                    seconds = time.perf_counter() - began
            finally:
                self._depth -= 1
            self.found[stage] = _Measured(stage, self._documents, seconds, _size(self._place) - before, peak.bytes)
            return result


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


class _Peak:
    """The process's greatest resident memory while the block runs, looked at every 20 ms."""

    def __enter__(self) -> _Peak:
        import psutil

        self._process = psutil.Process()
        self.bytes = self._process.memory_info().rss
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(0.02):
            self.bytes = max(self.bytes, self._process.memory_info().rss)


def _show(found: Costs) -> None:
    from rich.table import Table

    from datamask.console import new_console

    console = new_console()
    numbers = found.as_json()
    console.print(
        f"{several(found.documents, 'document')} in {several(found.files, 'file')}, "
        f"{printing.size(found.corpus_bytes)}; {found.sampled:,} of them timed here; "
        f"{several(found.workers, 'worker')}",
        soft_wrap=True,
    )
    table = Table("stage", "time", "work", "storage", "peak memory", box=None, header_style="dim")
    for column in table.columns[1:]:
        column.justify = "right"
    for stage in numbers["stages"]:
        table.add_row(
            stage["stage"],
            duration(stage["hours"]),
            duration(stage["worker_hours"]),
            printing.size(stage["storage_bytes"]),
            printing.size(stage["peak_bytes"]),
        )
    storage = sum(stage["storage_bytes"] for stage in numbers["stages"])
    peak = max(stage["peak_bytes"] for stage in numbers["stages"])
    hours = sum(stage["worker_hours"] for stage in numbers["stages"])
    table.add_row("all", duration(numbers["hours"]), duration(hours), printing.size(storage), printing.size(peak))
    console.print(table)


def duration(hours: float) -> str:
    """Hours as a person says them: 0.4 s, 12 s, 3.2 min, 5.1 h."""
    seconds = 3600 * hours
    if seconds < 100:
        return f"{seconds:.1f} s" if seconds < 10 else f"{seconds:.0f} s"
    return f"{seconds / 60:,.1f} min" if seconds < 6000 else f"{hours:,.1f} h"
