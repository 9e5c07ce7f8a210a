"""From what the user typed (files, folders, globs, URLs) to the files there are, and what each of them is."""

from __future__ import annotations

import contextlib
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa

from datamask.corpus.plan import FailedFile
from datamask.errors import DatamaskError, InputError, one_line
from datamask.storage import filesystem, is_remote, open_input, storage_errors

# file name's end: format
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".jsonl": "jsonl",
    ".ndjson": "jsonl",
    ".json": "jsonl",
    ".jsonl.gz": "jsonl.gz",
    ".ndjson.gz": "jsonl.gz",
    ".json.gz": "jsonl.gz",
    ".jsonl.zst": "jsonl.zst",
    ".ndjson.zst": "jsonl.zst",
    ".json.zst": "jsonl.zst",
    ".jsonl.zstd": "jsonl.zst",
    ".csv": "csv",
    ".tsv": "tsv",
}
READABLE = ".parquet, .jsonl, .jsonl.gz, .jsonl.zst (.json and .ndjson too), .csv, .tsv"


@dataclass(frozen=True)
class InputFile:
    """A file of the corpus."""

    path: str  # as it is opened: absolute, or a URL
    relative: str  # to the folder that was given, the glob's fixed part, or the file's own folder
    format: str
    size: int
    stamp: str  # changes when the file does: mtime, or the store's checksum
    checksum: str | None  # the store's own, of the content; None: to be computed


def find_inputs(inputs: Sequence[str]) -> tuple[list[InputFile], list[FailedFile]]:
    """The files that `inputs` name, each once, by path; and those of a folder or glob in a format we do not read.

    In folders and globs, names that begin with a dot or an underscore are not looked at (.git, _SUCCESS).

    :raises InputError: no input, a path that matches nothing, or a named file of a format we do not read.
    """
    if not inputs:
        raise InputError(
            "no input; name files, folders or globs: --input PATH (datamask sample writes a corpus to try)"
        )
    found: dict[str, InputFile] = {}
    skipped: dict[str, FailedFile] = {}
    for given in inputs:
        matched = 0
        for path, base, info, named in _matches(given):
            matched += 1
            format_ = format_of(path)
            if format_ is None:
                reason = f"not a format datamask reads ({READABLE})"
                if named:
                    raise InputError(f"{path}: {reason}; convert it to JSON lines with a text field")
                skipped[path] = FailedFile(path, reason)
                continue
            relative = posixpath.relpath(path, base)
            known = found.get(path)
            if known is None or len(known.relative) < len(relative):  # of overlapping inputs, the outermost names it
                size = int(info.get("size") or 0)
                checksum = _checksum(info)
                stamp = checksum or str(
                    info.get("mtime") or info.get("LastModified") or info.get("last_modified") or ""
                )
                found[path] = InputFile(path, relative, format_, size, stamp, checksum)
        if not matched:
            raise InputError(f"input {given!r} matches no file; check the path (a glob needs quotes in the shell)")
    files = sorted(found.values(), key=lambda file: file.path)
    return files, sorted((skipped[path] for path in skipped), key=lambda failed: failed.path)


def format_of(path: str) -> str | None:
    """The format by the file name's end; None: none that is read."""
    name = posixpath.basename(path).lower()
    ends = [end for end in FORMATS if name.endswith(end) and len(name) > len(end)]
    return FORMATS[max(ends, key=len)] if ends else None


def stem(relative: str) -> str:
    """The relative path without the format's ending."""
    lower = relative.lower()
    ends = [end for end in FORMATS if lower.endswith(end)]
    return relative[: -len(max(ends, key=len))] if ends else relative


def _matches(given: str) -> Iterator[tuple[str, str, dict, bool]]:
    """(path, base folder, information, was it named itself) of every file an input matches."""
    with storage_errors(given, "read"):
        fs, path = filesystem(_without_dots(given))
        scheme = given.split("://")[0] + "://" if is_remote(given) else ""
        try:
            info = fs.info(path)
        except FileNotFoundError:
            info = None
        if info is not None and info["type"] == "file":
            yield scheme + path, scheme + posixpath.dirname(path), info, True
            return
        if info is not None:
            base, entries = path, fs.find(path, detail=True)
        elif any(sign in path for sign in "*?["):
            base = _fixed_part(path)
            entries = {}
            for name, entry in fs.glob(path, detail=True).items():
                entries.update({name: entry} if entry["type"] == "file" else fs.find(name, detail=True))
        else:
            return
        for name, entry in sorted(entries.items()):
            inside = posixpath.relpath(name, base).split("/")
            if entry["type"] == "file" and not any(part.startswith((".", "_")) for part in inside):
                yield scheme + name, scheme + base, entry, False


def _without_dots(given: str) -> str:
    """A relative path's leading ./ and ../ resolved, so that messages show the path one would type."""
    base = Path.cwd()
    while given.startswith(("./", "../")):
        step, _, given = given.partition("/")
        base = base.parent if step == ".." else base
        if not given or not given.startswith(("./", "../")):
            return str(base / given)
    return given


def _fixed_part(pattern: str) -> str:
    parts = pattern.split("/")
    first = next(index for index, part in enumerate(parts) if any(sign in part for sign in "*?["))
    return "/".join(parts[:first]) or "/"


def _checksum(info: dict) -> str | None:
    for name in ("ETag", "etag", "md5Hash", "crc32c", "blob_id"):
        if info.get(name):
            return f"{name}:{str(info[name]).strip(chr(34))}:{info.get('size')}"
    return None


@contextlib.contextmanager
def damage(path: str) -> Iterator[None]:
    """Turns what pyarrow says of broken data into an `InputError` that names the file; storage errors likewise.

    :raises InputError: see above.
    :raises StorageError, TransientError: see `storage.storage_errors`.
    """
    try:
        with storage_errors(path):
            yield
    except DatamaskError:
        raise
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: damaged or truncated ({one_line(error)}); copy it again from its source") from error


@contextlib.contextmanager
def open_stream(path: str, format_: str) -> Iterator[pa.NativeFile]:
    """The file's bytes, decompressed as they are read; use it inside `damage`, which names a torn file."""
    compression = {"gz": "gzip", "zst": "zstd"}.get(format_.rpartition(".")[2])
    with open_input(path) as file:
        raw = pa.PythonFile(file, mode="r")
        yield pa.CompressedInputStream(raw, compression) if compression else raw
