"""Verification: a release is what its manifest says, and its rows are the corpus's.

Every problem is found and named, not only the first. The manifest is checked against its schema, its own digest, and
the key in the version's name and in every parquet file; every file against its sha256; rows and schema against the
manifest; the published rows against the decisions, row by row; and with a corpus at hand, every published value against
the source row.

What that proves (docs/security.md): that the parts of a release agree with one another, so no part was changed alone,
nor some by someone who did not write every file anew. That it is the release somebody published is proved by its
digest, had from them by another way: `digest`.
"""

from __future__ import annotations

import os
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from datamask import storage
from datamask.config import validate
from datamask.duck import connect, insert, tables
from datamask.errors import DamagedFileError, DatamaskError, one_line, printable
from datamask.filter.forgotten import load_requests
from datamask.release.against import compare_with_corpus
from datamask.release.data_files import KEY_METADATA
from datamask.release.housekeeping import forgotten_rows
from datamask.release.manifest import FORMATS, key_of, parse_manifest, problems_of, render_manifest
from datamask.release.merge import QUARANTINED, REPEAT, Conservation, count_values, schema_of, sum_decisions
from datamask.release.personal import FIELD, add_up
from datamask.release.release_folder import MANIFEST, QUARANTINE, ReleaseFolder

THREADS = 8  # files hashed side by side, at most
MEMORY = "1GB"


@dataclass
class Verified:
    path: str
    problems: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    rows: int = 0  # of the data files
    compared: int | None = None  # rows compared with the corpus; None: no corpus was given
    digest: str | None = None  # the manifest's: what to note down, or to compare with what was noted
    forgotten: int | None = None  # entries of the output folder's record that nothing here is named by; None: no record


def verify(release: ReleaseFolder, against: Sequence[str] = (), digest: str | None = None) -> Verified:
    """All problems of a release.

    :param against: inputs of the corpus, as for corpus.input; every published value is compared with its source row.
    :param digest: the manifest's, from whoever published the release; None: not known.
    """
    found = Verified(release.path)
    manifest = _check_manifest(release, found, digest)
    if manifest is None:
        return found
    schemas = _check_keys(manifest, _check_files(release, manifest, found), found)
    data = _check_columns(manifest, {p: schema for p, schema in schemas.items() if p.startswith("data/")}, found)
    with tempfile.TemporaryDirectory(prefix="datamask-") as work, connect(MEMORY, work) as connection:
        _check_rows(release, manifest, data, schemas, connection, found)
    _check_forgotten(release, found)
    if against and not found.problems:
        try:
            compare_with_corpus(release, manifest, data, against, found)
        except DamagedFileError as error:  # of the release: what is wrong with the corpus is the caller's to mend
            found.problems.append(str(error))
    return found


def _check_forgotten(release: ReleaseFolder, found: Verified) -> None:
    """Problems of rows that the output folder's record says must be forgotten."""
    out = release.path.rstrip("/").rsplit("/", 2)[0]
    requests = load_requests(storage.join(out, "work"))
    if requests is None or found.problems:
        return
    found.forgotten = requests.rows.num_rows
    for path, rows, why in forgotten_rows(release, requests):
        found.problems.append(
            printable(
                f"{path} holds {rows} rows that must be forgotten ({why['list']}: {why['entry'][:80]}); "
                f"datamask forget {out} makes a release without them, and datamask clean {out} --yes removes older ones"
            )
        )


# ---------------------------------------------------------------- the manifest


def _check_manifest(release: ReleaseFolder, found: Verified, digest: str | None) -> dict[str, Any] | None:
    try:
        data = storage.read_content(storage.join(release.path, MANIFEST))
        manifest = parse_manifest(data, MANIFEST)
    except DatamaskError as error:
        found.problems.append(str(error))
        return None
    wrong = problems_of(manifest)
    found.problems += [f"{MANIFEST}: {problem}" for problem in wrong]
    if render_manifest(manifest) != data:
        found.problems.append(f"{MANIFEST} was edited: its digest is of other content")
    if wrong:
        return None
    found.digest = manifest["digest"]
    if digest and digest != manifest["digest"]:
        found.problems.append(f"{MANIFEST} has the digest {manifest['digest']}, not {digest}: it is another release")
    try:
        validate(manifest["settings"])
    except DatamaskError as error:
        found.problems.append(f"{MANIFEST}: settings that datamask does not have: {one_line(error)}")
    key = key_of(manifest)
    if key != manifest["key"]:
        found.problems.append(
            f"{MANIFEST} was edited: its inputs, settings and provenance have the key {key}, not {manifest['key']}"
        )
    if not manifest["version"].endswith(manifest["key"]):
        found.problems.append(f"{MANIFEST}: version {manifest['version']} does not carry the key {manifest['key']}")
    in_place = release.path.rstrip("/").split("/")[-2:-1] == ["releases"]
    if in_place and release.path.rstrip("/").rsplit("/", 1)[-1] != manifest["version"]:
        found.problems.append(f"{MANIFEST} is of version {manifest['version']}, but lies in {release.path}")
    return manifest


