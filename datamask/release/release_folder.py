"""Where releases lie and what the stages hand on: `<out>/releases/<version>/`, with `<out>/latest` pointing at one.

A version is `0007-<key>`: a number that orders, and the key of everything that determines the data files' bytes.
`latest` is a symbolic link on a disk and a small JSON object on an object store. A folder without manifest.json is
no release: the manifest is written last.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from datamask import storage
from datamask.corpus.plan import FailedFile
from datamask.errors import DamagedFileError, DatamaskError, InputError, StorageError, one_line
from datamask.release.manifest import read_manifest
from datamask.release.merge import schema_of
from datamask.seen_from import NAMING, noted_folder, paths_seen_from, seen_from

MANIFEST = "manifest.json"
CARD = "README.md"
QUARANTINE = "quarantine.parquet"
_VERSION = re.compile(r"([0-9]{4,9})-([0-9a-f]{16})")
# of columns that are read by name, in data files, decisions and quarantine; others may have any
TYPES = {"shard": pa.string(), "chunk_id": pa.int64(), "id": pa.string(), "reason": pa.string()}
TYPES |= {"token_count": pa.int64(), "quality_score": pa.float32()}


@dataclass(frozen=True)
class Provenance:
    """What the manifest and the card say of a selection beyond settings and shards; all plain JSON."""

    encoder: Mapping[str, Any]  # identity of the encoder: name, revision, key, dimensions, …
    quality: Mapping[str, Any]  # identity of the scorers, fitted statistics
    certificate: Mapping[str, Any]  # objective, bound, gap, …; scope shard: {"shards": {name: the same}}
    failed: tuple[FailedFile, ...] = ()  # files that could not be read, and shards that failed (path: the shard's name)
    skipped: tuple[FailedFile, ...] = ()  # files that are nothing to read; told, but no part of the release's key
    topics: Mapping[str, Any] = field(default_factory=dict)  # key of their model, and the names; {}: none were made
    named: Mapping[str, str] = field(default_factory=dict)  # see `changes.named_content`; no part of the release's key
    folder: str | None = None  # `present_folder` where it was made; no part of the release's key


@dataclass(frozen=True)
class Staged:
    """A release as far as it is: data files, decisions and quarantine. Small and picklable, for tasks to hand on."""

    folder: str  # <out>/work/staging/<key>, or the release itself if it is published
    out: str  # the output folder
    key: str  # of everything that determines the data files' bytes
    published: str | None = None  # the version that carries this key already: nothing to add, nothing to write
    keep: int = 0  # `release.keep` of this run

    @property
    def draft(self) -> str:
        """The JSON file with all that the manifest will hold but the list of files."""
        return f"{self.folder}.json"

    def facts(self) -> dict[str, Any]:
        return storage.read_json(storage.join(self.folder, MANIFEST) if self.published else self.draft)


@dataclass(frozen=True)
class Picture:
    path: str  # inside the release, e.g. plots/sources.png
    title: str


@dataclass(frozen=True)
class ReleaseFolder:
    path: str  # <out>/releases/<version>
    version: str
    key: str
    new: bool = True  # False: it was there already, and nothing was written
    removed: tuple[str, ...] = ()  # versions beyond `release.keep` that went when it was published

    def batches(
        self, path: str, columns: list[str], row_groups: Sequence[int] | None = None, rows: int = 100_000
    ) -> Iterator[pa.RecordBatch]:
        """Some columns of one of the release's parquet files, which the manifest lists.

        :param row_groups: None: all.
        :param rows: of a batch, at most.
        :raises DamagedFileError: the file does not have them, or cannot be read.
        """
        with self.opened(path) as (url, file):
            schema = file.schema_arrow
            for name in columns:
                type_ = schema.field(name).type if schema.names.count(name) == 1 else None
                if type_ is None or type_ != TYPES.get(name, type_):
                    raise DamagedFileError(
                        f"{url} has no column {name!r}, or one of another type; see datamask verify {self.path}"
                    )
            for batch in file.iter_batches(rows, row_groups, columns):
                batch.validate(full=True)
                yield batch

    def documents(
        self, path: str, columns: list[str], first: int = 0, last: int | None = None, rows: int = 100_000
    ) -> Iterator[pa.RecordBatch]:
        """`batches` of a data file, with shard and chunk_id, in which each document is one row: one that is taken
        several times may be several rows, which are neighbours.

        :param first: the first row group. :param last: the one to stop before; None: the end.
        """
        place, before = ["shard", "chunk_id"], None
        for batch in self.batches(path, place, [first - 1]) if first else ():
            before = "/".join(map(str, batch.slice(batch.num_rows - 1).to_pylist()[0].values()))
        for batch in self.batches(path, [*place, *columns], None if last is None else range(first, last), rows):
            places = pc.binary_join_element_wise(batch["shard"], batch["chunk_id"].cast(pa.string()), "/")
            earlier = pa.concat_arrays([pa.array([before], pa.string()), places.slice(0, len(places) - 1)])
            before = places[-1].as_py()
            if (fresh := pc.not_equal(places, earlier).fill_null(True)).true_count:
                yield batch.filter(fresh)

    def decisions(self, shard: str, columns: list[str] | None = None) -> pa.Table:
        """What became of every row of a shard: by chunk_id from 0, with the columns of `merge.schema_of`.

        :raises DamagedFileError: the release has no such shard, or the file is not one of decisions.
        """
        manifest = self.manifest()
        shards = manifest["conservation"]["shards"]
        if shard not in shards:
            raise DamagedFileError(f"{self.path} names a shard {shard!r} that it does not have; see datamask verify")
        with self.opened(f"decisions/{shard}.parquet") as (url, file):
            schema = schema_of(manifest["settings"], "topics" in manifest["provenance"])
            if file.schema_arrow != schema or file.metadata.num_rows != shards[shard]["rows"]:
                raise DamagedFileError(f"{url} does not hold the decisions; {self._remedy}")
            table = file.read(columns=columns)
            table.validate(full=True)
            return table

    @contextlib.contextmanager
    def opened(self, path: str) -> Iterator[tuple[str, pq.ParquetFile]]:
        """:raises DamagedFileError: the parquet file, or what is read of it inside, is damaged."""
        url = storage.join(self.path, path)
        try:
            with storage.storage_errors(url), storage.open_parquet(url) as file:
                yield url, file
        except DatamaskError:
            raise
        except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
            raise DamagedFileError(f"{url}: damaged ({one_line(error)}); {self._remedy}") from error

    @property
    def _remedy(self) -> str:
        again = f"remove {self.path} and run `datamask curate` again, which leaves out what is to be forgotten"
        return f"put a copy of it back, or {again}; datamask verify {self.path} names all that is damaged"

    def manifest(self) -> dict[str, Any]:
        """What manifest.json says; its names are checked (`manifest.read_manifest`). Not to be changed.

        :raises InputError: it is none.
        """
        return read_manifest(self.path)

    def seen_from_here(self) -> dict[str, Any]:
        """The manifest, with the relative paths that its settings name as they led from where the release was made."""
        manifest, found = self.manifest(), dict[str, str]()
        for name, content in manifest.get("named", {}).items():
            setting, _, path = name.partition(": ")
            found[f"{setting}: {seen_from(self.made_in, path)}" if setting in NAMING else name] = content
        named = {"named": found} if "named" in manifest else {}  # older releases do not say
        return {**manifest, **named, "settings": paths_seen_from(self.made_in, manifest["settings"])}

    def settings(self) -> dict[str, Any]:
        """The manifest's settings, as `seen_from_here`."""
        return dict(self.seen_from_here()["settings"])

    @property
    def made_in(self) -> Path:
        return noted_folder(f"{self.path}/../..", self.manifest().get("folder"))


