"""Where releases lie and what the stages hand on: `<out>/releases/<version>/`, with `<out>/latest` pointing at one.

A version is `0007-<key>`: a number that orders, and the key of everything that determines the data files' bytes.
`latest` is a symbolic link on a disk and a small JSON object on an object store. A folder without manifest.json is
no release: the manifest is written last.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

from datamask import storage
from datamask.corpus.plan import FailedFile
from datamask.errors import InputError

MANIFEST = "manifest.json"
CARD = "README.md"
QUARANTINE = "quarantine.parquet"
_VERSION = re.compile(r"(\d{4,})-([0-9a-f]{16})")


@dataclass(frozen=True)
class Provenance:
    """What the manifest and the card say of a selection beyond settings and shards; all plain JSON."""

    encoder: Mapping[str, Any]  # identity of the encoder: name, revision, key, dimensions, …
    quality: Mapping[str, Any]  # identity of the scorers, fitted statistics
    certificate: Mapping[str, Any]  # objective, bound, gap, …; scope shard: {"shards": {name: the same}}
    failed: tuple[FailedFile, ...] = ()  # files that could not be read, and shards that failed (path: the shard's name)


@dataclass(frozen=True)
class Staged:
    """A release as far as it is: data files, decisions and quarantine. Small and picklable, for tasks to hand on."""

    folder: str  # <out>/work/staging/<key>, or the release itself if it is published
    out: str  # the output folder
    key: str  # of everything that determines the data files' bytes
    published: str | None = None  # the version that carries this key already: nothing to add, nothing to write

    @property
    def draft(self) -> str:
        """The JSON file with all that the manifest will hold but the list of files."""
        return f"{self.folder}.json"

    def summary(self) -> dict[str, Any]:
        """The manifest's `conservation`: numbers for the whole (`total`) and for each shard (`shards`)."""
        place = storage.join(self.folder, MANIFEST) if self.published else self.draft
        conservation: dict[str, Any] = storage.read_json(place)["conservation"]
        return conservation


@dataclass(frozen=True)
class Picture:
    """A picture for the dataset card, a file of the staged release."""

    path: str  # inside the release, e.g. plots/sources.png
    title: str
    caption: str = ""


@dataclass(frozen=True)
class Release:
    """A published release."""

    path: str  # <out>/releases/<version>
    version: str
    key: str
    new: bool = True  # False: it was there already, and nothing was written

    def batches(self, path: str, columns: list[str]) -> Iterator[pa.RecordBatch]:
        """Some columns of one of the release's parquet files."""
        with storage.open_parquet(storage.join(self.path, path)) as file:
            yield from file.iter_batches(100_000, columns=columns)

    def manifest(self) -> dict[str, Any]:
        manifest: dict[str, Any] = storage.read_json(storage.join(self.path, MANIFEST))
        return manifest


# ---------------------------------------------------------------- versions


def version_name(number: int, key: str) -> str:
    return f"{number:04d}-{key}"


def version_number(version: str) -> int:
    return int(version.split("-")[0])


def version_key(version: str) -> str:
    return version.split("-")[1]


def version_path(out: str, version: str) -> str:
    return storage.join(out, "releases", version)


def list_versions(out: str) -> list[str]:
    """The complete releases of an output folder, oldest first."""
    fs, path = storage.filesystem(storage.join(out, "releases"))
    try:
        with storage.storage_errors(out):
            fs.invalidate_cache()
            entries = fs.ls(path, detail=False)
    except FileNotFoundError:
        return []
    names = [entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries]
    versions = [name for name in names if _VERSION.fullmatch(name)]
    complete = [name for name in versions if storage.exists(storage.join(version_path(out, name), MANIFEST))]
    return sorted(complete, key=lambda name: (version_number(name), name))


def latest_version(out: str) -> str | None:
    """The version that `latest` points at, or None."""
    pointer = storage.join(out, "latest")
    if not storage.is_remote(out):
        link = Path(storage.filesystem(pointer)[1])
        return link.readlink().name if link.is_symlink() else None
    try:
        return str(storage.read_json(pointer)["version"])
    except FileNotFoundError:
        return None


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
    temporary.replace(link)


def find_release(place: str) -> Release:
    """The release at `place`: a release's folder, `<out>/latest`, or an output folder (its latest release).

    :raises InputError: there is none; says what was found instead.
    """
    place = place.rstrip("/")
    if storage.exists(storage.join(place, MANIFEST)):
        path = place if storage.is_remote(place) else str(Path(storage.filesystem(place)[1]).resolve())
        name = path.rsplit("/", 1)[-1]
        key = version_key(name) if _VERSION.fullmatch(name) else read_key(path)
        return Release(path, name, key, new=False)
    out = place.removesuffix("/latest")
    version = latest_version(out)
    versions = list_versions(out)
    if version in versions:
        return Release(version_path(out, version), version, version_key(version), new=False)
    if versions:
        return Release(version_path(out, versions[-1]), versions[-1], version_key(versions[-1]), new=False)
    what = "no such folder" if not storage.exists(place) else f"it has neither {MANIFEST} nor releases/"
    raise InputError(f"no release at {place}: {what}; give an output folder, one of its releases/<version>, or latest")


def read_key(path: str) -> str:
    """The key in a release's manifest.

    :raises InputError: the manifest is not one.
    """
    try:
        return str(storage.read_json(storage.join(path, MANIFEST))["key"])
    except (json.JSONDecodeError, UnicodeDecodeError, KeyError, TypeError) as error:
        raise InputError(f"{path}/{MANIFEST} is no release manifest: {error}") from error
