"""From embeddings to decisions on many shards of synthetic documents: seconds and memory of the stages, plain and Dask.

    python benchmarks/scale_out.py 200000 600000 --dimensions 256 [--dask 2 4] [--shards 200]
    python benchmarks/scale_out.py 200000 --dimensions 64 --refresh

Documents are short texts, one in fifty a copy of another, with unit rows around Zipf-distributed centres, a quality,
one of twelve sources, and a number of tokens drawn log-normally, which `--set select.budget_tokens=…` counts.
Texts of 4,000 words share 12 letters by chance ever more often the more there are: 10 M texts want `--words 100000`.
Each engine begins from the same embeddings, scores, index and signatures and must end in the same masks. `one process`
is the share of a stage's time in which only one process can work: the reduces, and rounds of a single item; beside it
the share of processor seconds, which other work on the machine changes less. A stage's
memory is the greatest resident memory of any one process while it runs; `bytes a document` is the most that the caller
holds between the maps, as `--held` traces it. Digests are of the masks, and of what they select.

`--refresh`: filter and duplicates over all shards but the one in the middle, then over all in the same work folder, and
over all from nothing, which must give the same files.
"""

from __future__ import annotations

import argparse
import contextlib
import hashlib
import os
import pickle
import shutil
import tempfile
import threading
import time
import tracemalloc
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

os.environ |= {"DO_NOT_TRACK": "1", "PREFECT_SERVER_ANALYTICS_ENABLED": "false"}
os.environ |= {"PREFECT_LOGGING_HANDLERS_CONSOLE_LEVEL": "CRITICAL", "PREFECT_LOGGING_TO_API_ENABLED": "false"}

import numpy as np
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from datamask import storage
from datamask.arithmetic import same_arithmetic
from datamask.config import Config, load_config
from datamask.corpus.plan import Part, Shard
from datamask.filter.duplicates import find_duplicates
from datamask.filter.filters import filter_corpus
from datamask.filter.signatures import sign_shard
from datamask.maps import Mapper, here
from datamask.selection import stage as selecting
from datamask.selection.cover import cover_shards as covering
from datamask.selection.cover.counting import with_atoms
from datamask.selection.stage import learn_prices, mask_shard
from datamask.stages import ShardFiles
from datamask.text.text_hashes import text_hash

LENGTH = 24  # words of a text
CENTRES = 200
SOURCES = 12
SUMMED = ("seconds", "processor", "alone", "alone_processor")  # of a row, in the row of all stages


@lru_cache(maxsize=1)
def vocabulary(words: int) -> np.ndarray:
    """So many words of 3 to 8 letters."""
    drawn = (np.random.default_rng(number).integers(0, 26, 3 + number % 6) for number in range(words))
    return np.array(["".join(map(chr, 97 + letters)) for letters in drawn])


def make_shard(number: int, rows: int, dimensions: int, folder: str, vocabulary_size: int) -> ShardFiles:
    """A shard's corpus file and the files of the stages up to scores and signatures; or those made before."""
    rng = np.random.default_rng([7, number])
    name, work = f"s{number:05d}", f"{folder}/work"
    made = Path(f"{folder}/corpus/{name}.pickle")
    if made.exists():
        return pickle.loads(made.read_bytes())
    words = vocabulary(vocabulary_size)[rng.integers(0, vocabulary_size, (rows, LENGTH))]
    texts = [" ".join(row) for row in words]
    for copy in rng.choice(rows, rows // 50, replace=False).tolist():
        texts[copy] = texts[int(rng.integers(0, rows))] + (" again" if copy % 2 else "")
    centres = np.random.default_rng(3).normal(size=(CENTRES, dimensions)).astype(np.float32)
    share = 1 / np.arange(1, CENTRES + 1)
    label = rng.choice(CENTRES, rows, p=share / share.sum())
    path = f"{folder}/corpus/{name}.parquet"
    pq.write_table(pa.table({"text": texts, "source": [f"source {one % SOURCES}" for one in label.tolist()]}), path)
    shard = Shard(name, (Part(path, "parquet", name, Path(path).stat().st_size, rows=rows),), name)
    features = centres[label] + rng.normal(size=(rows, dimensions)).astype(np.float32)
    features /= np.linalg.norm(features, axis=1, keepdims=True)
    ids = pa.array(np.arange(rows))
    nothing = pa.nulls(rows, pa.string())

    def put(stage: str, **columns: Any) -> storage.Output:
        table = pa.table({"chunk_id": ids, **columns})
        return storage.write_output(f"{work}/{stage}/{name}.parquet", f"{stage}-{name}", table.schema, [table])

    lengths = pa.array([len(text) for text in texts])
    tokens = np.ceil(LENGTH * np.random.default_rng([8, number]).lognormal(0, 1, rows)).astype(np.int64)
    index = put(
        "index",
        id=ids.cast(pa.string()),
        token_count=pa.array(tokens),
        characters=lengths,
        bytes=lengths,
        text_hash=pa.array([text_hash(text) for text in texts], pa.binary(16)),
        reason=nothing,
        excerpt=nothing,
    )
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(features.astype(np.float16).ravel()), dimensions)
    quality = pa.array((np.random.default_rng(4).normal(size=CENTRES)[label] + rng.normal(size=rows)).astype("f4"))
    scores, embeddings = put("scores", quality_score=quality), put("embeddings", feature_arr=vectors)
    files = ShardFiles(shard, index=index, embeddings=embeddings, scores=scores)
    files = replace(files, signatures=sign_shard(shard, Config(), work))
    made.write_bytes(pickle.dumps(files))
    return files


