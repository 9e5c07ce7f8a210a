"""Folders that say which files belong to them: Delta tables, folders of `datasets` and of the hub, datamask's own.

What else lies in such a folder (files that a table has removed, a cache, an older revision) is no corpus.
"""

from __future__ import annotations

import contextlib
import json
import os
import posixpath
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import unquote

import pyarrow.parquet as pq

from datamask.corpus.plan import Value
from datamask.corpus.streams import damage
from datamask.corpus.walk import Entry
from datamask.errors import ConfigError, DatamaskError, InputError, StorageError, one_line
from datamask.storage import filesystem, is_remote, list_names, open_input, read_content, read_json

OWN = ("work", "releases", "latest", "forgotten", "tokens")  # what datamask writes into an output folder
IN_OUTPUT = "in this run's output folder, which is no input; to curate it, name another: -o FOLDER"
_CACHE = re.compile(r"cache-[0-9a-f]+(_\d{5}_of_\d{5})?\.arrow")
_ICEBERG = re.compile(r"(v\d+|\d+-[^/]+)(\.gz)?\.metadata\.json(\.gz)?|version-hint\.text")
_DOWNLOAD = re.compile(r"[0-9a-f]{64}(\.[0-9a-z]+)*\.json")
LOG = "_delta_log"
# what readers must know of, and that the files which the log lists say by themselves, or that is looked at below
_KNOWN = {"columnMapping", "deletionVectors", "timestampNtz", "typeWidening", "v2Checkpoint", "vacuumProtocolCheck"}
_REMEDY = (
    "write its rows to a folder of parquet (spark.read.format('delta').load(TABLE).write.parquet(NEW)) and give that"
)


def own_folder(real: str, output: str | None) -> str | None:
    """The folder of this run's output in which a file lies, if datamask writes that folder; else None."""
    if output is None:
        return None
    base = output if is_remote(output) else os.path.realpath(output)
    return next((f"{output}/{name}" for name in OWN if real.startswith(f"{base}/{name}/")), None)


def outside_releases(place: str | None) -> str | None:
    """The place, a file or folder that something is to be written to.

    :raises ConfigError: it is a release, or lies in one, and a release never changes.
    """
    if place is None:
        return None
    names = (place if is_remote(place) else str(Path(filesystem(place)[1]).absolute())).rstrip("/").split("/")
    for end in range(len(names), 3 if is_remote(place) else 1, -1):
        with contextlib.suppress(StorageError):
            manifest = read_json(f"{'/'.join(names[:end])}/manifest.json")
            if _of_release(manifest):
                raise ConfigError(
                    f"cannot write {place}: release {manifest.get('version')} lies there, and a release never changes; "
                    "name another place"
                )
    return place


def _of_release(manifest: object) -> bool:
    return isinstance(manifest, dict) and str(manifest.get("format")).startswith("datamask release")


@dataclass
class FoundFile:
    path: str
    base: str  # folder that was given
    entry: Entry
    checksum: str | None  # the store's own
    named: bool  # the user typed this very path

    @property
    def real(self) -> str:
        return self.entry.real

    @property
    def relative(self) -> str:
        return posixpath.relpath(self.path, self.base)


