"""Coverage by rounds: seconds and memory at a million documents, and beside the joint solve on a real corpus.

    python benchmarks/selection_cover_rounds.py made '../shared/data/real/real-0*.parquet' --documents 1000000
    python benchmarks/selection_cover_rounds.py real out/real --rooms 8 16 --lamb 0.5 0.7

`made`: documents are runs of consecutive sentences of two real documents each, so that atoms are real ones (bigrams
across sentences aside); shards are sorted by where the first run comes from. Seconds are processor seconds of all
rounds; memory is the peak of the process less what it held before.
`real`: a curated corpus's candidates in shards sorted by topic; the share of the joint solve's objective over a random
choice, by the joint solve's own calibration. `λ meant` is the λ at which the joint solve weighs quality against
coverage as the rounds do, whose calibration is a sample's. rooms: of the undecided, in millions of numbers of rows.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import shutil
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from scipy.sparse import csr_array, load_npz, save_npz
from selection_coverage import pool_of
from selection_scale import Peak

from datamask import storage
from datamask.config import Config, resolve
from datamask.corpus.plan import Part, Shard
from datamask.maps import here
from datamask.selection import stage as selecting
from datamask.selection.arrays import solve_problem
from datamask.selection.calibration import make_problem
from datamask.selection.cover import cover_shards as rounds
from datamask.selection.cover.counting import held_words
from datamask.selection.stage import learn_prices
from datamask.stages import ShardFiles
from datamask.storage import expand_patterns
from datamask.text.ngrams import count_ngrams

WIDTH, SENTENCES, SOURCES = 32, 4, 4000  # of a feature; of a run, on average; real documents whose sentences are used


def sentences(paths: Sequence[str], folder: str) -> None:
    """counts (S, J) of sentences, and where each document's begin."""
    starts, every = [0], []
    for path in paths:
        for text in pq.read_table(path, columns=["text"])["text"].to_pylist()[: SOURCES // len(paths)]:
            found = [each for each in re.split(r"(?<=[.!?。])\s+", text[:6000]) if 20 < len(each) < 600]
            if len(found) >= 3:
                every += found
                starts.append(len(every))
    save_npz(f"{folder}/sentences.npz", count_ngrams(every), compressed=False)
    np.save(f"{folder}/starts.npy", np.array(starts))


def make_shard(number: int, shards: int, rows: int, folder: str) -> ShardFiles:
    counts, starts = csr_array(load_npz(f"{folder}/sentences.npz")), np.load(f"{folder}/starts.npy")
    rng = np.random.default_rng([5, number])
    documents = len(starts) - 1
    first = (number * documents // shards + rng.integers(0, max(documents // shards, 1), rows)) % documents
    parts = []
    for document in (first, rng.integers(0, documents, rows)):
        length = starts[document + 1] - starts[document]
        begin = starts[document] + (rng.random(rows) * length).astype(np.int64)
        parts.append((begin, np.minimum(begin + 1 + rng.poisson(SENTENCES - 1, rows), starts[document + 1])))
    ends = np.cumsum([end - begin for begin, end in parts], axis=0)
    start = np.concatenate([[0], np.cumsum(ends[-1])])
    column = np.empty(start[-1], np.int64)
    for begin, end, at in ((*parts[0], start[:-1]), (*parts[1], start[:-1] + ends[0])):
        lengths = end - begin
        offsets = np.arange(lengths.sum()) - np.repeat(np.cumsum(lengths) - lengths, lengths)
        column[np.repeat(at, lengths) + offsets] = np.repeat(begin, lengths) + offsets
    chosen = csr_array((np.ones(len(column), np.float32), column, start), shape=(rows, counts.shape[0]))
    found = csr_array(chosen @ counts)
    found.sort_indices()
    return write(number, found, rng, first / documents, folder)


def write(number: int, found: csr_array, rng: np.random.Generator, topic: np.ndarray, folder: str) -> ShardFiles:
    rows, name, work = found.shape[0], f"s{number:04d}", f"{folder}/work"
    features = rng.normal(size=(rows, WIDTH)).astype(np.float16)
    ids, nothing = pa.array(np.arange(rows)), pa.nulls(rows, pa.string())

    def put(stage: str, **columns: Any) -> storage.Output:
        table = pa.table({"chunk_id": ids, **columns})
        return storage.write_output(f"{work}/{stage}/{name}.parquet", f"{stage}-{name}", table.schema, [table])

    tokens = np.asarray(found.sum(axis=1)).ravel() // 2 + 1
    index = put("index", token_count=pa.array(tokens.astype(np.int64)), reason=nothing)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(features.ravel()), WIDTH)
    embeddings = put("embeddings", feature_arr=vectors)
    quality = np.sin(40 * topic) + rng.normal(size=rows)
    scores = put("scores", quality_score=pa.array(quality.astype(np.float32)))
    shard = Shard(name, (Part("none", "parquet", name, 1, rows=rows),), name)
    starts = pa.array(found.indptr.astype(np.int32))
    bucket = pa.ListArray.from_arrays(starts, pa.array(found.indices.astype(np.uint16)))
    count = pa.ListArray.from_arrays(starts, pa.array(found.data.astype(np.uint32)))
    atoms = put("atoms", bucket=bucket, count=count, leak=nothing)
    return ShardFiles(shard, index=index, embeddings=embeddings, scores=scores, atoms=atoms)


def timed(spent: dict[str, list[float]]) -> Callable[..., list[Any]]:
    def maps(
        work: Any, state: Any, items: Sequence[Any], rows: Sequence[int] | None = None, rest: bool = False
    ) -> list[Any]:
        began = time.process_time()
        found = here(work, state, items)
        spent[work.__name__].append(time.process_time() - began)
        return found

    return maps


def made(arguments: argparse.Namespace) -> None:
    folder = arguments.keep or tempfile.mkdtemp(prefix="datamask-cover-")
    Path(folder).mkdir(parents=True, exist_ok=True)
    if not Path(folder, "starts.npy").exists():
        sentences(expand_patterns([arguments.place]), folder)
    selecting.with_atoms = lambda files, config, work: files  # they are there
    make = partial(make_shard, shards=arguments.shards, rows=arguments.documents // arguments.shards, folder=folder)
    with ProcessPoolExecutor(2) as pool:
        files = list(pool.map(make, range(arguments.shards)))
    print("| documents | λ | numbers | processor s | wall s | GiB beyond the atoms | fractional gap | gap | masks |")
    print("|--:|--:|--:|--:|--:|--:|--:|--:|---|")
    for lamb in arguments.lamb:
        config = Config(select=resolve(None, {"algorithm": "coverage", "lamb": lamb}))
        spent: dict[str, list[float]] = defaultdict(list)
        work = f"{folder}/work"
        for stage in ("prices", "masks"):
            shutil.rmtree(f"{work}/{stage}", ignore_errors=True)
        began, wall = time.process_time(), time.perf_counter()
        with Peak() as peak:
            prices = learn_prices(files, config, work, timed(spent))
        seconds, whole = time.process_time() - began, time.perf_counter() - wall
        facts = prices.facts
        masks = b"".join(path.read_bytes() for path in sorted(Path(work, "masks").glob("s0*")))
        numbers = held_words(files)
        cells = [f"{arguments.documents:,}", f"{lamb:g}", f"{numbers:,}", f"{seconds:.0f}", f"{whole:.0f}"]
        cells += [f"{peak.peak / 2**30:.2f}", f"{1 - facts['relaxed'] / facts['upper_bound']:.3%}"]
        print(f"| {' | '.join(cells)} | {facts['gap']:.2%} | {hashlib.sha256(masks).hexdigest()[:12]} |", flush=True)
        for name, each in spent.items():
            print(f"    {name}: {len(each)} rounds, {sum(each):.1f} s", flush=True)
    if not arguments.keep:
        shutil.rmtree(folder)


@dataclass
class Rows:
    pool: Any
    rows: np.ndarray
    groups: dict[str, np.ndarray] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows)

    def __getattr__(self, name: str) -> Any:
        if name in ("quality", "tokens"):
            return getattr(self.pool, name)[self.rows]
        raise AttributeError(name)

    def features(self) -> np.ndarray:
        return self.pool.features[torch.from_numpy(self.rows)].numpy()

    def ngrams(self) -> csr_array:
        return csr_array(self.pool.ngrams[self.rows])


def real(arguments: argparse.Namespace) -> None:
    base = {"algorithm": "coverage", "coverage": {"atoms": dict.fromkeys(arguments.atoms, 1.0)}}
    pool, _ = pool_of(arguments.place, arguments.keep or f"{arguments.place}/work", base)
    budget: dict[str, Any] = {"select_ratio": 0.1}
    if arguments.unit == "tokens":
        budget = {"budget_tokens": int(0.1 * pool.tokens.sum())}
    problem = make_problem(pool, resolve(None, {**base, **budget}))
    rows = pool.features.float()
    topic = (rows @ rows[:64].T).argmax(dim=1).numpy()
    parts = np.array_split(np.argsort(topic, kind="stable"), arguments.shards)
    shards: list[Any] = [Rows(pool, part) for part in parts]
    print(f"{len(pool):,} documents in {arguments.shards} shards sorted by topic, 10 % of the {arguments.unit}")
    print(
        "| λ | λ meant | room, numbers | undecided | joint | by rounds | share "
        "| joint's bound, fractional gap | by rounds | s | s joint |"
    )
    print("|--:|--:|--:|--:|--:|--:|--:|---|---|--:|--:|")
    for lamb in arguments.lamb:
        at = problem.at(lamb)
        began = time.process_time()
        best = solve_problem(at)
        joint = time.process_time() - began
        for room in arguments.rooms:
            config = Config(select=at.settings)
            began = time.process_time()
            with tempfile.TemporaryDirectory() as folder:
                found = rounds.CoverRounds(shards, config, folder, here, int(room * 1e6)).run()
                seconds = time.process_time() - began
                mask = np.zeros(len(pool), bool)
                mask[np.concatenate(parts)] = np.concatenate([each.read("selected")[0] for each in found.decided])
            value = at.objective.evaluate(torch.from_numpy(mask)).objective
            facts = found.facts
            print(
                f"| {lamb:g} | {meant(lamb, facts['scales'], at.objective.scales):.3f} | {room:g} M "
                f"| {facts['undecided']:,} | {best.objective:.4f} | {value:.4f} "
                f"| {value / best.objective:.2%} | {best.upper_bound:.4f}, {1 - best.relaxed / best.upper_bound:.3%} "
                f"| {facts['upper_bound']:.4f}, {1 - facts['relaxed'] / facts['upper_bound']:.3%} "
                f"| {seconds:.0f} | {joint:.0f} |",
                flush=True,
            )


def meant(lamb: float, scales: dict[str, dict[str, float]], joint: dict[str, dict[str, float]]) -> float:
    """The λ at which the joint calibration gives quality the same weight beside coverage as these scales do."""
    ratio = {name: scale["scale"] / joint[name]["scale"] for name, scale in scales.items()}
    others = [value for name, value in ratio.items() if name != "quality"]
    quality, coverage = lamb * ratio["quality"], (1 - lamb) * sum(others) / len(others)
    return quality / (quality + coverage)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["made", "real"])
    parser.add_argument("place", help="made: a pattern of parquet files with text; real: of a `datamask curate`")
    parser.add_argument("--documents", type=int, default=1_000_000)
    parser.add_argument("--shards", type=int, default=40)
    parser.add_argument("--lamb", type=float, nargs="+", default=[0.7])
    parser.add_argument("--rooms", type=float, nargs="+", default=[8.0])
    parser.add_argument("--atoms", nargs="+", default=["ngrams"])
    parser.add_argument("--unit", choices=["documents", "tokens"], default="documents")
    parser.add_argument("--keep", help="made: a folder for the corpus, kept; real: one for the shards' atoms")
    arguments = parser.parse_args()
    {"made": made, "real": real}[arguments.what](arguments)


if __name__ == "__main__":
    main()
