"""What a file of the corpus is: the fingerprint of its content, its rows, and whether it can be read at all.

Found once and kept in `work`/inputs.json beside the file's size and time, so that a second run hashes nothing.
"""

from __future__ import annotations

import contextlib
import os
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Any

import pyarrow as pa
from pydantic import TypeAdapter

from datamask.config import Corpus
from datamask.corpus import web
from datamask.corpus.arrow import schema_of
from datamask.corpus.columns import recognise
from datamask.corpus.delimited import batches, header
from datamask.corpus.inputs import InputFile, find_inputs
from datamask.corpus.json_lines import BLOCK_BYTES, json_columns, json_rows
from datamask.corpus.plan import Part, Reading, Shard
from datamask.corpus.project import EXTRA
from datamask.corpus.quarantine import REASONS
from datamask.corpus.sniff import sniff_reading
from datamask.corpus.streams import damage, open_stream
from datamask.corpus.walk import ANNEX
from datamask.errors import DamagedFileError, InputError, MissingFileError
from datamask.pipeline import STAGES
from datamask.storage import METADATA_KEY, fingerprint, join, key, open_input, open_parquet, read_json, write_json

POINTER_BYTES = 32 << 10  # of a pointer (git-annex; Git LFS writes less than 1024)
_LFS = (b"version https://git-lfs.github.com/spec/", b"version https://hawser.github.com/spec/")
_XET = b"# xet version "


@dataclass(frozen=True)
class FileFacts:
    """What planning must know of a file."""

    size: int
    stamp: str
    settings: str  # key of those that `error` depends on
    fingerprint: str
    row_groups: tuple[int, ...] | None  # rows of each; None: not parquet
    error: str | None  # why it cannot be read
    empty: bool  # no rows
    reading: Reading | None = None  # how it is read, if not as its format by default


def inspect_files(files: Sequence[InputFile], settings: Corpus, work: str) -> list[FileFacts]:
    """The facts of each file, from the cache where size and time are unchanged.

    A parquet's footer is read; a JSON lines file's head; of a small compressed one every byte, so that a truncated
    one fails alone and not the group it would belong to.

    :raises TransientError: the storage failed, so nothing is known.
    """
    url = join(work, "inputs.json")
    cache = {}
    with contextlib.suppress(FileNotFoundError, ValueError, TypeError, KeyError, AttributeError):
        stored = read_json(url)
        if stored["version"] == STAGES["plan"].version:
            cache = TypeAdapter(dict[str, FileFacts]).validate_python(stored["files"])
    reading = [settings.encoding, settings.separator, settings.header, settings.quotes]
    relevant = key(dict(settings.columns), list(settings.drop), settings.group_bytes, reading)

    def facts_of(file: InputFile) -> FileFacts:
        known = cache.get(file.path)
        if known is None or (known.size, known.stamp) != (file.size, file.stamp):
            content = key(file.checksum) if file.checksum else fingerprint(file.path)
            return _inspect(file, settings, relevant, content)
        return known if known.settings == relevant else _inspect(file, settings, relevant, known.fingerprint)

    with ThreadPoolExecutor(min(16, 4 * (os.cpu_count() or 1))) as pool:
        facts = list(pool.map(facts_of, files))
    found = {file.path: fact for file, fact in zip(files, facts, strict=True)}
    if found != cache:
        of_files = {path: asdict(fact) for path, fact in found.items()}
        write_json(url, {"version": STAGES["plan"].version, "files": of_files})
    return facts


def content_of(path: str) -> str:
    """The fingerprint of a file's content as it is now: by the store's own checksum if it has one, else by reading it.

    :raises MissingFileError: it has gone.
    """
    found = find_inputs([path], exact=True).files
    if not found:
        raise MissingFileError(f"cannot read {path}: no such file or folder")
    return key(found[0].checksum) if found[0].checksum else fingerprint(path)


def check_unchanged(shards: Sequence[Shard], work: str) -> None:
    """What was read is what was planned: the files of `shards` have the size and time they were planned with.

    A file that is converted is compared by its content when it is read (`convert_shard`); parquet is read where it
    lies, by one stage after the other.

    :raises InputError: one was changed while the run was at it; names it.
    """
    try:
        known = read_json(join(work, "inputs.json"))["files"]
    except (MissingFileError, DamagedFileError, KeyError, TypeError):
        return  # nothing is known of how they were
    paths = {part.path for shard in shards if not shard.converted_from for part in shard.parts}
    for path in sorted(paths & known.keys()):
        try:
            files = find_inputs([path], exact=True).files
        except InputError:
            files = []
        if not files or (files[0].size, files[0].stamp) != (known[path]["size"], known[path]["stamp"]):
            raise InputError(
                f"{path}: was changed or removed while it was read, so what was done is of no one state of it; "
                "run again, when nobody writes to it"
            )


