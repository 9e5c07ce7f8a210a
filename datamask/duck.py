"""A DuckDB connection that can reach nothing but the tables it is given, within a memory limit.

What does not fit is spilled to a folder of its own under `work/tmp`, removed at the end; a folder that a killed
process left behind is removed by the next one (the kernel drops a dead process's lock).
"""

from __future__ import annotations

import contextlib
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import duckdb
import pyarrow as pa

from datamask import storage
from datamask.errors import ConfigError, StorageError
from datamask.locks import locked
from datamask.surroundings import private_folder


@contextlib.contextmanager
def connect(memory_limit: str, work: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A locked connection: no files, no network, no extensions, no settings, UTC, one order of rows.

    :param memory_limit: as DuckDB writes it, e.g. "1GB".
    :param work: the work folder, for what does not fit in memory; None: everything in memory.
    :raises ConfigError: the memory does not suffice.
    :raises StorageError: what does not fit in memory cannot be written.
    """
    with contextlib.ExitStack() as stack:
        database = ":memory:"
        settings: dict[str, str | bool | int | float | list[str]] = {
            "memory_limit": memory_limit,
            "autoinstall_known_extensions": "false",
            "autoload_known_extensions": "false",
            "allow_community_extensions": "false",
        }
        if work is not None:
            folder = stack.enter_context(temporary_folder(work))
            database = str(folder / "tables.duckdb")
            settings["temp_directory"] = str(folder / "spill")
        try:
            connection = stack.enter_context(duckdb.connect(database, config=settings))
            connection.execute("SET TimeZone = 'UTC'")
            connection.execute("SET enable_external_access = false")
            connection.execute("SET lock_configuration = true")
            yield connection
        except duckdb.OutOfMemoryException as error:
            raise ConfigError(
                f"filter.memory_limit = {memory_limit} is too little ({first_line(error)}); raise it"
            ) from error
        except duckdb.IOException as error:
            raise StorageError(f"cannot write temporary files for {work}: {first_line(error)}") from error


@contextlib.contextmanager
def temporary_folder(work: str) -> Iterator[Path]:
    """A folder under work/tmp, removed afterwards, with those of dead processes.

    The system's, where work is remote, or its name has a sign that DuckDB interprets even behind a symbolic link: what
    follows ? are options, and a backslash is a slash.
    """
    local = None if storage.is_remote(work) else storage.filesystem(work)[1]
    parent = private_folder("duckdb") if local is None or {*local} & {*"?\\"} else Path(local, "tmp")
    folder = parent / f"duckdb-{uuid.uuid4().hex}"
    try:
        parent.mkdir(parents=True, exist_ok=True)
        _remove_abandoned(parent)
        lock = parent / f"{folder.name}.lock"
        with locked(lock):
            folder.mkdir()
            try:
                yield folder
            finally:
                shutil.rmtree(folder, ignore_errors=True)
                lock.unlink(missing_ok=True)
    except PermissionError as error:
        raise StorageError(f"cannot write {parent}: no permission; choose another --output") from error


def _remove_abandoned(parent: Path) -> None:
    for lock_path in parent.glob("duckdb-*.lock"):
        with contextlib.suppress(OSError), locked(lock_path, wait=False):  # BlockingIOError: its owner lives
            shutil.rmtree(lock_path.with_suffix(""), ignore_errors=True)
            lock_path.unlink(missing_ok=True)


@contextlib.contextmanager
def tables(connection: duckdb.DuckDBPyConnection, **named: pa.Table) -> Iterator[None]:
    """Inside, the connection can read these Arrow tables by their names."""
    for name, table in named.items():
        connection.register(name, table)
    try:
        yield
    finally:
        for name in named:
            connection.unregister(name)


def insert(connection: duckdb.DuckDBPyConnection, table: str, rows: pa.Table | pa.RecordBatch) -> None:
    """Appends Arrow rows to a table with the same columns in the same order."""
    with tables(connection, new_rows=pa.Table.from_batches([rows]) if isinstance(rows, pa.RecordBatch) else rows):
        connection.execute(f"INSERT INTO {table} SELECT * FROM new_rows").fetchall()


def first_line(error: Exception) -> str:
    """DuckDB's message without its picture of the statement."""
    return str(error).split("\n")[0].strip()
