"""What entered and what left between two releases: by source, language, length and score, and why.

A document is the same in both if its file, its row there and its id are. A file that only one of them read, as of a
corpus that moved, is known by its shard. Text is not read.
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import duckdb
import pyarrow as pa

from datamask.duck import connect, insert, tables
from datamask.release.manifest import data_paths, source_runs
from datamask.release.merge import LENGTHS
from datamask.release.release_folder import ReleaseFolder

MEMORY = "1GB"
GROUPS = ("source", "domain", "dump", "language")  # columns of the documents that are compared, where there
MOVES = ("stayed", "entered", "left")
# the id of a row of `d`; '' where it was made from shard and row, which other shards make anew
GIVEN_ID = "CASE WHEN d.id = format('{}/{:06d}', d.shard, d.chunk_id) THEN '' ELSE d.id END"
RUNS = pa.schema(
    [("file", pa.string()), ("row", pa.int64()), ("rows", pa.int64()), ("shard", pa.string()), ("chunk_id", pa.int64())]
)


@dataclass(frozen=True)
class Difference:
    """Documents and tokens that stayed, entered or left, in all and by group."""

    total: dict[str, dict[str, int]]  # move: {documents, tokens}
    groups: dict[str, list[dict[str, Any]]]  # column: a row per value {value, stayed, entered, left}, most moved first
    causes: dict[str, dict[str, int]]  # entered: what it was in the first release; left: what it is in the second


def compare(first: ReleaseFolder, second: ReleaseFolder) -> Difference:
    """:raises InputError: one of them cannot be read."""
    there = [{column["name"] for column in release.manifest()["columns"]} for release in (first, second)]
    columns = [name for name in GROUPS if name in there[0] & there[1]]
    files = set.intersection(*({source["path"] for source in of.manifest()["sources"]} for of in (first, second)))
    with tempfile.TemporaryDirectory(prefix="datamask-") as work, connect(MEMORY, work) as connection:
        for table, release in (("a", first), ("b", second)):
            _load(connection, table, release, columns, files)
        connection.execute(
            "CREATE TABLE moves AS SELECT file, row, id, coalesce(b.token_count, a.token_count) AS tokens,"
            " coalesce(b.quality_score, a.quality_score) AS quality,"
            + "".join(f" coalesce(b.{_quote(name)}, a.{_quote(name)}) AS {_quote(name)}," for name in columns)
            + " CASE WHEN a.file IS NULL THEN 'entered' WHEN b.file IS NULL THEN 'left' ELSE 'stayed' END AS move"
            " FROM a FULL JOIN b USING (file, row, id)"
        ).fetchall()
        total = {move: {"documents": 0, "tokens": 0} for move in MOVES}
        query = "SELECT move, count(*), coalesce(sum(tokens), 0)::BIGINT FROM moves GROUP BY move"
        for move, documents, tokens in connection.execute(query).fetchall():
            total[move] = {"documents": documents, "tokens": tokens}
        classes = {name: f"coalesce({_quote(name)}::VARCHAR, '(none)')" for name in columns}
        lengths = (f"WHEN tokens < {end} THEN '{low} to {end - 1} tokens'" for low, end in pairwise(LENGTHS))
        classes["length"] = f"CASE {' '.join(lengths)} ELSE '{LENGTHS[-1]} tokens and more' END"
        classes["score"] = _score_class(connection)
        groups = {name: _by(connection, expression) for name, expression in classes.items()}
        causes = {"entered": _causes(connection, first, "a", "entered")}
        causes["left"] = _causes(connection, second, "b", "left")
    return Difference(total, groups, causes)


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _runs(release: ReleaseFolder, files: Collection[str]) -> pa.Table:
    """Which rows of which file each shard holds: rows `row` … of `file` are rows `chunk_id` … of `shard`.

    :param files: that the other release has read too; of the others the shard stands for the file.
    """
    found = []
    for run in source_runs(release.manifest()):
        named = run.file in files and run.row is not None
        file, row = (f"file {run.file}", run.row) if named else (f"shard {run.shard}", run.chunk_id)
        if run.rows:
            found.append({"file": file, "row": row, "rows": run.rows, "shard": run.shard, "chunk_id": run.chunk_id})
    return pa.Table.from_pylist(found, RUNS)


def _load(
    connection: duckdb.DuckDBPyConnection,
    table: str,
    release: ReleaseFolder,
    columns: list[str],
    files: Collection[str],
) -> None:
    """Makes `table`, the documents of a release, and `runs_<table>`, `_runs` of it."""
    with tables(connection, runs=_runs(release, files)):
        connection.execute(f"CREATE TABLE runs_{table} AS SELECT * FROM runs").fetchall()
    wanted = ["shard", "chunk_id", "id", "token_count", "quality_score", *columns]
    types = {"chunk_id": "BIGINT", "token_count": "BIGINT", "quality_score": "FLOAT"}
    listed = ", ".join(f"{_quote(name)} {types.get(name, 'VARCHAR')}" for name in wanted)
    connection.execute(f"CREATE TABLE read_{table} ({listed})")
    for path in data_paths(release.manifest()):
        for batch in release.documents(path, wanted[2:]):
            insert(connection, f"read_{table}", batch.select(wanted))
    connection.execute(
        f"CREATE TABLE {table} AS SELECT runs.file, runs.row + d.chunk_id - runs.chunk_id AS row,"
        f" {GIVEN_ID} AS id, d.* EXCLUDE (shard, chunk_id, id)"
        f" FROM read_{table} d ASOF JOIN runs_{table} runs ON d.shard = runs.shard AND d.chunk_id >= runs.chunk_id"
    ).fetchall()


def _score_class(connection: duckdb.DuckDBPyConnection) -> str:
    """Ten classes of equal width between the least and the greatest score of both releases."""
    [(low, high)] = connection.execute(
        "SELECT min(quality), max(quality) FROM moves WHERE NOT isnan(quality)"
    ).fetchall()
    if low is None or high <= low:
        return "'all the same'"
    width = (high - low) / 10
    place = f"least(9, floor((quality - {low!r}) / {width!r}))"
    return f"format('{{:.3g}} to {{:.3g}}', {low!r} + {width!r} * {place}, {low!r} + {width!r} * ({place} + 1))"


def _by(connection: duckdb.DuckDBPyConnection, expression: str) -> list[dict[str, Any]]:
    counts = ", ".join(f"count(*) FILTER (WHERE move = '{move}')" for move in MOVES)
    rows = connection.execute(
        f"SELECT {expression} AS value, {counts} FROM moves GROUP BY value"
        " ORDER BY count(*) FILTER (WHERE move <> 'stayed') DESC, value"
    ).fetchall()
    return [dict(zip(("value", *MOVES), row, strict=True)) for row in rows]


def _causes(connection: duckdb.DuckDBPyConnection, release: ReleaseFolder, table: str, move: str) -> dict[str, int]:
    """What the other release decided about the documents that moved; `not in the corpus` where it never read them.

    :param table: the other release's, see `_load`.
    """
    connection.execute(
        "CREATE OR REPLACE TABLE moved AS SELECT shard, runs.chunk_id + m.row - runs.row AS chunk_id, id"
        f" FROM moves m ASOF JOIN runs_{table} runs ON m.file = runs.file AND m.row >= runs.row"
        f" WHERE move = '{move}' AND m.row < runs.row + runs.rows"
    ).fetchall()
    causes: Counter[str] = Counter()
    shards = {shard for (shard,) in connection.execute("SELECT DISTINCT shard FROM moved").fetchall()}
    for shard in sorted(shards & release.manifest()["conservation"]["shards"].keys()):
        counted = (
            "SELECT concat_ws(': ', outcome, reason) AS cause, count(*) FROM decisions d"
            f" SEMI JOIN moved m ON d.shard = m.shard AND d.chunk_id = m.chunk_id AND {GIVEN_ID} = m.id GROUP BY cause"
        )
        with tables(connection, decisions=release.decisions(shard)):
            causes.update(dict(connection.execute(counted).fetchall()))
    [(moved,)] = connection.execute(f"SELECT count(*) FROM moves WHERE move = '{move}'").fetchall()
    causes["not in the corpus"] = moved - causes.total()
    return dict(sorted((+causes).items(), key=lambda item: (-item[1], item[0])))
