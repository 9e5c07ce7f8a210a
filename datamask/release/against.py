"""Proof that what was published is what was read: every row of the data files beside its row in the corpus."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import Config, validate
from datamask.corpus.convert import convert_shard
from datamask.corpus.identify import identify_shard
from datamask.corpus.index import is_count
from datamask.corpus.inputs import find_inputs
from datamask.corpus.inspect import inspect_files
from datamask.corpus.plan import Part, Shard, part_of
from datamask.corpus.read import corpus_schema, read_batches
from datamask.errors import some
from datamask.release.data_files import DataLayout
from datamask.release.merge import row_runs
from datamask.release.personal import FIELD, PersonalRules
from datamask.release.personal import published as as_published
from datamask.release.release_folder import ReleaseFolder

if TYPE_CHECKING:
    from datamask.release.verify import Verified

EXAMPLES = 5  # rows named of those that differ


def compare_with_corpus(
    release: ReleaseFolder, manifest: dict[str, Any], data: Sequence[str], against: Sequence[str], found: Verified
) -> None:
    """Adds to `found` what differs. The corpus's files are recognised by their content, wherever they lie now."""
    own = manifest["settings"]["corpus"]
    filters = {name: manifest["settings"]["filter"].get(name) for name in ("languages", "identify")}
    filters["identify"] = filters["identify"] or "off"  # of a release from before there was such a setting
    config = validate({"corpus": {**own, "input": list(against)}, "filter": filters})
    published = manifest["settings"].get("release") or {}
    rules = PersonalRules.of(
        validate({"release": {n: published[n] for n in published if n.startswith("personal")}}).release
    )
    with tempfile.TemporaryDirectory(prefix="datamask-") as work:
        shards, missing, footers = _shards(manifest, list(against), config, work)
        found.problems += missing
        if missing:
            return
        converted = {
            name: identify_shard(convert_shard(shard, config, work), config, work) for name, shard in shards.items()
        }
        if unread := _unread(shards, converted, footers):
            found.problems += unread
            return
        layout = DataLayout.of(corpus_schema(list(converted.values()), config))
        found.compared = 0
        wrong: dict[str, list[str]] = {}
        for path in data:
            for shard, tables in groupby(_runs(release, path), key=lambda run: run[0]):
                ids = _ids(release, path, shard)
                for rows, source in _beside(converted[shard], ids, (table for _, table in tables), config, layout):
                    for name, places in _differences(rows, source, layout, rules):
                        wrong.setdefault(name, []).extend(f"{shard}/{place}" for place in places)
                    found.compared += rows.num_rows
        for column, rows_ in wrong.items():
            found.problems.append(f"column {column} of {len(rows_)} rows is not the source's: {some(rows_, EXAMPLES)}")


def _shards(
    manifest: dict[str, Any], against: list[str], config: Config, work: str
) -> tuple[dict[str, Shard], list[str], Counter[str]]:
    """The release's shards made of the files at hand; what is not at hand; rows of parquet files by their footers."""
    files = find_inputs(against).files
    facts = inspect_files(files, config.corpus, work)
    known = {fact.fingerprint: (file.path, fact.row_groups) for file, fact in zip(files, facts, strict=True)}
    fingerprints = {item["shard"]: item["fingerprint"] for item in manifest["inputs"]}
    parts: dict[str, list[Part]] = {shard: [] for shard in fingerprints}
    missing, footers = set(), Counter[str]()
    for source in manifest["sources"]:
        if source["fingerprint"] not in known:
            missing.add(f"{source['path']} is not in the corpus given, or has changed since")
            continue
        path, row_groups = known[source["fingerprint"]]
        parts[source["shard"]].append(replace(part_of(source), path=path, rows=source["rows"]))
        if not manifest["provenance"]["failed"]:  # else some row groups may have been left out
            footers[path] = sum(row_groups or ())
    shards = {name: Shard(name, tuple(parts[name]), fingerprint) for name, fingerprint in fingerprints.items()}
    return shards, sorted(missing), footers


