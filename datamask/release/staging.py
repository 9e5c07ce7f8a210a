"""Export: from masks to a staged release. What became of every row first, then the selected rows' text.

Two rounds: `decide_shards` joins masks, filters and scores, shard by shard, and `write_stripes` writes the data files;
between them the stripes are cut. The staging folder lies at work/staging/<key>; each of its files appears whole, so an
export that was killed goes on where it stopped. Nothing in it depends on time, machine or number of workers.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pydantic import TypeAdapter

from datamask import storage
from datamask.config import Config
from datamask.corpus.inspect import check_unchanged
from datamask.corpus.plan import Part
from datamask.corpus.read import corpus_schema, read_batches
from datamask.duck import connect
from datamask.errors import InputError
from datamask.maps import Mapper, Threads, groups, read_arrays, rounds, write_arrays
from datamask.release.data_files import (
    INDEXED,
    DataLayout,
    Stripe,
    WrittenFile,
    cut_stripes,
    folder_names,
    sealed,
    write_stripe,
    written,
)
from datamask.release.manifest import release_key
from datamask.release.merge import QUARANTINED, Conservation, count_values, decide, quarantine_rows, row_runs, schema_of
from datamask.release.personal import FIELD, KINDS, add_up
from datamask.release.release_folder import QUARANTINE, Provenance, Staged, list_versions, version_key, version_path
from datamask.stages import ShardFiles

THREADS = 8  # files written side by side by a plain call, at most
CENSUS_ROWS = 100_000  # read at a time for dump and language


@dataclass(frozen=True)
class Exporting:
    config: Config
    staged: Staged
    layout: DataLayout
    folder: str  # of what the rounds hand on
    names: Mapping[str | None, str]  # a dump's folder
    readers: int = 1  # threads that read ahead for a stripe


def export(
    all_files: Sequence[ShardFiles], config: Config, out: str, provenance: Provenance, maps: Mapper | None = None
) -> Staged:
    """Data files, decisions and quarantine in the staging folder of this selection's key.

    If a release carries the key already, it is returned and nothing is written.

    :param maps: who runs the rounds; threads of this process by default.
    :raises InputError: nothing was selected.
    :raises ConservationError: the rows do not add up.
    """
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    inputs = [_input(files) for files in ordered]
    key = release_key(inputs, config.model_dump(mode="json"), provenance_json(provenance))
    for version in list_versions(out):
        if version_key(version) == key:
            return Staged(version_path(out, version), out, key, version, config.release.keep)
    staged = Staged(storage.join(out, "work", "staging", key), out, key, keep=config.release.keep)
    if storage.exists(staged.draft) and _are_there(storage.read_json(staged.draft)["files"], staged.folder):
        return staged  # an earlier attempt came to the end of this stage
    layout = DataLayout.of(
        corpus_schema([files.shard for files in ordered], config),
        key,
        config.selection.repeat > 1,
        config.release.personal != "off",
        config.counts_copies,
        bool(provenance.topics),
    )
    maps = maps or Threads(min(THREADS, os.cpu_count() or 1))
    with rounds(storage.join(out, "work"), "export", key) as folder:
        _stage(ordered, Exporting(config, staged, layout, folder, {}), provenance, inputs, maps)
    return staged


def _are_there(files: Iterable[Mapping[str, Any]], folder: str) -> bool:
    return all(storage.size_of(storage.join(folder, file["path"])) == file["bytes"] for file in files)


def _stage(
    ordered: Sequence[ShardFiles], state: Exporting, provenance: Provenance, inputs: Sequence[Any], maps: Mapper
) -> None:
    config, staged = state.config, state.staged
    places = groups(ordered)
    items = [tuple(ordered[place] for place in group) for group in places]
    rows = [sum(files.shard.rows or 0 for files in item) for item in items]
    decided = [each for group in maps(decide_shards, state, items, rows) for each in group]
    conservation = Conservation()
    for each in decided:
        conservation.add(each.conservation)
    conservation.check("the corpus")
    if not conservation.selected:
        filtered = ", ".join(f"{count} by {name}" for name, count in sorted(conservation.filtered.items())) or "none"
        raise InputError(
            f"nothing was selected of {conservation.rows} rows (filtered: {filtered}; "
            f"quarantined: {conservation.quarantined.total()}; not selected: {conservation.not_selected}), so there is "
            "no release; loosen filter.* or the budget"
        )
    written_files = [each.decisions for each in decided]
    with (
        written(staged.folder, QUARANTINE, written_files) as temporary,
        pq.ParquetWriter(temporary, QUARANTINED.with_metadata(sealed(staged.key)), compression="zstd") as writer,
    ):
        for files, each in zip(ordered, decided, strict=True):
            there = each.conservation.quarantined
            writer.write_table(quarantine_rows(files) if there else QUARANTINED.empty_table())
    names = folder_names(dump for each in decided for dump, _ in each.dumps)
    most = config.release.rows_per_file, config.release.bytes_per_file
    stripes = list(cut_stripes(_selections(decided, names), *most))
    readers = -(-min(THREADS, os.cpu_count() or 1) // len(stripes))
    stripe_items = [(stripe, {run.shard: ordered[run.shard] for run in stripe.runs}) for stripe in stripes]
    done = maps(
        write_stripes, replace(state, names=names, readers=readers), stripe_items, [stripe.rows for stripe in stripes]
    )
    written_files += [file for files in done for file in files]
    check_unchanged([files.shard for files in ordered], storage.join(staged.out, "work"))
    dumps: Counter[str | None] = Counter()
    languages: Counter[str] = Counter()
    for each in decided:
        dumps.update({dump: rows for dump, rows in each.dumps if rows})
        languages.update(each.languages)
    draft = {
        "key": staged.key,
        "settings": config.model_dump(mode="json"),
        "inputs": inputs,
        "sources": [
            _source(files, source) for files, each in zip(ordered, decided, strict=True) for source in each.sources
        ],
        "provenance": provenance_json(provenance),
        "conservation": {
            "total": conservation.to_json(),
            "shards": {
                files.shard.name: each.conservation.to_json() for files, each in zip(ordered, decided, strict=True)
            },
        },
        "columns": state.layout.described(),
        "dumps": dict(sorted((names[dump], rows) for dump, rows in dumps.items())),
        "languages": dict(sorted(languages.items())),
        "skipped": [asdict(skipped) for skipped in provenance.skipped],
        **({"named": dict(provenance.named)} if provenance.named else {}),
        **({"folder": provenance.folder} if provenance.folder else {}),
        **({"personal": _personal(staged.folder, written_files)} if config.release.personal != "off" else {}),
        "files": [file.to_json() for file in sorted(written_files, key=lambda file: file.path)],
    }
    storage.write_json(staged.draft, draft)


def provenance_json(provenance: Provenance) -> dict[str, Any]:
    return {
        "encoder": dict(provenance.encoder),
        "quality": dict(provenance.quality),
        "certificate": dict(provenance.certificate),
        "failed": [asdict(failed) for failed in provenance.failed],
        **({"topics": dict(provenance.topics)} if provenance.topics else {}),
    }


def _input(files: ShardFiles) -> dict[str, Any]:
    keys = {name: output.key for name, output in files.outputs().items()}
    keys |= {"languages": files.shard.beside.fingerprint} if files.shard.beside else {}
    return {"shard": files.shard.name, "fingerprint": files.shard.fingerprint, "keys": keys}


def _source(files: ShardFiles, part: Part) -> dict[str, Any]:
    facts = {name: value for name, value in asdict(part).items() if name != "reading" or value}
    return {"shard": files.shard.name, **facts}


# ---------------------------------------------------------------- data files


def _selections(
    decided: Sequence[ShardDecided], dumps: Iterable[str | None]
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each shard, its selected rows' chunk_ids, dump codes and bytes of text; one shard's are held at a time."""
    code = {dump: number for number, dump in enumerate(dumps)}
    for each in decided:
        codes = np.array([code[dump] for dump, _ in each.dumps], dtype=np.int64)
        chunk_ids, own, sizes = read_arrays(each.selection, "chunk_id", "dump", "bytes")
        yield chunk_ids, codes[own], sizes


