"""Upload of a release: resumable, and never a mixture of two releases that looks like one.

To an object store or a folder, files go one by one; those already there with the same content are skipped. The old
manifest goes first and the new one comes last, so that what is half uploaded is no release. To the Hugging Face hub
all files are one commit; what an interrupted attempt uploaded the hub already has.

A release may come from somebody else: its names are checked by `manifest.read_manifest`, a manifest that was edited is
not sent, and what is sent has the size and the sha256 that it gives and lies in the release itself: no link in it sends
another file.
"""

from __future__ import annotations

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from datamask import storage
from datamask.errors import ConfigError, DatamaskError, InputError, StorageError, TransientError
from datamask.release.manifest import key_of, read_manifest, render_manifest
from datamask.release.release_folder import MANIFEST, ReleaseFolder, list_versions
from datamask.storage import storage_errors

JOURNAL = ".push.json"  # at the target while an upload runs: the files of releases that were or are sent there
HUB_CHUNK = 50  # files uploaded to the hub before the next are read
MANAGED = ("data/", "decisions/", "plots/")  # here an older release's other files go


@dataclass
class Pushed:
    url: str
    uploaded: list[str] = field(default_factory=list)
    skipped: list[str] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    bytes: int = 0


Sent = Callable[[str, int], None]  # called with a file's path and bytes once it is there, uploaded or skipped


def nothing(path: str, size: int) -> None: ...


def upload_release(release: ReleaseFolder, url: str, sent: Sent = nothing, public: bool = False) -> Pushed:
    """Uploads a release to `url`, which becomes the release's folder or data set repository.

    :param url: hf://datasets/OWNER/NAME[@revision], s3://bucket/folder, gs://…, or a local folder.
    :param public: on the hub, make the repository one that everybody can read, or send to one that is. A store's or a
        folder's own settings say who can read there.
    :raises ConfigError: `url` names no folder, such as / or s3://, or an output folder.
    :raises InputError: the release's manifest is none.
    :raises StorageError: the manifest was edited, a file is not as it says, or the target refuses.
    :raises TransientError: the target failed in passing; the same call goes on where this one stopped.
    """
    if not url.startswith("hf://"):
        url = storage.output_folder(url, "target")
        folder = url if storage.is_remote(url) else str(Path(storage.filesystem(url)[1]).resolve())
        out, _, version = folder.rpartition("/releases/")
        if list_versions(folder) or (out and version != release.version and version in list_versions(out)):
            raise ConfigError(f"target {url!r} is an output folder, or a release of one; push to a folder of its own")
    manifest = release.manifest()
    data = storage.read_content(storage.join(release.path, MANIFEST))
    if render_manifest(manifest) != data or key_of(manifest) != manifest["key"]:
        raise StorageError(f"{release.path}/{MANIFEST} was edited; see datamask verify {release.path}")
    files = {item["path"]: item for item in manifest["files"]}
    root = None if storage.is_remote(release.path) else Path(storage.filesystem(release.path)[1]).resolve()
    for path, item in files.items():  # what is uploaded is what was published
        if storage.size_of(storage.join(release.path, path)) != item["bytes"]:
            raise _other(release, path)
        if root and not (root / path).resolve().is_relative_to(root):
            raise StorageError(
                f"{release.path}/{path} is a symbolic link to a file outside the release; if it is meant to be sent, "
                f"copy the release with what its links lead to: cp -rL {release.path} COPY"
            )
    if url.startswith("hf://"):
        return _push_to_hub(release, files, url, sent, public)
    return _push_to_store(release, data, files, url, sent)


def _other(release: ReleaseFolder, path: str) -> StorageError:
    return StorageError(f"{release.path}/{path} is not as the manifest says; see datamask verify {release.path}")


# ---------------------------------------------------------------- object stores and folders