# ---------------------------------------------------------------- files


def _check_files(release: ReleaseFolder, manifest: dict[str, Any], found: Verified) -> dict[str, pa.Schema]:
    """Problems of files; the schemas of the parquet files that are as the manifest says."""
    there = storage.file_sizes(release.path)
    listed = {item["path"]: item for item in manifest["files"]}
    found.problems += [f"{path} is missing" for path in sorted(listed.keys() - there.keys())]
    found.problems += [printable(f"{path} was added") for path in sorted(there.keys() - listed.keys() - {MANIFEST})]

    schemas: dict[str, pa.Schema] = {}

    def check(path: str) -> str | None:
        item, url, rows = listed[path], storage.join(release.path, path), None
        digest = storage.sha256(url)
        if there[path] != item["bytes"]:
            return f"{path} has {there[path]} bytes, not {item['bytes']}"
        if digest != item["sha256"]:
            return f"{path} has changed: its sha256 is {digest}, not {item['sha256']}"
        if path.endswith(".parquet"):
            try:
                with storage.open_parquet(url) as file:
                    rows, schemas[path] = file.metadata.num_rows, file.schema_arrow
            except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
                return f"{path} is no parquet file ({one_line(error)})"
        if rows != item.get("rows"):
            schemas.pop(path, None)
            return f"{path} has {rows} rows, not {item.get('rows')}"
        return None

    names = sorted(listed.keys() & there.keys())
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        for path, problem in zip(names, pool.map(check, names), strict=True):
            found.files += 1
            found.bytes += listed[path]["bytes"]
            found.problems += [problem] if problem else []
    return {path: schemas[path] for path in names if path in schemas}


def _check_keys(manifest: dict[str, Any], files: Mapping[str, pa.Schema], found: Verified) -> dict[str, pa.Schema]:
    """Problems of the key that every parquet file carries since format 2; the schemas with each column once."""
    schemas = {}
    for path, schema in files.items():
        carried = (schema.metadata or {}).get(KEY_METADATA, b"").decode("utf-8", "replace")
        if len(set(schema.names)) < len(schema.names):
            found.problems.append(f"{path} has a column twice")
            continue
        schemas[path] = schema
        if manifest["format"] != FORMATS[0] and carried != manifest["key"]:
            found.problems.append(printable(f"{path} is of a release with the key {carried or '(none)'}"))
    return schemas


def _check_columns(manifest: dict[str, Any], data: Mapping[str, pa.Schema], found: Verified) -> list[str]:
    """Problems of the data files' columns and of the numbers of documents by dump; the files that have the columns."""
    expected = [(column["name"], column["type"]) for column in manifest["columns"]]
    good = []
    for path, schema in data.items():
        columns = [(column.name, str(column.type)) for column in schema]
        if columns == expected:
            good.append(path)
            continue
        differing = sorted({name for name, _ in set(columns) ^ set(expected)})
        found.problems.append(
            f"{path}: columns {', '.join(differing) or 'in another order'} differ from the manifest's"
        )
    dumps: Counter[str] = Counter()
    for item in manifest["files"]:
        if item["path"].startswith("data/"):
            dumps[item["path"].split("/")[1]] += item["rows"]
    if dumps != Counter(manifest["dumps"]):
        found.problems.append(f"{MANIFEST}: dumps are {manifest['dumps']}, but the files listed have {dict(dumps)}")
    rows: Counter[str] = Counter()
    for source in manifest["sources"]:
        rows[source["shard"]] += source["rows"]
    for shard, counts in sorted(manifest["conservation"]["shards"].items()):
        if rows[shard] != counts["rows"]:
            found.problems.append(f"{MANIFEST}: sources of shard {shard} have {rows[shard]} rows, not {counts['rows']}")
    return good


# ---------------------------------------------------------------- rows


