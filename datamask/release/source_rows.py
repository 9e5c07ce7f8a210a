"""Rows of an input file, counted by other means than those that read it: other decoders, other libraries, the totals
that a format keeps of itself, and lines instead of fields.

`verify --against` holds the release's rows against them: what the reader does not see, verification by the same reader
would not see either.
"""

from __future__ import annotations

import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

from datamask.corpus.delimited import separator_of
from datamask.corpus.plan import Reading
from datamask.corpus.streams import MAX_WINDOW, PiecesStream
from datamask.storage import open_input

_CANNOT = (
    OSError, EOFError, ValueError, RuntimeError, NotImplementedError, LookupError, ImportError,
    lzma.LZMAError, zlib.error, zipfile.BadZipFile, zstandard.ZstdError, pa.ArrowException,
)  # fmt: skip


def count_rows(path: str, format_: str, reading: Reading | None) -> int | None:
    """Rows that a file has at least (of parquet, Arrow and JSON lines: exactly); None: no second way counts them."""
    kind, _, packed = format_.partition(".")
    reading = reading or Reading("utf-8")
    with open_input(path) as file:
        try:
            if kind == "parquet":  # the footer's own total, not the sum of its row groups
                return int(pq.read_metadata(file).num_rows)
            if kind == "arrow":  # the stream that a file with an index holds too; the reader goes by that index
                file.seek(8 if file.read(6) == b"ARROW1" else 0)
                return sum(batch.num_rows for batch in pa.ipc.open_stream(pa.PythonFile(file, mode="r")))
            stream = _decoded(file, packed)
            if kind in ("warc", "wet"):
                return _web_rows(stream, kind)
            if kind == "txt":
                return 1 if stream.read(1) else 0
            text = io.TextIOWrapper(stream, reading.encoding, "surrogateescape", newline=reading.line_end)
            if kind == "jsonl":
                return sum(1 for _ in text)
            rows = _rows(iter(text), reading.separator or separator_of(format_), reading.quotes)
        except _CANNOT:
            return None
    return rows - 1 if rows and reading.header else rows


def _decoded(file: Any, packed: str) -> Any:
    if packed == "gz":
        return gzip.GzipFile(fileobj=file)
    if packed == "bz2":
        return pa.CompressedInputStream(pa.PythonFile(file, mode="r"), "bz2")
    if packed == "zst":
        decoder = zstandard.ZstdDecompressor(_zstd_dictionary(file), max_window_size=MAX_WINDOW)
        return decoder.stream_reader(file, read_across_frames=True)
    if packed == "zip":
        archive = zipfile.ZipFile(file)
        return archive.open(max(archive.infolist(), key=lambda member: member.file_size))
    return io.BufferedReader(PiecesStream(_unpacked_xz(file))) if packed == "xz" else file


def _unpacked_xz(file: Any) -> Iterator[bytes]:
    """The bytes of one stream of xz after another, and of the padding between them nothing."""
    decoder, data = None, b""
    while data or (data := file.read(1 << 16)):
        if decoder is None:
            data = data.lstrip(b"\0")
            decoder = lzma.LZMADecompressor(lzma.FORMAT_XZ) if data else None
        if decoder:
            yield decoder.decompress(data)
            data, decoder = decoder.unused_data, None if decoder.eof else decoder


def _zstd_dictionary(file: Any) -> zstandard.ZstdCompressionDict | None:
    """What a .warc.zst carries in a skippable first frame, plain or compressed."""
    number, size = int.from_bytes(file.read(4), "little"), int.from_bytes(file.read(4), "little")
    data = file.read(size) if number == 0x184D2A5D else b""
    file.seek(0)
    if data.startswith(b"\x28\xb5\x2f\xfd"):
        data = zstandard.ZstdDecompressor().stream_reader(data).read()
    return zstandard.ZstdCompressionDict(data) if data else None


def _web_rows(stream: Any, kind: str) -> int:
    """Records that fastwarc finds; it passes over those whose header is false."""
    from fastwarc.warc import ArchiveIterator, WarcRecordType

    wanted = WarcRecordType.conversion
    if kind == "warc":
        wanted = wanted | WarcRecordType.response | WarcRecordType.resource
    return sum(1 for _ in ArchiveIterator(stream, record_types=wanted, parse_http=False, strict_mode=False))


def _rows(lines: Iterator[str], separator: str, quotes: str) -> int:
    """Lines, less those that strictly closed quotation marks join to the line before."""
    if quotes == "none":
        return sum(1 for _ in lines)
    mark = re.escape(separator)
    inside = '[^"]*(?:""[^"]*)*'
    ends = rf"(?={mark}|\r?\n?\Z)"
    field = rf'(?:"{inside}"{ends}|(?!")[^{mark}\n]*)'
    row, opened = re.compile(rf"(?:{field}{mark})*{field}\r?\n?\Z"), re.compile(rf'(?:{field}{mark})*"{inside}\Z')
    goes_on, closed = re.compile(rf"{inside}\Z"), re.compile(rf'{inside}"{ends}(?:{mark}|\r?\n?\Z)')
    rows = joined = 0  # joined: lines of a row that is still open
    for line in lines:
        if quotes == "backslash":
            line = re.sub(r"\\.", "xx", line)
        if joined:
            if goes_on.match(line):
                joined += 1
                continue
            if found := closed.match(line):
                rest = line[found.end() :]
                if row.match(rest):
                    rows, joined = rows + 1, 0
                    continue
                if opened.match(rest):
                    joined += 1
                    continue
            rows, joined = rows + joined, 0  # it was no row of several lines
        if opened.match(line) and not row.match(line):
            joined = 1
        else:
            rows += 1
    return rows + joined
