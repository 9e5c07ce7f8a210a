"""Paths on disk or object store, atomic publication, content fingerprints, and the stages' files.

A stage's output is one parquet file named by what it is about and by its key, the hash of everything that
determines its bytes. The file appears under that name only when it is whole; if it is there, the work is done:

    with storage.publish("out/work/scores/real-00000-1f0c….parquet") as temporary:
        ...write to temporary...
"""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import io
import json
import os
import re
import shutil
import stat
import tempfile
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from fsspec.core import url_to_fs

from datamask.errors import (
    FULL,
    ConfigError,
    DamagedFileError,
    DatamaskError,
    MissingExtraError,
    MissingFileError,
    StorageError,
    TransientError,
    is_retryable,
    one_line,
)
from datamask.surroundings import shown

METADATA_KEY = b"datamask"  # the key under which an output's facts stand in a parquet file's metadata
LEFTOVER_SECONDS = 24 * 3600  # a temporary file older than this was left behind by a process that died
_TEMPORARY = ".tmp"
ROW_GROUP_ROWS = 10_000


# ---------------------------------------------------------------- paths

AMBIGUOUS = "{} is the name of a file or folder, and a pattern that others match; rename it, or give the folder"


def is_remote(url: str) -> bool:
    """True for s3://, gs://, hf:// and the like; False for a local path or file://."""
    return "://" in url and not url.startswith("file://")


def output_folder(place: object, what: str = "output") -> str:
    """The name of an output folder, without a slash at its end.

    :param place: a folder or a URL, as a user gave it. :param what: the setting's or option's name, for the message.
    :raises ConfigError: it names no folder: it is empty, the root, a store without a bucket, or no path at all.
    """
    text = str(place) if isinstance(place, str | os.PathLike) else ""
    name = text.rstrip("/")
    if not name.strip() or ("://" in text and "://" not in name):
        uses = " for work/ and releases/" if what == "output" else ""
        raise ConfigError(
            f"{what} {place!r} names no folder; give one{uses}, such as out/mine or s3://bucket/mine", setting=what
        )
    if not isinstance(place, str) and re.match(r"[a-z][a-z0-9+]*:/", name):
        raise ConfigError(f"{what} {place!r}: a Path cannot hold a URL; give it as a string", setting=what)
    return name


def paths_of(given: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None) -> list[str]:
    """The paths, or one that is given alone: a string is no list of letters."""
    return [str(given)] if isinstance(given, str | os.PathLike) else [str(each) for each in given or ()]


def expand_patterns(patterns: Sequence[str]) -> list[str]:
    """The files that patterns match, sorted. A pattern that matches nothing stays, so that opening it names it.

    :raises StorageError: a pattern is also the name of a file.
    """
    found: list[str] = []
    for pattern in patterns:
        local = Path(pattern)
        base = next((folder for folder in local.parents if os.path.lexists(folder)), None)
        matched: list[str] = []
        if base is not None and not is_remote(pattern):
            matched = sorted(shown(str(path)) for path in base.glob(str(local.relative_to(base))))
        if matched and matched != [shown(str(local))] and os.path.lexists(filesystem(pattern)[1]):
            raise StorageError(AMBIGUOUS.format(pattern))
        found += matched or [pattern]
    return list(dict.fromkeys(found))


def filesystem(url: str) -> tuple[fsspec.AbstractFileSystem, str]:
    """The fsspec file system of a URL or local path, and the path inside it.

    :raises MissingExtraError: the scheme's package is not installed.
    :raises StorageError: the scheme is unknown.
    """
    if not is_remote(url):
        return fsspec.filesystem("file"), _local_path(url)
    try:
        # a cached listing would hide files of other processes
        return url_to_fs(url, use_listings_cache=False)
    except ImportError as error:
        scheme = url.split("://")[0]
        raise MissingExtraError(
            f"{scheme}:// paths", {"s3": "s3", "gs": "gcs", "gcs": "gcs"}.get(scheme, scheme)
        ) from error
    except ValueError as error:
        raise StorageError(f"{url}: {error}; valid: a local path, s3://, gs://, hf://, or any fsspec URL") from error


def _local_path(url: str) -> str:
    """The absolute path of a local name. It is never given to fsspec as a URL, to which "::" in a name is a chain."""
    path = url.removeprefix("file://")
    head = path.partition("/")[0]
    if head == "~" or (head.startswith("~") and not os.path.lexists(head)):
        path = os.path.expanduser(path)  # noqa: PTH111 (Path raises where there is no such user)
    path = path.removeprefix("./")
    if not path.startswith("/"):
        path = f"{Path.cwd()}/{path}"
    path = path.rstrip("/") or "/"
    if "\\x" in path:
        stored = _stored(path)
        if stored != path and os.path.lexists(stored):
            if os.path.lexists(path):
                raise StorageError(f"{path}: two files have names that are shown so, one not UTF-8; rename one of them")
            return stored
    return path