def _inspect(file: InputFile, settings: Corpus, relevant: str, fingerprint: str) -> FileFacts:
    groups: tuple[int, ...] | None = None
    error = None
    empty = False
    reading = None
    try:
        check_pointer(file.path, file.size)
        if file.size == 0 and file.format not in ("jsonl", "csv", "tsv", "txt", "warc", "wet"):
            raise InputError(f"{file.path}: an empty file (0 bytes) is no {file.format}; copy it again from its source")
        if file.format == "parquet":
            with damage(file.path), open_parquet(file.path) as parquet:
                metadata = parquet.metadata
                recognise(parquet.schema_arrow, settings.columns, file.path, settings.drop)
                if METADATA_KEY in (metadata.metadata or {}) and {field.name for field in EXTRA} & {
                    *parquet.schema_arrow.names
                }:
                    raise InputError(
                        f"{file.path}: a file of datamask's own work folder, which says of its rows that they are "
                        "no documents; give the corpus it was made of"
                    )
                groups = tuple(metadata.row_group(group).num_rows for group in range(metadata.num_row_groups))
            empty = sum(groups) == 0
        elif file.format == "arrow":
            recognise(schema_of(file.path), settings.columns, file.path, settings.drop)
        else:
            reading = sniff_reading(file.path, file.format, settings)
            part = Part(file.path, file.format, fingerprint, file.size, reading=reading)
            empty = _check_stream(part, settings.group_bytes)
            if file.format.startswith(("csv", "tsv")) and not empty:
                recognise(header(part), settings.columns, file.path, settings.drop)
            if file.format.startswith(("jsonl", "csv", "tsv")) and not empty:
                _check_rows(part, settings)
    except InputError as found:
        error = str(found)
    return FileFacts(file.size, file.stamp, relevant, fingerprint, groups, error, empty, reading)


def check_pointer(path: str, size: int) -> None:
    """Whether a file is what its name says and not a pointer of Git LFS, git-annex or Xet to it, by its first line.

    :raises InputError: it is a pointer; names the command that fetches the data.
    """
    if size > POINTER_BYTES:
        return
    with open_input(path) as file:
        first, _, rest = bytes(file.read(1024)).removeprefix(BOM_UTF8).lstrip().partition(b"\n")
    if first.startswith(_LFS):
        stated = [line[5:].strip() for line in rest.split(b"\n") if line.startswith(b"size ")]
        of = f" of {int(stated[0]):,} bytes" if stated and stated[0].isdigit() else ""
        raise InputError(f"{path}: a Git LFS pointer, not the file{of} it stands for; fetch it: git lfs pull")
    if len(first) < 1024 and ANNEX.encode() in first and first.startswith((b"/annex/", b".git/", b"../")):
        raise InputError(f"{path}: a git-annex pointer, not the file it stands for; fetch it: git annex get FILE")
    if first.startswith(_XET):
        raise InputError(f"{path}: a Git Xet pointer, not the file it stands for; fetch it: git lfs pull")


def _check_rows(part: Part, settings: Corpus) -> None:
    """Looks for a row that is well formed, and for the columns of a JSON lines file of one batch.

    :raises InputError: several rows and none is: the file is something else than its name says. A column is wrong, so
        that the file fails alone and not the group it would belong to.
    """
    told: Counter[str] = Counter()
    begins = None
    csv = part.format.startswith(("csv", "tsv"))
    found = batches(part, header(part)) if csv else json_rows(part)
    for rows, reasons, excerpts in found:
        if None in reasons:
            if not csv and next(found, None) is None:
                _check_fields([row for row, reason in zip(rows, reasons, strict=True) if not reason], part, settings)
            return
        for reason, excerpt in zip(reasons, excerpts, strict=True):
            if reason != "blank_line":
                begins = begins or f"row {told.total()} begins {excerpt!r}"
            told[str(reason)] += 1
    if told.total() - told["blank_line"] > 1:
        named = ", ".join(f"{count:,} {name} ({REASONS[name]})" for name, count in told.most_common())
        raise InputError(f"{part.path}: none of its {told.total():,} rows is a document: {named}; {begins}")


def _check_fields(rows: list[dict[str, Any]], part: Part, settings: Corpus) -> None:
    try:
        schema = pa.schema(list(pa.array(rows).type))
    except (pa.ArrowException, ValueError, OverflowError, TypeError):
        return  # fields of several types, which are looked at when the file is converted
    if schema:
        json_columns(schema, part, settings)


def _check_stream(part: Part, small: int) -> bool:
    """True when the (decompressed) file is empty."""
    with damage(part.path), open_stream(part.path, part.format, part.read_as.encoding) as stream:
        head = stream.read(BLOCK_BYTES)
        if part.format.startswith(("warc", "wet")):
            web.is_archive(bytes(head[:1000]), part.path)
        if part.format != "jsonl" and part.bytes < small:
            while stream.read(BLOCK_BYTES):
                pass
    return not head.strip()
