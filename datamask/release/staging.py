"""Export: from masks to a staged release. What became of every row first, then the selected rows' text.

The staging folder lies at work/staging/<key>; each of its files appears whole, so an export that was killed goes on
where it stopped. Nothing in it depends on time, machine or number of threads.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamask import storage
from datamask.config import Config
from datamask.corpus.inspect import check_unchanged
from datamask.corpus.read import corpus_schema, read_batches
from datamask.errors import IncompleteError, InputError
from datamask.release.data_files import Layout, WrittenFile, sealed, write_stripe, written
from datamask.release.duck import connect
from datamask.release.layout import (
    QUARANTINE,
    Provenance,
    Staged,
    list_versions,
    version_key,
    version_path,
)
from datamask.release.manifest import release_key
from datamask.release.merge import DECISIONS, REPEATED, Conservation, decide
from datamask.release.quarantine import QUARANTINED, Source, quarantine_rows, sources
from datamask.release.stripes import Folders, Stripe, cut
from datamask.stages import Progress, ShardFiles, silent

CENSUS_ROWS = 100_000  # read at a time for dump and language
THREADS = 8  # files written side by side, at most


def export(
    all_files: Sequence[ShardFiles], config: Config, out: str, provenance: Provenance, progress: Progress = silent
) -> Staged:
    """Data files, decisions and quarantine in the staging folder of this selection's key.

    If a release carries the key already, it is returned and nothing is written.

    :raises IncompleteError: shards failed, and run.allow_failed_shards is not set.
    :raises InputError: nothing was selected.
    :raises ConservationError: the rows do not add up.
    """
    if provenance.failed and not config.run.allow_failed_shards:
        named = "\n".join(f"  {failed.path}: {failed.error}" for failed in provenance.failed)
        raise IncompleteError(
            f"{len(provenance.failed)} files or shards failed, so there is no release:\n{named}\n"
            "mend or remove them, or publish without them: --allow-failed-shards"
        )
    ordered = sorted(all_files, key=lambda files: files.shard.name)
    corpus = corpus_schema([files.shard for files in ordered], config)
    inputs = [_input(files) for files in ordered]
    key = release_key(inputs, config.model_dump(mode="json"), provenance_json(provenance))
    for version in list_versions(out):
        if version_key(version) == key:
            return Staged(version_path(out, version), out, key, version)
    staged = Staged(storage.join(out, "work", "staging", key), out, key)
    layout = Layout.of(corpus, key, config.select.repeat > 1)
    written_files: list[WrittenFile] = []
    conservation, shards = Conservation(), {}
    with connect(config.filter.memory_limit, storage.join(out, "work")) as connection:
        for files in ordered:
            decided, sums = decide(files, connection)
            conservation.add(sums)
            shards[files.shard.name] = sums.to_json()
            with written(staged.folder, _decisions_path(files), written_files) as temporary:
                schema = REPEATED if config.select.repeat > 1 else DECISIONS
                table = decided.select(schema.names).cast(schema).replace_schema_metadata(sealed(key))
                pq.write_table(table, temporary, compression="zstd")
    conservation.check("the corpus")
    if not conservation.selected:
        filtered = ", ".join(f"{count} by {name}" for name, count in sorted(conservation.filtered.items())) or "none"
        raise InputError(
            f"nothing was selected of {conservation.rows} rows (filtered: {filtered}; "
            f"quarantined: {conservation.quarantined.total()}; not selected: {conservation.not_selected}), so there is "
            "no release; loosen filter.* or the budget"
        )
    with (
        written(staged.folder, QUARANTINE, written_files) as temporary,
        pq.ParquetWriter(temporary, QUARANTINED.with_metadata(sealed(key)), compression="zstd") as writer,
    ):
        for files in ordered:
            writer.write_table(quarantine_rows(files))
    census = _Census()
    written_files += _write_data(ordered, config, layout, staged, census, progress)
    check_unchanged([files.shard for files in ordered], storage.join(out, "work"))
    draft = {
        "key": key,
        "settings": config.model_dump(mode="json"),
        "inputs": inputs,
        "sources": [_source(files, source) for files in ordered for source in sources(files.shard)],
        "provenance": provenance_json(provenance),
        "conservation": {"total": conservation.to_json(), "shards": shards},
        "columns": [{"name": column.name, "type": str(column.type)} for column in layout.release],
        **census.to_json(),
        "skipped": [asdict(skipped) for skipped in provenance.skipped],
        "files": [file.to_json() for file in sorted(written_files, key=lambda file: file.path)],
    }
    storage.write_json(staged.draft, draft)
    return staged


def provenance_json(provenance: Provenance) -> dict[str, Any]:
    return {
        "encoder": dict(provenance.encoder),
        "quality": dict(provenance.quality),
        "certificate": dict(provenance.certificate),
        "failed": [asdict(failed) for failed in provenance.failed],
    }


def _input(files: ShardFiles) -> dict[str, Any]:
    names = ("index", "embeddings", "scores", "signatures", "atoms", "filters", "duplicates", "masks")
    stages = {name: getattr(files, name) for name in names}
    return {
        "shard": files.shard.name,
        "fingerprint": files.shard.fingerprint,
        "keys": {name: output.key for name, output in stages.items() if output is not None},
    }


def _source(files: ShardFiles, source: Source) -> dict[str, Any]:
    facts = asdict(source)
    kept = ("path", "format", "fingerprint", "bytes", "row_groups", "rows", *(["reading"] if source.reading else []))
    return {"shard": files.shard.name} | {name: facts[name] for name in kept}


def _decisions_path(files: ShardFiles) -> str:
    return f"decisions/{files.shard.name}.parquet"


# ---------------------------------------------------------------- data files


@dataclass
class _Census:
    """What the selected documents are, counted while the stripes are cut."""

    folders: Folders = field(default_factory=Folders)
    dumps: Counter[str | None] = field(default_factory=Counter)
    languages: Counter[str] = field(default_factory=Counter)

    def to_json(self) -> dict[str, Any]:
        names = self.folders.names()
        dumps = sorted((names[dump], rows) for dump, rows in self.dumps.items())
        return {"dumps": dict(dumps), "languages": dict(sorted(self.languages.items()))}


def _write_data(
    ordered: Sequence[ShardFiles], config: Config, layout: Layout, staged: Staged, census: _Census, progress: Progress
) -> list[WrittenFile]:
    """All stripes, side by side; one that an earlier attempt finished is taken as it is."""
    settings = config.release
    selections = _selections(ordered, config, layout, staged, census)
    stripes = list(cut(selections, settings.rows_per_file, settings.bytes_per_file))

    def decisions(files: ShardFiles) -> pa.Table:
        names = ["chunk_id", "id", "outcome", "quality_score", "probability", "token_count"]
        names += ["repeat"] if config.select.repeat > 1 else []
        return storage.read_table(storage.join(staged.folder, _decisions_path(files)), names)

    def write(stripe: Stripe) -> list[WrittenFile]:
        record = storage.join(f"{staged.folder}-stripes", f"{stripe.number:06d}.json")
        if (done := _recorded(record, staged.folder)) is not None:
            progress(stripe.rows)
            return done
        files = write_stripe(
            stripe, ordered, config, layout, census.folders, staged.folder, decisions, progress, readers
        )
        storage.write_json(record, [file.to_json() for file in files])
        return files

    cores = min(THREADS, os.cpu_count() or 1)
    threads = min(cores, len(stripes))
    readers = -(-cores // threads)
    with ThreadPoolExecutor(threads, thread_name_prefix="export") as pool:
        futures = [pool.submit(write, stripe) for stripe in stripes]
        wait(futures, return_when=FIRST_EXCEPTION)
        pool.shutdown(cancel_futures=True)
    for future in futures:
        if not future.cancelled() and (error := future.exception()):
            raise error
    return [file for future in futures for file in future.result()]


def _recorded(record: str, folder: str) -> list[WrittenFile] | None:
    try:
        files = [WrittenFile(**item) for item in storage.read_json(record)]
    except (FileNotFoundError, ValueError, TypeError):
        return None
    there = all(_size(storage.join(folder, file.path)) == file.bytes for file in files)
    return files if there else None


def _size(url: str) -> int | None:
    fs, path = storage.filesystem(url)
    if not storage.exists(url):
        return None
    with storage.storage_errors(url):
        return int(fs.size(path))


def _selections(
    ordered: Sequence[ShardFiles], config: Config, layout: Layout, staged: Staged, census: _Census
) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """For each shard, its selected rows' chunk_ids, dump codes and bytes of text; dump and language alone are read."""
    read = [name for name in ("dump", "language") if name in layout.corpus.names]
    repeated = config.select.repeat > 1 and config.release.repeated_rows
    for files in ordered:
        assert files.index is not None
        columns = ["outcome", "repeat"] if repeated else ["outcome"]
        decided = storage.read_table(storage.join(staged.folder, _decisions_path(files)), columns)
        selected = pc.equal(decided["outcome"], "selected").to_numpy()
        times = decided["repeat"].to_numpy() if repeated else selected.astype(np.int32)
        chunk_ids = np.flatnonzero(selected)
        sizes = storage.read_table(files.index.path, ["bytes"])["bytes"].to_numpy()[chunk_ids] * times[chunk_ids]
        dumps: list[np.ndarray] = []
        if read and len(chunk_ids):
            for batch in read_batches(files.shard, config, read, CENSUS_ROWS, layout.corpus, selected):
                ids = batch["chunk_id"].to_numpy()
                here = times[ids[0] : ids[-1] + 1]
                chosen = batch.take(pa.array(np.repeat(np.arange(len(here)), here)))
                if "language" in read:
                    census.languages.update(_counts(chosen["language"]))
                if "dump" in read:
                    once = batch.filter(pa.array(selected[ids[0] : ids[-1] + 1]))
                    dumps.append(_codes(once["dump"], census.folders))
        codes = np.concatenate(dumps) if dumps else np.full(len(chunk_ids), census.folders.code(None))
        for dump, code in census.folders.codes.items():
            if rows := int(times[chunk_ids][codes == code].sum()):
                census.dumps[dump] += rows
        yield chunk_ids, codes, sizes


def _counts(column: pa.Array) -> dict[str, int]:
    return {item["values"]: item["counts"] for item in pc.value_counts(column.drop_null()).to_pylist()}


def _codes(column: pa.Array, folders: Folders) -> np.ndarray:
    encoded = column.fill_null("").dictionary_encode()
    codes = np.array([folders.code(value or None) for value in encoded.dictionary.to_pylist()], dtype=np.int64)
    return codes[encoded.indices.to_numpy()]
