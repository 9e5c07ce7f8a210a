"""WARC and WET archives: a row per record that is a document.

WARC (ISO 28500): what servers answered (`response`) and what was archived as it is (`resource`); the text of an HTML
page is what trafilatura takes for its content (Barbaresi, ACL 2021), as FineWeb does, but without its removal of
repeated paragraphs, which would make a text depend on those read before it. WET: Common Crawl's `conversion` records.
Requests, metadata and the like are no rows; an answer that is no page is a row in quarantine, with the reason, and so
is a record whose header is false, with its offset.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Iterator
from typing import Any

import pyarrow as pa

from datamask.corpus.archives import Record, TornArchiveError, read_records
from datamask.corpus.http_answers import decoded_text, media_type, parse_answer
from datamask.corpus.json_lines import MAX_LINE_BYTES
from datamask.corpus.plan import Part
from datamask.corpus.project import Rows, Told, excerpt, in_batches
from datamask.corpus.streams import damage, open_stream
from datamask.errors import InputError, MissingExtraError, one_line

SCHEMA = pa.schema(
    [(name, pa.string()) for name in ("text", "id", "dump", "url", "date", "file_path", "content_language")]
)
BATCH_ROWS = 500
BATCH_BYTES = 16 << 20
HTML = ("text/html", "application/xhtml+xml")
KINDS = {"warc": ("response", "resource", "conversion"), "wet": ("conversion",)}
_DUMP = re.compile(r"CC-(?:MAIN|NEWS)-\d{4}(?:-\d{2})?")


def is_archive(head: bytes, path: str) -> None:
    """Whether a file begins as an archive does.

    :raises InputError: it does not. :raises MissingExtraError: the readers are not installed.
    """
    _extractor()
    if head.strip() and not head.lstrip().startswith(b"WARC/"):
        raise InputError(
            f"{path}: its name says WARC, but it does not begin as one (WARC/1.0 …); "
            "rename it to what it is, or copy it again from its source"
        )


def batches(part: Part) -> Iterator[Rows]:
    """The archive's documents, in order: rows of SCHEMA, why each is none (or None), and its beginning then.

    :raises InputError: the archive is damaged or ends within a record.
    """
    try:
        for rows, reasons, excerpts in in_batches(_told(part), BATCH_ROWS, BATCH_BYTES):
            yield pa.RecordBatch.from_pylist(rows, SCHEMA), reasons, excerpts
    except TornArchiveError as error:
        said = f"ends within the record at byte {error.args[0]:,}"
        raise InputError(f"{part.path}: {said}; copy it again from its source") from error


def _told(part: Part) -> Iterator[Told[dict[str, Any]]]:
    extract = _extractor()
    kinds = (*KINDS[part.format.partition(".")[0]], "warcinfo")
    dump = match.group() if (match := _DUMP.search(part.path)) else None

    def wanted(headers: dict[str, str]) -> bool:
        return headers["warc-type"].lower() in kinds

    with damage(part.path):
        for record in read_records(lambda: open_stream(part.path, part.format), MAX_LINE_BYTES, wanted):
            if not record.problem and not wanted(record.headers):
                continue
            if record.headers.get("warc-type", "").lower() == "warcinfo" and not record.problem:
                told = _DUMP.search((record.block or b"")[: 1 << 16].decode("utf-8", "replace"))
                dump = dump or (told.group() if told else None)
                continue
            row, reason, begins = _document(record, extract)
            row = {"dump": dump, "file_path": part.path.rsplit("/", 1)[-1], **row}
            yield row, reason, begins, len(row.get("text") or "")


def _extractor() -> Any:
    try:
        import fastwarc  # noqa: F401
        from trafilatura import extract
    except ImportError as error:
        raise MissingExtraError("reading WARC and WET archives", "web") from error
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # a row's reason says what became of a page
    return extract


def _document(record: Record, extract: Any) -> tuple[dict[str, Any], str | None, str | None]:
    """(columns, why it is no document, its beginning)."""
    headers = record.headers
    row: dict[str, Any] = {
        "id": headers.get("warc-record-id"),
        "url": headers.get("warc-target-uri"),
        "date": headers.get("warc-date"),
        "content_language": headers.get("warc-identified-content-language"),
    }
    where = row["url"] or row["id"] or f"byte {record.offset:,}"
    if record.problem:
        return row, "false_record", f"byte {record.offset:,}: {record.problem} ({where})"
    if record.block is None:
        return row, "line_too_long", where
    kind, charset = media_type(headers.get("content-type", ""))
    body = record.block
    if kind == "application/http":
        status, kind, charset, body = parse_answer(body, MAX_LINE_BYTES)
        if status is not None and status not in (200, 203):
            return row, "http_status", f"HTTP {status} {where}"
    if kind == "text/plain":
        text = decoded_text(body, charset)
        return ({**row, "text": text}, None, None) if text is not None else (row, "undecodable_text", excerpt(body))
    if kind not in HTML:
        return row, "not_html", f"{kind or 'no content type'} {where}"
    try:
        # of bytes, trafilatura finds the encoding
        page = decoded_text(body, charset) or body
        text = extract(page, url=None, favor_precision=True, include_comments=False)
    except Exception as error:  # a page can be broken in any way
        return row, "no_content", f"{one_line(error)} {where}"
    return ({**row, "text": text}, None, None) if text else (row, "no_content", where)
