"""The records of a WARC archive (ISO 28500), each told by its offset; one with a false header costs no other.

for record in read_records(opened):        # opened: a function that opens the archive, decompressed
    record.headers["warc-type"], record.block

A header that gives a false length, or none, is seen by what follows: neither a line's end nor another record. The next
record is then found by its own first lines. warcio and fastwarc go on after such a record too, without a word of it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

BLOCK_BYTES = 4 << 20
MAX_HEADER_BYTES = 1 << 20
MAX_FIRST_LINES = 256  # bytes that show that a record begins
_MAGIC = b"WARC/"
_BEGINS = re.compile(rb"WARC/\d\.\d+\r?\n(?=[A-Za-z][A-Za-z0-9-]*[ \t]*:)")
_HEADER_ENDS = re.compile(rb"\r?\n\r?\n")
_FOLDED = re.compile(rb"\r?\n[ \t]+")


class TornArchiveError(Exception):
    """The archive ends within a record."""


@dataclass(frozen=True)
class Record:
    """A record, or the place of one that is none."""

    offset: int  # of its first byte in the decompressed archive
    headers: dict[str, str]  # names in small letters
    block: bytes | None = None  # None: longer than the limit, not wanted, or false
    problem: str | None = None  # what is false


def header_fields(head: bytes) -> dict[str, str]:
    """The fields of a WARC or HTTP header, names in small letters; of one that stands twice the first."""
    found: dict[str, str] = {}
    for line in _FOLDED.sub(b" ", head).split(b"\n"):
        name, colon, value = line.partition(b":")
        if colon:
            found.setdefault(name.strip().lower().decode("latin-1"), value.strip().decode("utf-8", "replace"))
    return found


def read_records(
    opened: Callable[[], AbstractContextManager[Any]], limit: int, wanted: Callable[[dict[str, str]], bool]
) -> Iterator[Record]:
    """Every record in order.

    :param opened: opens the archive's bytes; again where a record of more than `limit` bytes was none.
    :param limit: bytes of a block that is read.
    :param wanted: says by the headers whether the block is.
    :raises TornArchiveError: the archive ends within a record.
    """
    place: int | None = 0
    while place is not None:
        with opened() as stream:
            place = yield from _Pass(stream, limit, wanted).records(place)


class _Pass:
    def __init__(self, stream: Any, limit: int, wanted: Callable[[dict[str, str]], bool]) -> None:
        self._stream, self._limit, self._wanted = stream, limit, wanted
        self._data = b""  # what is held
        self._at = 0  # in it
        self._before = 0  # bytes of the archive before it
        self._ended = False  # nothing is left in the stream

    @property
    def _offset(self) -> int:
        return self._before + self._at

    def records(self, place: int) -> Generator[Record, None, int | None]:
        """The records from the next that begins behind `place`, or at 0; the place to read again from, if need be."""
        if place:
            self._skip(place)
            self._find_next()
        while self._skip_line_ends():
            offset, headers = self._offset, {}
            if self._peek(len(_MAGIC)) != _MAGIC:
                self._at += 1
                self._find_next()
                yield Record(offset, {}, problem=f"{self._offset - offset} bytes that are no record")
                continue
            ends = self._header_end()
            cut = not ends or _BEGINS.search(self._data, self._at + len(_MAGIC), ends.start())
            if ends and not cut:
                headers = header_fields(self._data[self._at : ends.start()])
                self._at = ends.end()
            length = headers.get("content-length", "")
            if not (length.isascii() and length.isdigit()) or "warc-type" not in headers:
                self._at += len(_MAGIC) if cut else 0
                if not self._find_next() and not ends:
                    raise TornArchiveError(offset)
                yield Record(offset, headers, problem="its header has no type, no length or no end")
                continue
            start, size = self._offset, int(length)
            block = None
            if size <= self._limit:
                self._fill(size + len(_MAGIC))  # so that the block is held until it is known to be one
                if self._wanted(headers):
                    block = self._data[self._at : self._at + size]
            self._skip(size)
            if problem := self._problem_behind(start, size):
                if self._before > start:  # the block is not held
                    yield Record(offset, headers, problem=problem)
                    return start
                self._at = start - self._before
                found = self._find_next()
                if not found and self._offset < start + size and not self._data.endswith(b"\n\r\n"):
                    raise TornArchiveError(offset)
                yield Record(offset, headers, problem=f"{problem}; the next begins after {self._offset - start:,}")
                continue
            yield Record(offset, headers, block)
        return None

    def _problem_behind(self, start: int, size: int) -> str | None:
        """What shows that the record does not end here; None: it does."""
        if self._offset < start + size:
            return f"its Content-Length says {size:,} bytes, beyond the archive's end"
        behind = self._peek(len(_MAGIC))
        if behind[:1] in (b"\n", b"\r", b"") or behind == _MAGIC:
            return None
        return f"its Content-Length says {size:,} bytes, where it does not end"

    # ---------------------------------------------------------------- bytes

    def _fill(self, size: int) -> int:
        """Holds `size` bytes from here on, fewer at the end; their number."""
        if len(self._data) - self._at < size and not self._ended:
            pieces = [self._data[self._at :]]
            held = len(pieces[0])
            while held < size and (more := bytes(self._stream.read(max(BLOCK_BYTES, size - held)))):
                pieces.append(more)
                held += len(more)
            self._ended = held < size
            self._before += self._at
            self._data, self._at = b"".join(pieces), 0
        return len(self._data) - self._at

    def _peek(self, size: int) -> bytes:
        self._fill(size)
        return self._data[self._at : self._at + size]

    def _skip(self, size: int) -> None:
        """Goes `size` bytes on, or to the end; holds a block of them at most that was not held before."""
        while size > len(self._data) - self._at:
            size -= len(self._data) - self._at
            self._at = len(self._data)
            if not self._fill(1):
                return
        self._at += size

    def _skip_line_ends(self) -> bool:
        """To what is no end of a line; False: the archive has ended."""
        while self._fill(1):
            if self._data[self._at : self._at + 1] not in (b"\r", b"\n"):
                return True
            self._at += 1
        return False

    def _header_end(self) -> re.Match[bytes] | None:
        size = 1 << 12
        while True:
            held = self._fill(size)
            found = _HEADER_ENDS.search(self._data, self._at)
            if found or held < size or size > MAX_HEADER_BYTES:
                return found
            size *= 4

    def _find_next(self) -> bool:
        """To the next place where a record begins, or the archive's end."""
        while self._fill(MAX_FIRST_LINES):
            if found := _BEGINS.search(self._data, self._at):
                self._at = found.start()
                return True
            ended = len(self._data) - self._at < MAX_FIRST_LINES
            self._at = len(self._data) if ended else len(self._data) - MAX_FIRST_LINES + 1
        return False
