"""The files that belong to a Delta table, by its log: what it has removed still lies beside them."""

from __future__ import annotations

import json
import posixpath
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq

from datamask.corpus.plan import Value
from datamask.corpus.streams import damage
from datamask.errors import InputError, one_line
from datamask.storage import list_names, open_input, read_content

LOG = "_delta_log"
# what readers must know of, and that the files which the log lists say by themselves, or that is looked at below
_KNOWN = {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
_REMEDY = (
    "write its rows to a folder of parquet (spark.read.format('delta').load(TABLE).write.parquet(NEW)) and give that"
)


class DeltaFile(NamedTuple):
    path: str
    values: Mapping[str, Value]  # of the partition columns, which the file does not hold


def delta_files(folder: str) -> list[DeltaFile]:
    """The files of the table's newest version.

    :raises InputError: the log has a gap, cannot be read, or asks for more than files: rows deleted within them,
        columns under other names.
    """
    live: dict[tuple[str, str], dict[str, Any]] = {}
    whole: set[str] = set()  # columns of integers
    for action in _actions(folder):
        if "add" in action:
            live[_name(action["add"], folder)] = action["add"]
        elif "remove" in action:
            live.pop(_name(action["remove"], folder), None)
        elif "protocol" in action:
            unknown = {*(action["protocol"].get("readerFeatures") or [])} - _KNOWN
            if unknown or action["protocol"].get("minReaderVersion", 1) > 3:
                raise _refused(folder, f"needs {', '.join(sorted(unknown)) or 'a newer reader'}")
        elif "metaData" in action:
            whole = _check_schema(folder, action["metaData"])
    deleted = [path for (path, _), add in live.items() if add.get("deletionVector")]
    if deleted:
        raise _refused(folder, f"has rows that are deleted within their files ({deleted[0]}: a deletion vector)")
    return [
        DeltaFile(
            f"{folder}/{path}",
            {
                name: int(value) if value and name in whole else value or None  # an empty text stands for null there
                for name, value in (add.get("partitionValues") or {}).items()
            },
        )
        for (path, _), add in live.items()
    ]


def _refused(folder: str, what: str) -> InputError:
    return InputError(f"{folder}: a Delta table that {what}, which datamask does not follow; {_REMEDY}")


def _name(action: Mapping[str, Any], folder: str) -> tuple[str, str]:
    """What identifies a file in the log: its path, and the deletion vector that it had."""
    path, vector = action["path"], action.get("deletionVector")
    if "://" in path or path.startswith(("/", "file:")):
        raise _refused(folder, f"lists a file of another folder ({path})")
    return posixpath.normpath(unquote(path)), json.dumps(vector, sort_keys=True) if vector else ""


def _check_schema(folder: str, metadata: Mapping[str, Any]) -> set[str]:
    """The columns of integers.

    :raises InputError: a column has another name in the files.
    """
    schema = metadata.get("schemaString")
    fields = json.loads(schema)["fields"] if schema else []
    for field in fields:
        name = (field.get("metadata") or {}).get("delta.columnMapping.physicalName", field["name"])
        if name != field["name"]:
            raise _refused(folder, f"calls column {field['name']!r} {name!r} in its files (column mapping)")
    return {field["name"] for field in fields if field.get("type") in ("byte", "short", "integer", "long")}


def _actions(folder: str) -> Iterator[dict[str, Any]]:
    """What the log says, oldest first: its newest checkpoint, then the versions after it."""
    log = f"{folder}/{LOG}"
    names = list_names(log)
    versions = sorted(int(name[:20]) for name in names if re.fullmatch(r"\d{20}\.json", name))
    whole: dict[int, list[str]] = {}
    for name in sorted(names):
        if match := re.fullmatch(r"(\d{20})\.checkpoint(?:\.\d{10}\.(\d{10}))?\.parquet", name):
            whole.setdefault(int(match[1]), []).append(name)
    checkpoints = {}
    for version, parts in whole.items():
        last = parts[-1].split(".")
        if len(last) == 3 or len([part for part in parts if part.count(".") == 4]) == int(last[3]):
            checkpoints[version] = parts  # whole: of one file, or of as many as their names say
    first = -1
    if checkpoints:
        first = max(checkpoints)
        for name in checkpoints[first]:
            yield from _checkpoint(f"{log}/{name}")
    later = [version for version in versions if version > first]
    if not checkpoints and not versions:
        raise _refused(folder, f"has no version in {LOG}")
    if later != list(range(first + 1, first + 1 + len(later))):
        lacking = next(version for version in range(first + 1, later[-1]) if version not in later)
        raise _refused(folder, f"lacks version {lacking} in {LOG}, or has a checkpoint of another kind")
    for version in later:
        yield from _commit(f"{log}/{version:020}.json")


def _commit(path: str) -> Iterator[dict[str, Any]]:
    lines = read_content(path).decode("utf-8", "replace").split("\n")  # JSON may hold what else ends lines
    try:
        yield from (json.loads(line) for line in lines if line.strip())
    except ValueError as error:
        raise InputError(
            f"{path}: a Delta table's log that cannot be read ({one_line(error)}); copy the table again"
        ) from error


def _checkpoint(path: str) -> Iterator[dict[str, Any]]:
    with damage(path), open_input(path) as file:
        columns = ["add", "remove", "protocol", "metaData"]
        parquet = pq.ParquetFile(file)
        there = [name for name in columns if name in parquet.schema_arrow.names]
        rows = parquet.read(columns=there).to_pylist(maps_as_pydicts="strict")
    for row in rows:
        yield from ({name: value} for name, value in row.items() if value is not None)
