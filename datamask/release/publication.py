"""Publication: the card, the manifest, one rename, `latest`. A release is there whole or not at all.

On a disk the staged folder is renamed to releases/<version>; on an object store its files are copied there, the
manifest last, and a folder without a manifest is no release. One publisher at a time: a lock that the kernel takes
back from a dead process. Old releases beyond `release.keep` go, but never the one `latest` points at, nor the one it
pointed at before: someone may still be reading that.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from datamask import storage
from datamask.corpus.belonging import outside_releases
from datamask.errors import StorageError, TransientError
from datamask.locks import locked
from datamask.release.card import render_card
from datamask.release.data_files import WrittenFile
from datamask.release.manifest import build_manifest, render_manifest
from datamask.release.release_folder import (
    CARD,
    MANIFEST,
    Picture,
    ReleaseFolder,
    Staged,
    latest_version,
    list_versions,
    next_version,
    point_latest,
    version_key,
    version_path,
)
from datamask.release.summary.facts import FILES as SUMMARY
from datamask.release.summary.facts import publish_files, summary_files

WAIT = 0.2  # seconds between looks whether another run has ended its export
FILES = ("quarantine.parquet", CARD, "report.html", "report.json", *SUMMARY)


def publish(
    staged: Staged, pictures: Sequence[Picture] = (), warnings: Sequence[Mapping[str, Any]] = ()
) -> ReleaseFolder:
    """The staged release under its version, with `latest` pointing at it.

    The same key again gives the release that is there; `latest` moves to it.

    :param warnings: what the report warns about, for the card and the manifest.
    :raises StorageError: a file of the staged release has gone or changed.
    """
    with one_publisher(staged.out):
        before = latest_version(staged.out)
        found = [version for version in list_versions(staged.out) if version_key(version) == staged.key]
        if found:
            release = ReleaseFolder(version_path(staged.out, found[0]), found[0], staged.key, new=False)
        else:
            release = _publish(staged, pictures, warnings, before)
        if before != release.version:
            point_latest(staged.out, release.version)
        folder = storage.join(staged.out, "work", "staging", staged.key)
        for url in (folder, f"{folder}.json"):
            with contextlib.suppress(FileNotFoundError):
                storage.remove(url)
        older = list_versions(staged.out)[: -staged.keep] if staged.keep else []
        removed = tuple(version for version in older if version not in (release.version, before))
        for version in removed:
            remove_release(staged.out, version)
    return replace(release, removed=removed)


def _publish(
    staged: Staged, pictures: Sequence[Picture], warnings: Sequence[Mapping[str, Any]], previous: str | None
) -> ReleaseFolder:
    draft = {**storage.read_json(staged.draft), "warnings": [dict(warning) for warning in warnings]}
    version = next_version(staged.out, staged.key)
    path = version_path(staged.out, version)
    storage.write_content(storage.join(staged.folder, CARD), render_card(draft, pictures))
    publish_files(staged.folder, summary_files(draft, staged.folder))
    files = [WrittenFile(**item) for item in draft["files"]]
    files += _describe(staged, {file.path for file in files})
    lineage = {"version": previous, "key": version_key(previous)} if previous else None
    manifest = build_manifest(draft, version, files, lineage, datetime.now(UTC).isoformat(timespec="seconds"))
    text = render_manifest(manifest)
    if storage.is_remote(staged.out):
        _copy(staged.folder, path, [file.path for file in files])
        storage.write_content(storage.join(path, MANIFEST), text)
    else:
        _remove_others(Path(storage.filesystem(staged.folder)[1]), {file.path for file in files})
        storage.write_content(storage.join(staged.folder, MANIFEST), text)
        target = Path(storage.filesystem(path)[1])
        target.parent.mkdir(parents=True, exist_ok=True)
        Path(storage.filesystem(staged.folder)[1]).rename(target)
    return ReleaseFolder(path, version, staged.key)


def _describe(staged: Staged, known: set[str]) -> list[WrittenFile]:
    """The files that others added to the staged folder (card, report, plots); those that export wrote must be there."""
    found = storage.file_sizes(staged.folder).keys()
    if missing := sorted(known - found):
        raise StorageError(f"{staged.folder}: {missing[0]} has gone ({len(missing)} files missing); run again")
    added = []
    for path in sorted(found - known):
        hidden = any(part.startswith(".") for part in path.split("/"))
        if not hidden and (path in FILES or path.startswith("plots/")):
            data = storage.read_content(storage.join(staged.folder, path))
            added.append(WrittenFile(path, len(data), hashlib.sha256(data).hexdigest()))
    return added


def _remove_others(folder: Path, files: set[str]) -> None:
    for path in sorted(folder.rglob("*"), reverse=True):
        if path.is_dir():
            with contextlib.suppress(OSError):
                path.rmdir()  # only if empty
        elif path.relative_to(folder).as_posix() not in files:
            path.unlink()


def _copy(source: str, target: str, files: Sequence[str]) -> None:
    fs, from_root = storage.filesystem(source)
    to_root = storage.filesystem(target)[1]
    for path in files:
        with storage.storage_errors(storage.join(target, path), "write"):
            fs.cp_file(f"{from_root.rstrip('/')}/{path}", f"{to_root.rstrip('/')}/{path}")


def remove_release(out: str, version: str) -> None:
    """Removes a release; what is left, if this process is killed meanwhile, is no release.

    :raises StorageError: it may not be removed.
    """
    path = version_path(out, version)
    if storage.is_remote(out):
        storage.remove(storage.join(path, MANIFEST))
        storage.remove(path)
        return
    with storage.storage_errors(path, "remove"):
        inside = Path(storage.filesystem(path)[1])
        hidden = inside.with_name(f".{version}.pruned")
        shutil.rmtree(inside.rename(hidden))


# ---------------------------------------------------------------- one at a time


@contextlib.contextmanager
def one_publisher(out: str) -> Iterator[None]:
    """Waits for another publisher of the same output folder on this machine or a shared disk."""
    try:
        with _lock_work(out, ".publish.lock"):  # on a store versions carry their keys: no two write into one folder
            if not storage.is_remote(out):
                for pruned in Path(storage.filesystem(out)[1], "releases").glob(".*.pruned"):  # a killed publisher's
                    shutil.rmtree(pruned)
            yield
    except PermissionError as error:
        raise _no_permission(out) from error


@contextlib.contextmanager
def one_exporter(out: str, waiting: Callable[[], None]) -> Iterator[None]:
    """From the staged files to `latest` one run at a time: a second run of the same selection would lose its staging
    folder to the first one's publication. Who waits finds what the other has published. On a store the staged files
    are copied, not moved.

    :param waiting: called once if another run is at it.
    """
    told = False
    with contextlib.ExitStack() as held:
        while True:
            try:
                held.enter_context(_lock_work(out, ".export.lock", refusal=BlockingIOError()))
                break
            except BlockingIOError:
                if not told:
                    waiting()
                told = True
                time.sleep(WAIT)  # and not in the kernel, where Ctrl-C would not be heard
        yield


def running(out: str) -> contextlib.AbstractContextManager[None]:
    """A run is writing into the output folder: until it ends, nobody cleans there. Several may run at once."""
    return _lock_work(out, ".running.lock", shared=True)


def nobody_running(out: str) -> contextlib.AbstractContextManager[None]:
    """Runs that begin meanwhile wait.

    :raises StorageError: one is writing into the output folder now.
    """
    said = f"a run is writing into {out} and needs what is there; wait until it has ended"
    return _lock_work(out, ".running.lock", refusal=StorageError(said))


def one_refresh(out: str) -> contextlib.AbstractContextManager[None]:
    """One refresh of an output folder at a time. The kernel takes the lock back from a process that dies.

    On an object store there is no such lock: there the deployment's concurrency limit holds the second one back.

    :raises TransientError: another one is at it.
    """
    said = f"another refresh of {out} is running; wait for it, then run this again"
    return _lock_work(out, "refresh.lock", refusal=TransientError(said))


@contextlib.contextmanager
def _lock_work(out: str, name: str, shared: bool = False, refusal: Exception | None = None) -> Iterator[None]:
    """On an object store nothing is held: there the caller answers for it.

    :param refusal: raised at once if another has the lock; None: this one waits.
    :raises ConfigError: the output folder lies in a release.
    """
    outside_releases(out)
    with contextlib.ExitStack() as held:
        if not storage.is_remote(out):
            folder = Path(storage.filesystem(out)[1], "work")
            try:
                folder.mkdir(parents=True, exist_ok=True)
                held.enter_context(locked(folder / name, shared=shared, wait=refusal is None))
            except BlockingIOError as error:
                raise refusal or error from error
            except PermissionError as error:
                raise _no_permission(out) from error
            except FileNotFoundError as error:
                raise StorageError(
                    f"cannot write {out}: no folder can be made there; choose another --output"
                ) from error
            except (NotADirectoryError, FileExistsError) as error:
                said = f"cannot write {out}: it is, or lies under, a file or a link to nothing; choose another --output"
                raise StorageError(said) from error
        yield


def _no_permission(out: str) -> StorageError:
    return StorageError(f"cannot write {out}: no permission; check its owner and mode, or choose another --output")
