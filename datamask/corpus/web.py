"""WARC and WET archives: a row per record that is a document.

WARC (ISO 28500): what servers answered (`response`) and what was archived as it is (`resource`); the text of an HTML
page is what trafilatura takes for its content (Barbaresi, ACL 2021), as FineWeb does, but without its removal of
repeated paragraphs, which would make a text depend on those read before it. WET: Common Crawl's `conversion` records.
Requests, metadata and the like are no rows; an answer that is no page is a row in quarantine, with the reason.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from datamask.corpus.inputs import damage
from datamask.corpus.json_lines import MAX_LINE_BYTES
from datamask.corpus.plan import Part
from datamask.corpus.project import excerpt
from datamask.corpus.streams import open_stream
from datamask.errors import InputError, MissingExtraError, one_line

SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("text", "id", "dump", "url", "date", "file_path", "content_language")]
)
BATCH_ROWS = 500
BATCH_BYTES = 16 << 20
HTML = ("text/html", "application/xhtml+xml")
KINDS = {"warc": ("response", "resource", "conversion"), "wet": ("conversion",)}
_DUMP = re.compile(r"CC-(?:MAIN|NEWS)-\d{4}(?:-\d{2})?")

Rows = tuple[pa.RecordBatch, list[str | None], list[str | None]]


def check(head: bytes, path: str) -> None:
    """Whether a file begins as an archive does.

    :raises InputError: it does not. :raises MissingExtraError: the readers are not installed.
    """
    _readers()
    if head.strip() and not head.lstrip().startswith(b"WARC/"):
        raise InputError(
            f"{path}: its name says WARC, but it does not begin as one (WARC/1.0 …); "
            "rename it to what it is, or copy it again from its source"
        )


def batches(part: Part) -> Iterator[Rows]:
    """The archive's documents, in order: rows of SCHEMA, why each is none (or None), and its beginning then.

    :raises InputError: the archive is damaged or ends within a record.
    """
    warc, extract = _readers()
    wanted = KINDS[part.format.partition(".")[0]]
    mask = warc.WarcRecordType.no_type
    for name in (*wanted, "warcinfo"):
        mask = mask | getattr(warc.WarcRecordType, name)
    rows: list[dict[str, Any]] = []
    reasons: list[str | None] = []
    excerpts: list[str | None] = []
    size = 0
    dump = match.group() if (match := _DUMP.search(part.path)) else None
    with damage(part.path), open_stream(part.path, part.format) as stream:
        for record in warc.ArchiveIterator(_Bytes(stream), record_types=mask, parse_http=False, stream_detect=False):
            if record.record_type == warc.WarcRecordType.warcinfo:
                told = _DUMP.search(bytes(record.reader.read(1 << 16)).decode("utf-8", "replace"))
                dump = dump or (told.group() if told else None)
                continue
            row, reason, begins = _document(record, extract, part.path)
            rows.append({"dump": dump, "file_path": part.path.rsplit("/", 1)[-1], **row})
            reasons.append(reason)
            excerpts.append(begins)
            size += len(row.get("text") or "")
            if len(rows) >= BATCH_ROWS or size >= BATCH_BYTES:
                yield pa.RecordBatch.from_pylist(rows, SCHEMA), reasons, excerpts
                rows, reasons, excerpts, size = [], [], [], 0
    if rows:
        yield pa.RecordBatch.from_pylist(rows, SCHEMA), reasons, excerpts


class _Bytes:
    """What fastwarc asks of a stream; it takes bytes alone."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._place = 0
        self.read_all = False

    def read(self, size: int = -1) -> bytes:
        data = bytes(self._stream.read(size))
        self._place += len(data)
        return data

    def tell(self) -> int:
        return self._place

    def seekable(self) -> bool:
        return False

    def close(self) -> None:
        """The stream is closed by whoever opened it."""


def _readers() -> tuple[Any, Any]:
    try:
        import fastwarc.warc as warc
        from trafilatura import extract

        logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # a row's reason says what became of a page
    except ImportError as error:
        raise MissingExtraError("reading WARC and WET archives", "web") from error
    return warc, extract


def _document(record: Any, extract: Any, path: str) -> tuple[dict[str, Any], str | None, str | None]:
    """(columns, why it is no document, its beginning)."""
    headers = record.headers
    row = {
        "id": record.record_id,
        "url": headers.get("WARC-Target-URI"),
        "date": headers.get("WARC-Date"),
        "content_language": headers.get("WARC-Identified-Content-Language"),
    }
    if record.content_length > MAX_LINE_BYTES:
        return row, "line_too_long", row["url"]
    expected = record.content_length
    record.freeze()
    if record.content_length < expected:
        raise InputError(f"{path}: ends within the record {record.record_id}; copy it again from its source")
    try:
        if record.is_http:
            record.parse_http(auto_decode="all")
        body = bytes(record.reader.read())
    except (OSError, ValueError) as error:
        return row, "no_content", f"{one_line(error)} {row['url']}"
    kind = (record.http_content_type or headers.get("Content-Type") or "").partition(";")[0].strip().lower()
    if record.is_http_parsed and record.http_headers.status_code not in (200, 203):
        return row, "http_status", f"HTTP {record.http_headers.status_code} {row['url']}"
    if kind == "text/plain":
        return _plain(row, body)
    if kind not in HTML:
        return row, "not_html", f"{kind or 'no content type'} {row['url']}"
    try:
        text = extract(_decoded(body, record.http_charset), url=None, favor_precision=True, include_comments=False)
    except Exception as error:  # a page can be broken in any way
        return row, "no_content", f"{one_line(error)} {row['url']}"
    return ({**row, "text": text}, None, None) if text else (row, "no_content", row["url"])


def _plain(row: dict[str, Any], body: bytes) -> tuple[dict[str, Any], str | None, str | None]:
    try:
        return {**row, "text": body.decode("utf-8")}, None, None
    except UnicodeDecodeError:
        return row, "undecodable_text", excerpt(body)


def _decoded(body: bytes, charset: str | None) -> Any:
    """The page as text where the server named an encoding that fits; else bytes: trafilatura finds their encoding."""
    if charset:
        try:
            return body.decode(charset)
        except (LookupError, UnicodeDecodeError):
            pass
    return body
