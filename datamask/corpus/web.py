"""WARC and WET archives: a row per record that is a document.

WARC (ISO 28500): what servers answered (`response`) and what was archived as it is (`resource`); the text of an HTML
page is what trafilatura takes for its content (Barbaresi, ACL 2021), as FineWeb does, but without its removal of
repeated paragraphs, which would make a text depend on those read before it. WET: Common Crawl's `conversion` records.
Requests, metadata and the like are no rows; an answer that is no page is a row in quarantine, with the reason, and so
is a record whose header is false, with its offset.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import logging
import re
import zlib
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import pyarrow as pa
import zstandard

from datamask.corpus.archives import Record, TornArchiveError, header_fields, read_records
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
_HEAD = re.compile(rb"[A-Z]+(?:/\d(?:\.\d+)?)?[ \t]+(\d{3})[^\n]*\n")
_HEAD_ENDS = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\n]*)?(\r?\n)")
_PAGE_BEGINS = re.compile(rb"(?:\xef\xbb\xbf)?\s*<[!?A-Za-z]")
_MARKS = [(codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")]
STATEFUL = ("iso-2022", "iso2022", "hz")  # encodings whose letters are bytes of ASCII
STEP = 1 << 16  # bytes decompressed at a time


def is_archive(head: bytes, path: str) -> None:
    """:raises InputError: it does not begin as one. :raises MissingExtraError: the readers are not installed."""
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


# ---------------------------------------------------------------- what a server answered
# Crawlers often store the decoded page under the server's own headers (Content-Encoding: gzip, Transfer-Encoding:
# chunked), and servers name encodings that their pages are not in. As in warcio, a header is followed where it fits.


class Answer(NamedTuple):
    status: int | None  # None: there is no status line; `body` is all there is
    kind: str  # its media type in small letters, without parameters
    charset: str | None
    body: bytes  # decoded, at most `limit` bytes


def parse_answer(block: bytes, limit: int) -> Answer:
    """The answer in a record's block.

    :param limit: bytes of a decoded body that are read.
    """
    begins = _HEAD.match(block)
    if not begins:
        return Answer(None, "text/html" if _PAGE_BEGINS.match(block) else "", None, block)
    ends = _HEAD_ENDS.search(block, begins.end() - 2)
    fields = header_fields(block[begins.end() : ends.start() if ends else len(block)])
    kind, charset = media_type(fields.get("content-type", ""))
    body = block[ends.end() :] if ends else b""
    if "chunked" in fields.get("transfer-encoding", "").lower():
        body = _unchunked(body)
    for name in reversed(fields.get("content-encoding", "").lower().split(",")):
        decode = DECODERS.get(name.strip())
        if decode and not (_PAGE_BEGINS.match(body) and b"\0" not in body[:STEP]):
            body = decode(body, limit) or body
    return Answer(int(begins[1]), kind, charset, body)


def media_type(value: str) -> tuple[str, str | None]:
    """(text/html, utf-8) of a Content-Type."""
    kind, _, parameters = value.partition(";")
    found = re.search(r"charset\s*=\s*[\"']?([\w.:+-]+)", parameters, re.IGNORECASE)
    return kind.strip().lower(), found[1] if found else None


def decoded_text(body: bytes, charset: str | None) -> str | None:
    """The body as text: by its mark, as UTF-8 where it is, else in the server's encoding where that fits."""
    for mark, name in _MARKS:
        if body.startswith(mark):
            return body.decode(name, "replace")
    named = (charset or "").lower()
    wide = named.startswith(("utf-16", "utf-32", "ucs")) and b"\0" in body
    if not wide and not named.startswith(STATEFUL):
        with contextlib.suppress(UnicodeDecodeError):
            return body.decode("utf-8")
    if named.startswith(("utf-16", "utf-32")) and not wide:
        return None
    with contextlib.suppress(LookupError, ValueError):
        return body.decode(named or "utf-8")
    return None


def _unchunked(body: bytes) -> bytes:
    """The body without the sizes of its chunks; as it is where it has none, and from where they end."""
    pieces: list[bytes] = []
    place = 0
    while found := _CHUNK.match(body, place):
        size = int(found[1], 16)
        ends = found.end() + size
        if ends < len(body) and body[ends : ends + 1] not in (b"\r", b"\n"):
            break
        pieces.append(body[found.end() : ends])
        place = ends + (2 if body[ends : ends + 2] == b"\r\n" else 1)
        if not size or place >= len(body):
            return b"".join(pieces)
    return b"".join([*pieces, body[place:]])


def _inflated(bits: int, whole: bool = False) -> Callable[[bytes, int], bytes]:
    """A decoder of zlib's formats; what comes before an error is kept, unless the whole must be sound."""

    def decode(body: bytes, limit: int) -> bytes:
        inflater = zlib.decompressobj(bits)
        pieces: list[bytes] = []
        held = 0
        try:
            for place in range(0, len(body), STEP):
                data = inflater.decompress(body[place : place + STEP], limit - held)
                pieces.append(data)
                held += len(data)
                if inflater.eof or held >= limit:
                    break
        except zlib.error:
            return b"" if whole else b"".join(pieces)
        return b"".join(pieces) if inflater.eof or not whole else b""

    return decode


def _deflated(body: bytes, limit: int) -> bytes:
    return _inflated(zlib.MAX_WBITS)(body, limit) or _inflated(-zlib.MAX_WBITS, whole=True)(body, limit)


def _brotli(body: bytes, limit: int) -> bytes:
    from fastwarc.stream_io import BrotliReader  # of the extra `web`

    try:
        return bytes(BrotliReader(io.BytesIO(body)).read(limit))
    except Exception:  # the library has errors of its own; the body is then taken as stored
        return b""


def _zstandard(body: bytes, limit: int) -> bytes:
    try:
        return zstandard.ZstdDecompressor().stream_reader(body, read_across_frames=True).read(limit)
    except zstandard.ZstdError:
        return b""


_gzip = _inflated(16 + zlib.MAX_WBITS)
DECODERS = {
    "gzip": _gzip, "x-gzip": _gzip, "deflate": _deflated, "x-deflate": _deflated, "br": _brotli, "zstd": _zstandard,
}  # fmt: skip
