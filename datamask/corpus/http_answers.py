"""What a server answered, as a web archive holds it: headers and body, read as stored where the headers are false.

Crawlers often store the decoded page under the server's own headers (Content-Encoding: gzip, Transfer-Encoding:
chunked), and servers name encodings that their pages are not in. As in warcio, a header is followed where it fits.
"""

from __future__ import annotations

import codecs
import contextlib
import io
import re
import zlib
from collections.abc import Callable
from typing import NamedTuple

import zstandard

from datamask.corpus.archives import header_fields

_HEAD = re.compile(rb"[A-Z]+(?:/\d(?:\.\d+)?)?[ \t]+(\d{3})[^\n]*\n")
_HEAD_ENDS = re.compile(rb"\r?\n\r?\n")
_CHUNK = re.compile(rb"[ \t]*([0-9A-Fa-f]{1,8})[ \t]*(?:;[^\n]*)?(\r?\n)")
_PAGE_BEGINS = re.compile(rb"(?:\xef\xbb\xbf)?\s*<[!?A-Za-z]")
_MARKS = [(codecs.BOM_UTF8, "utf-8-sig"), (codecs.BOM_UTF16_LE, "utf-16"), (codecs.BOM_UTF16_BE, "utf-16")]
STATEFUL = ("iso-2022", "iso2022", "hz")  # encodings whose letters are bytes of ASCII
STEP = 1 << 16  # bytes decompressed at a time


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