@dataclass
class Belonging:
    """What the folders around the found files say about these files."""

    found: Iterable[FoundFile]
    output: str | None = None  # of this run
    # path: what is named in the message, and why the file is not read
    left_out: dict[str, tuple[str, str]] = field(default_factory=dict)
    lacking: dict[str, str] = field(default_factory=dict)  # files that a table names and that are missing
    values: dict[str, dict[str, Value]] = field(default_factory=dict)  # of columns, by a Delta table's log

    def __post_init__(self) -> None:
        folders: dict[str, list[FoundFile]] = {}
        for file in self.found:
            folder = posixpath.dirname(file.path)
            while folder.strip("/") and not folder.endswith(":"):
                folders.setdefault(folder, []).append(file)
                folder = posixpath.dirname(folder)
        self._folders = folders
        for folder, files in sorted(folders.items()):
            for rule in (
                self._outputs, self._release, self._delta, self._other_table, self._saved, self._splits,
                self._prepared, self._snapshots, self._downloads,
            ):  # fmt: skip
                rule(folder, files)
        for file in self.found:
            if place := own_folder(file.real, self.output):
                self.left_out[file.path] = (place, IN_OUTPUT)

    @cached_property
    def _listed(self) -> set[str]:
        return {*self._folders, *(file.path for file in self.found)}

    def _is_there(self, path: str) -> bool:
        return path in self._listed if is_remote(path) else Path(path).exists()

    def _json(self, path: str) -> dict:
        if not self._is_there(path):
            return {}
        try:
            data = read_json(path)
        except DatamaskError:
            return {}
        return data if isinstance(data, dict) else {}

    def _keep(
        self, files: Iterable[FoundFile], folder: str, belongs: Callable[[str], bool], why: str, tell: str = ""
    ) -> None:
        """Leaves out those whose path in the folder does not belong."""
        for file in files:
            if file.path not in self.left_out and not belongs(file.path[len(folder) + 1 :]):
                self.left_out[file.path] = (tell or file.path, why)

    def _outputs(self, folder: str, files: list[FoundFile]) -> None:
        """An output folder of datamask inside a given folder: its releases are no input."""
        head, name = posixpath.split(folder)
        if name == "work":
            ours = {"version", "files"} <= self._json(f"{folder}/inputs.json").keys()
        elif name == "releases":
            inside = {file.path[len(folder) + 1 :].split("/")[0] for file in files}
            ours = any(self._is_release(f"{folder}/{release}") for release in inside)
        else:
            ours = name in OWN and self._is_release(f"{head}/latest") and self._is_there(f"{head}/releases")
        if ours:
            outside = [file for file in files if not f"{file.base}/".startswith(f"{folder}/")]
            why = "written by datamask; to curate a release again, give its folder"
            self._keep(outside, folder, lambda path: False, why, folder)

    def _is_release(self, folder: str) -> bool:
        return _of_release(self._json(f"{folder}/manifest.json"))

    def _release(self, folder: str, files: list[FoundFile]) -> None:
        if self._is_release(folder):
            why = "of a release of datamask, whose documents are in data/"
            self._keep(files, folder, lambda path: path.startswith("data/"), why)

    def _delta(self, folder: str, files: list[FoundFile]) -> None:
        if not self._is_there(f"{folder}/{LOG}"):
            return
        live = {file.path: file.values for file in delta_files(folder)}
        self._keep(files, folder, lambda path: f"{folder}/{path}" in live, f"{LOG} of the Delta table does not list it")
        self.values |= {path: dict(values) for path, values in live.items()}
        self._miss(live, folder, files, f"{LOG} of the Delta table lists it, and it is not there; copy the table again")

    def _miss(self, listed: Iterable[str], folder: str, files: list[FoundFile], why: str) -> None:
        whole = any(f"{folder}/".startswith(f"{file.base.rstrip('/')}/") for file in files)
        found = {file.path for file in files}
        for path in listed:
            if path not in found and (whole or not self._is_there(path)):
                hidden = "is hidden by its name" if self._is_there(path) else "is not there"
                self.lacking[path] = why.replace("is not there", hidden)

    def _other_table(self, folder: str, files: list[FoundFile]) -> None:
        metadata = f"{folder}/metadata"
        if is_remote(folder):
            names = [path[len(metadata) + 1 :] for path in self._listed if path.startswith(f"{metadata}/")]
        else:
            names = [path.name for path in Path(metadata).glob("*")]
        if any(_ICEBERG.fullmatch(name) for name in names):
            kind, name, other = "an Iceberg", "iceberg", "pyiceberg's table.scan().to_arrow(), or "
        elif self._is_there(f"{folder}/.hoodie/hoodie.properties"):
            kind, name, other = "a Hudi", "hudi", ""
        elif self._is_there(f"{folder}/schema/schema-0"):
            kind, name, other = "a Paimon", "paimon", ""
        else:
            return
        raise InputError(
            f"{folder}: {kind} table, whose metadata says which files and rows belong to it; datamask does not "
            "follow it; write its rows to a folder of parquet and give that: "
            f"{other}spark.read.format('{name}').load(TABLE).write.parquet(NEW)"
        )

    def _saved(self, folder: str, files: list[FoundFile]) -> None:
        """A data set saved by `datasets`: files of its maps and shuffles may lie beside its data."""
        state = self._json(f"{folder}/state.json")
        listed = state.get("_data_files")
        if not isinstance(listed, list) or not all(isinstance(each, dict) and "filename" in each for each in listed):
            return
        if state.get("_indices_files") or state.get("_indices_data_files"):
            raise InputError(
                f"{folder}: a data set whose rows an index chooses (state.json), which datamask does not follow; save "
                "it without: datasets.load_from_disk(FOLDER).flatten_indices().save_to_disk(NEW)"
            )
        names = {str(each["filename"]) for each in listed}
        why = "state.json of the data set does not list it"
        self._keep(files, folder, lambda path: "/" in path or path in names, why)
        why = "state.json of the data set lists it, and it is not there; copy the data set again"
        self._miss([f"{folder}/{name}" for name in names], folder, files, why)

    def _splits(self, folder: str, files: list[FoundFile]) -> None:
        splits = self._json(f"{folder}/dataset_dict.json").get("splits")
        if isinstance(splits, list):
            outside = [file for file in files if len(file.base) <= len(folder)]
            names = {str(name) for name in splits}
            why = "dataset_dict.json of the data set does not list its split"
            self._keep(outside, folder, lambda path: path.split("/")[0] in names, why)
            for name in sorted(names) if outside else ():
                if not self._is_there(f"{folder}/{name}"):
                    self.lacking[f"{folder}/{name}"] = "dataset_dict.json lists this split, and it is not there"

    def _prepared(self, folder: str, files: list[FoundFile]) -> None:
        """The cache of `datasets`: what it prepared, and what maps and shuffles left there."""
        if folder.endswith(".incomplete"):
            outside = [file for file in files if len(file.base) < len(folder)]
            self._keep(outside, folder, lambda path: False, "a folder that `datasets` has not finished", folder)
        elif self._is_there(f"{folder}/dataset_info.json") and not self._is_there(f"{folder}/state.json"):
            why = "left by a map or a shuffle of `datasets`, not of the data set itself"
            self._keep(files, folder, lambda path: "/" in path or not _CACHE.fullmatch(path), why)

    def _snapshots(self, folder: str, files: list[FoundFile]) -> None:
        """The hub's cache holds every revision that was fetched: the one that refs/main names is read."""
        head, name = posixpath.split(folder)
        if name != "snapshots" or not (self._is_there(f"{head}/blobs") or self._is_there(f"{head}/refs")):
            return
        within = [file for file in files if len(file.base) <= len(folder)]
        revisions = {file.path[len(folder) + 1 :].split("/")[0] for file in within}
        main = ""
        if self._is_there(f"{head}/refs/main"):
            main = read_content(f"{head}/refs/main").decode().strip()
        if main not in revisions:
            if len(revisions) < 2:
                return
            raise InputError(
                f"{folder}: {len(revisions)} revisions of a data set, and refs/main names none of them; give one: "
                f"{folder}/{min(revisions)}"
            )
        why = f"of another revision than the one that refs/main names ({main}); to read it, give its folder"
        self._keep(within, folder, lambda path: path.split("/")[0] == main, why)

    def _downloads(self, folder: str, files: list[FoundFile]) -> None:
        def belongs(path: str) -> bool:
            return "/" in path or not (_DOWNLOAD.fullmatch(path) and self._is_there(f"{folder}/{path[:-5]}"))

        self._keep(files, folder, belongs, "what `datasets` notes of a download")


# ---------------------------------------------------------------- Delta tables


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
    columns = json.loads(schema)["fields"] if schema else []
    for column in columns:
        name = (column.get("metadata") or {}).get("delta.columnMapping.physicalName", column["name"])
        if name != column["name"]:
            raise _refused(folder, f"calls column {column['name']!r} {name!r} in its files (column mapping)")
    return {column["name"] for column in columns if column.get("type") in ("byte", "short", "integer", "long")}


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
        for path in (f"{log}/{name}" for name in checkpoints[first]):
            with damage(path), open_input(path) as file:
                parquet = pq.ParquetFile(file)
                there = {"add", "remove", "protocol", "metaData"} & {*parquet.schema_arrow.names}
                rows = parquet.read(columns=sorted(there)).to_pylist(maps_as_pydicts="strict")
            yield from ({name: value} for row in rows for name, value in row.items() if value is not None)
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