def processor_seconds() -> float:
    """Of this process and of its children that are there."""
    total, this = 0.0, psutil.Process()
    for process in (this, *this.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            total += sum(process.cpu_times()[:2])
    return total


@dataclass
class Recorder:
    """A Mapper that notes how long several processes could work."""

    maps: Mapper
    shared: float = 0.0
    shared_processor: float = 0.0
    rounds: list[tuple[str, int, float, float]] = field(default_factory=list)  # name, items, seconds, processor seconds
    held: int = 0  # bytes, at most, that the caller allocated between the maps, where `tracemalloc` is on

    def __call__(
        self, work: Any, state: Any, items: Sequence[Any], rows: Sequence[int] | None = None, rest: bool = False
    ) -> list[Any]:
        self.note()
        began, spent = time.perf_counter(), processor_seconds()
        found = self.maps(work, state, items, rows, rest)
        seconds, spent = time.perf_counter() - began, processor_seconds() - spent
        tracemalloc.reset_peak()
        self.rounds.append((work.__name__, len(items), seconds, spent))
        if len(items) > 1:
            self.shared, self.shared_processor = self.shared + seconds, self.shared_processor + spent
        return found

    def note(self) -> None:
        """Notes what has been held since the last map."""
        self.held = max(self.held, tracemalloc.get_traced_memory()[1])


class Peak:
    """The greatest resident memory of any one of this process and its children, for each stage; and of this one."""

    def __init__(self) -> None:
        self.stage, self.most, self.own = "", defaultdict[str, int](int), defaultdict[str, int](int)
        threading.Thread(target=self._watch, daemon=True).start()

    def _watch(self) -> None:
        this = psutil.Process()
        while True:
            for process in (this, *this.children(recursive=True)):
                with contextlib.suppress(psutil.NoSuchProcess):
                    self.most[self.stage] = max(self.most[self.stage], process.memory_info().rss)
            self.own[self.stage] = max(self.own[self.stage], this.memory_info().rss)
            time.sleep(0.2)


def atoms_group(state: Any, item: Sequence[ShardFiles]) -> list[ShardFiles]:
    return [with_atoms(files, state.config, state.work) for files in item]


def mask_group(state: Any, item: tuple[Sequence[ShardFiles], storage.Output]) -> list[storage.Output]:
    return [mask_shard(files, item[1], state.config, state.work) for files in item[0]]


@dataclass(frozen=True)
class Masking:
    config: Config
    work: str


@dataclass(frozen=True)
class Row:
    """A stage of the table."""

    stage: str
    seconds: float  # of wall time
    processor: float  # seconds, of this process and its children
    alone: float  # seconds of wall time in which only one process could work
    alone_processor: float  # processor seconds of that time
    memory: int  # bytes, see `Peak`
    own: int  # the same, of the process that calls the maps
    held: int  # bytes, see `Recorder`
    rounds: list[tuple[str, int, float, float]]


def digest_of(masks: Sequence[storage.Output], *columns: str) -> str:
    """Of these columns of the masks; all of them if none is named."""
    digest = hashlib.sha256()
    for output in sorted(masks, key=lambda output: Path(output.path).name):
        table = pq.read_table(output.path, columns=list(columns) or None).combine_chunks().replace_schema_metadata()
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, table.schema) as stream:
            stream.write_table(table)
        digest.update(sink.getvalue())
    return digest.hexdigest()[:8]


