"""The stage `atoms`: a shard's hashed n-grams, for coverage of words; texts are read once.

    files = with_atoms(files, config, work)          # replaces files.atoms
    counts = read_ngrams(files.atoms.path, rows)     # (n, buckets) scipy.sparse

The file has a row per document: the counts of its hashed n-grams, and the name of the target's file of which it holds a
run of words, if any (`leak`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import psutil
import pyarrow as pa
from scipy.sparse import csr_array

from datamask import storage
from datamask.config import Config, ResolvedSelect
from datamask.corpus.plan import Shard
from datamask.corpus.quarantine import score_columns
from datamask.corpus.reading import ShardReading
from datamask.errors import ConfigError, InputError
from datamask.pipeline import STAGES
from datamask.selection.cover.target import Scan, TargetTexts, read_target
from datamask.selection.sparse_rows import csr_of, index_type, taken_rows
from datamask.stages import Progress, ShardFiles, required, silent
from datamask.storage import Output
from datamask.text.ngrams import BUCKETS, counted, hashed_words

NAMED = 20  # leaked documents that the facts name at most
BYTES = 24  # memory for each distinct n-gram of a document in a problem solved by one process (measured)


def reads_words(settings: ResolvedSelect) -> bool:
    """Whether these settings need the stage."""
    return bool({"coverage-ngrams", "coverage-target"} & set(settings.metrics))


def target_of(settings: ResolvedSelect) -> TargetTexts | None:
    """The target that these settings name, or None if no metric covers it."""
    if "coverage-target" not in settings.metrics or not settings.target:
        return None
    paths = tuple(storage.expand_patterns(settings.target))
    return _kept(tuple((path, storage.fingerprint(path)) for path in paths if storage.exists(path)), paths)


def check_target(settings: ResolvedSelect) -> None:
    """Whether the target that these settings name can be read, and whether a metric covers it.

    :raises ConfigError: none does.
    :raises InputError: see `read_target`.
    """
    if settings.target and "coverage-target" not in settings.metrics:
        raise ConfigError(
            f"select.target is explained by algorithm coverage with the part target, and {settings.metric} reads none; "
            "leave out select.target, or set select.algorithm and select.coverage.atoms to null"
        )
    target_of(settings)


@lru_cache(maxsize=2)
def _kept(fingerprints: tuple[tuple[str, str], ...], paths: tuple[str, ...]) -> TargetTexts:
    return read_target(paths)


_scan = lru_cache(maxsize=2)(Scan)


def with_atoms(files: ShardFiles, config: Config, work: str) -> ShardFiles:
    """The shard's files with `atoms`, which are made if the settings need them and they are missing."""
    return replace(files, atoms=count_shard(files.shard, config, work)) if reads_words(config.selection) else files


def count_shard(
    shard: Shard, config: Config, work: str, progress: Progress = silent, reading: ShardReading | None = None
) -> Output:
    """Publishes work/atoms/<shard>-<key>.parquet.

    Facts: documents, leaks, and unseen (places of the target's frequent words that the shard lacks).

    :raises InputError: a target's file cannot be read, or has hardly a word.
    """
    target = target_of(config.selection)
    buckets = config.select.coverage.buckets
    of_target = target.key if target else None
    key = STAGES["atoms"].key(config, shard.fingerprint, score_columns(config), of_target, buckets)
    url = storage.join(work, "atoms", f"{shard.name}-{key}.parquet")
    if found := storage.find_output(url, key):
        return found
    scan = _scan(target) if target else None
    facts: dict[str, Any] = {"documents": 0, "leaks": 0, "buckets": buckets}
    number = pa.from_numpy_dtype(index_type(buckets))
    columns = [("chunk_id", pa.int64()), ("bucket", pa.list_(number)), ("count", pa.list_(pa.uint32()))]
    schema = pa.schema([*columns, ("leak", pa.string())])
    seen = np.zeros(len(scan.frequent) if scan else 0, bool)

    def tables() -> Iterator[pa.Table]:
        nonlocal seen
        for batch in (reading or ShardReading(shard, config)).batches(["text"]):
            ids, first = batch.documents.rows["chunk_id"], 0
            for single, pair, document, count in hashed_words(batch.documents.rows["text"]):
                counts = counted(single, pair, document, count, buckets)
                names: list[str | None] = [None] * count
                if scan is not None:
                    leak, here = scan.look(single, document, count)
                    seen |= here
                    names = [scan.target.names[number] if number >= 0 else None for number in leak]
                    facts["leaks"] += int((leak >= 0).sum())
                facts["documents"] += count
                starts = pa.array(counts.indptr.astype(np.int32))
                yield pa.table(
                    [
                        ids.slice(first, count),
                        pa.ListArray.from_arrays(starts, pa.array(counts.indices.astype(index_type(buckets)))),
                        pa.ListArray.from_arrays(starts, pa.array(counts.data.astype(np.uint32))),
                        pa.array(names, pa.string()),
                    ],
                    schema=schema,
                )
                first += count
                progress(count)
        if scan is not None:
            facts["unseen"] = np.flatnonzero(~seen).tolist()

    return storage.write_output(url, key, schema, tables(), lambda: facts)


