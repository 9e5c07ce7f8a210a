"""Verification: a release is what its manifest says, and its rows are the corpus's.

Every problem is found and named, not only the first. The manifest is checked against its schema, its own digest, and
the key in the version's name; every file against its sha256; rows and schema against the manifest; the published rows
against the decisions, row by row; and with a corpus at hand, every published value against the source row.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import duckdb
import jsonschema
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamask import storage
from datamask.errors import DatamaskError
from datamask.release.duck import connect, insert
from datamask.release.layout import MANIFEST, QUARANTINE, Release
from datamask.release.manifest import manifest_schema, parse_manifest, render_manifest
from datamask.release.merge import DECISIONS, Conservation, sums
from datamask.release.staging import release_key
from datamask.stages import Progress, silent

THREADS = 8  # files hashed side by side, at most
MEMORY = "1GB"


@dataclass
class Verified:
    """What was found."""

    path: str
    problems: list[str] = field(default_factory=list)
    files: int = 0
    bytes: int = 0
    rows: int = 0  # of the data files
    compared: int | None = None  # rows compared with the corpus; None: no corpus was given


def verify(release: Release, against: Sequence[str] = (), progress: Progress = silent) -> Verified:
    """All problems of a release.

    :param against: inputs of the corpus, as for corpus.input; every published value is compared with its source row.
    :param progress: called with bytes hashed, then with rows compared.
    """
    found = Verified(release.path)
    manifest = _check_manifest(release, found)
    if manifest is None:
        return found
    readable = _check_files(release, manifest, found, progress)
    data = _check_columns(release, manifest, [path for path in readable if path.startswith("data/")], found)
    with tempfile.TemporaryDirectory(prefix="datamask-") as work, connect(MEMORY, work) as connection:
        _check_rows(release, manifest, data, set(readable), connection, found)
    if against and not found.problems:
        from datamask.release.against import compare_with_corpus

        compare_with_corpus(release, manifest, data, against, found, progress)
    return found


# ---------------------------------------------------------------- the manifest


def _check_manifest(release: Release, found: Verified) -> dict[str, Any] | None:
    try:
        with storage.open_input(storage.join(release.path, MANIFEST)) as file:
            data = file.read()
        manifest = parse_manifest(data, MANIFEST)
    except DatamaskError as error:
        found.problems.append(str(error))
        return None
    validator = jsonschema.Draft202012Validator(manifest_schema())
    wrong = sorted(validator.iter_errors(manifest), key=lambda found: list(map(str, found.absolute_path)))
    for violation in wrong[:20]:
        place = ".".join(map(str, violation.absolute_path)) or "it"
        found.problems.append(f"{MANIFEST}: {place}: {violation.message[:200]}")
    if render_manifest(manifest) != data:
        found.problems.append(f"{MANIFEST} was edited: its digest is of other content")
    if wrong:
        return None
    key = release_key(manifest["inputs"], manifest["settings"], manifest["provenance"])
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


def _check_files(release: Release, manifest: dict[str, Any], found: Verified, progress: Progress) -> list[str]:
    """Problems of files; those that are as the manifest says."""
    fs, root = storage.filesystem(release.path)
    root = root.rstrip("/")
    with storage.storage_errors(release.path):
        there = {path[len(root) + 1 :] for path in fs.find(root)}
    listed = {item["path"]: item for item in manifest["files"]}
    if len(listed) < len(manifest["files"]):
        found.problems.append(f"{MANIFEST} lists a file twice")
    found.problems += [f"{path} is missing" for path in sorted(listed.keys() - there)]
    found.problems += [f"{path} was added" for path in sorted(there - listed.keys() - {MANIFEST})]

    def check(path: str) -> str | None:
        item = listed[path]
        digest, size = hashlib.sha256(), 0
        url = storage.join(release.path, path)
        with storage.open_input(url) as file, storage.storage_errors(url):
            while block := file.read(1 << 22):
                digest.update(block)
                size += len(block)
                progress(len(block))
            if size != item["bytes"]:
                return f"{path} has {size} bytes, not {item['bytes']}"
            if digest.hexdigest() != item["sha256"]:
                return f"{path} has changed: its sha256 is {digest.hexdigest()}, not {item['sha256']}"
            file.seek(0)
            rows = pq.read_metadata(file).num_rows if path.endswith(".parquet") else None
            if rows != item.get("rows"):
                return f"{path} has {rows} rows, not {item.get('rows')}"
        return None

    good = []
    names = sorted(listed.keys() & there)
    with ThreadPoolExecutor(min(THREADS, os.cpu_count() or 1)) as pool:
        for path, problem in zip(names, pool.map(check, names), strict=True):
            found.files += 1
            found.bytes += listed[path]["bytes"]
            if problem:
                found.problems.append(problem)
            else:
                good.append(path)
    return good


def _check_columns(release: Release, manifest: dict[str, Any], data: Sequence[str], found: Verified) -> list[str]:
    """Problems of the data files' columns and of the numbers of documents by dump; the files that have the columns."""
    expected = [(column["name"], column["type"]) for column in manifest["columns"]]
    good = []
    for path in data:
        with storage.open_parquet(storage.join(release.path, path)) as file:
            columns = [(column.name, str(column.type)) for column in file.schema_arrow]
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
    return good