# ---------------------------------------------------------------- versions


def next_version(out: str, key: str) -> str:
    """The version that a release of this key gets, if it is published next."""
    number = 1 + max((version_number(version) for version in list_versions(out)), default=0)
    return f"{number:04d}-{key}"


def version_number(version: str) -> int:
    return int(version.split("-")[0])


def version_key(version: str) -> str:
    return version.split("-")[1]


def version_path(out: str, version: str) -> str:
    return storage.join(out, "releases", version)


def list_versions(out: str) -> list[str]:
    """The complete releases of an output folder, oldest first."""
    versions = [name for name in storage.list_names(storage.join(out, "releases")) if _VERSION.fullmatch(name)]
    complete = [name for name in versions if storage.exists(storage.join(version_path(out, name), MANIFEST))]
    return sorted(complete, key=lambda name: (version_number(name), name))


def latest_version(out: str) -> str | None:
    """The version that `latest` points at, or None."""
    pointer = storage.join(out, "latest")
    if not storage.is_remote(out):
        link = Path(storage.filesystem(pointer)[1])
        return link.readlink().name if link.is_symlink() else None
    try:
        named = storage.read_json(pointer)["version"]
    except FileNotFoundError:
        return None
    except (ValueError, KeyError, TypeError) as error:
        raise DamagedFileError(
            f"{pointer} points at no release ({one_line(error)}); remove it and curate again"
        ) from error
    return named if isinstance(named, str) and _VERSION.fullmatch(named) else None