def read_ngrams(path: str, rows: np.ndarray, buckets: int = BUCKETS) -> csr_array:
    """Counts of these rows of a shard's atoms: (n, buckets) float32."""
    table = storage.read_table(path, ["bucket", "count"]).combine_chunks()
    if not table.num_rows:
        return csr_array((0, buckets), dtype=np.float32)
    column, counts = (table[name].chunk(0) for name in ("bucket", "count"))
    starts = column.offsets.to_numpy().astype(np.int64)
    index = column.values.to_numpy()[starts[0] : starts[-1]]
    value = counts.values.to_numpy()[counts.offsets[0].as_py() :][: len(index)]
    return csr_of(*taken_rows((starts - starts[0], index, value), rows, (np.int32, np.float32)), buckets)


def held_words(all_files: Sequence[ShardFiles]) -> int:
    """The number of distinct n-grams of each document, summed over all documents."""
    held = 0
    for files in all_files:
        with storage.open_parquet(required(files.atoms).path) as file:
            footer = file.metadata
            for group in range(footer.num_row_groups):
                columns = (footer.row_group(group).column(place) for place in range(footer.num_columns))
                held += sum(c.num_values for c in columns if c.path_in_schema.startswith("bucket"))
    return held


def check_room(numbers: int, settings: ResolvedSelect) -> None:
    """Checks that the atoms of all candidates fit into the free memory of this machine. numbers: in all their rows.

    :raises InputError: they do not; the message says what to do.
    """
    free = psutil.virtual_memory().available
    if numbers * BYTES > free:
        why = "a corpus of this size"
        if settings.repeat > 1:
            why = f"select.repeat = {settings.repeat}"
        elif settings.solver != "relaxation":
            why = f"solver {settings.solver}"
        elif not all(name.startswith("coverage-") for name in settings.metrics):
            why = f"algorithm {settings.metric}"
        raise InputError(
            f"coverage with {why} holds the words of all candidates in one process: about "
            f"{numbers * BYTES / 1e9:,.0f} GB, and {free / 1e9:,.0f} GB are free. Coverage alone by solver relaxation, "
            "each document once, goes by rounds and needs no more than a group of shards a worker. Or let each shard "
            "cover its own words (--set select.scope=shard), or use a machine with more memory: what is done is kept"
        )


def target_facts(all_files: Sequence[ShardFiles], settings: ResolvedSelect) -> dict[str, Any]:
    """The facts about a target: its files, the share of its words that the pool holds, the documents that leak it.

    :raises InputError: the pool lacks most of its words.
    """
    target = target_of(settings)
    if target is None:
        return {}
    scan = _scan(target)
    unseen = np.ones(len(scan.frequent), bool)
    leaked: list[dict[str, Any]] = []
    count = 0
    for files in all_files:
        atoms = required(files.atoms)
        unseen &= np.isin(np.arange(len(unseen)), atoms.facts["unseen"])
        count += int(atoms.facts["leaks"])
        if atoms.facts["leaks"] and len(leaked) < NAMED:
            table = storage.read_table(atoms.path, ["chunk_id", "leak"]).rename_columns(["chunk_id", "target"])
            named = table.filter(table["target"].is_valid()).slice(0, NAMED - len(leaked)).to_pylist()
            leaked += [{"shard": files.shard.name, **row} for row in named]
    words = int(target.counts().sum() + len(target.texts)) // 2
    return {
        "target": {
            "files": list(target.names),
            "texts": len(target.texts),
            "words": words,
            "words_in_pool": scan.check(~unseen),
            "leaks": count,
            "leaked": leaked,
        }
    }