def _unread(shards: Mapping[str, Shard], converted: Mapping[str, Shard], footers: Counter[str]) -> list[str]:
    """Files that have other rows than the release was made of, in words."""
    read, there = Counter[str](), Counter[str]()
    for name, shard in shards.items():
        for part in shard.parts:
            read[part.path] += part.rows or 0
        for run in row_runs(converted[name]):
            there[run.part.path] += run.part.rows or 0
    there |= footers  # the greater of both: a row group that was never planned is in the footer alone
    paths = sorted(read | there)
    return [
        f"{path} has {there[path]:,} rows, and {read[path]:,} were read" for path in paths if read[path] != there[path]
    ]


def _runs(release: ReleaseFolder, path: str) -> Iterator[tuple[str, pa.Table]]:
    """(shard, rows) of a data file in order; a row group at a time, cut where the shard changes."""
    with release.opened(path) as (_, file):
        for group in range(file.num_row_groups):
            table = file.read_row_group(group)
            table.validate(full=True)
            for shard in pc.unique(table["shard"]).to_pylist():
                yield shard, table.filter(pc.equal(table["shard"], shard))


def _ids(release: ReleaseFolder, path: str, shard: str) -> np.ndarray:
    places = storage.read_table(storage.join(release.path, path), ["shard", "chunk_id"])
    return places.filter(pc.equal(places["shard"], shard))["chunk_id"].to_numpy()


def _beside(
    shard: Shard, ids: np.ndarray, tables: Iterator[pa.Table], config: Config, layout: DataLayout
) -> Iterator[tuple[pa.Table, pa.Table | None]]:
    """Published rows and the corpus's rows of the same chunk_ids, a batch at a time; None where it has no such rows."""
    times = np.bincount(ids, minlength=max(int(ids.max()) + 1, shard.rows or 0))  # a document may be several rows
    pending = next(tables)
    for batch in read_batches(shard, config, layout.corpus.names, schema=layout.corpus, only=times > 0):
        here = batch["chunk_id"].to_numpy()
        often = times[here[0] : here[-1] + 1]
        source = pa.Table.from_batches([batch.take(pa.array(np.repeat(np.arange(len(often)), often)))])
        while pending.num_rows < source.num_rows and (more := next(tables, None)) is not None:
            pending = pa.concat_tables([pending, more])
        rows = pending.slice(0, source.num_rows)
        if source.num_rows:
            yield rows, source if rows["chunk_id"].equals(source["chunk_id"]) else None
        pending = pending.slice(source.num_rows)
    for rest in chain([pending], tables):
        if rest.num_rows:
            yield rest, None


def _differences(
    rows: pa.Table, source: pa.Table | None, layout: DataLayout, rules: PersonalRules | None
) -> Iterator[tuple[str, list[int]]]:
    """(column, chunk_ids of the rows whose value is not the source's); a text's where personal data is looked for: not
    what the rules make of the source's."""
    ids = rows["chunk_id"].to_numpy()
    if source is None:
        yield "chunk_id", ids.tolist()
        return
    if rules:
        text, held = as_published(source["text"], rules)
        source = source.set_column(source.schema.get_field_index("text"), "text", [text])
        told = rows[FIELD.name].to_pylist() if FIELD.name in rows.column_names else [None] * rows.num_rows
        wrong = np.array([counts != said for counts, said in zip(held.to_pylist(), told, strict=True)])
        if wrong.any():
            yield FIELD.name, ids[wrong].tolist()
    released = rows.column_names[: len(layout.corpus.names)]
    for name, published in zip(layout.corpus.names, released, strict=True):
        theirs, ours = source[name].combine_chunks(), rows[published].combine_chunks()
        if not theirs.equals(ours):
            differs = np.array([repr(a) != repr(b) for a, b in zip(theirs.to_pylist(), ours.to_pylist(), strict=True)])
            if name == "id":  # made where the source has none
                differs &= theirs.is_valid().to_numpy(zero_copy_only=False)
            if name == "token_count":  # counted where the source has none
                differs &= is_count(theirs).to_numpy(zero_copy_only=False)
            if differs.any():
                yield published, ids[differs].tolist()