def stages_of(
    all_files: list[ShardFiles],
    config: Config,
    work: str,
    mapper: Callable[[str], Mapper],
    peak: Peak,
    show: Callable[[Row, str], None],
    without: Sequence[str],
) -> None:
    """Runs the stages and shows a row of each, and of all with digests of the masks and of what they select."""
    table, files = list[Row](), all_files

    def timed(stage: str, run: Callable[[Mapper], Any]) -> Any:
        peak.stage = stage
        before = tracemalloc.get_traced_memory()[0]
        tracemalloc.reset_peak()
        recorder, began, spent = Recorder(mapper(stage)), time.perf_counter(), processor_seconds()
        found = run(recorder)
        seconds = time.perf_counter() - began
        recorder.note()
        spent = processor_seconds() - spent
        held = max(recorder.held - before, 0)
        alone = seconds - recorder.shared, spent - recorder.shared_processor
        memory = peak.most[stage], peak.own[stage]
        table.append(Row(stage, seconds, spent, *alone, *memory, held, recorder.rounds))
        show(table[-1], "")
        return found

    outputs = timed("filter", lambda maps: filter_corpus(files, config, work, maps))
    files = [replace(f, filters=output) for f, output in zip(files, outputs, strict=True)]
    if "duplicates" not in without:
        outputs = timed("duplicates", lambda maps: find_duplicates(files, config, work, maps))
        files = [replace(f, duplicates=output) for f, output in zip(files, outputs, strict=True)]
    if "prices" in without:
        return
    items = [files[first : first + 4] for first in range(0, len(files), 4)]
    counted = timed("atoms", lambda maps: maps(atoms_group, Masking(config, work), items))
    files = [found for group in counted for found in group]
    prices = timed("prices", lambda maps: learn_prices(files, config, work, maps))
    priced = [(group, prices) for group in counted]
    masks = timed("mask", lambda maps: maps(mask_group, Masking(config, work), priced))
    written = [output for group in masks for output in group]
    sums = {name: sum(getattr(row, name) for row in table) for name in SUMMED}
    most = {name: max(getattr(row, name) for row in table) for name in ("memory", "own", "held")}
    show(Row("all", **sums, **most, rounds=[]), f"{digest_of(written)} {digest_of(written, 'chunk_id', 'selected')}")


def refresh(files: list[ShardFiles], folder: str, documents: int, rounds: bool) -> None:
    """Prints the table of `--refresh`."""
    config = Config.model_validate({"select": {"device": "cpu"}})
    middle = len(files) // 2
    runs = [("all but one", "grown", files[:middle] + files[middle + 1 :]), ("one more", "grown", files)]
    found = {}
    for label, work, some in [*runs, ("all at once", "anew", files)]:
        place = f"{folder}/{work}"
        recorders = [Recorder(here), Recorder(here)]
        times = [time.process_time()]
        filtered = filter_corpus(some, config, place, recorders[0])
        times.append(time.process_time())
        given = [replace(f, filters=output) for f, output in zip(some, filtered, strict=True)]
        duplicates = find_duplicates(given, config, place, recorders[1])
        times.append(time.process_time())
        found[label] = [(Path(out.path).name, Path(out.path).read_bytes()) for out in [*filtered, *duplicates]]
        for stage, recorder, seconds in zip(("filter", "duplicates"), recorders, np.diff(times), strict=True):
            print(f"| {documents:,} | {label} | {stage} | {seconds:.2f} |", flush=True)
            for name, items, wall, _ in recorder.rounds if rounds else ():
                print(f"    {name} {items} items {wall:.2f} s of wall time", flush=True)
    before = {name for name, _ in found["all but one"]}
    stayed = sum(name in before for name, _ in found["one more"])
    same = found["one more"] == found["all at once"]
    of = len(found["one more"])
    print(f"{stayed} of {of} files stay as they were; all at once gives {'the same' if same else 'OTHERS'}")


def print_row(label: str, documents: int, rounds: bool, row: Row, digests: str) -> None:
    """A line of the table."""
    print(
        f"| {label} | {row.stage} | {row.seconds:.1f} | {row.processor:.1f} | {1e6 * row.processor / documents:.1f} | "
        f"{row.alone / row.seconds:.0%} | {row.alone_processor / max(row.processor, 1e-9):.0%} | "
        f"{row.memory / 2**30:.2f} | {row.own / 2**30:.2f} | {row.held / documents:.1f} | {digests} |",
        flush=True,
    )
    for name, items, wall, processor in row.rounds if rounds else ():
        print(f"    {name} {items} items {wall:.2f} s, {processor:.2f} of a processor", flush=True)


