"""A DuckDB connection that can reach nothing but the tables it is given, within a memory limit.

What does not fit is spilled to a folder of its own under `work/tmp`, removed at the end; a folder that a killed
process left behind is removed by the next one (the kernel drops a dead process's lock).
"""

from __future__ import annotations

import contextlib
import os
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

# Databases in memory, by process and memory limit: to open one takes 40 ms, as long as a small query's work.
_IDLE: dict[tuple[int, str], list[duckdb.DuckDBPyConnection]] = {}


@contextlib.contextmanager
def connect(memory_limit: str, work: str | None = None) -> Iterator[duckdb.DuckDBPyConnection]:
    """A locked connection: no files, no network, no extensions, no settings, UTC, one order of rows.

    :param memory_limit: as DuckDB writes it, e.g. "1GB".
    :param work: the work folder, for what does not fit in memory; None: everything in memory.
    :raises ConfigError: the memory does not suffice.
    :raises StorageError: what does not fit in memory cannot be written.
    """
    with contextlib.ExitStack() as stack:
        try:
            if work is None:
                yield stack.enter_context(_in_memory(memory_limit))
                return
            folder = stack.enter_context(temporary_folder(work))
            spill = str(folder / "spill")
            yield stack.enter_context(_opened(str(folder / "tables.duckdb"), memory_limit, temp_directory=spill))
        except duckdb.OutOfMemoryException as error:
            raise ConfigError(
                f"filter.memory_limit = {memory_limit} is too little ({first_line(error)}); raise it"
            ) from error
        except duckdb.IOException as error:
            raise StorageError(f"cannot write temporary files for {work}: {first_line(error)}") from error


def _opened(database: str, memory_limit: str, **settings: str) -> duckdb.DuckDBPyConnection:
    for setting in ("autoinstall_known_extensions", "autoload_known_extensions", "allow_community_extensions"):
        settings[setting] = "false"
    connection = duckdb.connect(database, config={"memory_limit": memory_limit, **settings})
    connection.execute("SET TimeZone = 'UTC'")
    connection.execute("SET enable_external_access = false")
    connection.execute("SET lock_configuration = true")
    return connection


@contextlib.contextmanager
def _in_memory(memory_limit: str) -> Iterator[duckdb.DuckDBPyConnection]:
    """A connection to an empty database that nobody else uses now. It is kept for the next one if it is empty again."""
    idle = _IDLE.setdefault((os.getpid(), memory_limit), [])
    try:
        database = idle.pop()
    except IndexError:
        database = _opened(":memory:", memory_limit)
    try:
        with database.cursor() as connection:  # what it registers goes with it
            yield connection
    finally:
        with contextlib.suppress(duckdb.Error):  # a database that an error has ended is not kept either
            if not database.execute("SELECT 1 FROM duckdb_tables()").fetchall():
                idle.append(database)


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