def write_stripes(state: Exporting, item: tuple[Stripe, Mapping[int, ShardFiles]]) -> list[WrittenFile]:
    """A stripe's data files; what an earlier attempt finished is taken as it is."""
    stripe, shards = item
    folder = state.staged.folder
    record = storage.join(state.folder, f"stripe-{stripe.number:06d}.json")
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError):
        known = storage.read_json(record)
        if _are_there(known, folder):
            return [WrittenFile(**item) for item in known]

    def decisions(files: ShardFiles) -> pa.Table:
        made = [name for name in state.layout.made if name not in (FIELD.name, "shard")]
        return storage.read_table(storage.join(folder, decisions_path(files)), [*INDEXED, "outcome", *made])

    files = write_stripe(stripe, shards, state.config, state.layout, state.names, folder, decisions, state.readers)
    storage.write_json(record, [file.to_json() for file in files])
    return files


def _personal(folder: str, files: Sequence[WrittenFile]) -> dict[str, int]:
    """What was found of each kind in the data files, and in how many rows."""
    sums = dict.fromkeys(("documents", *KINDS), 0)
    for file in files:
        if file.path.startswith("data/"):
            add_up(storage.read_table(storage.join(folder, file.path), [FIELD.name])[FIELD.name], sums)
    return sums