# ---------------------------------------------------------------- rows


def _check_rows(
    release: Release,
    manifest: dict[str, Any],
    data: Sequence[str],
    readable: set[str],
    connection: duckdb.DuckDBPyConnection,
    found: Verified,
) -> None:
    """Decisions, quarantine and data files tell of the same rows, and add up to the manifest's conservation."""
    connection.execute("CREATE TABLE published (shard VARCHAR, chunk_id BIGINT)")
    for path in data:
        for batch in release.batches(path, ["shard", "chunk_id"]):
            insert(connection, "published", batch)
            found.rows += batch.num_rows
    connection.execute("CREATE TABLE quarantined (shard VARCHAR, chunk_id BIGINT, reason VARCHAR)")
    if QUARANTINE in readable:
        for batch in release.batches(QUARANTINE, ["shard", "chunk_id", "reason"]):
            insert(connection, "quarantined", batch)
    whole = Conservation()
    shards = manifest["conservation"]["shards"]
    for shard in sorted(shards):
        path = f"decisions/{shard}.parquet"
        if path not in readable:
            continue
        decisions = storage.read_table(storage.join(release.path, path))
        if decisions.schema.remove_metadata() != DECISIONS:
            found.problems.append(f"{path} does not have the columns of decisions")
            continue
        recorded = shards[shard]
        actual = sums(decisions)
        whole.add(actual)
        if problem := _unlike(recorded, actual):
            found.problems.append(f"conservation of shard {shard}: {problem}")
        selected = decisions.filter(pc.equal(decisions["outcome"], "selected"))
        for what, table, expected in (
            ("data files", "published", selected),
            ("quarantine", "quarantined", decisions.filter(pc.equal(decisions["outcome"], "quarantined"))),
        ):
            if problem := _other_rows(connection, table, shard, expected.select(["chunk_id"])):
                found.problems.append(f"shard {shard}: {problem} in the {what}")
    total = {**manifest["conservation"]["total"]}
    strangers = connection.execute("SELECT DISTINCT shard FROM published").fetchall()
    found.problems += [
        f"data files hold rows of shard {s}, which the manifest has not" for (s,) in strangers if s not in shards
    ]
    whole_known = not any(problem.startswith(("decisions/", "conservation")) for problem in found.problems)
    if whole_known and (problem := _unlike(total, whole)):
        found.problems.append(f"conservation of the whole: {problem}")
    parts = (
        total["selected"] + total["not_selected"] + sum(total["filtered"].values()) + sum(total["quarantined"].values())
    )
    if total["rows"] != parts:
        found.problems.append(f"conservation of the whole: {total['rows']} rows read, {parts} accounted for")


def _unlike(recorded: dict[str, Any], actual: Conservation) -> str | None:
    """The first number of the manifest that the decisions do not bear out; characters are not among them."""
    for name, value in actual.to_json().items():
        if not name.startswith("characters") and recorded[name] != value:
            return f"{name} is {recorded[name]} in the manifest, {value} in the decisions"
    return None


def _other_rows(connection: duckdb.DuckDBPyConnection, table: str, shard: str, expected: pa.Table) -> str | None:
    connection.register("expected", expected)
    mine = f"(SELECT chunk_id, count(*) AS n FROM {table} WHERE shard = $shard GROUP BY chunk_id)"
    [(missing, strange, twice)] = connection.execute(
        "SELECT count(*) FILTER (WHERE p.n IS NULL), count(*) FILTER (WHERE e.chunk_id IS NULL), "
        f"count(*) FILTER (WHERE p.n > 1) FROM expected e FULL JOIN {mine} p USING (chunk_id)",
        {"shard": shard},
    ).fetchall()
    connection.unregister("expected")
    said = [f"{missing} rows are missing"] * (missing > 0) + [f"{strange} rows should not be"] * (strange > 0)
    said += [f"{twice} rows are twice"] * (twice > 0)
    return ", ".join(said) or None