def point_latest(out: str, version: str) -> None:
    """Moves `latest` to `version` in one step: who opens it meanwhile finds the old one or the new one."""
    pointer = storage.join(out, "latest")
    if storage.is_remote(out):
        storage.write_json(pointer, {"version": version, "path": f"releases/{version}"})
        return
    link = Path(storage.filesystem(pointer)[1])
    temporary = link.with_name(f".latest.{version}.tmp")
    temporary.unlink(missing_ok=True)
    temporary.symlink_to(f"releases/{version}", target_is_directory=True)
    try:
        temporary.replace(link)
    except IsADirectoryError as error:
        temporary.unlink()
        raise StorageError(
            f"{pointer}: a folder, where a link to the newest release belongs, as a copy that follows links makes it; "
            f"remove it and run again: {version} is published"
        ) from error


def release_versions(out: str) -> list[ReleaseFolder]:
    """The releases of an output folder, oldest first.

    :raises InputError: there is none.
    """
    versions = list_versions(out)
    if not versions:
        make = f"datamask curate --output {out}"
        raise InputError(f"no release in {out}; make one: {make}", path=out, next=[make])
    return [release_at(out, version) for version in versions]


def release_at(out: str, version: str) -> ReleaseFolder:
    """The release of this version in an output folder; it must be there."""
    return ReleaseFolder(version_path(out, version), version, version_key(version), new=False)


def find_release(place: str) -> ReleaseFolder:
    """The release at `place`: a release's folder, `<out>/latest`, or an output folder (its latest release).

    :raises InputError: there is none; says what was found instead.
    """
    place = place.rstrip("/")
    if storage.exists(storage.join(place, MANIFEST)):
        path = place if storage.is_remote(place) else str(Path(storage.filesystem(place)[1]).resolve())
        name = path.rsplit("/", 1)[-1]
        key = version_key(name) if _VERSION.fullmatch(name) else ""
        if not key:
            with contextlib.suppress(InputError):  # `verify` says what is wrong with it
                key = str(ReleaseFolder(path, name, "").manifest()["key"])
        return ReleaseFolder(path, name, key, new=False)
    out = place.removesuffix("/latest")
    version = latest_version(out)
    versions = list_versions(out)
    if versions:
        return release_at(out, version if version and version in versions else versions[-1])
    what = "no such folder" if not storage.exists(place) else f"it has neither {MANIFEST} nor releases/"
    said = f"no release at {place}: {what}; give an output folder, one of its releases/<version>, or latest"
    raise InputError(said, path=place)