# ---------------------------------------------------------------- first round: what became of every row


@dataclass(frozen=True)
class ShardDecided:
    """A shard's part of the manifest."""

    conservation: Conservation
    decisions: WrittenFile
    sources: tuple[Part, ...]
    selection: str  # file of the selected rows' chunk_id, dump (place in `dumps`) and bytes of text
    dumps: tuple[tuple[str | None, int], ...]  # value and selected rows, in the order of the places
    languages: Mapping[str, int]


_FACTS = TypeAdapter(ShardDecided)


def decisions_path(files: ShardFiles) -> str:
    return f"decisions/{files.shard.name}.parquet"


def decide_shards(state: Exporting, shards: Sequence[ShardFiles]) -> list[ShardDecided]:
    """The decisions on all rows of some shards, each in a file of the release, and an array file for the next round.

    :raises ConservationError: the rows of one do not add up.
    """
    found = [_decided(files, state) for files in shards]
    if all(found):
        return [each for each in found if each]
    with connect(state.config.filter.memory_limit) as connection:
        return [each or _decide(files, state, connection) for files, each in zip(shards, found, strict=True)]


def _decide(files: ShardFiles, state: Exporting, connection: duckdb.DuckDBPyConnection) -> ShardDecided:
    decided, sums = decide(files, connection)
    written_files: list[WrittenFile] = []
    with written(state.staged.folder, decisions_path(files), written_files) as temporary:
        sections = {"select", "filter", "quality", "duplicates"}
        schema = schema_of(state.config.model_dump(mode="json", include=sections), files.topics is not None)
        table = decided.select(schema.names).cast(schema).replace_schema_metadata(sealed(state.staged.key))
        pq.write_table(table, temporary, compression="zstd")
    selected = pc.equal(decided["outcome"], "selected").to_numpy()
    chunk_ids = np.flatnonzero(selected)
    times = selected.astype(np.int32)  # rows of the data files that each row read becomes
    if state.config.selection.repeat > 1 and state.config.release.repeated_rows:
        times = decided["repeat"].to_numpy()
    dumps, values, languages = _census(files, state, times)
    found = ShardDecided(
        sums,
        written_files[0],
        tuple(run.part for run in row_runs(files.shard)),
        _selection(files, state),
        tuple((value, int(times[chunk_ids[dumps == place]].sum())) for place, value in enumerate(values)),
        languages,
    )
    write_arrays(
        found.selection,
        chunk_id=chunk_ids,
        dump=dumps,
        bytes=(decided["bytes"].to_numpy() * times)[chunk_ids],
        facts=np.frombuffer(_FACTS.dump_json(found), np.uint8),
    )
    return found


def _census(
    files: ShardFiles, state: Exporting, times: np.ndarray
) -> tuple[np.ndarray, tuple[str | None, ...], dict[str, int]]:
    """(each selected row's dump as a place among the values, the values, rows by language). times: (rows read,)."""
    schema = state.layout.corpus
    read = [name for name in ("dump", "language") if name in schema.names]
    languages: Counter[str] = Counter()
    values: dict[str | None, int] = {}
    parts: list[np.ndarray] = []
    if read and times.any():
        for batch in read_batches(files.shard, state.config, read, CENSUS_ROWS, schema, times > 0):
            ids = batch["chunk_id"].to_numpy()
            here = times[ids[0] : ids[-1] + 1]
            chosen = batch.filter(pa.array(here > 0))
            if "language" in read:
                languages_here = batch["language"].take(pa.array(np.repeat(np.arange(len(here)), here)))
                languages.update(count_values(languages_here.drop_null()))
            if "dump" in read:
                encoded = chosen["dump"].fill_null("").dictionary_encode()
                met = [value or None for value in encoded.dictionary.to_pylist()]
                codes = np.array([values.setdefault(value, len(values)) for value in met], dtype=np.int32)
                parts.append(codes[encoded.indices.to_numpy()])
    if parts:
        return np.concatenate(parts), tuple(values), dict(languages)
    return np.zeros(int((times > 0).sum()), np.int32), (None,), dict(languages)


def _selection(files: ShardFiles, state: Exporting) -> str:
    return storage.join(state.folder, f"{files.shard.name}.npz")


def _decided(files: ShardFiles, state: Exporting) -> ShardDecided | None:
    """What an earlier attempt decided of a shard, if its file of decisions is still there."""
    url = _selection(files, state)
    if not storage.exists(url):
        return None
    found = replace(_FACTS.validate_json(read_arrays(url, "facts")[0].tobytes()), selection=url)
    there = storage.size_of(storage.join(state.staged.folder, found.decisions.path))
    return found if there == found.decisions.bytes else None
