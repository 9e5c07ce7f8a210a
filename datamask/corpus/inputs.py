"""From what the user typed (files, folders, globs, URLs) to the files there are, and what each of them is."""

from __future__ import annotations

import glob
import os
import posixpath
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import NamedTuple

from datamask.corpus.belonging import IN_OUTPUT, Belonging, FoundFile, own_folder
from datamask.corpus.columns import folder_values, typed_values
from datamask.corpus.plan import FailedFile, Reading, Value
from datamask.corpus.walk import Entry, is_hidden, look_at_path, matches, walk_folder
from datamask.errors import InputError
from datamask.storage import AMBIGUOUS, filesystem, is_remote, storage_errors
from datamask.surroundings import shown

COMPRESSIONS = {".gz": "gz", ".zst": "zst", ".zstd": "zst", ".bz2": "bz2", ".xz": "xz", ".zip": "zip"}
_TEXTS = {
    ".jsonl": "jsonl", ".ndjson": "jsonl", ".json": "jsonl", ".csv": "csv", ".tsv": "tsv", ".txt": "txt",
    ".warc": "warc", ".wet": "wet",
}  # fmt: skip
# file name's end: format
FORMATS = {
    ".parquet": "parquet",
    ".pq": "parquet",
    ".arrow": "arrow",
    ".feather": "arrow",
    **_TEXTS,
    **{end + more: f"{kind}.{name}" for end, kind in _TEXTS.items() for more, name in COMPRESSIONS.items()},
}
READABLE = (
    ".parquet, .arrow, .jsonl (.json and .ndjson too), .csv, .tsv, .txt, .warc, .wet; "
    "of all but the first two also .gz, .zst, .bz2, .xz, .zip"
)
# formats that are not read: end of the file's name, what it is, and the remedy
_UNREAD = {
    **dict.fromkeys(
        (".tar", ".tgz", ".tbz2", ".txz", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst", ".tar.lz4"),
        ("a tar archive", "unpack it into a folder: tar -xf FILE"),
    ),
    ".zip": ("a zip archive, named without its one file's format", "unpack it into a folder: unzip FILE"),
    ".7z": ("a 7z archive", "unpack it into a folder: 7z x FILE"),
    ".rar": ("a RAR archive", "unpack it into a folder: unrar x FILE"),
    ".lz4": ("lz4", "unpack it: lz4 -d FILE"),
    ".br": ("brotli", "unpack it: brotli -d FILE"),
    ".lzma": ("LZMA", "unpack it: xz -d FILE"),
    ".lz": ("lzip", "unpack it: lzip -d FILE"),
    ".lzo": ("lzop", "unpack it: lzop -d FILE"),
    ".z": ("compress", "unpack it: uncompress FILE"),
    **dict.fromkeys((".sz", ".snappy"), ("snappy", "unpack it: snzip -d FILE")),
    **dict.fromkeys(
        (".gz", ".zst", ".zstd", ".bz2", ".xz"),
        ("compressed, its name says not what", "rename it to what it holds, such as NAME.jsonl.gz, or unpack it"),
    ),
    **dict.fromkeys((".xlsx", ".xls", ".ods"), ("a spreadsheet", "save its sheet as CSV")),
    ".dvc": ("a DVC pointer", "where its file is not there, fetch it: dvc pull"),
    ".lance": ("of a Lance table", "write its rows as parquet: lance.dataset(TABLE).to_table()"),
    **dict.fromkeys((".avro", ".orc"), ("of Avro or ORC", "write it as parquet")),
}
_SIGNS = "*?["  # of patterns
# beside the .arrow files of a data set that `datasets` saved
DESCRIBES = {"state.json", "dataset_info.json", "dataset_dict.json", "dataset_infos.json"}


@dataclass(frozen=True)
class InputFile:
    path: str  # as it is opened: absolute, or a URL
    relative: str  # to the folder that was given, the glob's fixed part, or the file's own folder
    format: str
    size: int
    stamp: str  # changes when the file does: mtime, or the store's checksum
    checksum: str | None  # the store's own, of the content; None: to be computed
    folders: tuple[tuple[str, Value], ...] = ()  # columns that the folders around it name, see corpus.columns


class Inputs(NamedTuple):
    """The files that the inputs name, sorted by path, each once."""

    files: list[InputFile]
    skipped: list[FailedFile]  # nothing to read: of a format we do not read, hidden, or a file that is read already
    failures: list[FailedFile]  # to be read, by their name, but cannot be: a link that leads nowhere, a pipe


def find_inputs(inputs: Sequence[str], output: str | None = None, exact: bool = False) -> Inputs:
    """The files that `inputs` name, links followed, each once.

    In folders and globs, names that begin with a dot or an underscore are not read (.git, _SUCCESS). Of a file that is
    reached in several ways one is read: its own place rather than a link to it. Folders that say which files belong to
    them are followed (`belonging`).

    :param output: the run's output folder, whose releases and work files are no input.
    :param exact: `inputs` are paths, not patterns.
    :raises InputError: no input, a path that matches nothing, or a named file that cannot be read.
    """
    if not inputs or not all(inputs):  # an empty name is an unset variable, not this folder
        raise InputError(
            "no input; name files, folders or globs: --input PATH (datamask sample writes a corpus to try)",
            setting="corpus.input",
            next=["--input PATH", "datamask sample"],
        )
    found: dict[str, FoundFile] = {}
    for given in inputs:
        matched = [*_matches(given, exact)]
        for match in matched:
            if match.named and (problem := _problem(match)):
                raise InputError(f"{match.path}: {problem}", path=match.path)
            if match.named and own_folder(match.real, output):
                raise InputError(f"{match.path}: {IN_OUTPUT}", path=match.path)
            known = found.setdefault(match.path, match)
            if len(known.relative) < len(match.relative):  # the outermost of several inputs names a file
                found[match.path] = match
        if not matched:
            raise InputError(
                f"input {given!r} matches no file; check the path (a glob needs quotes in the shell)", path=given
            )
    return _sorted_out(found, Belonging([match for match in found.values() if not match.named], output))


def _sorted_out(found: dict[str, FoundFile], folders: Belonging) -> Inputs:
    files: dict[str, InputFile] = {}  # by the real path, links followed
    skipped: list[FailedFile] = []
    left_out: dict[str, str] = {}
    failures = [FailedFile(path, why) for path, why in folders.lacking.items()]
    for match in sorted(found.values(), key=lambda match: (match.real != match.path, match.path)):
        entry, format_ = match.entry, format_of(match.path)
        hidden = any(is_hidden(part) for part in match.relative.split("/")) and not match.named
        tell, why = folders.left_out.get(match.path, ("", ""))
        if tell and not hidden and (format_ or tell != match.path):
            left_out[tell] = why
        elif hidden and format_ and not entry.problem:
            skipped.append(FailedFile(match.path, "its name begins with a dot or an underscore"))
        elif hidden:
            continue
        elif format_ is None or entry.problem:
            pointed = match.path.removesuffix(".dvc")
            lacking = pointed != match.path and format_of(pointed) and pointed not in found
            broken = lacking or (entry.problem and not entry.circle and format_)
            (failures if broken else skipped).append(FailedFile(match.path, str(_problem(match))))
        elif match.real in files:
            skipped.append(FailedFile(match.path, f"the same file as {files[match.real].path}"))
        else:
            stamp = match.checksum or entry.stamp
            files[match.real] = InputFile(match.path, match.relative, format_, entry.size, stamp, match.checksum)
    skipped.extend(FailedFile(path, why) for path, why in left_out.items())
    skipped = [failed for failed in skipped if failed.path not in files]  # a file that is read under a link's name
    by_log = folders.values
    named = typed_values([{} if file.path in by_log else folder_values(file.path) for file in files.values()])
    full = [
        replace(file, folders=tuple(by_log.get(file.path, dict(own)).items()))
        for file, own in zip(files.values(), named, strict=True)
    ]
    return Inputs(
        sorted(full, key=lambda file: file.path),
        sorted(skipped, key=lambda failed: failed.path),
        sorted(failures, key=lambda failed: failed.path),
    )


def _problem(match: FoundFile) -> str | None:
    """Why a file cannot be read; None if it can."""
    if match.entry.problem:
        return match.entry.problem
    if format_of(match.path) is None:
        name = posixpath.basename(match.path).lower()
        if ends := [end for end in _UNREAD if name.endswith(end)]:
            what, remedy = _UNREAD[max(ends, key=len)]
            return f"{what}, which datamask does not read; {remedy}"
        hint = "; convert it to JSON lines with a text field" if match.named else ""
        return f"not a format datamask reads ({READABLE}){hint}"
    return None


def reading_of(file: InputFile, found: Reading | None = None) -> Reading | None:
    """How the file is read, with the columns that its folders name.

    :param found: what its content says; None: as its format is by default.
    """
    return replace(found or Reading("utf-8"), folders=file.folders) if file.folders else found


def format_of(path: str) -> str | None:
    """The format by the file name's end; None: none that is read."""
    return None if posixpath.basename(path).lower() in DESCRIBES else FORMATS.get(_ending(path))


def stem(relative: str) -> str:
    return relative[: len(relative) - len(_ending(relative))]


def _ending(path: str) -> str:
    name = posixpath.basename(path).lower()
    return max((end for end in FORMATS if name.endswith(end) and len(name) > len(end)), key=len, default="")


def _matches(given: str, exact: bool) -> Iterator[FoundFile]:
    """Everything that an input names."""
    if is_remote(given):
        yield from _remote(given)
        return
    path = filesystem(_without_dots(given))[1]
    literal = path if exact else _literal(given, path)
    rest = path[len(literal) :]
    if os.path.lexists(path):
        entry = look_at_path(path)
        if entry is not None:
            yield FoundFile(entry.path, posixpath.dirname(entry.path), entry, None, True)
        else:
            yield from (FoundFile(entry.path, shown(path), entry, None, False) for entry in walk_folder(path))
    elif any(sign in rest for sign in _SIGNS):
        pattern = glob.escape(literal) + rest
        base = literal + _fixed_part(rest)
        yield from (FoundFile(entry.path, shown(base), entry, None, False) for entry in matches(pattern))


def _literal(given: str, path: str) -> str:
    """The part of a path that is there by its very name, whatever signs of patterns are in it.

    :raises InputError: taken as a pattern, it would match others too.
    """
    literal = path
    while not os.path.lexists(literal or "/"):
        literal = literal.rpartition("/")[0]
    if any(sign in literal for sign in _SIGNS) and {*glob.glob(literal, include_hidden=True)} - {literal}:  # noqa: PTH207
        raise InputError(AMBIGUOUS.format(f"input {given!r}: {shown(literal)}"))
    return literal


def _remote(given: str) -> Iterator[FoundFile]:
    with storage_errors(given, "read"):
        fs, path = filesystem(given)
        fs.invalidate_cache()  # or a worker that lives for days would see an old listing
        scheme = given.split("://")[0] + "://"
        try:
            info = fs.info(path)
        except FileNotFoundError:
            info = None
        if info is not None and info["type"] == "file":
            entries, base = {path: info}, posixpath.dirname(path)
        elif info is not None:
            entries, base = fs.find(path, detail=True), path
        elif any(sign in path for sign in _SIGNS):
            base = _fixed_part(path) or "/"
            entries = {}
            for name, entry in fs.glob(path, detail=True).items():
                entries.update({name: entry} if entry["type"] == "file" else fs.find(name, detail=True))
        else:
            return
        for name, entry in sorted(entries.items()):
            if entry["type"] == "file":
                stamp = str(entry.get("mtime") or entry.get("LastModified") or entry.get("last_modified") or "")
                found = Entry(scheme + name, scheme + name, int(entry.get("size") or 0), stamp)
                told = next((key for key in ("ETag", "etag", "md5Hash", "crc32c", "blob_id") if entry.get(key)), None)
                checksum = told and f"{told}:{str(entry[told]).strip(chr(34))}:{entry.get('size')}"
                yield FoundFile(scheme + name, scheme + base, found, checksum, name == path)


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
    first = next(index for index, part in enumerate(parts) if any(sign in part for sign in _SIGNS))
    return "/".join(parts[:first])
