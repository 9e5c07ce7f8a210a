"""The stage that finds near-duplicates across all shards: candidates, verification, decisions.

Memory is a partition of the samples or of the candidates' texts, and 60 bytes a document; disk, for the time of the
stage, the samples (0.6 kB a document) and the candidates' texts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from datamask import storage
from datamask.config import Config
from datamask.errors import InputError
from datamask.filter.alarm import groups_of, raise_alarm
from datamask.filter.candidates import find_pairs
from datamask.filter.intact import Natural
from datamask.filter.postings import PARTITION, Documents, Writer, sampled
from datamask.filter.resolve import Fall
from datamask.filter.signatures import sign_shard
from datamask.filter.verify import Rules, decide
from datamask.stages import Progress, ShardFiles, recorded, silent
from datamask.storage import Output

VERSION = 4
SCHEMA = pa.schema(
    [
        ("chunk_id", pa.int64()),
        ("duplicate_of_shard", pa.string()),
        ("duplicate_of", pa.int64()),
        ("similarity", pa.float32()),
        ("kind", pa.string()),  # exact, near, contained, semantic
        ("cluster", pa.string()),  # SHARD/CHUNK_ID of the first seen of those tied to one another
    ]
)
OFF = 2.0  # a threshold that nothing reaches
_MIX = np.uint64(0x9E3779B97F4A7C15)


def wanted(config: Config) -> bool:
    """Whether the settings ask for this stage at all."""
    settings = config.duplicates
    asked = settings.jaccard or settings.containment or settings.semantic != "off"
    return config.select.semantic_duplicates is not None and bool(asked)


def find_duplicates(
    all_files: Sequence[ShardFiles], config: Config, work: str, progress: Progress = silent
) -> list[Output]:
    """A file per shard, in the order given, of its documents that are duplicates of one that stays.

    Each has been compared with that one on the whole texts (kind semantic, which needs a setting of its own, by their
    embeddings). With `filter.order: before`, only what passes the filters is compared. A shard's file is named by its
    own rows, so a new shard that changes nothing in another leaves it as it was.

    :raises InputError: `duplicates.against` is no curation, or too much of a group falls (`duplicates.alarm`).
    :raises StorageError: there is no room for the scratch files.
    """
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    earlier = [item for place in config.duplicates.against for item in _earlier(place, work)]
    record = storage.join(work, "duplicates", f"corpus-{_key(ordered, earlier, config)}.json")
    if (found := _cached(all_files, record, work)) is not None:
        return found
    with storage.scratch(work) as folder:
        tables, facts = _search(ordered, earlier, config, work, folder, progress)
    outputs = {name: _write(name, table, work) for name, table in tables.items()}
    keys = {name: output.key for name, output in outputs.items()}
    storage.write_json(record, {"keys": keys, "facts": facts})
    return [_with_facts(outputs[files.shard.name], facts) for files in all_files]


# ---------------------------------------------------------------- files


def _key(ordered: Sequence[ShardFiles], earlier: Sequence[tuple[str, ShardFiles, Config]], config: Config) -> str:
    semantic = _semantic(config)
    inputs = []
    for files in ordered:
        filters = files.filters.key if files.filters and config.filter.order == "before" else None
        embedded = [_output(files.embeddings).key, config.select.seed] if semantic else []
        embedded += [files.shard.beside.fingerprint] if files.shard.beside else []  # languages are compared apart
        inputs.append([files.shard.name, _output(files.signatures).key, _output(files.scores).key, filters, *embedded])
    settings = config.duplicates.model_dump(mode="json", exclude={"against", "alarm"})
    against = [[place, f.shard.fingerprint, _output(f.masks).key] for place, f, _ in earlier]
    return storage.key("duplicates", VERSION, inputs, settings, semantic, against)


def _semantic(config: Config) -> float | None:
    return config.select.semantic_duplicates if config.duplicates.semantic != "off" else None


def _cached(all_files: Sequence[ShardFiles], record: str, work: str) -> list[Output] | None:
    try:
        held = storage.read_json(record)
    except (FileNotFoundError, ValueError):
        return None
    keys = held["keys"]
    names = [files.shard.name for files in all_files]
    outputs = [storage.find_output(_path(name, keys[name], work), keys[name]) for name in names]
    return [_with_facts(output, held["facts"]) for output in outputs if output] if all(outputs) else None


def _with_facts(output: Output, facts: Mapping[str, Any]) -> Output:
    """With the facts of the whole corpus beside the shard's own, which alone are in its file."""
    return replace(output, facts={**output.facts, **facts})