def _push_to_store(release: ReleaseFolder, manifest: bytes, files: dict[str, Any], url: str, sent: Sent) -> Pushed:
    pushed = Pushed(url)
    target_manifest = storage.join(url, MANIFEST)
    ours = {*files, *_read_journal(url)}
    with contextlib.suppress(FileNotFoundError):
        if storage.read_content(target_manifest) == manifest:
            pushed.skipped = [*files, MANIFEST]
            return pushed
        ours |= {*_listed(url)}
        pushed.removed.append(MANIFEST)
    there = storage.file_sizes(url)
    storage.write_json(storage.join(url, JOURNAL), sorted(ours))
    if pushed.removed:
        storage.remove(target_manifest)
    for path, item in sorted(files.items()):
        target = storage.join(url, path)
        if there.get(path) == item["bytes"] and storage.sha256(target) == item["sha256"]:
            pushed.skipped.append(path)
        else:
            _upload(release, path, target, item["sha256"])
            pushed.uploaded.append(path)
            pushed.bytes += item["bytes"]
        sent(path, item["bytes"])
    for path in sorted((there.keys() & ours) - files.keys()):
        if path.startswith(MANAGED):
            storage.remove(storage.join(url, path))
            pushed.removed.append(path)
    storage.write_content(target_manifest, manifest)
    pushed.uploaded.append(MANIFEST)
    pushed.bytes += len(manifest)
    with contextlib.suppress(FileNotFoundError):
        storage.remove(storage.join(url, JOURNAL))
    return pushed


def _listed(url: str) -> list[str]:
    """The files of the release that lies at the target.

    :raises StorageError: it has a manifest.json that is no release's.
    """
    try:
        return [item["path"] for item in read_manifest(url)["files"]]
    except InputError as error:
        raise StorageError(f"{error}; push to another place, or remove that file") from error


def _read_journal(url: str) -> list[str]:
    try:
        return [str(path) for path in storage.read_json(storage.join(url, JOURNAL))]
    except (FileNotFoundError, ValueError, TypeError):
        return []


def _upload(release: ReleaseFolder, path: str, target: str, sha256: str) -> None:
    """Copies a file of that sha256; where it has another, nothing appears at the target."""
    source, digest = storage.join(release.path, path), hashlib.sha256()
    with storage.open_input(source) as file, storage.publish(target) as temporary:
        with temporary.open("wb") as copy:
            while block := _read(file, source):
                copy.write(block)
                digest.update(block)
        if digest.hexdigest() != sha256:
            raise _other(release, path)  # leaves `publish` before anything is put in place


def _read(file: Any, url: str) -> bytes:
    with storage_errors(url):
        return bytes(file.read(1 << 22))


# ---------------------------------------------------------------- the hub


def _push_to_hub(release: ReleaseFolder, files: dict[str, Any], url: str, sent: Sent, public: bool) -> Pushed:
    from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi

    repository, revision = _repository(url)
    pushed = Pushed(url)
    api = HfApi()
    with _hub_errors(url):
        api.create_repo(repository, repo_type="dataset", private=not public, exist_ok=True)
        if not public and not api.dataset_info(repository).private:  # it was there, and everybody reads it
            raise StorageError(
                f"{url} is a public data set, which everybody could read at once; send it there with --public, or to "
                "another name, or make it private in its settings on the hub first"
            )
        there = _hub_listing(api, repository, revision)
        older = _listed_on_hub(api, repository, revision) if MANIFEST in there else []
    with contextlib.ExitStack() as stack:
        additions = []
        for path in [*sorted(files), MANIFEST]:
            local = stack.enter_context(_local(storage.join(release.path, path)))
            size = Path(local).stat().st_size
            if path in files and storage.sha256(local) != files[path]["sha256"]:
                raise _other(release, path)
            if path in files and there.get(path) in (files[path]["sha256"], (size, _git_blob(local, size))):
                pushed.skipped.append(path)
                sent(path, size)
            else:
                additions.append(CommitOperationAdd(path, local))
        old = [path for path in older if path.startswith(MANAGED) and path in there and path not in files]
        for start in range(0, len(additions), HUB_CHUNK):
            chunk = additions[start : start + HUB_CHUNK]
            with _hub_errors(url):
                api.preupload_lfs_files(repository, chunk, repo_type="dataset", revision=revision)
            for addition in chunk:
                pushed.uploaded.append(addition.path_in_repo)
                pushed.bytes += addition.upload_info.size
                sent(addition.path_in_repo, addition.upload_info.size)
        operations: list[Any] = [*additions, *(CommitOperationDelete(path) for path in sorted(old))]
        message = f"Release {release.version}"
        with _hub_errors(url):
            api.create_commit(repository, operations, commit_message=message, repo_type="dataset", revision=revision)
    pushed.removed = sorted(old)
    return pushed


