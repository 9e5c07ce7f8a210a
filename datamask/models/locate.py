"""Which model exactly, and where: the commit of a hub model, the content of a folder, a local copy of a remote one."""

from __future__ import annotations

import atexit
import hashlib
import re
import shutil
import tempfile
import threading
from pathlib import Path

from datamask import storage
from datamask.errors import InputError, ModelError
from datamask.models.load import loading, missing

HUB_ORGANISATION = "sentence-transformers"  # of names without one, as the library reads them
_FETCHED: dict[str, str] = {}  # this process's copies, by URL
_FETCHING = threading.Lock()


def locate(name: str, revision: str | None) -> tuple[str, str | None, str]:
    """Path or hub name to load, commit (None for a folder), and a fingerprint of the content.

    :raises ModelError: neither a folder, nor in the cache, nor at the hub.
    """
    if storage.is_remote(name):
        raise ModelError(
            f"model {name}: give a local folder or a hub name; copy it first, e.g. with `aws s3 cp --recursive`"
        )
    place = Path(storage.filesystem(name)[1])
    if place.is_dir():
        folder = place.resolve()
        return str(folder), None, folder_fingerprint(folder)
    if Path(name).is_absolute() or name.startswith((".", "~")) or name.count("/") > 1:
        raise ModelError(f"model {name}: no such folder ({place})")
    hub_name = name if "/" in name else f"{HUB_ORGANISATION}/{name}"
    commit = _commit(hub_name, revision)
    return hub_name, commit, f"{hub_name}@{commit}"


def _commit(name: str, revision: str | None) -> str:
    """The commit a hub model's revision (None: main) stands for: the hub's word, or else the cache's."""
    from huggingface_hub import HfApi
    from huggingface_hub.constants import HF_HUB_CACHE
    from huggingface_hub.file_download import repo_folder_name

    if revision and re.fullmatch(r"[0-9a-f]{40}", revision):
        return revision
    with loading("model", name, revision):
        try:
            return str(HfApi().model_info(name, revision=revision, timeout=10).sha)
        except Exception as error:
            reference = (
                Path(HF_HUB_CACHE) / repo_folder_name(repo_id=name, repo_type="model") / "refs" / (revision or "main")
            )
            if missing(error) and reference.is_file():
                return reference.read_text(encoding="utf-8").strip()
            raise


def folder_fingerprint(folder: Path) -> str:
    """Of every file's name and content, hidden ones left out."""
    digest = hashlib.sha256()
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        if file.is_file() and not any(part.startswith(".") for part in name.parts):
            digest.update(f"{name.as_posix()}\0{storage.sha256(str(file))}\n".encode())
    return digest.hexdigest()[:32]


def local_folder(url: str) -> str:
    """A local path of the folder at `url`: itself, or a copy fetched once per process.

    The copy lies in a new folder that its owner alone can read and write, and goes with the process: a name that
    others on the machine could foresee would let them put a model of theirs there.
    """
    if not storage.is_remote(url):
        return storage.filesystem(url)[1] if "://" in url else url
    with _FETCHING:
        if url not in _FETCHED:
            fs, path = storage.filesystem(url)
            target = Path(tempfile.mkdtemp(prefix="datamask-model-"))
            atexit.register(shutil.rmtree, target, ignore_errors=True)
            for remote in fs.find(path):
                file = target / remote[len(path) :].lstrip("/")
                if ".." in file.parts:  # a store's keys may hold any characters
                    raise InputError(f"{url} holds a file whose name leads out of it: {remote}; use another model")
                file.parent.mkdir(parents=True, exist_ok=True)
                fs.get_file(remote, str(file))
            _FETCHED[url] = str(target)
        return _FETCHED[url]


def local_path(path: str) -> str:
    """A model's path on this machine.

    :raises ModelError: it is a URL.
    """
    if storage.is_remote(path):
        raise ModelError(f"model {path}: give a local path; copy it first, e.g. with `aws s3 cp --recursive`")
    return storage.filesystem(path)[1]