def _path(name: str, key: str, work: str) -> str:
    return storage.join(work, "duplicates", f"{name}-{key}.parquet")


def _write(name: str, table: pa.Table, work: str) -> Output:
    rows = hashlib.sha256(repr(table.to_pydict()).encode()).hexdigest()
    key = storage.key("duplicates", VERSION, name, rows)
    path = _path(name, key, work)
    if found := storage.find_output(path, key):
        return found
    counts = {entry["values"]: entry["counts"] for entry in table["kind"].value_counts().to_pylist()}
    facts = {"duplicates": table.num_rows, "kinds": dict(sorted(counts.items()))}
    return storage.write_output(path, key, SCHEMA, [table], lambda: facts)


def _output(output: Output | None) -> Output:
    if output is None:
        raise ValueError("an earlier stage has not run for this shard")
    return output


# ---------------------------------------------------------------- search


def _earlier(place: str, work: str) -> list[tuple[str, ShardFiles, Config]]:
    """The shards of an earlier curation, signed, with the settings they are read by."""
    all_files, config, _ = recorded(place)
    found = []
    for files in sorted(all_files, key=lambda files: files.shard.name):
        if files.masks is None:
            raise InputError(f"{place}: shard {files.shard.name} has no mask, so nothing can be compared with it")
        signatures = files.signatures or sign_shard(files.shard, config, work)
        if not storage.exists(signatures.path):
            signatures = sign_shard(files.shard, config, work)
        found.append((place, replace(files, signatures=signatures), config))
    return found


def _search(
    ordered: Sequence[ShardFiles],
    earlier: Sequence[tuple[str, ShardFiles, Config]],
    config: Config,
    work: str,
    folder: str,
    progress: Progress,
) -> tuple[dict[str, pa.Table], dict[str, Any]]:
    sources = [(files, own) for _, files, own in earlier] + [(files, config) for files in ordered]
    names = [f"{place}:{files.shard.name}" for place, files, _ in earlier] + [files.shard.name for files in ordered]
    documents, quality, rows, partitions = _load(sources, len(earlier), config, folder)
    settings = config.duplicates
    rules = Rules(settings.jaccard or OFF, settings.containment or OFF)
    near, cosines = np.zeros((0, 2), np.int64), {}
    groups = groups_of(ordered, documents, len(earlier), config)
    if (epsilon := _semantic(config)) is not None and len(documents) > documents.fixed:
        near, relative = _embedded(ordered, documents, rows, groups, epsilon, config, folder, progress)
        if settings.semantic == "drop":
            cosines = {(int(a), int(b)): float(c) for (a, b), c in zip(near, relative, strict=True)}
    pairs = find_pairs(folder, partitions, documents, rules.jaccard, rules.containment, near)
    for path in Path(folder).glob("postings-*"):
        path.unlink()
    found = decide(pairs, cosines, documents, quality, sources, rules, folder, progress, _natural(ordered, work))
    fallen = np.zeros(len(documents), bool)
    fallen[list(found)] = True
    alarms = raise_alarm(groups, fallen[documents.fixed :], settings.alarm_share, settings.alarm)
    facts = {"compared": len(documents) - documents.fixed, "candidates": len(pairs), "alarms": alarms}
    return dict(_tables(found, documents, names, len(earlier))), facts


def _natural(ordered: Sequence[ShardFiles], work: str) -> Natural | None:
    """What tells which of two copies has words that were put in: the counts that the content score was made with."""
    held = _output(ordered[0].scores).facts.get("pool") if ordered else None
    if not held or not storage.exists(storage.join(work, held)):
        return None
    from datamask.quality import pool

    model = pool.read(storage.join(work, held))
    return lambda texts: pool.natural(texts, model)