def _check_rows(
    release: ReleaseFolder,
    manifest: dict[str, Any],
    data: Sequence[str],
    schemas: Mapping[str, pa.Schema],
    connection: duckdb.DuckDBPyConnection,
    found: Verified,
) -> None:
    """Decisions, quarantine and data files tell of the same rows, and add up to the manifest's conservation."""
    connection.execute("CREATE TABLE published (shard VARCHAR, chunk_id BIGINT)")
    named = ["language"] if ("language", "string") in [(c["name"], c["type"]) for c in manifest["columns"]] else []
    languages: Counter[str] = Counter()
    personal: dict[str, int] = {}
    held = [FIELD.name] if "personal" in manifest else []
    for path in data:
        try:
            for batch in release.batches(path, ["shard", "chunk_id", *named, *held]):
                if held:
                    add_up(batch[FIELD.name], personal)
                insert(connection, "published", batch.select(["shard", "chunk_id"]))
                found.rows += batch.num_rows
                if named:
                    languages.update(count_values(batch["language"].drop_null()))
        except DamagedFileError as error:
            found.problems.append(str(error))
    if held and personal != {name: count for name, count in manifest["personal"].items() if count or name in personal}:
        found.problems.append(f"{MANIFEST}: personal data is not what the data files hold")
    if dict(languages) != manifest["languages"]:
        found.problems.append(f"{MANIFEST}: languages are not those of the data files")
    connection.execute("CREATE TABLE quarantined (shard VARCHAR, chunk_id BIGINT, reason VARCHAR)")
    if QUARANTINE in schemas:
        try:
            if not schemas[QUARANTINE].equals(QUARANTINED):
                found.problems.append(f"{QUARANTINE} does not have the columns of the quarantine")
            for batch in release.batches(QUARANTINE, ["shard", "chunk_id", "reason"]):
                insert(connection, "quarantined", batch)
        except DamagedFileError as error:
            found.problems.append(str(error))
    whole = Conservation()
    release_settings = manifest["settings"].get("release")
    repeated = REPEAT.name in schema_of(manifest["settings"]).names
    rows_repeat = repeated and isinstance(release_settings, dict) and release_settings.get("repeated_rows") is True
    columns = schema_of(manifest["settings"], "topics" in manifest["provenance"])
    shards = manifest["conservation"]["shards"]
    for shard in sorted(shards):
        path = f"decisions/{shard}.parquet"
        if path not in schemas:
            continue
        if not schemas[path].equals(columns):
            found.problems.append(f"{path} does not have the columns of decisions")
            continue
        try:
            decisions = storage.read_table(storage.join(release.path, path))
            decisions.validate(full=True)
        except (DamagedFileError, pa.ArrowException) as error:
            found.problems.append(f"{path}: {one_line(error)}")
            continue
        if not np.array_equal(decisions["chunk_id"].to_numpy(), np.arange(decisions.num_rows)):
            found.problems.append(f"{path} is not a row for each row read, in order")
            continue
        if pc.unique(decisions["shard"]).to_pylist() not in ([], [shard]):
            found.problems.append(f"{path} holds rows of other shards")
        recorded = shards[shard]
        actual = sum_decisions(decisions)
        whole.add(actual)
        if problem := _unlike(recorded, actual):
            found.problems.append(f"conservation of shard {shard}: {problem}")
        for what, table, outcome in (
            ("data files", "published", "selected"),
            ("quarantine", "quarantined", "quarantined"),
        ):
            expected = decisions.filter(pc.equal(decisions["outcome"], outcome))
            times = expected["repeat"] if rows_repeat and what == "data files" else pa.repeat(1, expected.num_rows)
            wanted = expected.select(["chunk_id"]).append_column("times", times)
            if problem := _other_rows(connection, table, shard, wanted):
                found.problems.append(f"shard {shard}: {problem} in the {what}")
    total = manifest["conservation"]["total"]
    published = connection.execute("SELECT DISTINCT shard FROM published ORDER BY shard").fetchall()
    strangers = [shard for (shard,) in published if shard not in shards]
    found.problems += [
        printable(f"data files hold rows of shard {s}, which the manifest has not") for s in strangers[:20]
    ]
    whole_known = not any(problem.startswith(("decisions/", "conservation")) for problem in found.problems)
    if whole_known and (problem := _unlike(total, whole)):
        found.problems.append(f"conservation of the whole: {problem}")
    lost = sum(total["filtered"].values()) + sum(total["quarantined"].values())
    parts = total["selected"] + total["not_selected"] + lost
    if total["rows"] != parts:
        found.problems.append(f"conservation of the whole: {total['rows']} rows read, {parts} accounted for")


def _unlike(recorded: dict[str, Any], actual: Conservation) -> str | None:
    """The first number of the manifest that the decisions do not bear out; characters are not among them."""
    for name, value in actual.to_json().items():
        if not name.startswith("characters") and recorded[name] != value:
            return f"{name} is {recorded[name]} in the manifest, {value} in the decisions"
    return None


def _other_rows(connection: duckdb.DuckDBPyConnection, table: str, shard: str, expected: pa.Table) -> str | None:
    mine = f"(SELECT chunk_id, count(*) AS n FROM {table} WHERE shard = $shard GROUP BY chunk_id)"
    query = (
        "SELECT count(*) FILTER (WHERE p.n IS NULL), count(*) FILTER (WHERE e.chunk_id IS NULL), "
        f"count(*) FILTER (WHERE p.n <> e.times) FROM expected e FULL JOIN {mine} p USING (chunk_id)"
    )
    with tables(connection, expected=expected):
        [(missing, strange, twice)] = connection.execute(query, {"shard": shard}).fetchall()
    said = [f"{missing} rows are missing"] * (missing > 0) + [f"{strange} rows should not be"] * (strange > 0)
    said += [f"{twice} rows are twice, or not as often as they should be"] * (twice > 0)
    return ", ".join(said) or None
