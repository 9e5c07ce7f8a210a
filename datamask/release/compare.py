"""What entered and what left between two releases: by source, language, length and score, and why.

A document is the same in both if its shard, its row there and its id are. Text is not read.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from typing import Any

import duckdb

from datamask.duck import connect, insert
from datamask.release.manifest import data_paths
from datamask.release.release_folder import ReleaseFolder

MEMORY = "1GB"
GROUPS = ("source", "domain", "dump", "language")  # columns of the documents that are compared, where there
LENGTHS = (64, 256, 1024, 4096, 16384)  # tokens: bounds of the classes of length
MOVES = ("stayed", "entered", "left")


@dataclass(frozen=True)
class Difference:
    """Documents and tokens that stayed, entered or left, in all and by group."""

    total: dict[str, dict[str, int]]  # move: {documents, tokens}
    groups: dict[str, list[dict[str, Any]]]  # column: a row per value {value, stayed, entered, left}, most moved first
    causes: dict[str, dict[str, int]]  # entered: what it was in the first release; left: what it is in the second


def compare(first: ReleaseFolder, second: ReleaseFolder) -> Difference:
    """The difference between two releases.

    :raises InputError: one of them cannot be read.
    """
    columns = [name for name in GROUPS if all(name in _names(release) for release in (first, second))]
    with tempfile.TemporaryDirectory(prefix="datamask-") as work, connect(MEMORY, work) as connection:
        for table, release in (("a", first), ("b", second)):
            _load(connection, table, release, columns)
        connection.execute(
            "CREATE TABLE moves AS SELECT shard, chunk_id, id, coalesce(b.token_count, a.token_count) AS tokens,"
            " coalesce(b.quality_score, a.quality_score) AS quality,"
            + "".join(f" coalesce(b.{_quote(name)}, a.{_quote(name)}) AS {_quote(name)}," for name in columns)
            + " CASE WHEN a.shard IS NULL THEN 'entered' WHEN b.shard IS NULL THEN 'left' ELSE 'stayed' END AS move"
            " FROM a FULL JOIN b USING (shard, chunk_id, id)"
        ).fetchall()
        total = {move: {"documents": 0, "tokens": 0} for move in MOVES}
        query = "SELECT move, count(*), coalesce(sum(tokens), 0)::BIGINT FROM moves GROUP BY move"
        for move, documents, tokens in connection.execute(query).fetchall():
            total[move] = {"documents": documents, "tokens": tokens}
        classes = {name: f"coalesce({_quote(name)}::VARCHAR, '(none)')" for name in columns}
        classes["length"] = _length_class()
        classes["score"] = _score_class(connection)
        groups = {name: _by(connection, expression) for name, expression in classes.items()}
        causes = {"entered": _causes(connection, first, "entered"), "left": _causes(connection, second, "left")}
    return Difference(total, groups, causes)


def _names(release: ReleaseFolder) -> list[str]:
    return [column["name"] for column in release.manifest()["columns"]]


def _quote(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _load(connection: duckdb.DuckDBPyConnection, table: str, release: ReleaseFolder, columns: list[str]) -> None:
    wanted = ["shard", "chunk_id", "id", "token_count", "quality_score", *columns]
    types = {"chunk_id": "BIGINT", "token_count": "BIGINT", "quality_score": "FLOAT"}
    listed = ", ".join(f"{_quote(name)} {types.get(name, 'VARCHAR')}" for name in wanted)
    connection.execute(f"CREATE TABLE {table} ({listed})")
    for path in data_paths(release.manifest()):
        for batch in release.documents(path, wanted[2:]):
            insert(connection, table, batch.select(wanted))


def _length_class() -> str:
    cases = " ".join(
        f"WHEN tokens < {bound} THEN '{low} to {bound - 1} tokens'"
        for low, bound in zip((0, *LENGTHS), LENGTHS, strict=False)
    )
    return f"CASE {cases} ELSE '{LENGTHS[-1]} tokens and more' END"


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


def _causes(connection: duckdb.DuckDBPyConnection, release: ReleaseFolder, move: str) -> dict[str, int]:
    """What the other release decided about the documents that moved; `not in the corpus` where it never read them."""
    connection.execute(
        f"CREATE OR REPLACE TABLE moved AS SELECT shard, chunk_id, id FROM moves WHERE move = '{move}'"
    ).fetchall()
    connection.execute("CREATE OR REPLACE TABLE why (shard VARCHAR, chunk_id BIGINT, cause VARCHAR)")
    shards = {shard for (shard,) in connection.execute("SELECT DISTINCT shard FROM moved").fetchall()}
    for shard in sorted(shards & release.manifest()["conservation"]["shards"].keys()):
        connection.register("decisions", release.decisions(shard))
        connection.execute(
            "INSERT INTO why SELECT shard, chunk_id, concat_ws(': ', outcome, reason)"
            " FROM decisions SEMI JOIN moved USING (shard, chunk_id, id)"
        ).fetchall()
        connection.unregister("decisions")
    rows = connection.execute(
        "SELECT coalesce(cause, 'not in the corpus') AS cause, count(*)"
        " FROM moved LEFT JOIN why USING (shard, chunk_id) GROUP BY cause ORDER BY count(*) DESC, cause"
    ).fetchall()
    return dict(rows)