def _stored(path: str) -> str:
    """The path that `shown` gives as `path`."""
    return os.fsdecode(
        re.sub(rb"\\x([89a-f][0-9a-f]|5c)", lambda byte: bytes.fromhex(byte[1].decode()), os.fsencode(path))
    )


@contextlib.contextmanager
def storage_errors(url: str, doing: str = "read") -> Iterator[None]:
    """Turns what the system, fsspec and the stores' clients raise into our errors, with the path and what to do.

    What may pass on another try (a reset connection, a timeout, a 500) becomes `TransientError`. An OSError without
    a number is pyarrow's word for damaged data and passes through.

    :raises MissingFileError: no such file or bucket.
    :raises StorageError: no permission, no space, no credentials, a read-only place.
    :raises TransientError: see above.
    """
    try:
        yield
    except DatamaskError:
        raise
    except FileNotFoundError as error:
        what = "bucket; make it, or check its name" if doing == "write" and is_remote(url) else "file or folder"
        raise MissingFileError(f"cannot {doing} {url}: no such {what}", path=url) from error
    except PermissionError as error:
        hint = (
            "credentials come from the environment (AWS_ACCESS_KEY_ID, …)"
            if is_remote(url)
            else "check its owner and mode"
        )
        raise StorageError(f"cannot {doing} {url}: no permission; {hint}", path=url) from error
    except OSError as error:
        if error.errno in _FINAL:
            raise _final(error, url, doing) from error
        if error.errno is None and type(error) is OSError:
            raise
        raise TransientError(f"cannot {doing} {url} now: {one_line(error)}") from error
    except Exception as error:
        if type(error).__name__ in ("NoCredentialsError", "PartialCredentialsError", "DefaultCredentialsError"):
            raise StorageError(
                f"cannot {doing} {url}: no credentials; they come from the environment (AWS_ACCESS_KEY_ID, …)",
                path=url,
            ) from error
        if is_retryable(error):
            raise TransientError(f"cannot {doing} {url} now: {one_line(error)}") from error
        raise


# errno: what to do about it
_FINAL = {
    **FULL,
    errno.ENOTDIR: "a part of the path is a file",
    errno.EISDIR: "a file is expected there; name a file in it",
    errno.ENAMETOOLONG: "choose a shorter name",
    errno.EINVAL: "check the path",
    errno.ELOOP: "its symbolic links run in a circle",
    errno.EEXIST: "a file is where a folder is expected",
}


def _final(error: OSError, url: str, doing: str) -> StorageError:
    number = error.errno or 0
    return StorageError(f"cannot {doing} {url}: {os.strerror(number)}; {_FINAL[number]}", path=url)


def join(base: str, *names: str) -> str:
    """`base/names…`, for URLs and local paths alike."""
    return "/".join([base.rstrip("/"), *names])