def run(
    engine: str,
    workers: int,
    files: list[ShardFiles],
    work: str,
    peak: Peak,
    settings: Sequence[str],
    show: Callable[[Row, str], None],
    without: Sequence[str],
) -> None:
    """Runs the stages on an engine."""
    named = [f"run.engine={engine.replace('plain', 'threads')}", f"run.workers={workers}", "select.device=cpu"]
    config = load_config(overrides=[*named, *settings])
    same_arithmetic()
    if engine == "plain":
        stages_of(files, config, work, lambda stage: here, peak, show, without)
        return
    from prefect import flow

    from datamask.engine import Rounds
    from flows.stage_runs import Stages
    from flows.warm import Server, warmed_up

    @flow
    def drive():
        with Stages(config) as stages:

            def mapper(stage: str) -> Mapper:
                stages.board.begin(stage, total=1)
                return Rounds(stages, stage, 1.0)

            stages_of(files, config, work, mapper, peak, show, without)

    with warmed_up(Server.begin()):
        drive()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("documents", type=int, nargs="+")
    parser.add_argument("--shards", type=int, default=200)
    parser.add_argument("--dimensions", type=int, default=768)
    parser.add_argument("--dask", type=int, nargs="*", default=[])
    parser.add_argument("--set", action="append", default=[], help="a setting, as for `datamask curate`")
    parser.add_argument("--always-rounds", action="store_true", help="coverage by rounds however small the corpus is")
    parser.add_argument(
        "--few", type=int, help="undecided documents that the room holds, to try what larger corpora do"
    )
    parser.add_argument("--held", action="store_true", help="trace what the caller holds between the maps; slower")
    parser.add_argument("--rounds", action="store_true", help="print the seconds of every round")
    parser.add_argument("--plain", action=argparse.BooleanOptionalAction, default=True, help="by plain calls as well")
    parser.add_argument("--keep", help="folder of what is made, for another run with as many documents")
    parser.add_argument(
        "--without",
        nargs="*",
        default=[],
        choices=["duplicates", "prices"],
        help="stages left out; prices: all from atoms on",
    )
    parser.add_argument("--words", type=int, default=4000, help="different words in all texts")
    parser.add_argument("--makers", type=int, default=2)
    parser.add_argument("--refresh", action="store_true", help="what one new shard costs")
    arguments = parser.parse_args()
    if arguments.always_rounds:
        selecting.JOINT_NUMBERS = 0
    if arguments.few:
        covering.FEW = arguments.few
    if arguments.held:
        tracemalloc.start()
    peak = Peak()
    if arguments.refresh:
        print("| documents | shards | stage | processor seconds |\n|--:|---|---|--:|")
    else:
        print(
            "| documents | engine | stage | seconds | processor s | processor µs a document | one process "
            "| of processor s | GiB a process | GiB of the caller | bytes a document | masks |"
        )
        print("|--:|---|---|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    for documents in arguments.documents:
        folder = tempfile.mkdtemp(prefix="datamask-scale-")
        if arguments.keep:
            folder = f"{arguments.keep}/{documents}-{arguments.shards}-{arguments.dimensions}"
        try:
            Path(folder, "corpus").mkdir(parents=True, exist_ok=True)
            rows = documents // arguments.shards
            given = {"rows": rows, "dimensions": arguments.dimensions, "vocabulary_size": arguments.words}
            make = partial(make_shard, folder=folder, **given)
            with ProcessPoolExecutor(arguments.makers) as pool:
                files = list(pool.map(make, range(arguments.shards)))
            if arguments.refresh:
                refresh(files, folder, documents, arguments.rounds)
                continue
            plain = [("plain", 1)] if arguments.plain else []
            for engine, workers in [*plain, *(("dask", count) for count in arguments.dask)]:
                peak.most.clear()
                peak.own.clear()
                work = f"{folder}/{engine}-{workers}"
                named = "plain calls" if engine == "plain" else f"Dask, {workers}"
                show = partial(print_row, f"{documents:,} | {named}", documents, arguments.rounds)
                run(engine, workers, files, work, peak, arguments.set, show, arguments.without)
                shutil.rmtree(work)
        finally:
            if not arguments.keep:
                shutil.rmtree(folder)


if __name__ == "__main__":
    main()