def _load(
    sources: Sequence[tuple[ShardFiles, Config]], earlier: int, config: Config, folder: str
) -> tuple[Documents, np.ndarray, np.ndarray, int]:
    """(documents, their quality, their row in the shard's stage files, number of partitions)."""
    total = sum(_output(files.signatures).rows for files, _ in sources)
    partitions = max(1, -(-total * 64 // PARTITION))
    writer = Writer(folder, partitions)
    parts: list[tuple[np.ndarray, ...]] = []
    first = fixed = 0
    for number, (files, _) in enumerate(sources):
        rows, chunk_id, quality = _compared(files, number < earlier, config)
        table = storage.read_table(_output(files.signatures).path, ["chunk_id", "windows", "scale", "sample"])
        table = table.take(pa.array(chunk_id)).combine_chunks()
        some = table["windows"].to_numpy() > 0
        rows, quality, table = rows[some], quality[some], table.filter(pa.array(some)).combine_chunks()
        lists = table["sample"].combine_chunks()
        lists = lists.chunk(0) if isinstance(lists, pa.ChunkedArray) and lists.num_chunks else lists
        lengths = pa.compute.list_value_length(lists).to_numpy(zero_copy_only=False).astype(np.int64)
        hashes = pa.compute.list_flatten(lists).to_numpy(zero_copy_only=False)
        writer.add(first, lengths, hashes)
        smallest = hashes[np.cumsum(lengths) - lengths] if len(hashes) else hashes
        columns = [table[name].to_numpy() for name in ("chunk_id", "windows", "scale")]
        parts.append(
            (
                np.full(len(lengths), number, np.int32),
                *columns,
                sampled(lengths, hashes),
                smallest * _MIX,
                quality,
                rows,
            )
        )
        first += len(lengths)
        fixed += len(lengths) if number < earlier else 0
    shard, chunk_id, windows, scale, counts, draw, quality, rows = (
        np.concatenate([part[place] for part in parts]) for place in range(8)
    )
    return Documents(shard, chunk_id, windows, scale, counts, draw, fixed), quality, rows, partitions


def _compared(files: ShardFiles, fixed: bool, config: Config) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """(rows in the stages' files, chunk_id, quality) of the documents of a shard that are compared."""
    scores = storage.read_table(_output(files.scores).path, ["chunk_id", "quality_score"])
    keep = np.ones(scores.num_rows, bool)
    if fixed:
        keep = storage.read_table(_output(files.masks).path, ["selected"])["selected"].to_numpy()
    elif config.filter.order == "before":
        keep = storage.read_table(_output(files.filters).path, ["reason"])["reason"].is_null().to_numpy()
    rows = np.flatnonzero(keep)
    quality = scores["quality_score"].to_numpy().astype(np.float32)
    return rows, scores["chunk_id"].to_numpy()[rows], quality[rows]


def _embedded(
    ordered: Sequence[ShardFiles],
    documents: Documents,
    rows: np.ndarray,
    groups: Mapping[str, np.ndarray],
    epsilon: float,
    config: Config,
    folder: str,
    progress: Progress,
) -> tuple[np.ndarray, np.ndarray]:
    """Pairs of documents (P, 2) near by their embeddings, and their relative cosine."""
    from datamask.filter.semantic import near_pairs

    first_row = np.concatenate([[0], np.cumsum([_output(files.embeddings).rows for files in ordered])])
    mine = slice(documents.fixed, None)
    base = documents.shard[mine].min(initial=documents.shard[-1])
    places = rows[mine] + first_row[documents.shard[mine] - base]
    language = groups.get("language", np.zeros(len(places), object))
    group = np.unique(language.astype(str), return_inverse=True)[1]
    select = config.select
    pairs, relative = near_pairs(
        ordered, first_row, places, group, epsilon, select.seed, select.device, folder, progress
    )
    return pairs + documents.fixed, relative


def _tables(
    found: Mapping[int, tuple[Fall, int]], documents: Documents, names: Sequence[str], earlier: int
) -> Iterator[tuple[str, pa.Table]]:
    fallen = np.array(sorted(found), dtype=np.int64)
    for number in range(earlier, len(names)):
        mine = fallen[documents.shard[fallen] == number].tolist()
        falls = [found[document][0] for document in mine]
        stays = [fall.stays for fall in falls]
        clusters = [found[document][1] for document in mine]
        columns = [
            documents.chunk_id[mine],
            [names[documents.shard[stay]] for stay in stays],
            documents.chunk_id[stays],
            np.array([fall.similarity for fall in falls], np.float32),
            [fall.kind for fall in falls],
            [f"{names[documents.shard[c]]}/{documents.chunk_id[c]}" for c in clusters],
        ]
        arrays = [pa.array(column, field.type) for column, field in zip(columns, SCHEMA, strict=True)]
        yield names[number], pa.table(arrays, SCHEMA)