def _repository(url: str) -> tuple[str, str | None]:
    path, _, revision = url.removeprefix("hf://").strip("/").partition("@")
    parts = path.split("/")
    if len(parts) != 3 or parts[0] != "datasets" or not all(parts):
        raise StorageError(f"{url}: a release is pushed to hf://datasets/OWNER/NAME, or …@REVISION")
    return "/".join(parts[1:]), revision or None


def _hub_listing(api: Any, repository: str, revision: str | None) -> dict[str, Any]:
    """Path: sha256 of what is stored as a large file, (size, git's blob id) of the others."""
    from huggingface_hub.errors import RevisionNotFoundError
    from huggingface_hub.hf_api import RepoFile

    try:
        entries = list(api.list_repo_tree(repository, recursive=True, repo_type="dataset", revision=revision))
    except RevisionNotFoundError:
        api.create_branch(repository, branch=revision, repo_type="dataset")
        return {}
    return {
        entry.path: entry.lfs.sha256 if entry.lfs else (entry.size, entry.blob_id)
        for entry in entries
        if isinstance(entry, RepoFile)
    }


def _listed_on_hub(api: Any, repository: str, revision: str | None) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="datamask-") as folder:
        api.hf_hub_download(repository, MANIFEST, repo_type="dataset", revision=revision, local_dir=folder)
        return _listed(folder)


def _git_blob(path: str, size: int) -> str:
    """Git's id of a small file's content; the hub stores larger ones by sha256."""
    if size > 10_000_000:
        return ""
    return hashlib.sha1(b"blob %d\0" % size + Path(path).read_bytes(), usedforsecurity=False).hexdigest()


@contextlib.contextmanager
def _local(url: str) -> Iterator[str]:
    """The file's local path; a remote one is fetched."""
    if not storage.is_remote(url):
        yield storage.filesystem(url)[1]
        return
    fs, path = storage.filesystem(url)
    with tempfile.NamedTemporaryFile(prefix="datamask-") as copy, storage_errors(url):
        fs.get_file(path, copy.name)
        yield copy.name


@contextlib.contextmanager
def _hub_errors(url: str) -> Iterator[None]:
    from huggingface_hub.errors import HfHubHTTPError

    try:
        yield
    except DatamaskError:
        raise
    except HfHubHTTPError as error:
        status = error.response.status_code if error.response is not None else 0
        said = " ".join(str(error.server_message or error).split())[:300]
        if status in (401, 403):
            raise StorageError(
                f"{url}: the hub refused ({status}: {said}); log in: hf auth login, or set HF_TOKEN"
            ) from error
        if status >= 500 or status in (0, 408, 429):
            raise TransientError(
                f"{url}: the hub failed ({status}: {said}); the same command goes on from here"
            ) from error
        raise StorageError(f"{url}: the hub refused ({status}: {said})") from error
    except Exception as error:
        if not isinstance(error, OSError) and not type(error).__module__.startswith("httpx"):
            raise
        said = " ".join(str(error).split())[:200]
        raise TransientError(
            f"{url}: the hub cannot be reached ({said}); the same command goes on from here"
        ) from error