def exists(url: str) -> bool:
    """True when a file or folder is there.

    :raises StorageError: the store does not answer.
    """
    with storage_errors(url):
        fs, path = filesystem(url)
        try:
            fs.info(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno == errno.ENAMETOOLONG:
                return False
            raise
    return True


def size_of(url: str) -> int | None:
    """Bytes of a file; None if there is none.

    :raises StorageError: it cannot be told.
    """
    with storage_errors(url):
        fs, path = filesystem(url)
        try:
            return int(fs.info(path)["size"])
        except FileNotFoundError:
            return None


def open_input(url: str) -> Any:
    """An open file object for reading bytes, local or remote.

    :raises MissingFileError: it is not there. :raises StorageError, TransientError: see `storage_errors`.
    """
    with storage_errors(url):
        fs, path = filesystem(url)
        if not is_remote(url):
            _check_regular(path, url)
        return fs.open(path, "rb")


@contextlib.contextmanager
def open_slices(url: str) -> Iterator[Callable[[int, int], bytes]]:
    """Yields read(place, size): the bytes of a file from a place on, fewer where it ends.

    Of a local file these are plain calls of the system: an open file object costs ten times as much as a small slice.

    :raises MissingFileError: it is not there. :raises StorageError, TransientError: see `storage_errors`.
    """
    with storage_errors(url):
        if is_remote(url):
            with open_input(url) as file:

                def sought(place: int, size: int) -> bytes:
                    file.seek(place)
                    return bytes(file.read(size))

                yield sought
            return
        descriptor = os.open(filesystem(url)[1], os.O_RDONLY)
        try:
            yield partial(_pread, descriptor)
        finally:
            os.close(descriptor)


def _pread(descriptor: int, place: int, size: int) -> bytes:
    data = os.pread(descriptor, size, place)
    while len(data) < size and (more := os.pread(descriptor, size - len(data), place + len(data))):
        data += more  # a call reads 2 GB at most
    return data


def _check_regular(path: str, url: str) -> None:
    """A pipe or a device has no end, or no writer: reading it would wait for ever."""
    if not stat.S_ISREG(mode := Path(path).stat().st_mode) and not stat.S_ISDIR(mode):
        raise StorageError(f"cannot read {url}: it is a pipe, socket or device, not a file; copy its content to a file")


def read_content(url: str) -> bytes:
    """All bytes of a file.

    :raises MissingFileError: it is not there. :raises StorageError, TransientError: see `storage_errors`.
    """
    with storage_errors(url), open_input(url) as file:
        return bytes(file.read())


def read_json(url: str) -> Any:
    """The JSON file's value.

    :raises MissingFileError: there is none.
    :raises DamagedFileError: it is not JSON.
    """
    data = read_content(url)
    try:
        return json.loads(data)
    except (ValueError, RecursionError) as error:
        raise DamagedFileError(f"{url}: not valid JSON ({one_line(error)})") from error


def write_json(url: str, value: Any) -> None:
    """Publishes `value` as JSON with sorted keys (the same value gives the same bytes)."""
    write_content(url, json.dumps(value, indent=2, sort_keys=True, ensure_ascii=False) + "\n")


def write_content(url: str, content: str | bytes) -> None:
    """Publishes text, in UTF-8, or bytes."""
    with publish(url) as temporary:
        temporary.write_bytes(content.encode() if isinstance(content, str) else content)


def writable(folder: str) -> str:
    """The folder, once a file was written there and removed: asked before work whose result goes there.

    :raises StorageError: see `publish`. :raises TransientError: see there.
    """
    write_content(probe := join(folder, f".{uuid.uuid4().hex}"), "")
    remove(probe)
    return folder


# ---------------------------------------------------------------- keys and fingerprints


def key(*facts: Any) -> str:
    """A key of 16 hex digits for `facts` (anything JSON can hold): equal facts give equal keys on every machine."""
    text = json.dumps(facts, sort_keys=True, ensure_ascii=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def sha256(url: str) -> str:
    """The file's sha256 in hex, streamed."""
    digest = hashlib.sha256()
    with storage_errors(url), open_input(url) as file:
        while block := file.read(1 << 22):
            digest.update(block)
    return digest.hexdigest()


def fingerprint(url: str) -> str:
    """A fingerprint of the file's content: the first half of its sha256, 32 hex digits."""
    return sha256(url)[:32]


# ---------------------------------------------------------------- publication


@contextlib.contextmanager
def publish(url: str, durable: bool = True) -> Iterator[Path]:
    """Yields a temporary local path; what is written there appears at `url` whole, or not at all.

    Local: a hidden file in the target's own folder, fsynced and renamed. Remote: one put of the finished file.

    :param durable: False leaves out the fsync: for what can be made again after the machine lost its power.
    :raises StorageError: no permission, no space, or a read-only place; the message names the path.
    :raises TransientError: the store failed for now; nothing appeared.
    """
    with storage_errors(url, "write"):
        fs, path = filesystem(url)
        if is_remote(url):
            temporary = Path(tempfile.gettempdir()) / f"datamask-{uuid.uuid4().hex}"
        else:
            if shown(path) != path:
                raise StorageError(
                    f"cannot write {shown(path)}: the folder's name is not UTF-8; choose another --output"
                )
            target = Path(path)
            target.parent.mkdir(parents=True, exist_ok=True)
            temporary = target.parent / f".{target.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}{_TEMPORARY}"
        temporary.touch()  # raises now, before the caller's work, if the place cannot be written to
    try:
        try:
            yield temporary
        except OSError as error:  # only "disk full" is about this file; other errors of the caller's pass unchanged
            if error.errno in FULL:
                raise _final(error, str(temporary.parent) if is_remote(url) else url, "write") from error
            raise
        with storage_errors(url, "write"):
            if is_remote(url):
                fs.put_file(str(temporary), path)
            else:
                if durable:
                    _sync(temporary)
                temporary.replace(target)
                if durable:
                    _sync(target.parent)
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink(missing_ok=True)


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_leftovers(folder: str) -> None:
    """Removes what killed processes left in a local folder: unfinished files older than a day."""
    if is_remote(folder):
        return  # unfinished files of a remote target lie in the system's own temporary folder
    oldest = time.time() - LEFTOVER_SECONDS
    root = Path(filesystem(folder)[1])
    for path in root.rglob(f".*{_TEMPORARY}"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.stat().st_mtime < oldest:
                path.unlink()
    for path in (root / "rounds").glob("*"):  # of stages that were given up: see `datamask.maps`
        with contextlib.suppress(OSError):
            if max((found.stat().st_mtime for found in path.rglob("*")), default=0.0) < oldest:
                shutil.rmtree(path, ignore_errors=True)


def file_sizes(folder: str) -> dict[str, int]:
    """Bytes of every file in a folder and below, by its path inside; {}: there is no such folder.

    :raises StorageError: see `storage_errors`. :raises TransientError: see there.
    """
    fs, root = filesystem(folder)
    with storage_errors(folder):
        fs.invalidate_cache()
        found = fs.find(root, detail=True)
    return {path[len(root.rstrip("/")) + 1 :]: int(info.get("size") or 0) for path, info in found.items()}


def touch_files(folder: str, names: Iterable[str]) -> None:
    """Renews the times of existing files, so that `remove_others` keeps them. Local folders only."""
    if not is_remote(folder):
        for name in names:
            with contextlib.suppress(OSError):
                os.utime(Path(filesystem(folder)[1]) / name)


def list_names(folder: str) -> list[str]:
    """The names of what lies in a folder, as it is now; []: there is none.

    :raises StorageError: see `storage_errors`. :raises TransientError: see there.
    """
    fs, path = filesystem(folder)
    try:
        with storage_errors(folder):
            fs.invalidate_cache()
            entries = fs.ls(path, detail=False)
    except FileNotFoundError:
        return []
    return [entry.rstrip("/").rsplit("/", 1)[-1] for entry in entries]


def remove(url: str) -> None:
    """Removes a file, or a folder with all it holds. Of a store fsspec would take the signs of a pattern as one.

    :raises StorageError: it may not be removed. :raises MissingFileError: it is not there.
    """
    fs, path = filesystem(url)
    with storage_errors(url, "remove"):
        fs.rm(glob.escape(path) if is_remote(url) else path, recursive=True)


def remove_others(folder: str, names: Iterable[str]) -> None:
    """Removes all files of a folder but these. In a local folder, files stay that were touched within a day."""
    kept = set(names)
    if is_remote(folder):
        for name in set(list_names(folder)) - kept:
            with contextlib.suppress(FileNotFoundError):
                remove(join(folder, name))
        return
    oldest = time.time() - LEFTOVER_SECONDS
    with contextlib.suppress(FileNotFoundError):
        for entry in os.scandir(filesystem(folder)[1]):
            with contextlib.suppress(OSError):
                if entry.name not in kept and entry.is_file() and entry.stat().st_mtime < oldest:
                    Path(entry.path).unlink()


# ---------------------------------------------------------------- scratch


def scratch_array(path: str, dtype: Any, shape: tuple[int, ...]) -> np.ndarray:
    """An array of zeros in a local file. Its space is reserved first: of an array that outgrows the disk, the system
    would kill the process without a word.

    :raises StorageError: there is no room for it.
    """
    size = max(1, int(np.prod(shape)) * np.dtype(dtype).itemsize)
    with storage_errors(f"{path} ({size / 1e9:.3g} GB of scratch)", "write"), Path(path).open("wb") as file:
        os.posix_fallocate(file.fileno(), 0, size)
    return np.memmap(path, dtype=dtype, mode="r+", shape=shape)


# ---------------------------------------------------------------- the stages' files


@dataclass(frozen=True)
class Output:
    """A stage's published file: what tasks hand to one another instead of data."""

    path: str
    key: str
    rows: int
    # small, JSON; stored in the file, so a cached run has them too
    facts: Mapping[str, Any] = field(default_factory=dict)
    cached: bool = False


def find_output(url: str, expected_key: str) -> Output | None:
    """The output published at `url`, or None if it is absent, torn, or carries another key."""
    try:
        with storage_errors(url), open_input(url) as file:
            footer = pq.read_metadata(file)
        stored = json.loads((footer.metadata or {})[METADATA_KEY])
        if stored["key"] != expected_key:
            return None
        return Output(url, expected_key, footer.num_rows, stored["facts"], cached=True)
    except (MissingFileError, KeyError, TypeError, ValueError, pa.ArrowException):
        return None
    except OSError as error:
        if error.errno is not None:
            raise
        return None


def write_output(
    url: str,
    output_key: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch | pa.Table],
    facts: Callable[[], Mapping[str, Any]] = dict,
    row_group_rows: int = ROW_GROUP_ROWS,
) -> Output:
    """Streams `batches` into a parquet file (zstd) and publishes it with its key and facts inside.

    `facts` is called after the last batch, so it may report sums the batches made.
    Row groups hold exactly `row_group_rows` rows (the last fewer) however the batches fall, so that
    the bytes depend on the rows alone.
    """
    rows = 0
    with publish(url) as temporary, _writer(temporary, schema) as writer:
        pending: list[pa.Table] = []
        held = 0
        for batch in batches:
            table = pa.Table.from_batches([batch]) if isinstance(batch, pa.RecordBatch) else batch
            pending.append(table if table.schema == schema else table.cast(schema))
            held += table.num_rows
            rows += table.num_rows
            while held >= row_group_rows:
                joined = pa.concat_tables(pending)
                writer.write_table(joined.slice(0, row_group_rows).combine_chunks(), row_group_size=row_group_rows)
                rest = joined.slice(row_group_rows)
                pending, held = [rest], rest.num_rows
        if held:
            writer.write_table(pa.concat_tables(pending).combine_chunks(), row_group_size=row_group_rows)
        found = dict(facts())
        stored = json.dumps({"key": output_key, "facts": found}, sort_keys=True, ensure_ascii=False)
        writer.add_key_value_metadata({METADATA_KEY: stored.encode()})
    return Output(url, output_key, rows, found)


def find_or_write(
    url: str,
    output_key: str,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch | pa.Table],
    facts: Callable[[], Mapping[str, Any]] = dict,
) -> Output:
    """The output published at `url` under this key, or else `write_output`, which alone asks for the batches."""
    return find_output(url, output_key) or write_output(url, output_key, schema, batches, facts)


def _writer(path: Path, schema: pa.Schema) -> pq.ParquetWriter:
    """Floats get neither dictionary nor statistics: hardly a value comes twice, and nobody asks for their bounds."""
    kept = [field for field in schema if not pa.types.is_floating(getattr(field.type, "value_type", field.type))]
    others = leaves(pa.schema(kept))
    return pq.ParquetWriter(
        path, schema, compression="zstd", write_page_checksum=True, use_dictionary=others, write_statistics=others
    )


def leaves(schema: pa.Schema) -> list[str]:
    """Paths of the parquet columns, as ParquetWriter names them."""
    sink = pa.BufferOutputStream()
    with pq.ParquetWriter(sink, schema):
        pass
    return [column.path for column in pq.ParquetFile(pa.BufferReader(sink.getvalue())).schema]


@contextlib.contextmanager
def open_parquet(url: str) -> Iterator[pq.ParquetFile]:
    """A ParquetFile on a local path or a URL; page checksums, where the file has them, are verified.

    Local files are read through a small buffer: a row group of any size takes little memory, and a file that is cut
    while it is read is an error (of a memory-mapped one the system would kill the process).
    """
    if is_remote(url):
        with open_input(url) as file, pq.ParquetFile(file, pre_buffer=True, page_checksum_verification=True) as parquet:
            yield parquet
    else:
        path = filesystem(url)[1]
        with storage_errors(url):
            _check_regular(path, url)
        with (
            pa.OSFile(os.fsencode(path)) as source,
            pq.ParquetFile(source, buffer_size=1 << 20, page_checksum_verification=True) as parquet,
        ):
            yield parquet


def unpacked(data: bytes, url: str) -> bytes:
    """What a file packed as its name says (.gz, .bz2, .xz, .zst, …) holds; the data itself of any other.

    :raises Exception: it is not what its name says, or ends early: each codec has errors of its own.
    """
    from fsspec.compression import compr
    from fsspec.utils import infer_compression

    codec = infer_compression(url)
    return bytes(compr[codec](io.BytesIO(data), mode="rb").read()) if codec else data


def read_table(url: str, columns: list[str] | None = None) -> pa.Table:
    """A stage's file (or some of its columns) in memory.

    :raises DamagedFileError: it was changed since it was written.
    """
    try:
        with storage_errors(url), open_parquet(url) as file:
            table = file.read(columns=columns)
            if table.num_rows != file.metadata.num_rows:
                raise pa.ArrowInvalid(f"{table.num_rows} rows where {file.metadata.num_rows} were written")
            return table
    except DatamaskError:
        raise
    except (pa.ArrowException, OSError) as error:
        raise DamagedFileError(f"{url}: damaged ({one_line(error)}); remove it and run again") from error
